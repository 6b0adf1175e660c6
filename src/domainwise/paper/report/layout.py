"""The cells of a case's table as text, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from domainwise.jobs.statistics import p_text
from domainwise.paper.methods import METHODS
from domainwise.paper.report.summary import CaseView, CellView, MethodView, RunSummary
from domainwise.paper.report.words import count
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
    in_paper = {
        key
        for method in case.methods
        for key, cell in method.cells.items()
        if cell.paper is not None
    }
    timed = any(method.seconds is not None for method in case.methods)
    paper_timed = any(method.paper_seconds is not None for method in case.methods)
    columns = ["method"]
    for metric in case.metrics:
        columns += [metric.label, "paper"] if metric.key in in_paper else [metric.label]
    paired = _is_paired(case)
    if paired:
        columns.append("p")
    if timed:
        columns.append("s")
    if paper_timed:
        columns.append("paper s")
    if timed:
        columns.append("MiB")
    rows = []
    for method in case.methods:
        row = [TextCell(method.label)]
        for metric in case.metrics:
            cell = method.cells.get(metric.key)
            row.append(_ours(cell, metric.format))
            if metric.key in in_paper:
                paper = None if cell is None else cell.paper
                row.append(TextCell("" if paper is None else metric.format(*paper)))
        if paired:
            row.append(_p_value(case, method))
        if timed:
            row.append(TextCell(seconds_text(method.seconds)))
        if paper_timed:
            row.append(TextCell(seconds_text(method.paper_seconds)))
        if timed:
            row.append(TextCell("" if method.peak_mib is None else f"{method.peak_mib:.0f}"))
        rows.append(row)
    kinds = ["" if METHODS[method.key].main else "variant" for method in case.methods]
    return TextTable(columns, rows, kinds)


def case_caption(case: CaseView) -> str:
    """What the case is, in one line."""
    c = case.case
    rows = _span(case.n_train)
    words = [
        f"{c.train_domains} source and {c.test_domains} unseen domains",
        f"{rows} source rows",
        count(case.n_repeats, "repeat"),
    ]
    if case.setting == "paper":
        gamma = "median score" if isinstance(c.gamma, str) else f"{c.gamma:g}"
        words.append(f"γ = {gamma}, ε = {c.epsilon:g}" + (f", M = {c.m}" if c.m else ""))
    fewer = sorted(
        {
            f"{method.label} ({len(method.values)})"
            for method in case.methods
            if len(method.values) < case.n_repeats
        }
    )
    if fewer:
        words.append(f"fewer repeats: {', '.join(fewer)}")
    return ", ".join(words)


def seconds_text(seconds: float | None) -> str:
    """Seconds with three digits."""
    if seconds is None:
        return ""
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:.0f}"


def _ours(cell: CellView | None, fmt: object) -> TextCell:
    if cell is None:
        return TextCell("–")
    assert callable(fmt)
    text = str(fmt(cell.ours.mean, cell.ours.deviation))
    if cell.within is None:
        return TextCell(text, cell.best)
    if cell.within:
        return TextCell(f"{text} {WITHIN}", cell.best, "within")
    return TextCell(f"{text} {OUTSIDE}", cell.best, "outside")


def _p_value(case: CaseView, method: MethodView) -> TextCell:
    paired = method.paired
    if paired is None:
        return TextCell("")
    ahead = case.advantage(method)
    return TextCell(p_text(paired.p_value) + (" ▲" if ahead > 0 else " ▼" if ahead < 0 else ""))


def _span(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
