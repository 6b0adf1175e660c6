"""The cells of a case's table as text, the same for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from domainwise.jobs.statistics import p_text
from domainwise.paper.methods import METHODS
from domainwise.paper.printed import Cell
from domainwise.paper.report.summary import CaseView, MethodView, RunSummary
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
    columns: list[tuple[str, Callable[[MethodView], TextCell]]] = [
        ("method", lambda method: TextCell(method.label))
    ]
    for metric in case.metrics:
        columns.append((metric.label, partial(_ours, metric)))
        if any(_printed(metric, method) is not None for method in case.methods):
            columns.append(("paper", partial(_papers, metric)))
    if _is_paired(case):
        columns.append(("p", partial(_p_value, case)))
    timed = any(method.seconds is not None for method in case.methods)
    if timed:
        columns.append(("s", lambda method: TextCell(seconds_text(method.seconds))))
    if any(method.paper_seconds is not None for method in case.methods):
        columns.append(("paper s", lambda method: TextCell(seconds_text(method.paper_seconds))))
    if timed:
        columns.append(("MiB", _memory))
    rows = [[cell(method) for _, cell in columns] for method in case.methods]
    kinds = ["" if METHODS[method.key].main else "variant" for method in case.methods]
    return TextTable([heading for heading, _ in columns], rows, kinds)


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


def _ours(metric: Metric, method: MethodView) -> TextCell:
    cell = method.cells.get(metric.key)
    if cell is None:
        return TextCell("–")
    text = metric.format(cell.ours.mean, cell.ours.deviation)
    if cell.within is None:
        return TextCell(text, cell.best)
    if cell.within:
        return TextCell(f"{text} {WITHIN}", cell.best, "within")
    return TextCell(f"{text} {OUTSIDE}", cell.best, "outside")


def _printed(metric: Metric, method: MethodView) -> Cell | None:
    cell = method.cells.get(metric.key)
    return None if cell is None else cell.paper


def _papers(metric: Metric, method: MethodView) -> TextCell:
    printed = _printed(metric, method)
    return TextCell("" if printed is None else metric.format(*printed))


def _memory(method: MethodView) -> TextCell:
    return TextCell("" if method.peak_mib is None else f"{method.peak_mib:.0f}")


def _p_value(case: CaseView, method: MethodView) -> TextCell:
    paired = method.paired
    if paired is None:
        return TextCell("")
    ahead = case.advantage(method)
    return TextCell(p_text(paired.p_value) + (" ▲" if ahead > 0 else " ▼" if ahead < 0 else ""))


def _span(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
