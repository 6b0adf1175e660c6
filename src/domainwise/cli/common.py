"""What the commands that read tables share: options, reading, errors and what is seen meanwhile."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

errors = Console(stderr=True, highlight=False)

ModelArgument = Annotated[
    Path, typer.Argument(help="A model file that fit has written.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
SeedOption = Annotated[int, typer.Option(help="Seed of every random choice.")]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1: all cores.")]

DataArgument = Annotated[
    Path,
    typer.Argument(
        help="A table: CSV (also .gz), Parquet, Feather or Excel, told by its ending; or a folder "
        "of Parquet files.",
        show_default=False,
    ),
]
TARGET = typer.Option(help="Column to predict.", metavar="COLUMN", show_default=False)
DOMAIN = typer.Option(
    help="Column that names the domain: site, patient, well.", metavar="COLUMN", show_default=False
)
TaskOption = Annotated[str, typer.Option(help="auto, classification or regression.")]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Feature columns, with commas between; all others if not given.", show_default=False
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(help="Columns to leave out, with commas between.", show_default=False),
]
DropDomainsOption = Annotated[
    list[str] | None,
    typer.Option(help="Domains to leave out, with commas between.", show_default=False),
]
AutoDropOption = Annotated[
    bool, typer.Option("--auto-drop", help="Leave out columns that cannot be used.")
]
DatesOption = Annotated[
    str | None,
    typer.Option(
        help="Make numbers of dates: some of month, weekday, age, with commas between.",
        show_default=False,
    ),
]
DecimalOption = Annotated[
    str | None, typer.Option(help="Decimal mark, . or , (told from the table).", show_default=False)
]
EncodingOption = Annotated[
    str | None,
    typer.Option(help="Encoding of a CSV file (told from its bytes).", show_default=False),
]
NaOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Values that stand for none, with commas between: -999,unknown.", show_default=False
    ),
]

#: Packages of an extra, by the extra's name.
_EXTRAS = {"report": ("matplotlib", "jinja2"), "data": ("pandas",)}


def read_input(
    data: Path, *, dates: str | None, read: Callable[..., Any] | None = None, **asked: Any
) -> Any:
    """Read and check the table that a command was given, with the arguments that were asked for.

    ``read`` stands in for :func:`~domainwise.tables.schema.load_table`.
    """
    from domainwise.tables.schema import load_table

    with working(f"reading {data}"):
        return (read or load_table)(data, dates=_parts(dates), **asked)


#: Arguments that say which columns and rows of a table are used, and for what.
_COLUMNS = ["target", "domain", "features", "drop", "drop_domains", "task", "auto_drop", "dates"]


def asked_of_table(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a command, whose ``locals()`` are given, was told about its table."""
    reading = reading_options(given["decimal"], given["encoding"], given["na"])
    return {name: given[name] for name in _COLUMNS} | reading


def reading_options(
    decimal: str | None, encoding: str | None, na: Sequence[str] | None
) -> dict[str, Any]:
    """Return how cells are read, as arguments of the functions that read tables."""
    words = [word for text in na or () for word in _parts(text)]
    return {"decimal": decimal, "encoding": encoding, "na": words}


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def in_options(error: BaseException) -> str:
    """Word an error with options where the library speaks of its arguments."""
    from domainwise.tables.errors import Argument

    return "".join(
        _option(part) if isinstance(part, Argument) else str(part)
        for part in getattr(error, "parts", [error])
    )


def _option(argument: Any) -> str:
    """How an argument is typed at a terminal: ``--drop a,b``."""
    option, value = "--" + argument.name.replace("_", "-"), argument.value
    if value is True:
        return option
    values = [str(part) for part in value] if isinstance(value, (list, tuple)) else [str(value)]
    if not any("," in part for part in values):
        values = [",".join(values)]
    return " ".join(f"{option} {shlex.quote(part)}" for part in values)


def check_seed(seed: int) -> None:
    """Refuse a seed that no generator takes."""
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")


def missing_packages(*names: str) -> str:
    """Name those packages that are not installed; empty if all are."""
    return " and ".join(name for name in names if importlib.util.find_spec(name) is None)


def shown(text: object) -> str:
    r"""Text of a file, or of whoever named it, as a terminal may have it: shown, never obeyed.

    >>> print(shown("a\x1b[2Jb [/c]"))
    a\x1b[2Jb \[/c]
    """
    marks = (
        mark if mark.isprintable() or mark == "\n" else mark.encode("unicode_escape").decode()
        for mark in str(text)
    )
    return escape("".join(marks))


def print_plain_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, whatever characters they hold."""
    for note in notes:
        errors.print(f"[yellow]note:[/yellow] {shown(note)}", soft_wrap=True)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr, where that is a terminal; yields a function that changes its words."""
    if not errors.is_terminal:
        yield lambda words: None
        return
    with errors.status(shown(what)) as status:
        yield lambda words: status.update(shown(words))


@contextmanager
def reported_errors(
    debug: bool, smaller: str = "try --method fastdcmcv or fastdcm"
) -> Iterator[None]:
    """Turn errors into a message and an exit code: 2 for unusable input, 1 for the rest."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        fail("interrupted: every output is complete or as it was", 1, debug=debug)
    except (ValueError, OSError, ImportError) as error:
        fail(in_options(error), 2, debug=debug)
    except MemoryError:
        fail(f"out of memory: {smaller}", 1, debug=debug)
    except Exception as error:
        fail(f"{type(error).__name__}: {error} (--debug shows where)", 1, debug=debug)


def fail(message: str, code: int, *, debug: bool = False) -> NoReturn:
    """Print an error and leave with an exit code."""
    if debug:
        errors.print(traceback.format_exc(), markup=False, soft_wrap=True)
    errors.print("[red]error:[/red]", end=" ")
    errors.print(shown(message), soft_wrap=True)
    raise typer.Exit(code) from None


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors about the user's input into a message and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError, ImportError) as error:
        fail(str(error), 2)


def require(extra: str, without: str = "") -> None:
    """Refuse to go on without an extra, by its name, or the option that does without."""
    if missing := missing_packages(*_EXTRAS[extra]):
        other = f", or leave it out with {without}" if without else ""
        raise ImportError(f'{missing} missing: pip install "domainwise[{extra}]"{other}')
    for name in _EXTRAS[extra]:  # an installation that is broken is told here, not at the end
        importlib.import_module(name)
