"""Rerun the experiments in the DCM paper and compare the results with the published numbers.

Each repeat is saved as soon as it is finished. To continue an interrupted run, run the same command
again. The results do not depend on the number of processes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from joblib import effective_n_jobs
from rich import progress
from rich.console import Console
from rich.markdown import Markdown

from domainwise.base.files import ResultStore
from domainwise.base.process import Row
from reproduction.data import list_datasets
from reproduction.protocols import TABLES, select_tables
from reproduction.report import publish
from reproduction.run import check_data, describe_environment, make_plan, reproduce


class ProgressBar:
    """A Rich progress bar on the terminal; calling the object advances the bar by one job."""

    def __init__(self, total_cost: float, n_jobs: int, text: str, console: Console) -> None:
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[finished]}/{task.fields[jobs]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            speed_estimate_period=24 * 3600,  # a job may take minutes
            disable=not (n_jobs and console.is_terminal),
        )
        self._task_id = self._bar.add_task(text, total=total_cost, finished=0, jobs=n_jobs)

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Advance the bar by the cost of a finished job."""
        n_finished = self._bar.tasks[self._task_id].fields["finished"] + 1
        self._bar.update(self._task_id, advance=cost, finished=n_finished)

    def describe(self, description: str) -> None:
        """Change the text beside the bar, which says what is running."""
        self._bar.update(self._task_id, description=description)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; print a message and exit with code 2 if it is invalid."""
    parser = argparse.ArgumentParser(prog="python -m reproduction", description=__doc__)
    table_help = f"{', '.join(TABLES)}, or all; datasets lists the data sets"
    parser.add_argument("table", metavar="TABLE", help=table_help)
    parser.add_argument("--quick", action="store_true", help="use fewer repeats and rows")
    parser.add_argument("--repeats", type=int, help="repeats per experiment; default: the paper's")
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 for one per core")
    parser.add_argument("--out", type=Path, help="folder; default: domainwise-results/TABLE")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--no-timing", action="store_true", help="do not measure time and memory")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 for failed runs, 2 for invalid input."""
    options = parse_arguments(arguments)
    console = Console(stderr=True, highlight=False)
    try:
        if options.table == "datasets":
            print(list_datasets())
            return 0
        return run_tables(options, console)
    except KeyboardInterrupt:
        console.print("interrupted; run the same command again to continue")
        return 1
    except (ValueError, OSError, ImportError) as error:
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        return 2


def run_tables(options: argparse.Namespace, console: Console) -> int:
    """Run what is missing in the results folder, write the report and print it."""
    if options.repeats is not None and options.repeats < 1:
        raise ValueError(f"--repeats must be at least 1; got {options.repeats}")
    if options.seed < 0:
        raise ValueError(f"--seed must be at least 0; got {options.seed}")
    n_jobs, tables = effective_n_jobs(options.jobs), select_tables(options.table)
    check_data(tables)
    profile = "quick" if options.quick else "full"
    name = f"{options.table}-quick" if options.quick else options.table
    store = ResultStore(options.out or Path("domainwise-results") / name)
    environment = describe_environment()
    store.open(root_seed=options.seed, profile=profile, new_entries=environment)
    plan = make_plan(
        tables,
        store,
        quick=options.quick,
        root_seed=options.seed,
        repeats=options.repeats,
        timing=not options.no_timing,
    )
    n_runs = len(plan.parallel_jobs) + len(plan.serial_jobs)
    status = f"{n_runs} runs left" if n_runs else "all runs are finished"
    console.print(f"results: {store.path}, {status}", markup=False, soft_wrap=True)
    with ProgressBar(plan.cost, n_runs, f"experiments, processes: {n_jobs}", console) as bar:
        failed_rows = reproduce(
            plan,
            store,
            n_jobs=n_jobs,
            progress=bar,
            before_serial=lambda: bar.describe("time and memory, one run at a time"),
        )
    markdown_path, html_path = publish(store.folder)
    Console().print(Markdown(markdown_path.read_text(encoding="utf-8")))
    for path in (markdown_path, html_path):
        console.print(f"wrote {path}", markup=False, soft_wrap=True)
    for row in failed_rows:
        run_name = f"{row['case']} {row.get('setting', 'timing')} {row.get('repeat', '')}"
        message = f"failed: {run_name} {row['method']}: {row['error']}"
        console.print(message, markup=False, soft_wrap=True)
    return 1 if failed_rows else 0


if __name__ == "__main__":
    sys.exit(main())
