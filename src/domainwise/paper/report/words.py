"""What the numbers say, in sentences: the part of a report that is read first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from domainwise.jobs.statistics import PAIRED_CAVEAT, in_words, p_text
from domainwise.paper.cases import SETTINGS
from domainwise.paper.methods import METHODS
from domainwise.paper.report.summary import LEVEL, CaseView, CellView, RunSummary, TableView

#: Each setting in words.
PARAMETERS = {"paper": "the paper's parameters", "tuned": "tuned parameters"}
#: Means of fewer repeats are shown, but not counted as agreeing with the paper or not.
MIN_REPEATS = 5


def in_short(run: RunSummary) -> list[str]:
    """The whole summary, sentence by sentence."""
    parts = (what_was_run, unfinished, how_close, who_wins, how_sure)
    return [sentence for part in parts for sentence in part(run)]


def what_was_run(run: RunSummary) -> list[str]:
    """Size of the run, in words."""
    cases = {case.case.key for case in run.cases()}
    names = join([table.table.title for table in run.tables])
    tables = count(len(run.tables), "table").capitalize()
    sentences = [
        f"{tables} of the paper, {count(len(cases), 'case')} in all ({names}). Every"
        " method is fitted on source domains and judged on domains it has not"
        f" seen. {_repeats(run)} Root seed {run.header.get('root_seed')}."
    ]
    if run.quick:
        sentences.append(
            "This was a quick run, with few repeats and thinned-out domains: it shows that"
            " everything works and what a report looks like. Its numbers are not to be compared"
            " with the paper's."
        )
    stand_ins = [table.table.title for table in run.tables if table.table.stand_in]
    if stand_ins:
        sentences.append(
            f"{join(stand_ins)}: the paper's data are not public, other data stand in. Their"
            " numbers are shown beside the paper's but not counted as a comparison."
        )
    if run.failures:
        sentences.append(f"{count(len(run.failures), 'fit')} failed; see the end of this report.")
    return sentences


def unfinished(run: RunSummary) -> list[str]:
    """What the protocol asks for and the results file does not hold (yet)."""
    missing: list[str] = []
    for table in run.tables:
        repeats = {(view.case.key, view.setting): view.n_repeats for view in table.cases}
        for setting in SETTINGS:
            # Cases that lack the same are named together.
            lacking: dict[tuple[int, int], list[str]] = {}
            for case in table.table.cases:
                sized = case.quick() if run.quick else case
                planned = sized.repeats if setting == "paper" else sized.tuned_repeats
                have = repeats.get((case.key, setting), 0)
                if have < planned:
                    lacking.setdefault((have, planned), []).append(case.title)
            for (have, planned), titles in lacking.items():
                all_of_them = len(titles) == len(table.table.cases)
                which = "" if all_of_them else f" ({join(titles)})"
                missing.append(f"{table.table.title}{which}, {setting}: {have} of {planned}")
    if not missing:
        return []
    return [
        "Fewer repeats than the protocol asks for were run (the same command in the same folder"
        f" adds the others): {'; '.join(missing)}."
    ]


def how_close(run: RunSummary) -> list[str]:
    """How many cells agree with the paper."""
    if run.quick:
        return []
    inside = {
        table.table.title: [cell.within is True for _, _, cell in cells]
        for table in run.tables
        if (cells := [cell for case in table.in_setting("paper") for cell in compared(case)])
    }
    if not inside:
        return []
    total, within = sum(map(len, inside.values())), sum(map(sum, inside.values()))
    parts = [f"{title} {sum(each)} of {len(each)}" for title, each in inside.items()]
    return [
        f"Of {total} cells whose data are the paper's and that have {MIN_REPEATS} repeats or more,"
        f" {within} lie within one of the paper's standard deviations ({join(parts)})."
    ]


def who_wins(run: RunSummary) -> list[str]:
    """The best method of each table, by setting."""
    told = [(table.table.title, headline(table)) for table in run.tables]
    return [f"{title}: {text[:1].lower()}{text[1:]}" for title, text in told]


def headline(table: TableView) -> str:
    """Who wins this table, in one sentence."""
    text = "; ".join(
        f"with {parameters} {_winners(cases)}"
        for setting, parameters in PARAMETERS.items()
        if (cases := table.in_setting(setting))
    )
    return f"{text[:1].upper()}{text[1:]}.{_beats_nothing(table)}"


def how_sure(run: RunSummary) -> list[str]:
    """Paired tests of DCM against its main rivals, and ranks over data sets."""
    sentences = []
    for setting, parameters in PARAMETERS.items():
        cases = run.cases(setting)
        parts = [text for rival in ("svm", "coir") if (text := record(cases, rival))]
        if parts:
            sentences.append(f"With {parameters}, DCM {join(parts)}.")
    if sentences:
        sentences.append(f"A difference counts where Wilcoxon's p is below 0.05; {PAIRED_CAVEAT}.")
    for setting, ranking in run.rankings.items():
        if ranking.p_value is None or ranking.n_datasets < 3:
            continue
        order = sorted(zip(ranking.average_ranks, ranking.methods, strict=True))
        listed = join([f"{name} {rank:.1f}" for rank, name in order])
        fewest = min(case.n_repeats for case in run.cases(setting))
        few = f" Some of the means behind them have only {count(fewest, 'repeat')}."
        few = few if fewest < MIN_REPEATS else ""
        verdict = "do" if ranking.p_value < LEVEL else "do not"
        sentences.append(
            f"Average ranks over {ranking.n_datasets} data sets, {setting} setting: {listed}."
            f" The methods {verdict} differ beyond chance (Friedman p = {p_text(ranking.p_value)});"
            f" ranks closer than {ranking.critical_difference:.1f} cannot be told apart." + few
        )
    return sentences


def compared(case: CaseView) -> list[tuple[str, str, CellView]]:
    """Cells that can be compared with the paper: (method label, metric label, cell)."""
    return [
        (method.label, metric.label, method.cells[metric.key])
        for method in case.methods
        for metric in case.metrics
        if metric.key in method.cells
        and method.cells[metric.key].within is not None
        and method.cells[metric.key].ours.n >= MIN_REPEATS
    ]


def join(parts: Sequence[str]) -> str:
    """A, B and C."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def count(number: int, noun: str) -> str:
    """One table, two tables."""
    return f"{in_words(number)} {noun}" + ("" if number == 1 else "s")


def _repeats(run: RunSummary) -> str:
    parts = []
    for setting in SETTINGS:
        counts = sorted({case.n_repeats for case in run.cases(setting)})
        if counts:
            span = f"{counts[0]} to {counts[-1]} repeats"
            shown = span if len(counts) > 1 else count(counts[0], "repeat")
            words = "with the paper's parameters" if setting == "paper" else "with tuned ones"
            parts.append(f"{shown} {words}")
    return (join(parts) + ".").capitalize() if parts else ""


def _winners(cases: Sequence[CaseView]) -> str:
    winners = [[method.label for method in case.all_best()] for case in cases]
    order = Counter(label for labels in winners for label in labels).most_common()
    if not order:
        return "nothing was measured"
    if len(order) == 1:
        return f"{order[0][0]} has the best mean" + (" in every case" if len(cases) > 1 else "")
    ties = ", ties counted for each" if any(len(labels) > 1 for labels in winners) else ""
    names = join([f"{name} ({n} of {len(cases)})" for name, n in order])
    return f"the best mean is that of {names}{ties}"


def _beats_nothing(table: TableView) -> str:
    """Say so where a constant is as good as the learners."""
    for case in table.cases:
        constant, best = case.find("majority"), case.best()
        if constant is not None and best is constant:
            return f" No method beats the {constant.label} predictor on {case.case.title}."
    return ""


def record(cases: Sequence[CaseView], rival: str) -> str:
    """In how many cases DCM is better and worse than a rival, beyond chance."""
    views = [(case, case.find(rival)) for case in cases]
    ahead = [
        case.advantage(view)
        for case, view in views
        if view is not None and view.paired is not None and view.paired.p_value is not None
    ]
    if not ahead:
        return ""
    name = METHODS[rival].label if rival != "svm" else "the SVM"
    better, worse = sum(gain > 0 for gain in ahead), sum(gain < 0 for gain in ahead)
    return f"is better than {name} in {better} and worse in {worse} of {len(ahead)} cases"
