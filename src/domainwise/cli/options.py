"""Options that commands share, and the decorator that makes a function a command.

A command declares a parameter as ``Annotated[type, help]``. Further strings are the name of its
value in ``--help``, such as ``"COLUMN"``, and its flags, where these are not ``--name`` alone.
Keyword-only parameters are options, others arguments. A parameter whose type is a dataclass stands
for all options that the dataclass declares.
"""

import inspect
import shlex
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NoReturn, get_args, get_origin

import typer

from domainwise.cli import common
from domainwise.cli.common import parts_of, shown, stderr

Names = list[str] | None

Model = Annotated[Path, "Model file written by fit."]
Data = Annotated[
    Path,
    "A table: CSV (also .gz), Parquet, Feather or Excel, by its file extension; or a folder of "
    "Parquet files.",
]
Target = Annotated[str | None, "Column to predict.", "COLUMN"]
Domain = Annotated[
    str | None, "Column that names the domain of a row, such as its site or patient.", "COLUMN"
]
Task = Annotated[str, "auto, classification or regression.", "TASK"]
Positive = Annotated[
    str | None,
    "The positive class, for two classes and metrics such as F1. Default: the second class.",
    "CLASS",
]
Encoding = Annotated[str | None, "Encoding of a CSV file. Default: detected."]
Seed = Annotated[int, "Seed of every random choice."]
Jobs = Annotated[int | None, "Number of processes. Default: one per core.", "-j"]
Dask = Annotated[
    str | None,
    "Compute on a Dask cluster: the scheduler's address, or local to start one here.",
    "ADDRESS|local",
]
ModelOut = Annotated[Path, "Model file to write (.skops).", "FILE", "-o"]
Force = Annotated[bool, "Overwrite the output file."]
#: Options of every command.
EVERYWHERE = {"json": "Print JSON instead of text.", "debug": "Show the traceback of an error."}
#: Name of an option's value in ``--help``, by its type.
_VALUES: dict[Any, str] = {
    int: "N", float: "NUMBER", str: "NAME", list[str]: "NAMES", Path: "PATH"
}  # fmt: skip


@dataclass(kw_only=True)
class FeatureOptions:
    """Which columns are features."""

    features: Annotated[
        Names, "Feature columns, separated by commas. Default: all other columns."
    ] = None
    drop: Annotated[Names, "Columns to leave out, separated by commas."] = None
    auto_drop: Annotated[bool, "Leave out columns that cannot be used."] = False
    dates: Annotated[
        str | None, "Numbers to extract from dates, for example month,weekday,age.", "PARTS"
    ] = None


@dataclass(kw_only=True)
class ColumnOptions(FeatureOptions):
    """Which columns and rows of a table are used."""

    drop_domains: Annotated[Names, "Domains to leave out, separated by commas."] = None


@dataclass(kw_only=True)
class ReadingOptions:
    """How the cells of a table are read."""

    decimal: Annotated[
        str | None, "Decimal mark: a point or a comma. Default: detected.", "MARK"
    ] = None
    encoding: Encoding = None
    na: Annotated[Names, "Values to read as missing, such as -999,unknown.", "VALUES"] = None

    def arguments(self) -> dict[str, Any]:
        """Return these options as arguments of functions that read tables."""
        return {**vars(self), "na": [word for text in self.na or () for word in parts_of(text)]}


class Unfinished(Exception):
    """Something failed after results had been written; the message says what to do."""


def command(
    function: Callable[..., None], smaller: str = "try --method fastdcmcv or fastdcm"
) -> Callable[..., None]:
    """Make a function a command: declare its options for Typer, and report errors.

    ``--json`` and ``--debug`` are added. An error becomes a message and an exit code: 2 for
    unusable input, 1 for the rest. ``smaller`` is the advice if memory runs out.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            parameters += inspect.signature(groups[name], eval_str=True).parameters.values()
        else:
            parameters.append(parameter)
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, about in EVERYWHERE.items():
        annotation = Annotated[bool, about]
        parameters.append(inspect.Parameter(name, keyword, default=False, annotation=annotation))
    parameters = [p.replace(annotation=_declared(p), kind=keyword) for p in parameters]

    @wraps(function)
    def run(json: bool, debug: bool, **values: Any) -> None:
        def fail(message: str, code: int) -> NoReturn:
            if debug:
                stderr().print(traceback.format_exc(), markup=False, soft_wrap=True)
            stderr().print("[red]error:[/red]", end=" ")
            stderr().print(shown(message), soft_wrap=True)
            raise typer.Exit(code) from None

        common.mode["json"] = json
        try:
            if not 0 <= (seed := values.get("seed", 0)) < 2**32:
                raise ValueError(f"--seed must be from 0 to 2**32 - 1, got {seed}")
            for name, group in groups.items():
                values[name] = group(**{f.name: values.pop(f.name) for f in fields(group)})
            function(**values)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            fail("interrupted: output files are either complete or unchanged", 1)
        except (ValueError, OSError, ImportError) as error:
            fail("".join(map(_typed, getattr(error, "parts", [error]))), 2)
        except Unfinished as error:
            fail(str(error), 1)
        except MemoryError:
            fail(f"out of memory: {smaller}", 1)
        except Exception as error:
            fail(f"{type(error).__name__}: {error} (--debug shows the traceback)", 1)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _declared(parameter: inspect.Parameter) -> Any:
    """Return the annotation with its strings replaced by an option or argument of Typer."""
    kind, *strings = get_args(parameter.annotation) or [parameter.annotation]
    if get_origin(parameter.annotation) is not Annotated or not isinstance(strings[0], str):
        return parameter.annotation
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        return Annotated[kind, typer.Argument(help=strings[0], show_default=False)]
    flags = [text for text in strings[1:] if text.startswith("-")]
    value = [text for text in strings[1:] if text not in flags]
    of_values = get_args(kind)[0] if isinstance(kind, UnionType) else kind
    on_and_off = of_values is bool and parameter.default is not False
    if not on_and_off and not any(flag.startswith("--") for flag in flags):
        flags.insert(0, f"--{parameter.name.replace('_', '-')}")
    metavar = value[0] if value else _VALUES.get(of_values)
    return Annotated[kind, typer.Option(*flags, help=strings[0], metavar=metavar)]


def _typed(part: Any) -> str:
    """Format a part of a message; library arguments become options such as ``--drop a``."""
    from domainwise.tables.errors import Argument

    if not isinstance(part, Argument):
        return str(part)
    option, value = "--" + part.name.replace("_", "-"), part.value
    if value is True:
        return option
    values = [str(entry) for entry in value] if isinstance(value, (list, tuple)) else [str(value)]
    if not any("," in text for text in values):
        values = [",".join(values)]
    return " ".join(f"{option} {shlex.quote(text)}" for text in values)


def refuse_options(context: typer.Context, accepted: str, reason: str) -> None:
    """Refuse options on the command line, except those whose parameters are ``accepted``."""
    for name in sorted(context.params.keys() - {*accepted.split(), *EVERYWHERE}):
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
            raise ValueError(f"leave out --{name.replace('_', '-')}: {reason}")
