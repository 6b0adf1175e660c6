"""The tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domainwise.paper.report import words
from domainwise.paper.report.layout import TextCell, case_caption, case_table, legend
from domainwise.paper.report.summary import CaseView, RunSummary

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"within": "green", "outside": "yellow"}


def print_run(run: RunSummary, console: Console) -> None:
    """Print every case as a table, then the summary in words."""
    for table in run.tables:
        console.print(f"\n[bold underline]{table.table.title}[/]")
        if table.table.stand_in:
            console.print(f"[magenta]stand-in data:[/] {table.table.stand_in}")
        for case in table.cases:
            _print_case(case, console)
    console.print(f"\n[dim]{legend(run)}[/]\n")
    for sentences in (words.what_was_run(run), words.how_close(run), words.who_wins(run)):
        for sentence in sentences:
            console.print(f"• {sentence}", markup=False)


def _print_case(case: CaseView, console: Console) -> None:
    from rich.table import Table

    setting = "paper's parameters" if case.setting == "paper" else "tuned on the sources"
    stand_in = " [magenta](stand-in)[/]" if case.stand_in else ""
    layout = case_table(case)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(layout.columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in layout.rows:
        table.add_row(*(_cell(cell) for cell in row))
    console.print(
        f"\n[bold]{case.case.title}[/]{stand_in}, {setting}: [dim]{case_caption(case)}[/]"
    )
    console.print(table)


def _cell(cell: TextCell) -> str:
    text = cell.text
    if cell.mark:
        text = f"[{_COLOURS[cell.mark]}]{text}[/]"
    return f"[bold]{text}[/]" if cell.bold else text
