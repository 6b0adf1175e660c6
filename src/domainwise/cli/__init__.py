"""The command-line interface: it parses arguments, calls the library and prints results.

Exit codes: 0 success, 1 failure or interruption, 2 invalid input.

Modules in this folder import the rest of the library inside functions, so that ``--help`` is fast.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from domainwise import __version__
from domainwise.cli.apply import adapt, predict, transform
from domainwise.cli.evaluate import evaluate, example, report
from domainwise.cli.fit import fit
from domainwise.cli.info import export, info

__all__ = ["app"]


#: Commands of earlier versions, and what to use instead.
REMOVED = {
    "compare": "evaluate compares methods in one evaluation",
    "datasets": 'run "python -m reproduction datasets" in the repository',
    "federate": 'call merge(other) after partial_fit at each site; see the page "Several sites '
    'without exchanging rows" in the user guide',
    "reproduce": 'run "python -m reproduction" in the repository',
}


class QuickGroup(TyperGroup):
    """A group of commands that parses its arguments without pydantic, which is slow to import.

    Typer uses pydantic for options without a default, so ``--help`` gets a default. The options for
    shell completion have no default, so they are added only if they are used.
    """

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option ``--help``, with a default."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help lists arguments without Python types and braces.

        For a removed command, print what replaces it.
        """
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in REMOVED:
            typer.echo(f"domainwise {cmd_name} was removed: {REMOVED[cmd_name]}", err=True)
            raise typer.Exit(2)
        for parameter in getattr(command, "params", ()):
            if parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
                if parameter.required:
                    parameter.get_usage_pieces = lambda ctx, name=parameter.metavar: [name]
        return command


_requests_completion = sys.argv[1:2] in (["--install-completion"], ["--show-completion"])

app = typer.Typer(
    name="domainwise",
    cls=QuickGroup,
    help="Evaluate, fit and apply models for domains that are not in the training data.\n\n"
    "A domain is where a row comes from, such as a hospital, a patient or a well. The domains in "
    "the training data are called source domains. To start, run\n\n"
    "domainwise evaluate TABLE --target COLUMN --domain COLUMN",
    epilog="Use --install-completion to install shell completion.",
    no_args_is_help=True,
    add_completion=_requests_completion or "_DOMAINWISE_COMPLETE" in os.environ,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich is slow to import
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (example, evaluate, fit, predict, adapt, transform, info, export, report):
    app.command()(command)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if os.environ.get("COLUMNS") == "0":  # Rich would print nothing
        del os.environ["COLUMNS"]
    if version:
        typer.echo(f"domainwise {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
