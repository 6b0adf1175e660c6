"""The command reproduce: the paper's experiments beside its tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from joblib import effective_n_jobs

from domainwise.cli.common import check_seed, errors, require, shown, usage_errors
from domainwise.cli.dask import processes
from domainwise.cli.options import JobsOption, JsonOption, SeedOption, argument, option
from domainwise.cli.report import publish_folder


def reproduce(
    table: Annotated[str, argument("synthetic, parkinsons, gvhd, landmine, oil, or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repeats and rows: minutes instead of an hour.")
    ] = False,
    repeats: Annotated[int | None, option("Repeats of every case [default: the paper's]")] = None,
    jobs: JobsOption = 1,
    out: Annotated[
        Path | None, option("Folder of the results [default: domainwise-results/TABLE]")
    ] = None,
    seed: SeedOption = 0,
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
    from domainwise.jobs.runner import progress_bar
    from domainwise.jobs.store import ResultStore
    from domainwise.paper.protocols import select_tables
    from domainwise.paper.reproduce import check_data, make_plan
    from domainwise.paper.reproduce import reproduce as run_plan

    with usage_errors(), _folder_is_out():
        if repeats is not None and repeats < 1:
            raise ValueError(f"--repeats must be at least 1, got {repeats}")
        n_jobs = effective_n_jobs(processes(jobs, None))
        check_seed(seed)
        tables = select_tables(table)
        if report:
            require("report", "--no-report")
        if any(entry.data_files for entry in tables):
            require("data")
        check_data(tables)
        named = Path("domainwise-results") / (f"{table}-quick" if quick else table)
        store = ResultStore(out or named)
        store.open(root_seed=seed, profile="quick" if quick else "full")
        plan = make_plan(tables, store, quick=quick, root_seed=seed, repeats=repeats, timing=timing)
    total = len(plan.parallel) + len(plan.serial)
    errors.print(
        f"results: [bold]{shown(store.path)}[/bold]"
        + (f", {total} jobs to do, seed {seed}" if total else ", everything is there already")
    )
    try:
        words = f"experiments on {n_jobs} worker(s)"
        with usage_errors(), _folder_is_out(), progress_bar(True, plan.cost, total, words) as bar:
            failed = run_plan(
                plan,
                store,
                n_jobs=n_jobs,
                progress=bar,
                on_serial=lambda: bar.describe("time and memory, one by one"),
            )
    except KeyboardInterrupt:
        errors.print(
            f"\n[yellow]interrupted[/yellow]: what was finished is in {shown(store.path)};"
            " the same command goes on from there"
        )
        raise typer.Exit(1) from None
    publish_folder(store.folder, html=report, as_json=as_json)
    for row in failed:
        where = f"{row['case']} {row.get('setting', 'timing')} {row.get('repeat', '')}"
        errors.print(f"[red]failed[/red]: {shown(where)} {row['method']}: {shown(row['error'])}")
    if failed:
        raise typer.Exit(1)


@contextmanager
def _folder_is_out() -> Iterator[None]:
    """Say which option names the folder that cannot be used."""
    from domainwise.jobs.store import ResultsError

    try:
        yield
    except ResultsError as error:
        raise ValueError(f"{error} (--out)") from error
