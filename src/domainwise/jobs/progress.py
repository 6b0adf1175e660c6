"""A progress bar where Rich is installed and someone is looking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from domainwise.jobs.runner import Progress as Report


@contextmanager
def progress_bar(progress: bool | Report, cost: float, n_jobs: int) -> Iterator[Report | None]:
    """Yield what to call after each job: the caller's function, a bar, or nothing."""
    if not isinstance(progress, bool):
        yield progress
        return
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
    except ImportError:
        yield None
        return
    console = Console(stderr=True)
    if not (progress and console.is_terminal):
        yield None
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]}/{task.fields[jobs]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        # Jobs differ in length; a long memory steadies the estimate.
        speed_estimate_period=600,
    ) as bar:
        task = bar.add_task("methods on left-out domains", total=cost, done=0, jobs=n_jobs)
        done = 0

        def advance(cost: float, rows: list[dict[str, Any]]) -> None:
            nonlocal done
            done += 1
            bar.update(task, advance=cost, done=done)

        yield advance
