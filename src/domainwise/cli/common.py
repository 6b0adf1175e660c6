"""What the commands that read tables share: options, reading, errors and what is seen meanwhile."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from domainwise.tables.schema import Table

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
        help="A table: CSV (also .gz), Parquet or Feather, told by its ending; or a folder of "
        "Parquet files.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    str, typer.Option(help="Column to predict.", metavar="COLUMN", show_default=False)
]
DomainOption = Annotated[
    str,
    typer.Option(
        help="Column that names the domain: site, patient, well.",
        metavar="COLUMN",
        show_default=False,
    ),
]
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

#: Packages of an extra, by the extra's name.
_EXTRAS = {"report": ("matplotlib", "jinja2"), "data": ("pandas",)}


def read_input(
    data: Path,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None,
    drop: Sequence[str] | None,
    drop_domains: Sequence[str] | None,
    task: str,
) -> Table:
    """Read and check the table that a command was given."""
    from domainwise.tables.schema import load_table, split_names, table_columns

    with working(f"reading {data}"):
        names = table_columns(data)
        return load_table(
            data,
            target=target,
            domain=domain,
            features=split_names(features, names),
            drop=split_names(drop, names),
            drop_domains=drop_domains,
            task=task,
        )


def check_seed(seed: int) -> None:
    """Refuse a seed that no generator takes."""
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")


def missing_packages(*names: str) -> str:
    """Name those packages that are not installed; empty if all are."""
    return " and ".join(name for name in names if importlib.util.find_spec(name) is None)


def print_plain_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr, whatever characters they hold."""
    for note in notes:
        errors.print(f"[yellow]note:[/yellow] {escape(note)}", soft_wrap=True)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr, where that is a terminal; yields a function that changes its words."""
    if not errors.is_terminal:
        yield lambda words: None
        return
    with errors.status(escape(what)) as status:
        yield lambda words: status.update(escape(words))


@contextmanager
def reported_errors(debug: bool) -> Iterator[None]:
    """Turn errors into a message and an exit code: 2 for unusable input, 1 for the rest."""
    try:
        yield
    except KeyboardInterrupt:
        fail("interrupted: nothing was written", 1, debug=debug)
    except (ValueError, OSError, ImportError) as error:
        fail(str(error), 2, debug=debug)
    except MemoryError:
        fail("out of memory: try --method fastdcmcv or fastdcm", 1, debug=debug)
    except Exception as error:
        fail(f"{type(error).__name__}: {error} (--debug shows where)", 1, debug=debug)


def fail(message: str, code: int, *, debug: bool = False) -> NoReturn:
    """Print an error and leave with an exit code."""
    if debug:
        errors.print(traceback.format_exc(), markup=False, soft_wrap=True)
    errors.print("[red]error:[/red]", end=" ")
    errors.print(message, markup=False, soft_wrap=True)
    raise typer.Exit(code) from None


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn errors about the user's input into a message and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError, ImportError) as error:
        fail(str(error), 2)


def require(extra: str) -> None:
    """Refuse to go on without an extra, by its name."""
    if missing := missing_packages(*_EXTRAS[extra]):
        raise ImportError(f'{missing} missing: pip install "domainwise[{extra}]"')
