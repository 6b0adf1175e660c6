"""Report the contents of a results file as tables, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.base.files import ResultsError, ResultStore, write_text
from domainwise.evaluation.html import TextCell, TextTable, render_page
from domainwise.held_out.scoring.statistics import p_text
from reproduction import sentences
from reproduction.methods import METHODS
from reproduction.protocols import PROVENANCE, Metric
from reproduction.ranks import PAIRED_CAVEAT
from reproduction.summary import CaseView, CellView, RunSummary, summarise_run

PROVENANCE_NOTE = (
    f"The paper's numbers come from {PROVENANCE}. Tables and equations have the numbers that a"
    " reader of its PDF sees."
)
SETTING_TITLES = {"paper": "The paper's parameters", "tuned": "Tuned on source domains"}


def publish(folder: Path) -> tuple[Path, Path]:
    """Read a results folder, and write the Markdown tables and the HTML report into it.

    Returns the paths of the two files. Raises ResultsError if the folder contains no results yet,
    or if its results cannot be read.
    """
    store = ResultStore(folder)
    store.read()
    run = summarise_run(store)
    if not run.tables:
        raise ResultsError(f"{store.path} has no results yet; run 'python -m reproduction' first")
    markdown_path, html_path = folder / "REPRODUCTION.md", folder / "report.html"
    write_text(markdown_path, to_markdown(run))
    write_text(html_path, to_html(run))
    return markdown_path, html_path


# The table of a case, the same in all outputs -----------------------------------------------------

AGREES_MARK, DIFFERS_MARK = "✓", "✗"


def legend(run: RunSummary) -> str:
    """Explain the marks in the tables of a run."""
    text = (
        "The best mean of the competing methods is bold; ± is the standard deviation over repeats."
    )
    if not run.quick:
        text += (
            f" {AGREES_MARK} marks means that differ from the paper's by at most two standard"
            f" errors of the difference, and {DIFFERS_MARK} marks other means."
        )
    if any(_has_p_values(case) for case in run.cases()):
        text += (
            " p is the p-value of a paired test of DCM (FastDCM for fast methods) against the"
            " method, over repeats; ▲ means that DCM is significantly better than the method, ▼"
            " that it is worse (5 % level). The test is approximate, because repeats share domains."
        )
    return text


def _has_p_values(case: CaseView) -> bool:
    tests = (method.paired_test for method in case.methods)
    return any(test is not None and test.p_value is not None for test in tests)


def case_table(case: CaseView) -> TextTable:
    """Return the table of a case: our scores and the paper's, p-values, times and memory."""
    methods = case.methods
    columns: list[tuple[str, list[TextCell]]] = []

    def add_column(heading: str, texts: Iterable[str]) -> None:
        css_class = "paper" if heading.startswith("paper") else ""
        columns.append((heading, [TextCell(text, css_class=css_class) for text in texts]))

    add_column("method", [method.label for method in methods])
    for metric in case.metrics:
        cells = [method.cells.get(metric.key) for method in methods]
        columns.append((metric.label, [_our_cell(metric, cell) for cell in cells]))
        paper_pairs = [None if cell is None else cell.paper_mean_sd for cell in cells]
        if any(paper_pairs):
            texts = ["" if pair is None else metric.format(*pair) for pair in paper_pairs]
            add_column("paper", texts)
    if _has_p_values(case):
        tests = [method.paired_test for method in methods]
        p_texts = [p_text(test.p_value) if test else "" for test in tests]
        marks = [{1: " ▲", 0: "", -1: " ▼"}[np.sign(case.advantage(m))] for m in methods]
        add_column("p", [text + mark for text, mark in zip(p_texts, marks, strict=True)])
    for attribute, heading in (("seconds", "s"), ("paper_seconds", "paper s"), ("peak_mib", "MiB")):
        values = [getattr(method, attribute) for method in methods]
        if any(value is not None for value in values):
            limit = 0.0 if attribute == "peak_mib" else 100.0  # no decimals from this value on
            texts = ["" if v is None else f"{v:.3g}" if v < limit else f"{v:.0f}" for v in values]
            add_column(heading, texts)
    row_classes = ["" if METHODS[method.key].competes else "variant" for method in methods]
    rows = zip(*(cells for _, cells in columns), strict=True)
    return TextTable([heading for heading, _ in columns], list(rows), row_classes)


def _our_cell(metric: Metric, cell: CellView | None) -> TextCell:
    if cell is None:
        return TextCell("–")
    text = metric.format(cell.our_summary.mean, cell.our_summary.deviation)
    if cell.agrees is None:
        return TextCell(text, cell.is_best)
    mark, css_class = (AGREES_MARK, "within") if cell.agrees else (DIFFERS_MARK, "outside")
    return TextCell(f"{text} {mark}", cell.is_best, css_class)


def case_caption(case: CaseView) -> str:
    """Describe a case in one line."""
    protocol = case.case
    low, high = case.n_train_range
    phrases = [
        f"{protocol.train_domains} source and {protocol.test_domains} unseen domains",
        f"{low:,} source rows" if low == high else f"{low:,}–{high:,} source rows",
        sentences.count(case.n_repeats, "repeat"),
    ]
    if case.setting == "paper":
        gamma_text = "median target" if isinstance(protocol.gamma, str) else f"{protocol.gamma:g}"
        m_text = f", M = {protocol.m}" if protocol.m else ""
        phrases.append(f"γ = {gamma_text}, ε = {protocol.epsilon:g}{m_text}")
    repeat_counts = [(method.label, len(method.scores)) for method in case.methods]
    if count_texts := sorted(f"{label} ({n})" for label, n in repeat_counts if n < case.n_repeats):
        phrases.append(f"fewer repeats: {', '.join(count_texts)}")
    return ", ".join(phrases)


# Markdown -----------------------------------------------------------------------------------------

_TIMES_NOTE = (
    "The columns s and MiB contain the CPU seconds and the peak memory (with Python and the data)"
    " of one fit and prediction in a separate process. Values that were not measured are empty."
)


def to_markdown(run: RunSummary) -> str:
    """Return the Markdown report of a run: command, seed, findings, tables and versions."""
    table_keys = [view.table.key for view in run.tables]
    command = f"python -m reproduction {table_keys[0] if len(table_keys) == 1 else 'all'}"
    command += f"{' --quick' if run.quick else ''} --seed {run.header.get('root_seed')}"
    lines = [
        "# Do we get the paper's results?",
        "",
        *_paragraphs(sentences.main_result(run), mark="**"),
        *_paragraphs(sentences.describe_run(run) + sentences.missing_repeats(run)),
        *_paragraphs(sentences.agreement(run)),
        *_markdown_table(sentences.overview(run)),
        "",
        f"Written by `{command}`; do not edit. {PROVENANCE_NOTE}",
    ]
    if not run.quick:  # few repeats say nothing about methods
        details = sentences.best_methods(run) + sentences.significance(run)
        lines += ["", "## In detail", "", *(f"- {text}" for text in details)]
        lines += ["", "## Differences from the paper"]
        for title, entries in sentences.findings(run).items():
            lines += ["", f"{title}:", "", *(f"- {entry}" for entry in entries)]
    lines += ["", "## Tables", "", legend(run), _TIMES_NOTE]
    for view in run.tables:
        lines += ["", f"### {view.table.title}", "", view.table.about]
        if view.table.stand_in:
            lines += ["", f"**Substitute data.** {view.table.stand_in}"]
        for setting, title in SETTING_TITLES.items():
            cases = view.cases_in(setting)
            lines += ["", f"#### {title}"] if cases else []
            for case in cases:
                selection_note = f". Selection: {case.tuning_rule}." if case.tuning_rule else ""
                lines += ["", f"**{case.title}**: {case_caption(case)}{selection_note}", ""]
                lines += _markdown_table(case_table(case), "---:")
    facts_text = ", ".join(f"{name} {value}" for name, value in _facts(run))
    return "\n".join([*lines, "", "## Settings and versions", "", f"{facts_text}.", ""])


def _paragraphs(texts: list[str], mark: str = "") -> list[str]:
    """Return a paragraph, its first sentence in marks, and an empty line; nothing if empty."""
    return [" ".join([f"{mark}{texts[0]}{mark}", *texts[1:]]), ""] if texts else []


def _markdown_table(table: TextTable, alignment: str = "---") -> list[str]:
    rows = [[f"**{c.text}**" if c.bold else c.text for c in row] for row in table.rows]
    return [
        f"| {' | '.join(table.columns)} |",
        f"|---{f'|{alignment}' * (len(table.columns) - 1)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _facts(run: RunSummary) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) pairs that describe the settings, versions and machine of a run."""
    header, machine = run.header, run.header.get("machine", {})
    yield "domainwise", header.get("domainwise")
    yield "Python", header.get("python")
    yield from header.get("versions", {}).items()
    yield "machine", f"{machine.get('processor')}, {machine.get('cores')} cores"
    yield "system", machine.get("system")
    yield "root seed", header.get("root_seed")
    yield "profile", header.get("profile")
    yield "started", header.get("started")
    if run.sessions:
        yield "resumed", sentences.count(len(run.sessions), "time")


# HTML ---------------------------------------------------------------------------------------------


def to_html(run: RunSummary) -> str:
    """Return the HTML report of a run, a single file that loads nothing from the network."""
    from reproduction import plots

    return render_page(
        "reproduction",
        "reproduce.html.j2",
        styles=["style.css", "reproduce.css"],
        title="Do we get the paper's results?",
        run=run,
        settings=SETTING_TITLES,
        sentences=sentences,
        case_caption=case_caption,
        case_table=case_table,
        legend=legend(run),
        plots=plots,
        caveat=PAIRED_CAVEAT,
        provenance=PROVENANCE_NOTE,
        facts=_facts(run),
    )
