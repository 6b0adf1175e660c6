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
    """An option whose default is not shown."""
    return typer.Option(*names, help=about, show_default=False, **more)


def argument(about: str) -> Any:
    """An argument whose default is not shown."""
    return typer.Argument(help=about, show_default=False)


def flag(name: str, about: str) -> Any:
    """An option without a value."""
    return typer.Option(name, help=about)


Names = list[str] | None
ModelArgument = Annotated[Path, argument("Model file written by fit.")]
DataArgument = Annotated[
    Path,
    argument(
        "A table: CSV (also .gz), Parquet, Feather or Excel, by its file ending; or a folder of "
        "Parquet files."
    ),
]
TARGET = option("Column to predict.", metavar="COLUMN")
DOMAIN = option("Column that names the domain: site, patient, well.", metavar="COLUMN")
PositiveOption = Annotated[
    str | None,
    option(
        "The positive class, for two classes and metrics such as F1. Default: the second class.",
        metavar="CLASS",
    ),
]
FeaturesOption = Annotated[
    Names, option("Feature columns, separated by commas. Default: all other columns.")
]
DropOption = Annotated[Names, option("Columns to leave out, separated by commas.")]
AutoDropOption = Annotated[bool, flag("--auto-drop", "Leave out columns that cannot be used.")]
DatesOption = Annotated[
    str | None, option("Numbers to compute from dates: some of month,weekday,age.")
]
EncodingOption = Annotated[str | None, option("Encoding of a CSV file. Default: detected.")]
TaskOption = Annotated[str, typer.Option(help="auto, classification or regression.")]
SeedOption = Annotated[int, typer.Option(help="Seed of every random choice.")]
JobsOption = Annotated[
    int | None, typer.Option("--jobs", "-j", help="Processes. Default: one for each core.")
]
ForceOption = Annotated[bool, flag("--force", "Overwrite the output file.")]
JsonOption = Annotated[bool, flag("--json", "Print JSON.")]
DebugOption = Annotated[bool, flag("--debug", "Show the traceback of an error.")]


@dataclass
class ColumnOptions:
    """Which columns and rows of a table are used."""

    features: FeaturesOption = None
    drop: DropOption = None
    drop_domains: Annotated[Names, option("Domains to leave out, separated by commas.")] = None
    auto_drop: AutoDropOption = False
    dates: DatesOption = None


@dataclass
class ReadingOptions:
    """How the cells of a table are read."""

    decimal: Annotated[str | None, option("Decimal mark: . or , (default: detected).")] = None
    encoding: EncodingOption = None
    na: Annotated[Names, option("Values to read as missing, such as -999,unknown.")] = None

    def arguments(self) -> dict[str, Any]:
        """As functions that read tables take them."""
        return {**vars(self), "na": [word for text in self.na or () for word in parts_of(text)]}


def command(
    function: Callable[..., None], smaller: str = "try --method fastdcmcv or fastdcm"
) -> Callable[..., None]:
    """Make a command: errors become messages, ``--debug`` is added, and groups become options.

    ``smaller`` is the advice where memory is not enough.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += inspect.signature(groups[name], eval_str=True).parameters.values()
        else:
            parameters.append(parameter)
    kind = inspect.Parameter.KEYWORD_ONLY
    debug = inspect.Parameter("debug", kind, default=False, annotation=DebugOption)
    parameters = [*(parameter.replace(kind=kind) for parameter in parameters), debug]

    @wraps(function)
    def run(debug: bool, **values: Any) -> None:
        with reported_errors(debug, smaller):
            for name, group in groups.items():
                values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
            function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
