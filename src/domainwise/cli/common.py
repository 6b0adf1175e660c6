"""What commands share: printing, error messages, and checks of inputs and outputs."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shlex
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

# Printing: Rich is imported where something is printed, so that --help is quick -------------------


@cache
def stdout() -> Console:
    """The console for results."""
    from rich.console import Console

    return Console(highlight=False)


@cache
def stderr() -> Console:
    """The console for notes, progress and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def shown(text: object) -> str:
    r"""Text of a file or a user, made safe for a terminal: control characters are printed as codes.

    >>> print(shown("a\x1b[2Jb [/c]"))
    a\x1b[2Jb \[/c]
    """
    from rich.markup import escape

    marks = (
        mark if mark.isprintable() or mark == "\n" else mark.encode("unicode_escape").decode()
        for mark in str(text)
    )
    return escape("".join(marks))


def print_json(answer: dict[str, Any] | list[Any]) -> None:
    """Print JSON on stdout."""
    typer.echo(json.dumps(answer, indent=2))


def print_notes(console: Console, notes: Iterable[object]) -> None:
    """Print notes, one per line."""
    for note in notes:
        console.print(f"[yellow]note:[/yellow] {shown(note)}", soft_wrap=True)


def print_written(path: Path) -> None:
    """Print the name and the size of a file that was written."""
    stdout().print(f"wrote [bold]{shown(path)}[/bold] ({size_in_words(path)})", soft_wrap=True)


def print_page(page: Path) -> None:
    """Print where a page is."""
    stdout().print(f"report: [bold]{shown(page)}[/] (open it in a browser)", soft_wrap=True)


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], wrapped: Collection[str] = ()
) -> Any:
    """A table without lines: the first column and those of ``wrapped`` are text, others numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: Any = "left" if name in (columns[0], *wrapped) else "right"
        table.add_column(shown(name), justify=justify, no_wrap=name not in wrapped)
    for row in rows:
        table.add_row(*row)
    return table


def size_in_words(path: Path) -> str:
    """Size of a file, such as "24 kB"."""
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


@contextmanager
def working(message: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr, if that is a terminal; yields a function that changes its message."""
    if not stderr().is_terminal:
        yield lambda message: None
        return
    with stderr().status(shown(message)) as status:
        yield lambda message: status.update(shown(message))


# Errors -------------------------------------------------------------------------------------------


class Unfinished(Exception):
    """Something failed after results had been written; the message says what to do."""


@contextmanager
def reported_errors(debug: bool, smaller: str) -> Iterator[None]:
    """Turn errors into a message and an exit code: 2 for unusable input, 1 for the rest.

    ``smaller`` says what to do where memory is not enough.
    """
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("interrupted: output files are either complete or unchanged", 1, debug)
    except (ValueError, OSError, ImportError) as error:
        _fail(_in_options(error), 2, debug)
    except Unfinished as error:
        _fail(str(error), 1, debug)
    except MemoryError:
        _fail(f"out of memory: {smaller}", 1, debug)
    except Exception as error:
        _fail(f"{type(error).__name__}: {error} (--debug shows the traceback)", 1, debug)


def _fail(message: str, code: int, debug: bool) -> NoReturn:
    """Print an error and leave with an exit code."""
    if debug:
        stderr().print(traceback.format_exc(), markup=False, soft_wrap=True)
    stderr().print("[red]error:[/red]", end=" ")
    stderr().print(shown(message), soft_wrap=True)
    raise typer.Exit(code) from None


def _in_options(error: BaseException) -> str:
    """Message of an error, with options in place of the library's arguments."""
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


# Inputs -------------------------------------------------------------------------------------------

#: Packages of an extra, by the extra's name.
_EXTRAS = {"report": ("matplotlib", "jinja2"), "data": ("pandas",)}


def require(extra: str, without: str = "") -> None:
    """Refuse to go on without the packages of an extra; ``without`` is an option that needs none.

    They are imported, so that a broken installation is reported now and not at the end.
    """
    missing = [name for name in _EXTRAS[extra] if importlib.util.find_spec(name) is None]
    if missing:
        other = f", or use {without}" if without else ""
        names = " and ".join(missing)
        raise ImportError(f'{names} missing: pip install "domainwise[{extra}]"{other}')
    for name in _EXTRAS[extra]:
        importlib.import_module(name)


def read_input(
    data: Path, *, dates: str | None, read: Callable[..., Any] | None = None, **arguments: Any
) -> Any:
    """Read and check the table of a command.

    ``read`` replaces :func:`~domainwise.tables.schema.load_table`; other arguments are passed on.
    """
    from domainwise.tables.schema import load_table

    with working(f"reading {data}"):
        return (read or load_table)(data, dates=parts_of(dates), **arguments)


def parts_of(text: str | None) -> list[str]:
    """The parts of a text between commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def check_seed(seed: int) -> None:
    """Refuse a seed that no generator takes."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"--seed must be 0 or more, and less than 2**32, got {seed}")


# Outputs: refused before any work is done where they cannot be written ----------------------------


def check_output(out: Path, force: bool, endings: list[str]) -> None:
    """Refuse an output file that cannot be written."""
    if not any(out.name.lower().endswith(ending) for ending in endings):
        raise ValueError(f"{out}: name an output that ends in {' or '.join(endings)}")
    if out.exists() and not out.is_file():
        kind = "a folder" if out.is_dir() else "not a regular file"
        raise ValueError(f"{out} is {kind}; name a file")
    check_parent(out)
    if out.exists() and not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def check_apart(new: Path, out: Path) -> None:
    """Refuse an output that is the input, or one that is part of the other."""
    if new.exists() and out.exists() and out.samefile(new):
        raise ValueError(f"{out} is the input; name another output")
    if out.resolve() in new.resolve().parents:
        raise ValueError(f"{out} contains the input; name another output")
    if new.resolve() in out.resolve().parents:
        raise ValueError(f"{out} is inside the input; name another output")


def check_part_folder(out: Path, force: bool) -> None:
    """Refuse a folder that contains anything but the output of an earlier run."""
    if not out.exists():
        check_parent(out)
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file; name another output")
    foreign = [path.name for path in out.iterdir() if not path.match("part-*.parquet")]
    if foreign:
        raise ValueError(f"{out} also contains {min(foreign)}; name an empty or a new folder")
    if not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def check_parent(out: Path) -> None:
    """Refuse an output in a folder that does not exist."""
    if not out.parent.is_dir():
        raise ValueError(
            f"the folder {out.parent} does not exist: create it first, or name another output"
        )
