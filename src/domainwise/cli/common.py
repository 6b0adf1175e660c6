"""Functions that commands share: printing, reading a table, and checking outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

# Printing: Rich is imported where something is printed, so that --help is quick -------------------


#: Whether ``--json`` was passed: stdout has JSON then, and no text.
mode = {"json": False}


def stdout() -> Console:
    """The console for results; with ``--json`` it prints nothing."""
    return _console(stderr=False, quiet=mode["json"])


def stderr() -> Console:
    """The console for notes, progress and errors."""
    return _console(stderr=True, quiet=False)


@cache
def _console(**options: bool) -> Console:
    from rich.console import Console

    return Console(**options, highlight=False)  # type: ignore[arg-type]


def shown(text: object) -> str:
    r"""Make text of a file or a user safe for a terminal: control characters become codes.

    >>> print(shown("a\x1b[2Jb [/c]"))
    a\x1b[2Jb \[/c]
    """
    from rich.markup import escape

    safe = (c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(text))
    return escape("".join(safe))


def print_json(answer: dict[str, Any] | list[Any], *, end: bool = False) -> None:
    """With ``--json``, print the answer on stdout; ``end`` then ends the command, without text."""
    if mode["json"]:
        typer.echo(json.dumps(answer, indent=2))
        if end:
            raise typer.Exit


def print_notes(console: Console, notes: Iterable[object]) -> None:
    """Print notes, one per line."""
    for note in notes:
        console.print(f"[yellow]note:[/yellow] {shown(note)}", soft_wrap=True)


def print_written(path: Path, console: Console | None = None) -> None:
    """Print the name and the size of a file that was written."""
    text = f"wrote [bold]{shown(path)}[/bold] ({size_of(path)})"
    (console or stdout()).print(text, soft_wrap=True)


def print_page(page: Path) -> None:
    """Print the path of a report page."""
    stdout().print(f"report: [bold]{shown(page)}[/] (open it in a browser)", soft_wrap=True)


def print_facts(console: Console, facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, without those whose value is None."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=15)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value is not None:
            grid.add_row(name, shown(value))
    console.print(grid)


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], wrapped: Collection[str] = ()
) -> Any:
    """Return a table without lines; the first column and ``wrapped`` are text, others numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: Any = "left" if name in (columns[0], *wrapped) else "right"
        table.add_column(shown(name), justify=justify, no_wrap=name not in wrapped)
    for row in rows:
        table.add_row(*row)
    return table


def size_of(path: Path) -> str:
    """Size of a file, such as "24.1 kB"."""
    from rich.filesize import decimal

    return decimal(path.stat().st_size)


@contextmanager
def working(message: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on stderr if it is a terminal; yields a function to change its message."""
    if not stderr().is_terminal:
        yield lambda message: None
        return
    with stderr().status(shown(message)) as status:
        yield lambda message: status.update(shown(message))


# Inputs -------------------------------------------------------------------------------------------


def require(extra: str, without: str = "") -> None:
    """Refuse to run without the packages of an extra; ``without`` is an option that avoids them.

    They are imported, so that a broken installation is reported now and not at the end.
    """
    from domainwise.checks import needs_extra

    with needs_extra(f"this command without {without}" if without else "this command", extra):
        for name in {"report": ("matplotlib", "jinja2"), "data": ("pandas",)}[extra]:
            import_module(name)


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
    """Split a text at commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


# Outputs: checked before any work is done ---------------------------------------------------------


def check_output(out: Path, force: bool, *endings: str) -> None:
    """Refuse an output file that cannot be written, or without ``endings`` a folder of parts.

    Such a folder may contain the parts of an earlier run and nothing else.
    """
    if endings and not out.name.lower().endswith(endings):
        raise ValueError(f"{out}: choose an output that ends in {' or '.join(endings)}")
    if not out.parent.is_dir():
        raise ValueError(
            f"the folder {out.parent} does not exist: create it first, or choose another output"
        )
    if not out.exists():
        return
    if endings and not out.is_file():
        kind = "a folder" if out.is_dir() else "not a regular file"
        raise ValueError(f"{out} is {kind}; choose a file")
    if not endings and not out.is_dir():
        raise ValueError(f"{out} is a file; choose another output")
    others = [] if endings else [p.name for p in out.iterdir() if not p.match("part-*.parquet")]
    if others:
        raise ValueError(f"{out} also contains {min(others)}; choose an empty or a new folder")
    if not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or choose another output")


def check_apart(new: Path, out: Path) -> None:
    """Refuse an output that is the input, contains it, or lies inside it."""
    source, target = new.resolve(), out.resolve()
    for problem, present in (
        ("is the input", new.exists() and out.exists() and out.samefile(new)),
        ("contains the input", target in source.parents),
        ("is inside the input", source in target.parents),
    ):
        if present:
            raise ValueError(f"{out} {problem}; choose another output")
