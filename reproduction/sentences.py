"""Sentences in the report: a summary, and differences from the paper with their reasons.

The texts are in ``texts.toml``; this module computes the numbers in them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from domainwise.evaluation.html import TextCell, TextTable
from domainwise.held_out.scoring.statistics import in_words, p_text
from reproduction.methods import METHODS
from reproduction.protocols import SETTINGS, TABLES, read_toml
from reproduction.ranks import PAIRED_CAVEAT
from reproduction.summary import (
    LEVEL,
    MIN_REPEATS,
    CaseView,
    CellView,
    MethodView,
    RunSummary,
    TableView,
)

TEXTS = read_toml("texts.toml")
PARAMETER_TEXTS = {"paper": "the paper's parameters", "tuned": "tuned parameters"}
RIDGES = ("ridge 1e-5", "an infinite ridge")  #: of the variants ``_small`` and ``_inf``
FIRST_TABLE = 3  #: number of the first table with results; Tables 1 and 2 are algorithms
#: Pairs of projections with the domain term and without it (COIR is DCM with weight 0).
PAIRS = (("dcm", "coir"), ("fastdcm", "fastcoir"))


def describe_run(run: RunSummary) -> list[str]:
    """Describe which tables were run on which data, and with how many repeats."""
    phrases = []
    for setting, parameter_text in PARAMETER_TEXTS.items():
        if repeat_counts := sorted({case.n_repeats for case in run.cases(setting)}):
            low, high = repeat_counts[0], repeat_counts[-1]
            range_text = f"{low}" if low == high else f"{low} to {high}"
            phrases.append(f"{range_text} with {parameter_text}")
    own, substitutes = (
        [view.table.title for view in run.tables if bool(view.table.stand_in) is stand_in]
        for stand_in in (False, True)
    )
    note = ""
    if substitutes:
        number = in_words(len(substitutes))
        note = TEXTS["substitutes"].format(number=number, names=join(substitutes))
    sentences = [
        TEXTS["reproduced"].format(
            own=count(len(own), "table").capitalize() if own else "No table",
            own_names=f" ({join(own)})" if own else "",
            substitutes=note,
            cases=count(len({case.case.key for case in run.cases()}), "case"),
            repeats=join(phrases),
            seed=run.header.get("root_seed"),
        )
    ]
    if run.quick:
        sentences.append(TEXTS["quick"])
    if run.failures:
        fit_count = count(len(run.failures), "fit").capitalize()
        sentences.append(TEXTS["failures"].format(fits=fit_count))
    return sentences


def missing_repeats(run: RunSummary) -> list[str]:
    """List the cases with fewer repeats than in the protocol."""
    entries: list[str] = []
    for table in run.tables:
        n_repeats_by_case = {(view.case.key, view.setting): view.n_repeats for view in table.cases}
        for setting in SETTINGS:
            # Cases with the same numbers of repeats are listed together.
            titles_by_counts: dict[tuple[int, int], list[str]] = {}
            for case in table.table.cases:
                n_planned = (case.quick() if run.quick else case).planned_repeats(setting)
                n_finished = n_repeats_by_case.get((case.key, setting), 0)
                if n_finished < n_planned:
                    titles_by_counts.setdefault((n_finished, n_planned), []).append(case.title)
            for (n_finished, n_planned), titles in titles_by_counts.items():
                case_note = "" if len(titles) == len(table.table.cases) else f" ({join(titles)})"
                counts_text = f"{setting}: {n_finished} of {n_planned}"
                entries.append(f"{table.table.title}{case_note}, {counts_text}")
    return [TEXTS["missing_repeats"].format(missing="; ".join(entries))] if entries else []


def main_result(run: RunSummary) -> list[str]:
    """Compare DCM with COIR, and say what the order in the paper would need."""
    record = "" if run.quick else wins_and_losses(run.cases("paper"), "coir")
    if not record:
        return []
    sentences = [TEXTS["main_result"].format(record=record.replace("COIR", TEXTS["coir"]))]
    paper_leads, our_leads = [], []
    ridge_leads: dict[str, list[float]] = {"_small": [], "_inf": []}
    for case in run.cases("paper"):
        for pair in PAIRS:
            views = [case.find_method(key) for key in pair]
            cells = [view and view.cells.get(case.primary_metric.key) for view in views]
            numbers = [cell.paper_mean_sd for cell in cells if cell and cell.paper_mean_sd]
            if case.stand_in or len(numbers) < 2:
                continue
            sign = 1.0 if case.primary_metric.greater_is_better else -1.0
            (mean, sd), (other_mean, other_sd) = numbers
            error = math.hypot(sd, other_sd) / case.case.repeats**0.5
            paper_leads.append(sign * (mean - other_mean) / error)
            our_leads.append(lead_of(case, *pair))
            for suffix, leads in ridge_leads.items():
                lead = lead_of(case, *(key + suffix for key in pair))
                leads += [] if math.isnan(lead) else [lead]
    if paper_leads and min(paper_leads) > 0:
        texts = [
            f"{sum(lead > 0 for lead in leads)} of {len(leads)} with {ridge}"
            for ridge, leads in zip(RIDGES, ridge_leads.values(), strict=True)
            if leads
        ]
        sentences.append(
            TEXTS["order"].format(
                n=len(paper_leads),
                low=min(paper_leads),
                high=max(paper_leads),
                ours=sum(lead > 0 for lead in our_leads),
                ridges=f" with ridge 1e-3, {join(texts)}" if texts else "",
            )
        )
        shares = [_share_of_wins(leads) for leads in (our_leads, *ridge_leads.values())]
        if shares[-1] > 0.5 > max(shares[:-1]):
            sentences.append(TEXTS["needs_ridge"])
    return sentences


def _share_of_wins(leads: Sequence[float]) -> float:
    return sum(lead > 0 for lead in leads) / max(len(leads), 1)


def lead_of(case: CaseView, method: str, rival: str) -> float:
    """Return by how much the mean of a method is better than a rival's; NaN if one was not run."""
    metric = case.primary_metric
    cells = [v and v.cells.get(metric.key) for v in map(case.find_method, (method, rival))]
    means = [cell.our_summary.mean if cell else math.nan for cell in cells]
    return (means[0] - means[1]) * (1.0 if metric.greater_is_better else -1.0)


def overview(run: RunSummary) -> TextTable:
    """Return a table with one row for each table of the paper."""
    counts = ["cases", "means that agree", "DCM against COIR", "best method (cases)"]
    rows = []
    for view in run.tables:
        cases = view.cases_in("paper")
        flags = [cell.agrees for case in cases for _, _, cell in compared_cells(case)]
        advantages = advantages_over(cases, "coir")
        better, worse = (sum(sign * a > 0 for a in advantages) for sign in (1, -1))
        winners = Counter(_label(method) for case in cases for method in case.best_methods())
        number = FIRST_TABLE + list(TABLES).index(view.table.key)
        row = [
            f"{number}: {view.table.title}",
            "substitute" if view.table.stand_in else "the paper's",
            str(len(cases)),
            f"{sum(map(bool, flags))} of {len(flags)}" if flags else "–",
            f"better in {better}, worse in {worse} of {len(advantages)}" if advantages else "–",
            "–" if run.quick else join([f"{name} ({n})" for name, n in winners.most_common(3)]),
        ]
        rows.append([TextCell(text) for text in row])
    return TextTable(["table", "data", *counts], rows, ["" for _ in rows])


def agreement(run: RunSummary) -> list[str]:
    """Report how many means agree with the paper's, by their standard errors."""
    flags_by_table = {  # one flag for each compared mean
        table.table.title: [cell.agrees is True for _, _, cell in cells]
        for table in run.tables
        if (cells := [cell for case in table.cases_in("paper") for cell in compared_cells(case)])
    }
    if run.quick or not flags_by_table:
        return []
    all_flags = [flag for flags in flags_by_table.values() for flag in flags]
    table_texts = [f"{t} {sum(flags)} of {len(flags)}" for t, flags in flags_by_table.items()]
    numbers = {"total": len(all_flags), "within": sum(all_flags), "min_repeats": MIN_REPEATS}
    return [TEXTS["agreement"].format(**numbers, tables=join(table_texts))]


def compared_cells(case: CaseView) -> list[tuple[str, str, CellView]]:
    """Return (method label, metric label, cell) for each cell that is compared with the paper."""
    return [
        (method.label, metric.label, cell)
        for method in case.methods
        for metric in case.metrics
        if (cell := method.cells.get(metric.key)) is not None and cell.agrees is not None
    ]


def best_methods(run: RunSummary) -> list[str]:
    """For each table, return a sentence that names the best methods in each setting."""
    headlines = [(table.table.title, headline(table)) for table in run.tables]
    return [f"{title}: {text[:1].lower()}{text[1:]}" for title, text in headlines]


def headline(table: TableView) -> str:
    """Return a sentence that names the best methods for a table in each setting."""
    phrases = []
    for setting, parameter_text in PARAMETER_TEXTS.items():
        cases = table.cases_in(setting)
        winner_labels = [_label(method) for case in cases for method in case.best_methods()]
        win_counts = Counter(winner_labels).most_common()
        if len(win_counts) > 1:
            method_list = join([f"{name} (in {n} of {len(cases)} cases)" for name, n in win_counts])
            has_ties = any(len(case.best_methods()) > 1 for case in cases)
            tie_note = ", with ties counted for each method" if has_ties else ""
            phrases.append(f"with {parameter_text}, the best methods are {method_list}{tie_note}")
        elif win_counts:
            scope = " in every case" if len(cases) > 1 else ""
            phrases.append(f"with {parameter_text}, {win_counts[0][0]} has the best mean{scope}")
        elif cases:
            phrases.append(f"with {parameter_text}, there are no scores")
    text = "; ".join(phrases)
    for case in table.cases:
        winner = case.best_method()
        if winner is not None and winner.key == "majority":
            text += f". No method is better than a constant prediction on {case.case.title}"
            break
    return f"{text[:1].upper()}{text[1:]}."


def significance(run: RunSummary) -> list[str]:
    """Report paired tests of DCM against the SVM and COIR, and ranks over data sets."""
    sentences = []
    for setting, parameter_text in PARAMETER_TEXTS.items():
        comparisons = [wins_and_losses(run.cases(setting), rival) for rival in ("svm", "coir")]
        if any(comparisons):
            predicate = "; it ".join(filter(None, comparisons))
            sentences.append(f"With {parameter_text}, DCM {predicate}.")
    if sentences:
        sentences.append(TEXTS["tested"].format(caveat=PAIRED_CAVEAT))
    for setting, ranking in run.rankings.items():
        if ranking.p_value is None or ranking.n_datasets < 3:
            continue
        ranked_methods = sorted(zip(ranking.average_ranks, ranking.methods, strict=True))
        n_repeats = min(case.n_repeats for case in run.cases(setting))
        text = TEXTS["ranks"] + (TEXTS["few_repeats"] if n_repeats < MIN_REPEATS else "")
        sentences.append(
            text.format(
                n=ranking.n_datasets,
                parameters=PARAMETER_TEXTS[setting],
                ranks=join([f"{name} {rank:.1f}" for rank, name in ranked_methods]),
                verdict="differ" if ranking.p_value < LEVEL else "do not differ",
                p=p_text(ranking.p_value),
                critical=ranking.critical_difference,
                repeats=count(n_repeats, "repeat"),
            )
        )
    return sentences


def advantages_over(cases: Sequence[CaseView], rival: str) -> list[float]:
    """Return the advantage of DCM over a rival for each case in which they can be tested."""
    return [
        case.advantage(view)
        for case in cases
        if (view := case.find_method(rival)) is not None
        and view.paired_test is not None
        and view.paired_test.p_value is not None
    ]


def wins_and_losses(cases: Sequence[CaseView], rival: str) -> str:
    """Return a phrase that says in how many cases DCM is significantly better or worse."""
    if not (advantages := advantages_over(cases, rival)):
        return ""
    rival_label = METHODS[rival].label if rival != "svm" else "the SVM"
    n_better, n_worse = sum(a > 0 for a in advantages), sum(a < 0 for a in advantages)
    comparison = (
        f"is significantly better than {rival_label} in {n_better} of {len(advantages)} cases"
    )
    return f"{comparison} and significantly worse in {n_worse}"


def join(texts: Sequence[str]) -> str:
    """Join texts as in "A, B and C"."""
    if len(texts) < 2:
        return "".join(texts)
    return ", ".join(texts[:-1]) + " and " + texts[-1]


def count(number: int, noun: str) -> str:
    """Return a number in words and its noun, such as "two tables"."""
    return f"{in_words(number)} {noun}" + ("" if number == 1 else "s")


# Differences from the paper -----------------------------------------------------------------------


def findings(run: RunSummary) -> dict[str, list[str]]:
    """Return the sentences that compare a run with the paper, by section title."""
    differences = []
    for case in run.cases("paper"):
        texts = [
            f"{method} {metric} {cell.difference:+.4g} ({abs(cell.n_errors or 0.0):.1f})"
            for method, metric, cell in compared_cells(case)
            if not cell.agrees
        ]
        differences += [f"{_case_name(case)}: {join(texts)}."] if texts else []
    sections = {
        "The SVM on synthetic data": svm_column(run),
        "Our mean minus the paper's, where they differ by more than two standard errors (in "
        "brackets: how many)": differences,
        "Reasons for differences": reasons(run),
        "Effect of the ridge (1e-5 / 1e-3 / ∞)": ridge_paths(run),
    }
    return {title: entries for title, entries in sections.items() if entries}


def svm_column(run: RunSummary) -> list[str]:
    """Compare the accuracy of the SVM on synthetic data with the paper's."""
    differences = [
        (case.case.title, difference)
        for case in run.cases("paper")
        if case.case.table == "synthetic" and (view := case.find_method("svm")) is not None
        if (difference := view.cells["accuracy"].difference) is not None
    ]
    if not differences:
        return []
    outlier_texts = [f"{title} ({diff:+.2f})" for title, diff in differences if abs(diff) > 1.5]
    text: str = TEXTS["svm_column"].format(
        close=len(differences) - len(outlier_texts),
        n=len(differences),
        outside=f" (not in {join(outlier_texts)})" if outlier_texts else "",
    )
    long_run_texts = [
        f"{row['mean']:.2f} ± {row['standard_error']:.2f} for {case.case.title}"
        f" (paper: {case.case.paper_numbers['svm']['accuracy'][0]:.2f})"
        for case in run.cases("paper")
        if (row := run.long_runs.get(case.case.key)) and "svm" in case.case.paper_numbers
    ]
    if long_run_texts:
        n_repeats = next(iter(run.long_runs.values()))["repeats"]
        text += TEXTS["long_run"].format(repeats=n_repeats, cells=join(long_run_texts))
    return [text]


def reasons(run: RunSummary) -> list[str]:
    """Return the reasons for differences, with numbers from this run if available."""
    # COIR is DCM with domain_weight 0, so this comparison shows the effect of the weight.
    comparison = wins_and_losses(run.cases("paper"), "coir")
    weight_note = TEXTS["weight"].format(record=comparison) if comparison else ""
    lines = [text.format(weight=weight_note) for text in TEXTS["reasons"]]
    case_texts = []
    for case in run.cases("paper"):
        methods = {view.key: view for view in case.methods if case.case.table == "parkinsons"}
        if {"majority", "dcm", "coir"} <= set(methods) and (test := methods["coir"].paired_test):
            means = {key: view.cells["rmse"].our_summary.mean for key, view in methods.items()}
            title, p = case.case.title, p_text(test.p_value)
            case_texts.append(TEXTS["parkinsons_case"].format(title=title, p=p, **means))
    lines += [TEXTS["parkinsons"].format(cases=" ".join(case_texts))] if case_texts else []
    tables = [view.table for view in run.tables if view.table.stand_in]
    return lines + [f"**{table.title}** uses other data. {table.stand_in}" for table in tables]


def ridge_paths(run: RunSummary) -> list[str]:
    """List scores of COIR and DCM with ridge 1e-5, 1e-3 and ∞, and of Algorithm 1, by case."""
    lines = []
    for case in run.cases("paper"):
        metric = case.primary_metric
        cells = {view.key: view.cells.get(metric.key) for view in case.methods}
        texts = {key: metric.format(cell.our_summary.mean) for key, cell in cells.items() if cell}
        paths = []
        for name in ("coir", "dcm"):
            method_keys = [f"{name}{suffix}" for suffix in ("_small", "", "_inf")]
            if all(key in texts for key in method_keys):
                paths.append(f"{name.upper()} {' / '.join(texts[key] for key in method_keys)}")
        if paths and "algorithm1" in texts:
            paths.append(f"Algorithm 1 {texts['algorithm1']}")
        if paths:
            lines.append(f"{_case_name(case)}, {metric.label}: {', '.join(paths)}.")
    return lines


def _label(method: MethodView) -> str:
    return "a constant prediction" if method.key == "majority" else method.label


def _case_name(case: CaseView) -> str:
    return f"{TABLES[case.case.table].title}, {case.case.title}"
