"""From a results file to tables on a terminal, a Markdown file, an HTML page, and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainwise.jobs.store import ResultsError, ResultStore, write_text
from domainwise.paper import sentences
from domainwise.paper.methods import METHODS
from domainwise.paper.protocols import PROVENANCE, Metric
from domainwise.paper.summary import CaseView, CellView, MethodView, RunSummary, summarise_run
from domainwise.report.page import Templates, TextCell, TextTable
from domainwise.scoring.statistics import PAIRED_CAVEAT, p_text

if TYPE_CHECKING:
    from rich.console import Console

MARKDOWN_NAME = "REPRODUCTION.md"
HTML_NAME = "report.html"
SETTING_TITLES = {"paper": "The paper's parameters", "tuned": "Tuned on source domains"}


@dataclass(frozen=True)
class Published:
    """The summary of a run and the files made from it."""

    run: RunSummary
    markdown: Path
    html: Path | None

    def print(self, console: Console) -> None:
        """Print the tables, and where the files are."""
        print_run(self.run, console)
        console.print(f"\ntables: {self.markdown}", soft_wrap=True)
        if self.html is not None:
            console.print(f"report: [bold]{self.html}[/] (open it in a browser)", soft_wrap=True)

    def as_json(self) -> dict[str, Any]:
        """Everything in the tables, for machines."""
        return {
            "header": self.run.header,
            "cases": [_case_json(case) for case in self.run.cases()],
            "summary": sentences.in_short(self.run),
            "failures": [
                {key: row[key] for key in ("case", "setting", "repeat", "method", "error")}
                for row in self.run.failures
            ],
            "files": [str(path) for path in (self.markdown, self.html) if path is not None],
        }


def publish(folder: Path, *, html: bool = True) -> Published:
    """Read a results folder and write the Markdown tables and the HTML report into it.

    The report needs the extra ``report``. Results that cannot be read, or hold nothing yet, raise a
    ResultsError.
    """
    store = ResultStore(folder)
    store.read()
    run = summarise_run(store)
    if not run.tables:
        raise ResultsError(f"{store.path} contains no finished result yet: run reproduce first")
    markdown, page = folder / MARKDOWN_NAME, folder / HTML_NAME if html else None
    write_text(markdown, to_markdown(run))
    if page is not None:
        write_text(page, to_html(run))
    return Published(run, markdown, page)


def _case_json(case: CaseView) -> dict[str, Any]:
    return {
        "case": case.case.key,
        "setting": case.setting,
        "stand_in": case.stand_in,
        "repeats": case.n_repeats,
        "methods": {
            method.key: {
                "metrics": {
                    key: {
                        "mean": cell.ours.mean,
                        "sd": cell.ours.deviation if cell.ours.n > 1 else None,
                        "n": cell.ours.n,
                        "paper": cell.paper,
                        "within_one_paper_sd": cell.within,
                    }
                    for key, cell in method.cells.items()
                },
                "p_value": None if method.paired is None else method.paired.p_value,
                "seconds": method.seconds,
                "paper_seconds": method.paper_seconds,
                "peak_mib": method.peak_mib,
            }
            for method in case.methods
        },
    }


# The cells of a case's table as text, the same everywhere -----------------------------------------

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
    columns = list(_columns(case))
    cells = ([TextCell(c) if isinstance(c, str) else c for c in column] for _, column in columns)
    kinds = ["" if METHODS[method.key].main else "variant" for method in case.methods]
    return TextTable([heading for heading, _ in columns], [*zip(*cells, strict=True)], kinds)


def _columns(case: CaseView) -> Iterator[tuple[str, Iterable[str | TextCell]]]:
    """Headings and cells."""
    methods = case.methods
    yield "method", [method.label for method in methods]
    for metric in case.metrics:
        cells = [method.cells.get(metric.key) for method in methods]
        yield metric.label, [_ours(metric, cell) for cell in cells]
        printed = [None if cell is None else cell.paper for cell in cells]
        if any(printed):
            yield "paper", ["" if cell is None else metric.format(*cell) for cell in printed]
    if _is_paired(case):
        yield "p", [_p_value(case, method) for method in methods]
    for name, heading in (("seconds", "s"), ("paper_seconds", "paper s"), ("peak_mib", "MiB")):
        values = [getattr(method, name) for method in methods]
        if any(value is not None for value in values):
            text = "{:.0f}".format if name == "peak_mib" else seconds_text
            yield heading, ["" if value is None else text(value) for value in values]


def case_caption(case: CaseView) -> str:
    """What the case is, in one line."""
    c = case.case
    low, high = case.n_train
    parts = [
        f"{c.train_domains} source and {c.test_domains} unseen domains",
        f"{low:,} source rows" if low == high else f"{low:,}–{high:,} source rows",
        sentences.count(case.n_repeats, "repeat"),
    ]
    if case.setting == "paper":
        gamma = "median score" if isinstance(c.gamma, str) else f"{c.gamma:g}"
        parts.append(f"γ = {gamma}, ε = {c.epsilon:g}" + (f", M = {c.m}" if c.m else ""))
    counts = {method.label: len(method.values) for method in case.methods}
    if fewer := sorted(f"{name} ({n})" for name, n in counts.items() if n < case.n_repeats):
        parts.append(f"fewer repeats: {', '.join(fewer)}")
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """Seconds with three digits."""
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


# Terminal -----------------------------------------------------------------------------------------

_COLOURS = {"within": "green", "outside": "yellow"}


def print_run(run: RunSummary, console: Console) -> None:
    """Print every case as a table, then the summary in words."""
    from rich.table import Table

    for table in run.tables:
        console.print(f"\n[bold underline]{table.table.title}[/]")
        if table.table.stand_in:
            console.print(f"[magenta]stand-in data:[/] {table.table.stand_in}")
        for case in table.cases:
            setting = "paper's parameters" if case.setting == "paper" else "tuned on the sources"
            stand_in = " [magenta](stand-in)[/]" if case.stand_in else ""
            caption = f"{stand_in}, {setting}: [dim]{case_caption(case)}[/]"
            console.print(f"\n[bold]{case.case.title}[/]{caption}")
            layout = case_table(case)
            grid = Table(box=None, pad_edge=False, header_style="bold")
            for number, name in enumerate(layout.columns):
                grid.add_column(name, justify="right" if number else "left", no_wrap=True)
            for row in layout.rows:
                grid.add_row(*map(_rich_cell, row))
            console.print(grid)
    console.print(f"\n[dim]{legend(run)}[/]\n")
    for part in (sentences.what_was_run, sentences.agreement, sentences.best_methods):
        for sentence in part(run):
            console.print(f"• {sentence}", markup=False)


def _rich_cell(cell: TextCell) -> str:
    text = f"[{_COLOURS[cell.mark]}]{cell.text}[/]" if cell.mark else cell.text
    return f"[bold]{text}[/]" if cell.bold else text


# Markdown -----------------------------------------------------------------------------------------

_TIMES = (
    "Times: CPU seconds of one fit and prediction, in a process of its own; MiB: its peak memory,"
    " Python and data included; blank where not measured."
)


def to_markdown(run: RunSummary) -> str:
    """Everything a reader of the repository needs: command, seed, words, tables, caveats."""
    keys = [table.table.key for table in run.tables]
    command = f"domainwise reproduce {keys[0] if len(keys) == 1 else 'all'}"
    command += f"{' --quick' if run.quick else ''} --seed {run.header.get('root_seed')}"
    made_by = f"Made by `{command}`; do not edit."
    lines = [
        "# The paper's tables, reproduced",
        "",
        f"{made_by} The numbers of the paper are those of its LaTeX source.",
        "",
        *(f"- {sentence}" for sentence in sentences.in_short(run)),
    ]
    if not run.quick:
        lines += ["", "## What reproduces, what does not, and why"]
        for title, entries in sentences.findings(run).items():
            lines += ["", f"{title}:", "", *(f"- {entry}" for entry in entries)]
    lines += ["", "## Tables", "", legend(run), _TIMES]
    for view in run.tables:
        lines += ["", f"### {view.table.title}", "", view.table.about]
        if view.table.stand_in:
            lines += ["", f"**Stand-in data.** {view.table.stand_in}"]
        for setting, title in SETTING_TITLES.items():
            cases = view.in_setting(setting)
            lines += ["", f"#### {title}"] if cases else []
            for case in cases:
                selection = f". Selection: {case.rule}." if case.rule else ""
                lines += ["", f"**{case.title}**: {case_caption(case)}{selection}", ""]
                lines += _markdown_rows(case_table(case))
    environment = ", ".join(f"{name} {value}" for name, value in _facts(run))
    return "\n".join([*lines, "", "## Settings and versions", "", f"{environment}.", ""])


def _markdown_rows(table: TextTable) -> Iterator[str]:
    yield "| " + " | ".join(table.columns) + " |"
    yield "|---" + "|---:" * (len(table.columns) - 1) + "|"
    for row in table.rows:
        cells = [f"**{cell.text}**" if cell.bold and cell.text else cell.text for cell in row]
        yield "| " + " | ".join(cells) + " |"


def _facts(run: RunSummary) -> Iterator[tuple[str, Any]]:
    """Settings, versions and machine."""
    header, machine = run.header, run.header.get("machine", {})
    yield "domainwise", header.get("domainwise")
    yield "Python", header.get("python")
    yield from header.get("versions", {}).items()
    yield "machine", f"{machine.get('processor')}, {machine.get('cores')} cores"
    yield "system", machine.get("system")
    yield "root seed", header.get("root_seed")
    yield "size of the run", header.get("profile")
    yield "started", header.get("started")
    if run.sessions:
        yield "resumed", sentences.count(len(run.sessions), "time")


# HTML ---------------------------------------------------------------------------------------------


def to_html(run: RunSummary) -> str:
    """Make the report of a run: a complete HTML document, one file that needs no network."""
    from domainwise.paper import plots

    return Templates("domainwise.paper").render(
        "reproduce.html.j2",
        styles=["style.css"],
        title="The paper's tables, reproduced",
        run=run,
        settings=SETTING_TITLES,
        sentences=sentences,
        case_caption=case_caption,
        case_table=case_table,
        legend=legend(run),
        plots=plots,
        caveat=PAIRED_CAVEAT,
        provenance=PROVENANCE,
        facts=_facts(run),
    )
