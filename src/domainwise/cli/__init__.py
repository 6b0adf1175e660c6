"""The command line: parses arguments, calls the layers below, prints. It computes nothing.

Exit codes: 0 done, 1 something failed or was interrupted, 2 the input cannot be used.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from domainwise import __version__
from domainwise.cli.apply import predict, transform
from domainwise.cli.compare import compare
from domainwise.cli.datasets import list_datasets
from domainwise.cli.evaluate import evaluate
from domainwise.cli.federate import federate
from domainwise.cli.fit import fit
from domainwise.cli.info import export, info
from domainwise.cli.report import report
from domainwise.cli.reproduce import reproduce

__all__ = ["app"]

app = typer.Typer(
    name="domainwise",
    help="Features that carry over to domains nobody has seen yet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (evaluate, compare, fit, predict, transform, info, export, reproduce, report):
    app.command()(command)
app.command(name="datasets")(list_datasets)
app.add_typer(federate, name="federate", help="Fit one model across sites that keep their rows.")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if os.environ.get("COLUMNS") == "0":  # in so few nothing would be printed
        del os.environ["COLUMNS"]
    if version:
        typer.echo(f"domainwise {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
