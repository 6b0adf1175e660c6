"""The results in sentences: a summary, what reproduces, and reasons for differences.

Longer sentences are in ``texts.toml``; here their numbers are computed and filled in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from domainwise.paper.methods import METHODS
from domainwise.paper.protocols import SETTINGS, read_toml
from domainwise.paper.summary import LEVEL, CaseView, CellView, RunSummary, TableView
from domainwise.scoring.statistics import PAIRED_CAVEAT, in_words, p_text

TEXTS = read_toml("texts.toml")
#: Each setting in words.
PARAMETERS = {"paper": "the paper's parameters", "tuned": "tuned parameters"}
#: Means over fewer repeats are shown, but not compared with the paper.
MIN_REPEATS = 5


def in_short(run: RunSummary) -> list[str]:
    """The whole summary, sentence by sentence."""
    parts = (what_was_run, unfinished, agreement, best_methods, significance)
    return [sentence for part in parts for sentence in part(run)]


def what_was_run(run: RunSummary) -> list[str]:
    """Size of the run, in words."""
    repeats = []
    for setting, text in (("paper", "with the paper's parameters"), ("tuned", "with tuned ones")):
        counts = sorted({case.n_repeats for case in run.cases(setting)})
        if len(counts) > 1:
            repeats.append(f"{counts[0]} to {counts[-1]} repeats {text}")
        elif counts:
            repeats.append(f"{count(counts[0], 'repeat')} {text}")
    sentences = [
        TEXTS["what_was_run"].format(
            tables=count(len(run.tables), "table").capitalize(),
            cases=count(len({case.case.key for case in run.cases()}), "case"),
            names=join([table.table.title for table in run.tables]),
            repeats=f"{join(repeats)}.".capitalize(),
            seed=run.header.get("root_seed"),
        )
    ]
    if run.quick:
        sentences.append(TEXTS["quick"])
    if stand_ins := [table.table.title for table in run.tables if table.table.stand_in]:
        sentences.append(TEXTS["stand_ins"].format(names=join(stand_ins)))
    if run.failures:
        sentences.append(TEXTS["failures"].format(fits=count(len(run.failures), "fit")))
    return sentences


def unfinished(run: RunSummary) -> list[str]:
    """Repeats of the protocol that are not in the results file (yet)."""
    missing: list[str] = []
    for table in run.tables:
        repeats = {(view.case.key, view.setting): view.n_repeats for view in table.cases}
        for setting in SETTINGS:
            # Cases with the same numbers are listed together.
            lacking: dict[tuple[int, int], list[str]] = {}
            for case in table.table.cases:
                planned = (case.quick() if run.quick else case).planned_repeats(setting)
                done = repeats.get((case.key, setting), 0)
                if done < planned:
                    lacking.setdefault((done, planned), []).append(case.title)
            for (done, planned), titles in lacking.items():
                which = "" if len(titles) == len(table.table.cases) else f" ({join(titles)})"
                missing.append(f"{table.table.title}{which}, {setting}: {done} of {planned}")
    return [TEXTS["unfinished"].format(missing="; ".join(missing))] if missing else []


def agreement(run: RunSummary) -> list[str]:
    """How many cells agree with the paper."""
    inside = {
        table.table.title: [cell.within is True for _, _, cell in cells]
        for table in run.tables
        if (cells := [cell for case in table.in_setting("paper") for cell in compared(case)])
    }
    if run.quick or not inside:
        return []
    total, within = sum(map(len, inside.values())), sum(map(sum, inside.values()))
    tables = join([f"{title} {sum(cells)} of {len(cells)}" for title, cells in inside.items()])
    text = TEXTS["agreement"]
    return [text.format(total=total, within=within, least=MIN_REPEATS, tables=tables)]


def compared(case: CaseView) -> list[tuple[str, str, CellView]]:
    """Cells that can be compared with the paper: (method label, metric label, cell)."""
    return [
        (method.label, metric.label, cell)
        for method in case.methods
        for metric in case.metrics
        if (cell := method.cells.get(metric.key)) is not None
        and cell.within is not None
        and cell.ours.n >= MIN_REPEATS
    ]


def best_methods(run: RunSummary) -> list[str]:
    """The best method of each table, by setting."""
    lines = [(table.table.title, headline(table)) for table in run.tables]
    return [f"{title}: {text[:1].lower()}{text[1:]}" for title, text in lines]


def headline(table: TableView) -> str:
    """The best methods of a table, in one sentence."""
    parts = []
    for setting, parameters in PARAMETERS.items():
        winners = [[method.label for method in c.all_best()] for c in table.in_setting(setting)]
        order = Counter(label for labels in winners for label in labels).most_common()
        if len(order) > 1:
            names = join([f"{name} ({n} of {len(winners)})" for name, n in order])
            ties = ", ties counted for each" if max(map(len, winners)) > 1 else ""
            parts.append(f"with {parameters} the best mean belongs to {names}{ties}")
        elif order:
            everywhere = " in every case" if len(winners) > 1 else ""
            parts.append(f"with {parameters} {order[0][0]} has the best mean{everywhere}")
        elif winners:
            parts.append(f"with {parameters} nothing was measured")
    text = "; ".join(parts)
    for case in table.cases:
        best = case.best()
        if best is not None and best.key == "majority":
            text += f". No method beats the {best.label} predictor on {case.case.title}"
            break
    return f"{text[:1].upper()}{text[1:]}."


def significance(run: RunSummary) -> list[str]:
    """Paired tests of DCM against its main rivals, and ranks over data sets."""
    sentences = []
    for setting, parameters in PARAMETERS.items():
        parts = [text for rival in ("svm", "coir") if (text := record(run.cases(setting), rival))]
        if parts:
            sentences.append(f"With {parameters}, DCM {join(parts)}.")
    if sentences:
        sentences.append(TEXTS["tested"].format(caveat=PAIRED_CAVEAT))
    for setting, ranking in run.rankings.items():
        if ranking.p_value is None or ranking.n_datasets < 3:
            continue
        order = sorted(zip(ranking.average_ranks, ranking.methods, strict=True))
        listed = join([f"{name} {rank:.1f}" for rank, name in order])
        fewest = min(case.n_repeats for case in run.cases(setting))
        text = TEXTS["ranks"] + (TEXTS["few_repeats"] if fewest < MIN_REPEATS else "")
        sentences.append(
            text.format(
                n=ranking.n_datasets,
                setting=setting,
                listed=listed,
                verdict="differ" if ranking.p_value < LEVEL else "do not differ",
                p=p_text(ranking.p_value),
                critical=ranking.critical_difference,
                repeats=count(fewest, "repeat"),
            )
        )
    return sentences


def record(cases: Sequence[CaseView], rival: str) -> str:
    """In how many cases DCM is significantly better and worse than a rival."""
    advantages = [
        case.advantage(view)
        for case in cases
        if (view := case.find(rival)) is not None
        and view.paired is not None
        and view.paired.p_value is not None
    ]
    if not advantages:
        return ""
    name = METHODS[rival].label if rival != "svm" else "the SVM"
    better, worse = sum(a > 0 for a in advantages), sum(a < 0 for a in advantages)
    return f"is better than {name} in {better} and worse in {worse} of {len(advantages)} cases"


def join(parts: Sequence[str]) -> str:
    """Join parts as in "A, B and C"."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def count(number: int, noun: str) -> str:
    """Return a number and its noun in words, such as "two tables"."""
    return f"{in_words(number)} {noun}" + ("" if number == 1 else "s")


# What reproduces, what does not, and why ----------------------------------------------------------


def findings(run: RunSummary) -> dict[str, list[str]]:
    """Lists of sentences by title, without empty lists."""
    within, outside = [], []
    for case in run.cases("paper"):
        cells = compared(case)
        inside = [f"{method} {metric}" for method, metric, cell in cells if cell.within]
        differences = []
        for method, metric, cell in cells:
            if not cell.within and cell.paper is not None and cell.difference is not None:
                sds = abs(cell.difference) / cell.paper[1] if cell.paper[1] else float("inf")
                differences.append(f"{method} {metric} {cell.difference:+.4g} ({sds:.1f} sd)")
        within += [f"{_name(case)}: {join(inside)}."] if inside else []
        outside += [f"{_name(case)}: {join(differences)}."] if differences else []
    parts = {
        "The SVM column of the synthetic table": svm_column(run),
        "Within one of the paper's standard deviations": within,
        "Outside (difference ours − paper, and in the paper's standard deviations)": outside,
        "Reasons for differences": reasons(run),
        "Effect of the ridge (1e-5 / 1e-3 / ∞)": ridge_paths(run),
    }
    return {title: entries for title, entries in parts.items() if entries}


def svm_column(run: RunSummary) -> list[str]:
    """Differences in the synthetic SVM column, for which the paper gives all parameters."""
    gaps = [
        (case.case.title, gap)
        for case in run.cases("paper")
        if case.case.table == "synthetic" and (view := case.find("svm")) is not None
        if (gap := view.cells["accuracy"].difference) is not None
    ]
    if not gaps:
        return []
    far = [f"{title} ({gap:+.2f})" for title, gap in gaps if abs(gap) > 1.5]
    outside = f"; outside: {join(far)}" if far else ""
    text: str = TEXTS["svm_column"].format(close=len(gaps) - len(far), n=len(gaps), outside=outside)
    cells = [
        f"{row['mean']:.2f} ± {row['standard_error']:.2f} against"
        f" {case.case.paper['svm']['accuracy'][0]:.2f} ({case.case.title})"
        for case in run.cases("paper")
        if (row := run.long_runs.get(case.case.key)) is not None and "svm" in case.case.paper
    ]
    if cells:
        repeats = next(iter(run.long_runs.values()))["repeats"]
        text += TEXTS["long_run"].format(repeats=repeats, cells=join(cells))
    return [text]


def reasons(run: RunSummary) -> list[str]:
    """Reasons for differences, with the figures of this run where available."""
    # COIR is DCM with domain_weight 0.
    against_coir = record(run.cases("paper"), "coir")
    weight = TEXTS["weight"].format(record=against_coir) if against_coir else ""
    lines = [text.format(weight=weight) for text in TEXTS["reasons"]]
    parts = []
    for case in run.cases("paper"):
        views = {view.key: view for view in case.methods if case.case.table == "parkinsons"}
        if {"majority", "dcm", "coir"} <= set(views) and (paired := views["coir"].paired):
            means = {key: view.cells["rmse"].ours.mean for key, view in views.items()}
            title, p = case.case.title, p_text(paired.p_value)
            parts.append(TEXTS["parkinsons_case"].format(title=title, p=p, **means))
    lines += [TEXTS["parkinsons"].format(cases="; ".join(parts))] if parts else []
    stand_ins = [table.table for table in run.tables if table.table.stand_in]
    return lines + [f"**{table.title}** is a stand-in. {table.stand_in}" for table in stand_ins]


def ridge_paths(run: RunSummary) -> list[str]:
    """COIR and DCM at ridge 1e-5, 1e-3 and infinity, and Algorithm 1: a sentence for each case."""
    lines = []
    for case in run.cases("paper"):
        metric = case.primary
        cells = {view.key: view.cells.get(metric.key) for view in case.methods}
        means = {key: metric.format(cell.ours.mean) for key, cell in cells.items() if cell}
        parts = []
        for name in ("coir", "dcm"):
            path = [f"{name}{suffix}" for suffix in ("_small", "", "_inf")]
            if all(key in means for key in path):
                parts.append(f"{name.upper()} {' / '.join(means[key] for key in path)}")
        if parts and "algorithm1" in means:
            parts.append(f"Algorithm 1 {means['algorithm1']}")
        if parts:
            lines.append(f"{_name(case)}, {metric.label}: {', '.join(parts)}.")
    return lines


def _name(case: CaseView) -> str:
    return f"{case.case.table.capitalize()}, {case.case.title}"
