"""The command compare: two evaluations side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from domainwise.cli.common import require, shown
from domainwise.cli.options import ForceOption, JsonOption, argument, command, option
from domainwise.cli.outputs import check_output

_Folder = argument("A folder of evaluate.")


@command
def compare(
    first: Annotated[Path, _Folder],
    second: Annotated[Path, _Folder],
    method: Annotated[
        str | None, option("A method of both; the best ones, and all that both have, if not given.")
    ] = None,
    out: Annotated[Path | None, option("Write a page, too: an .html file.", "--out", "-o")] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two evaluations of one question, method by method and domain by domain.

    Other targets, domains and measures are refused. Notes say whether table, rows and folds are
    the same. Differences are second minus first, with 95 % intervals.
    """
    from domainwise.evaluation.compare import compare_evaluations
    from domainwise.jobs.store import write_text

    if out is not None:
        require("report")
        check_output(out, force, [".html"])
    found = compare_evaluations(first, second, method)
    if out is not None:
        write_text(out, found.page())
    if as_json:
        typer.echo(json.dumps({**found.to_dict(), "files": [str(out)] if out else []}, indent=2))
        return
    console = Console(highlight=False)
    for table in found.tables():
        console.print(_rich(*table), "")
    console.print(f"[dim]{shown(found.legend())}[/]")
    console.print(f"\n[bold]Verdict.[/] {shown(found.verdict())}")
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {shown(note)}")
    if out is not None:
        console.print(f"\npage: [bold]{shown(out)}[/] (open it in a browser)")


def _rich(columns: list[str], *rows: list[str]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        left = name in (columns[0], "in words")
        table.add_column(shown(name), justify="left" if left else "right", no_wrap=not left)
    for row in rows:
        table.add_row(*map(shown, row))
    return table
