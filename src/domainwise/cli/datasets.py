"""The command datasets: what there is, and what is on this machine."""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.table import Table as RichTable

from domainwise import datasets
from domainwise.cli.options import JsonOption


def list_datasets(as_json: JsonOption = False) -> None:
    """List the data sets, their size, and whether they are on this machine."""
    found = datasets.list_datasets()
    if as_json:
        entries = [vars(info) | {"present": info.present} for info in found]
        typer.echo(json.dumps(entries, indent=2, default=str))
        return
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for name in ("rows", "domains", "features", "classes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what it is")
    for info in found:
        table.add_row(
            info.name,
            f"{info.rows:,}",
            str(info.domains),
            str(info.features),
            "–" if info.classes is None else str(info.classes),
            "[green]yes[/green]" if info.present else "[yellow]no[/yellow]",
            info.description,
        )
    console = Console(highlight=False)
    console.print(table)
    if not all(info.present for info in found):
        console.print(
            "\nPut missing files in $DOMAINWISE_DATA; a loader's error says where to get each."
        )
