"""The command report: tables and page again, from a results folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from domainwise.cli.common import require, shown, usage_errors
from domainwise.cli.options import JsonOption, argument


def report(
    folder: Annotated[Path, argument("A results folder.")],
    as_json: JsonOption = False,
) -> None:
    """Make the tables and the HTML report again, of reproduce or evaluate, from a folder alone."""
    with usage_errors():
        require("report")
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        from domainwise.evaluation.folder import RESULT_NAME

        if not (folder / RESULT_NAME).exists():
            publish_folder(folder, html=True, as_json=as_json)
            return
        from domainwise.cli.evaluate import REPORT_NAME, print_evaluation
        from domainwise.evaluation.folder import read_evaluation

        found, stored = read_evaluation(folder)
        page = found.report(folder / REPORT_NAME, title=stored.get("title"))
    if as_json:
        typer.echo(json.dumps({**stored, "files": [str(page)]}, indent=2))
        return
    console = Console(highlight=False)
    print_evaluation(found, console)
    console.print(f"\nreport: [bold]{shown(page)}[/] (open it in a browser)")


def publish_folder(folder: Path, *, html: bool, as_json: bool) -> None:
    """Write the Markdown tables and the report; print the tables."""
    from domainwise.paper.report import publish

    with usage_errors():
        written = publish(folder, html=html)
    if as_json:
        typer.echo(json.dumps(written.as_json(), indent=2))
        return
    written.print(Console(highlight=False))
