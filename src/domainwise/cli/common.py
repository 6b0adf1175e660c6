"""Functions that commands share: printing, reading tables, checking outputs, and clusters."""

from __future__ import annotations

import json
import logging
import re
import signal
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


# Printing: Rich is imported inside functions, so that --help is fast ------------------------------

#: Whether ``--json`` was passed. If so, only JSON is written to stdout.
mode = {"json": False}


def stdout() -> Console:
    """Return the console for results; with ``--json`` it prints nothing."""
    return _console(stderr=False, quiet=mode["json"])


def stderr() -> Console:
    """Return the console for notes, progress and errors."""
    return _console(stderr=True, quiet=False)


@cache
def _console(**options: bool) -> Console:
    from rich.console import Console

    return Console(**options, highlight=False)  # type: ignore[arg-type]


def escaped(text: object) -> str:
    r"""Escape control characters and Rich markup, so that the text is safe to print.

    >>> print(escaped("a\x1b[2Jb [/c]"))
    a\x1b[2Jb \[/c]
    """
    from rich.markup import escape

    return escape("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in str(text)))


def print_json(output: dict[str, Any] | list[Any], *, then_exit: bool = False) -> None:
    """With ``--json``, print the output on stdout, and exit if ``then_exit`` is True."""
    if mode["json"]:
        typer.echo(json.dumps(output, indent=2))
        if then_exit:
            raise typer.Exit


def print_line(console: Console, text: str) -> None:
    """Print a line; in a terminal, it is broken between words."""
    console.print(text, soft_wrap=not console.is_terminal)


def print_notes(console: Console, notes: Iterable[object]) -> None:
    """Print notes, one per line."""
    for note in notes:
        print_line(console, f"[yellow]note:[/yellow] {escaped(note)}")


def print_written(path: Path) -> None:
    """Print the path and size of a file that was written."""
    stdout().print(f"wrote [bold]{escaped(path)}[/bold] ({size_of(path)})", soft_wrap=True)


def print_facts(console: Console, facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns; omit rows whose value is None."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=15)
    grid.add_column(overflow="fold")
    for name, value in facts:
        if value is not None:
            grid.add_row(name, escaped(value))
    console.print(grid)


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Collection[str] = ()
) -> Any:
    """Return a table without borders.

    The first column and the columns named in ``text_columns`` contain text, the others numbers.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        justify: Any = "left" if name in (header[0], *text_columns) else "right"
        table.add_column(escaped(name), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def count(number: int, noun: str) -> str:
    """Return a number and its noun, such as "1 row" or "1,000 rows"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size_of(path: Path) -> str:
    """Return the size of a file, such as "24.1 kB"."""
    from rich.filesize import decimal

    return decimal(path.stat().st_size)


@contextmanager
def spinner(message: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner on stderr if it is a terminal; yield a function that changes its message."""
    if not stderr().is_terminal:
        yield lambda message: None
        return
    with stderr().status(escaped(message)) as status:
        yield lambda message: status.update(escaped(message))


# Inputs -------------------------------------------------------------------------------------------


def require_report(unless: str = "") -> None:
    """Raise an error if the extra ``report`` is missing, which the option ``unless`` avoids.

    The packages are imported, so that a broken installation is reported before any work is done.
    """
    from domainwise.base.messages import needs_extra

    with needs_extra(f"without {unless}, this command" if unless else "this command", "report"):
        for module_name in ("matplotlib", "jinja2"):
            import_module(module_name)


def read_input(
    data: Path, *, dates: str | None, read: Callable[..., Any] | None = None, **arguments: Any
) -> Any:
    """Read and check the input table of a command.

    Other arguments are passed to ``read``, by default :func:`~domainwise.tables.schema.load_table`.
    """
    from domainwise.tables.schema import load_table

    with spinner(f"reading {data}"):
        return (read or load_table)(data, dates=split_commas(dates), **arguments)


def parse_seconds(text: str) -> float:
    """Return a duration such as 90, 90s, 5m or 1.5h in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text.strip())
    if match is None or float(match[1]) == 0:
        raise ValueError(f'--budget must be a time such as 90s, 5m or 1h, or "auto"; got {text!r}')
    return float(match[1]) * {"m": 60, "h": 3600}.get(match[2], 1)


def split_commas(text: str | None) -> list[str]:
    """Return the non-empty items of a list separated by commas."""
    return [item.strip() for item in (text or "").split(",") if item.strip()]


# Outputs: checked before any work is done ---------------------------------------------------------


def check_output(out: Path, force: bool, *endings: str) -> None:
    """Refuse an output that cannot be written or would overwrite other data.

    The output is a file with one of the ``endings``. Without ``endings`` it is a folder, which may
    contain Parquet files from an earlier run but nothing else.
    """
    if endings and not out.name.lower().endswith(endings):
        from domainwise.base.messages import listed

        ending = listed(endings, conjunction=" or ")
        raise ValueError(f"the output file {out} must end in {ending}; choose another name")
    if not out.parent.is_dir():
        raise ValueError(
            f"the folder {out.parent} does not exist; create it first, or choose another output"
        )
    if not out.exists():
        return
    if not (out.is_file() if endings else out.is_dir()):
        noun = "regular file" if endings else "folder"
        raise ValueError(f"the output {out} exists, but is not a {noun}; choose another output")
    paths = [] if endings else out.iterdir()
    if other_names := [path.name for path in paths if not path.match("part-*.parquet")]:
        raise ValueError(
            f"the folder {out} contains {min(other_names)}, which is not part of an earlier "
            "output; choose an empty or new folder"
        )
    if not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or choose another output")


def check_distinct(data: Path, out: Path) -> None:
    """Refuse an output that is the input, contains it, or is inside it."""
    from domainwise.base.files import real_path

    input_path, output_path = real_path(data), real_path(out)
    for problem, has_problem in (
        ("is the input", data.exists() and out.exists() and out.samefile(data)),
        ("contains the input", output_path in input_path.parents),
        ("is inside the input", input_path in output_path.parents),
    ):
        if has_problem:
            raise ValueError(f"the output {out} {problem}; choose another output")


#: Seconds to wait for a scheduler to respond, and for its first worker.
TIMEOUT_SECONDS = 5


def resolve_jobs(jobs: int | None, dask_address: str | None) -> int:
    """Return the value of ``--jobs``; the default is -1, for all cores or Dask workers."""
    if jobs is not None and (jobs == 0 or jobs < -1):
        raise ValueError(f"--jobs must be at least 1, or -1 for all cores; got {jobs}")
    if dask_address is not None and jobs is not None:
        raise ValueError("--jobs cannot be used with --dask, which uses all workers; remove --jobs")
    return -1 if jobs is None else jobs


@contextmanager
def dask_client(address: str | None) -> Iterator[Any]:
    """Yield a Dask client; then close it, and the cluster if one was started for it.

    ``address`` is the address of a scheduler, "local" to start a cluster on this machine, or None
    to yield None.
    """
    if address is None:
        yield None
        return
    from domainwise.base.messages import needs_extra

    with needs_extra("--dask", "dask"):
        import dask
        from distributed import Client
    with ExitStack() as stack:
        # Do not warn about large graphs: a table in memory is deliberately sent with the tasks.
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
        stack.enter_context(dask.config.set(settings))
        if address == "local":
            cluster = stack.enter_context(_local_cluster())
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.run(_ignore_interrupts)
        else:
            client = stack.enter_context(_connect(address))
        try:
            dashboard_text = f"dashboard at {client.dashboard_link}"
            if address == "local" and not find_spec("bokeh"):
                dashboard_text += " (requires pip install bokeh)"
        except KeyError:  # the scheduler was started without a dashboard
            dashboard_text = "no dashboard"
        workers_text = count(len(client.nthreads()), "worker")
        stderr().print(f"dask: {workers_text}, {escaped(dashboard_text)}", soft_wrap=True)
        yield client


def _local_cluster() -> Any:
    """Start one single-threaded worker per core, on the loopback interface only."""
    from dask.system import CPU_COUNT
    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        return LocalCluster(
            n_workers=CPU_COUNT,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:8787",
            # The command itself reports errors in tasks.
            silence_logs=logging.CRITICAL,
        )


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the command handles it and closes its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connect(address: str) -> Any:
    """Return a client, after checking that the scheduler responds and has workers."""
    import asyncio

    from distributed import Client, Security
    from distributed.comm import connect

    # A client would wait forever if something else, such as a web server, used this address.
    async def check_scheduler() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            comm = await connect(address, **Security().get_connection_args("client"))
            await comm.close()

    if not re.fullmatch(r"((tcp|tls|ws|wss)://)?[^\s/]+:\d+", address):
        raise ValueError(
            f"--dask {address!r} is not the address of a Dask scheduler; pass an address such as "
            'tcp://10.0.0.1:8786, or "local"'
        )
    try:
        asyncio.run(check_scheduler())
    except (OSError, TypeError) as error:
        reason = str(error) or f"no response after {TIMEOUT_SECONDS} seconds"
        raise ValueError(
            f"--dask {address}: cannot connect to a Dask scheduler ({reason}); start one with "
            "`dask scheduler`, or use --dask local"
        ) from None
    client = Client(address, timeout=TIMEOUT_SECONDS, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=TIMEOUT_SECONDS)
    except TimeoutError:
        client.close()
        raise ValueError(
            f"--dask {address}: the scheduler has no workers; start one with "
            f"`dask worker {address}` (if the cluster is adaptive, set its minimum to at least 1)"
        ) from None
    return client
