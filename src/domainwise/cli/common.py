"""What commands share: reading tables, errors in words, and what is seen meanwhile."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

errors = Console(stderr=True, highlight=False)


class Unfinished(Exception):
    """Something failed, in words, after results had been written."""


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
        return (read or load_table)(data, dates=parts_of(dates), **asked)


def parts_of(text: str | None) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _in_options(error: BaseException) -> str:
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
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be 0 or more, and less than 2**32, got {seed}")


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
def reported_errors(debug: bool, smaller: str) -> Iterator[None]:
    """Turn errors into a message and an exit code: 2 for unusable input, 1 for the rest."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("interrupted: every output is complete or as it was", 1, debug=debug)
    except (ValueError, OSError, ImportError) as error:
        _fail(_in_options(error), 2, debug=debug)
    except Unfinished as error:
        _fail(str(error), 1, debug=debug)
    except MemoryError:
        _fail(f"out of memory: {smaller}", 1, debug=debug)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error} (--debug shows where)", 1, debug=debug)


def _fail(message: str, code: int, *, debug: bool = False) -> NoReturn:
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
        _fail(str(error), 2)


def require(extra: str, without: str = "") -> None:
    """Refuse to go on without an extra, by its name, or the option that does without."""
    missing = [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        other = f", or leave it out with {without}" if without else ""
        names = " and ".join(missing)
        raise ImportError(f'{names} missing: pip install "domainwise[{extra}]"{other}')
    for name in _EXTRAS[extra]:  # an installation that is broken is told here, not at the end
        importlib.import_module(name)
