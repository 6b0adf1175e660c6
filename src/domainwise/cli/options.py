"""Options that several commands share, and the decorator that turns a function into a command.

A command declares a parameter as ``Annotated[type, help]``. Further strings are the placeholder for
its value in ``--help``, such as ``"COLUMN"``, and its flags, if they differ from ``--name``.
Keyword-only parameters are options; all others are arguments. A parameter whose type is a dataclass
is replaced by the fields of the dataclass.
"""

import inspect
import re
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
from domainwise.cli.common import escaped, split_commas, stderr

Names = list[str] | None

Model = Annotated[Path, "Model file written by fit or adapt."]
Data = Annotated[
    Path,
    "Table to read: a CSV (or .csv.gz), Parquet, Feather or Excel file, or a folder of Parquet "
    "files.",
]
Target = Annotated[str | None, "Column to predict.", "COLUMN"]
Domain = Annotated[
    str | None, "Column with the domain of each row, such as its site or patient.", "COLUMN"
]
Weight = Annotated[
    str | None,
    "Column that says how often each row counts in fits and scores; a row of weight 0 is left out.",
    "COLUMN",
]
Task = Annotated[str, 'classification, regression, or "auto" to decide from the target.', "TASK"]
Positive = Annotated[
    str | None,
    "Positive class of a binary target, for metrics such as F1. Default: the second class.",
    "CLASS",
]
Threshold = Annotated[
    float | None,
    "Smallest probability for which the positive class is predicted, between 0 and 1. Default: "
    "depends on the metric and on the frequency of the class.",
    "PROBABILITY",
]
Encoding = Annotated[str | None, "Encoding of a CSV file. By default, it is detected."]
Seed = Annotated[int, "Random seed."]
Jobs = Annotated[int | None, "Number of processes. Default: one per core.", "-j"]
Dask = Annotated[
    str | None,
    'Compute on a Dask cluster: the address of its scheduler, or "local" to start a cluster on '
    "this machine.",
    "ADDRESS|local",
]
ModelOut = Annotated[Path, "Model file to write (.skops).", "FILE", "-o"]
Force = Annotated[bool, "Overwrite the output file if it exists."]
#: Options that every command has.
COMMON_OPTIONS = {"json": "Print JSON instead of text.", "debug": "Show the traceback of an error."}
#: Terms that replace the names of Python arguments in error messages.
_TERMS = {"scoring": "metric", "inner_scoring": "--inner-metric", "pos_label": "--positive"}
_TERMS |= {"predictor": "--predictor"}
#: Placeholder for an option's value in ``--help``, by type.
_METAVARS: Any = {int: "N", float: "NUMBER", str: "NAME", list[str]: "NAMES", Path: "PATH"}


@dataclass(kw_only=True)
class ColumnOptions:
    """Options that select the columns and rows of a table."""

    features: Annotated[
        Names, "Feature columns, separated by commas. Default: all except target and domain."
    ] = None
    drop: Annotated[Names, "Columns to exclude, separated by commas."] = None
    auto_drop: Annotated[bool, "Exclude columns that cannot be used as features."] = False
    dates: Annotated[
        str | None,
        "Features to compute from date columns, separated by commas: month, weekday, age (years "
        "from each date to the latest date in the table).",
        "PARTS",
    ] = None
    drop_domains: Annotated[Names, "Domains to exclude, separated by commas."] = None


@dataclass(kw_only=True)
class ReadingOptions:
    """Options that control how the cells of a table are read."""

    decimal: Annotated[
        str | None, "Decimal mark, a point or a comma. By default, it is detected.", "CHARACTER"
    ] = None
    encoding: Encoding = None
    na: Annotated[Names, "Values to treat as missing, such as -999,unknown.", "VALUES"] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of functions that read tables."""
        return {**vars(self), "na": [cell for text in self.na or () for cell in split_commas(text)]}


class PartialFailure(Exception):
    """Raised if a step fails after results have been written."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn a function into a command: declare its options for Typer, and report errors.

    ``--json`` and ``--debug`` are added. An error becomes a message and an exit code: 2 for
    invalid input, 1 for other errors.
    """
    parameters: list[inspect.Parameter] = []
    group_types: dict[str, Any] = {}
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            group_types[name] = parameter.annotation
            parameters += inspect.signature(group_types[name], eval_str=True).parameters.values()
        else:
            parameters.append(parameter)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    for name, help_text in COMMON_OPTIONS.items():
        option = inspect.Parameter(name, keyword_only, default=False)
        parameters.append(option.replace(annotation=Annotated[bool, help_text]))
    parameters = [p.replace(annotation=_typer_annotation(p), kind=keyword_only) for p in parameters]

    @wraps(function)
    def run(json: bool, debug: bool, **arguments: Any) -> None:
        def fail(message: str, exit_code: int) -> NoReturn:
            if debug:
                stderr().print(traceback.format_exc(), markup=False, soft_wrap=True)
            stderr().print("[red]error:[/red]", end=" ")
            stderr().print(escaped(message), soft_wrap=True)
            raise typer.Exit(exit_code) from None

        common.mode["json"] = json
        try:
            if not 0 <= (seed := arguments.get("seed", 0)) < 2**32:
                raise ValueError(f"--seed must be between 0 and 2**32 - 1; got {seed}")
            for name, group_type in group_types.items():
                group_arguments = {f.name: arguments.pop(f.name) for f in fields(group_type)}
                arguments[name] = group_type(**group_arguments)
            function(**arguments)
        except (typer.Exit, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            fail("interrupted; output files are either complete or unchanged", 1)
        except (ValueError, OSError, ImportError) as error:
            fail("".join(map(_format_part, getattr(error, "parts", [error]))), 2)
        except PartialFailure as error:
            fail(str(error), 1)
        except MemoryError:
            fail("out of memory; use fewer rows or columns", 1)
        except Exception as error:
            fail(f"{type(error).__name__}: {error} (use --debug to show the traceback)", 1)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _typer_annotation(parameter: inspect.Parameter) -> Any:
    """Return the annotation with its strings replaced by a Typer option or argument."""
    base, *strings = get_args(parameter.annotation) or [parameter.annotation]
    if get_origin(parameter.annotation) is not Annotated or not isinstance(strings[0], str):
        return parameter.annotation
    help_text, *strings = strings
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        metavar = parameter.name.upper()
        return Annotated[base, typer.Argument(help=help_text, metavar=metavar, show_default=False)]
    flags = [text for text in strings if text.startswith("-")]
    metavars = [text for text in strings if text not in flags]
    value_type = get_args(base)[0] if isinstance(base, UnionType) else base
    has_off_flag = value_type is bool and parameter.default is not False
    if not has_off_flag and not any(flag.startswith("--") for flag in flags):
        flags.insert(0, f"--{parameter.name.replace('_', '-')}")
    metavar = metavars[0] if metavars else _METAVARS.get(value_type)
    return Annotated[base, typer.Option(*flags, help=help_text, metavar=metavar)]


def _format_part(part: Any) -> str:
    """Format a part of an error message; arguments become options such as ``--drop a``."""
    from domainwise.tables.errors import Argument

    if not isinstance(part, Argument):
        return re.sub(rf"\b({'|'.join(_TERMS)})=(?=')", lambda m: f"{_TERMS[m[1]]} ", str(part))
    option, value = "--" + part.name.replace("_", "-"), part.value
    if value is True:
        return option
    texts = [str(entry) for entry in value] if isinstance(value, (list, tuple)) else [str(value)]
    if not any("," in text for text in texts):
        texts = [",".join(texts)]
    return " ".join(f"{option} {shlex.quote(text)}" for text in texts)


def refuse_options(context: typer.Context, accepted_names: set[str], reason: str) -> None:
    """Raise an error if an option was passed that is not in ``accepted_names``."""
    for name in sorted(context.params.keys() - accepted_names - COMMON_OPTIONS.keys()):
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
            raise ValueError(f"remove --{name.replace('_', '-')}: {reason}")
