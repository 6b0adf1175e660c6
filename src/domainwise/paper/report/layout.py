"""The cells of a case's table as text, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable

from domainwise.jobs.statistics import p_text
from domainwise.paper.methods import METHODS
from domainwise.paper.report.summary import CaseView, CellView, MethodView, RunSummary
from domainwise.paper.report.words import count
from domainwise.paper.scores import Metric
from domainwise.report.page import TextCell, TextTable

#: Marks beside our numbers: within one paper-sd, outside it.
WITHIN, OUTSIDE = "✓", "✗"


def legend(run: RunSummary) -> str:
    """What the marks in the tables of a run mean."""
    text = (
        f"Bold: best mean of the competing methods. {WITHIN} / {OUTSIDE}: within / outside one of"
        " the paper's standard deviations."
    )
    if any(_is_paired(case) for case in run.cases()):
        text += (
            " p: DCM against the method, paired over repeats (fast methods against FastDCM); ▲ DCM"
            " better, ▼ DCM worse at 0.05. Approximate, since repeats share domains."
        )
    return text


def _is_paired(case: CaseView) -> bool:
    return any(method.paired and method.paired.p_value is not None for method in case.methods)


def case_table(case: CaseView) -> TextTable:
    """Lay out a case: ours and the paper's side by side, p-value, times, memory."""
    methods = case.methods
    columns: list[tuple[str, Iterable[str | TextCell]]] = [("method", [m.label for m in methods])]
    for metric in case.metrics:
        cells = [method.cells.get(metric.key) for method in methods]
        columns.append((metric.label, [_ours(metric, cell) for cell in cells]))
        printed = [None if cell is None else cell.paper for cell in cells]
        if any(printed):
            texts = ["" if cell is None else metric.format(*cell) for cell in printed]
            columns.append(("paper", texts))
    if _is_paired(case):
        columns.append(("p", [_p_value(case, method) for method in methods]))
    timed = any(method.seconds is not None for method in methods)
    if timed:
        columns.append(("s", [seconds_text(method.seconds) for method in methods]))
    if any(method.paper_seconds is not None for method in methods):
        columns.append(("paper s", [seconds_text(method.paper_seconds) for method in methods]))
    if timed:
        peaks = [method.peak_mib for method in methods]
        columns.append(("MiB", ["" if peak is None else f"{peak:.0f}" for peak in peaks]))
    rows = [
        [TextCell(cell) if isinstance(cell, str) else cell for cell in row]
        for row in zip(*(cells for _, cells in columns), strict=True)
    ]
    kinds = ["" if METHODS[method.key].main else "variant" for method in methods]
    return TextTable([heading for heading, _ in columns], rows, kinds)


def case_caption(case: CaseView) -> str:
    """What the case is, in one line."""
    c = case.case
    low, high = case.n_train
    words = [
        f"{c.train_domains} source and {c.test_domains} unseen domains",
        f"{low:,} source rows" if low == high else f"{low:,}–{high:,} source rows",
        count(case.n_repeats, "repeat"),
    ]
    if case.setting == "paper":
        gamma = "median score" if isinstance(c.gamma, str) else f"{c.gamma:g}"
        words.append(f"γ = {gamma}, ε = {c.epsilon:g}" + (f", M = {c.m}" if c.m else ""))
    fewer = [method for method in case.methods if len(method.values) < case.n_repeats]
    if fewer:
        named = sorted({f"{method.label} ({len(method.values)})" for method in fewer})
        words.append(f"fewer repeats: {', '.join(named)}")
    return ", ".join(words)


def seconds_text(seconds: float | None) -> str:
    """Seconds with three digits."""
    if seconds is None:
        return ""
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def _ours(metric: Metric, cell: CellView | None) -> TextCell:
    if cell is None:
        return TextCell("–")
    text = metric.format(cell.ours.mean, cell.ours.deviation)
    if cell.within is None:
        return TextCell(text, cell.best)
    mark, kind = (WITHIN, "within") if cell.within else (OUTSIDE, "outside")
    return TextCell(f"{text} {mark}", cell.best, kind)


def _p_value(case: CaseView, method: MethodView) -> str:
    if method.paired is None:
        return ""
    ahead = case.advantage(method)
    return p_text(method.paired.p_value) + (" ▲" if ahead > 0 else " ▼" if ahead < 0 else "")
