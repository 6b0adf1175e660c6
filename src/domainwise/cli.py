"""The command line: parses arguments, calls the layers below, prints. It computes nothing.

Exit codes: 0 done, 1 something failed or was interrupted, 2 the input cannot be used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from domainwise import __version__, cli_evaluate, cli_models, datasets
from domainwise._cli_common import JsonOption, check_seed, errors, fail, missing_packages

app = typer.Typer(
    name="domainwise",
    help="Features that carry over to domains nobody has seen yet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli_evaluate.register(app)
cli_models.register(app)

#: Packages of an extra, by the extra's name.
_EXTRAS = {"report": ("matplotlib", "jinja2"), "data": ("pandas",)}


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"domainwise {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command()
def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            help="synthetic, parkinsons, gvhd, landmine, oil, or all.", show_default=False
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repeats and rows: minutes instead of an hour.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(help="Repeats of every case [default: the paper's]", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Worker processes; -1: all cores.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results [default: domainwise-results/TABLE]", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Root seed of every random choice.")] = 0,
    timing: Annotated[
        bool, typer.Option(help="Measure time and memory in a serial pass at the end.")
    ] = True,
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments and compare with its tables.

    Finished repeats are in the results file at once: the same command continues an interrupted run
    and gives the same numbers, whatever the number of workers.
    """
    from domainwise.experiments.protocols import select_tables
    from domainwise.experiments.reproduce import (
        check_data,
        default_folder,
        make_plan,
    )
    from domainwise.experiments.reproduce import reproduce as run_plan
    from domainwise.experiments.store import ResultStore

    with _usage_errors():
        if repeats is not None and repeats < 1:
            raise ValueError(f"--repeats must be at least 1, got {repeats}")
        if jobs == 0 or jobs < -1:
            raise ValueError(f"--jobs must be at least 1, or -1 for all cores; got {jobs}")
        check_seed(seed)
        tables = select_tables(table)
        if report:
            _require("report")
        if any(entry.data_files for entry in tables):
            _require("data")
        check_data(tables)
        store = ResultStore(out or default_folder(table, quick))
        store.open(root_seed=seed, profile="quick" if quick else "full")
        plan = make_plan(tables, store, quick=quick, root_seed=seed, repeats=repeats, timing=timing)
    n_jobs = (os.cpu_count() or 1) if jobs == -1 else jobs
    total = len(plan.parallel) + len(plan.serial)
    errors.print(
        f"results: [bold]{store.path}[/bold]"
        + (f", {total} jobs to do, seed {seed}" if total else ", everything is there already")
    )
    try:
        with _usage_errors(), _progress(plan.cost, total, n_jobs) as (advance, announce):
            failed = run_plan(plan, store, n_jobs=n_jobs, progress=advance, on_serial=announce)
    except KeyboardInterrupt:
        errors.print(
            f"\n[yellow]interrupted[/yellow]: what was finished is in {store.path};"
            " the same command goes on from there"
        )
        raise typer.Exit(1) from None
    _publish(store.folder, html=report, as_json=as_json)
    for row in failed:
        where = f"{row['case']} {row.get('setting', 'timing')} {row.get('repeat', '')}"
        errors.print(f"[red]failed[/red]: {where} {row['method']}: {row['error']}", markup=True)
    if failed:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A results folder.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Make the tables and the HTML report again, from a results file alone."""
    with _usage_errors():
        _require("report")
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder")
        _publish(folder, html=True, as_json=as_json)


@app.command(name="datasets")
def list_datasets(as_json: JsonOption = False) -> None:
    """List the data sets, their size, and whether they are on this machine."""
    found = datasets.list_datasets()
    if as_json:
        entries = [
            {
                "name": info.name,
                "rows": info.rows,
                "domains": info.domains,
                "features": info.features,
                "target": info.target,
                "classes": info.classes,
                "file": info.file,
                "present": info.present,
                "path": None if info.path is None else str(info.path),
            }
            for info in found
        ]
        typer.echo(json.dumps(entries, indent=2))
        return
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("name", no_wrap=True)
    for name in ("rows", "domains", "features", "classes"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("here", no_wrap=True)
    table.add_column("what it is")
    for info in found:
        table.add_row(
            info.name,
            f"{info.rows:,}",
            str(info.domains),
            str(info.features),
            "–" if info.classes is None else str(info.classes),
            "[green]yes[/green]" if info.present else "[yellow]no[/yellow]",
            info.description,
        )
    console = Console(highlight=False)
    console.print(table)
    if not all(info.present for info in found):
        console.print(
            "\nPut missing files in $DOMAINWISE_DATA; a loader's error says where to get each."
        )


def _publish(folder: Path, *, html: bool, as_json: bool) -> None:
    """Write the Markdown tables and the report; print the tables."""
    from domainwise.report.publish import publish

    with _usage_errors():
        written = publish(folder, html=html)
    if as_json:
        typer.echo(json.dumps(written.as_json(), indent=2))
        return
    written.print(Console(highlight=False))


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Turn errors about the user's input into a message and exit code 2."""
    try:
        yield
    except (ValueError, FileNotFoundError, PermissionError, ImportError) as error:
        fail(str(error), 2)


def _require(extra: str) -> None:
    if missing := missing_packages(*_EXTRAS[extra]):
        raise ImportError(f'{missing} missing: pip install "domainwise[{extra}]"')


@contextmanager
def _progress(cost: float, total: int, n_jobs: int) -> Iterator[tuple[Any, Any]]:
    """A Rich progress bar on stderr, with the time left."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[total_jobs]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=errors,
        disable=total == 0,
        # Jobs differ in length; a long memory steadies the estimate.
        speed_estimate_period=600,
    ) as bar:
        task = bar.add_task(
            f"experiments on {n_jobs} worker(s)", total=cost, done=0, total_jobs=total
        )
        done = 0

        def advance(cost: float, rows: list[dict[str, Any]]) -> None:
            nonlocal done
            done += 1
            bar.update(task, advance=cost, done=done)

        def announce() -> None:
            bar.update(task, description="time and memory, one by one")

        yield advance, announce
