"""Options that commands share, groups of them as one argument, and what every command does."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from domainwise.cli.common import parts_of, reported_errors


def option(about: str, *names: str, **more: Any) -> Any:
    """An option whose default says nothing to a reader."""
    return typer.Option(*names, help=about, show_default=False, **more)


def argument(about: str) -> Any:
    """An argument, likewise."""
    return typer.Argument(help=about, show_default=False)


Names = list[str] | None
ModelArgument = Annotated[Path, argument("A model file that fit has written.")]
DataArgument = Annotated[
    Path,
    argument(
        "A table: CSV (also .gz), Parquet, Feather or Excel, told by its ending; or a folder of "
        "Parquet files."
    ),
]
TARGET = option("Column to predict.", metavar="COLUMN")
DOMAIN = option("Column that names the domain: site, patient, well.", metavar="COLUMN")
PositiveOption = Annotated[
    str | None,
    option(
        "Of two classes the one that measures such as F1 are about; the second if not given.",
        metavar="CLASS",
    ),
]
FeaturesOption = Annotated[
    Names, option("Feature columns, with commas between; all others if not given.")
]
DropOption = Annotated[Names, option("Columns to leave out, with commas between.")]
AutoDropOption = Annotated[
    bool, typer.Option("--auto-drop", help="Leave out columns that cannot be used.")
]
DatesOption = Annotated[
    str | None, option("Make numbers of dates: some of month, weekday, age, with commas between.")
]
EncodingOption = Annotated[str | None, option("Encoding of a CSV file (told from its bytes).")]
TaskOption = Annotated[str, typer.Option(help="auto, classification or regression.")]
SeedOption = Annotated[int, typer.Option(help="Seed of every random choice.")]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1: all cores.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass
class ColumnOptions:
    """Which columns and rows of a table are used."""

    features: FeaturesOption = None
    drop: DropOption = None
    drop_domains: Annotated[Names, option("Domains to leave out, with commas between.")] = None
    auto_drop: AutoDropOption = False
    dates: DatesOption = None


@dataclass
class ReadingOptions:
    """How the cells of a table are read."""

    decimal: Annotated[str | None, option("Decimal mark, . or , (told from the table).")] = None
    encoding: EncodingOption = None
    na: Annotated[
        Names, option("Values that stand for none, with commas between: -999,unknown.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """As functions that read tables take them."""
        return {**vars(self), "na": [word for text in self.na or () for word in parts_of(text)]}


def command(
    function: Callable[..., None], smaller: str = "try --method fastdcmcv or fastdcm"
) -> Callable[..., None]:
    """Make a command: errors in words, ``--debug``, and options in place of groups of them.

    What is ``smaller`` is advised where memory is not enough.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, each in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(each.annotation):
            groups[name] = each.annotation
            parameters += inspect.signature(groups[name]).parameters.values()
        else:
            parameters.append(each)
    kind = inspect.Parameter.KEYWORD_ONLY
    debug = inspect.Parameter("debug", kind, default=False, annotation=DebugOption)
    parameters = [*(each.replace(kind=kind) for each in parameters), debug]

    @wraps(function)
    def run(debug: bool, **given: Any) -> None:
        with reported_errors(debug, smaller):
            for name, group in groups.items():
                given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
            function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
