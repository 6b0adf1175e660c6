"""A progress bar where Rich is installed and someone is looking: a terminal, a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from domainwise.jobs.runner import Progress, Row


class Bar:
    """What to call after each job; silent without a bar of Rich's."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task, self._done = bar, task, 0

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Go on by a job's cost."""
        self._done += 1
        if self._bar is not None:
            self._bar.update(self._task, advance=cost, done=self._done)

    def describe(self, words: str) -> None:
        """Say what is being done from here on."""
        if self._bar is not None:
            self._bar.update(self._task, description=words)


@contextmanager
def progress_bar(progress: bool | Progress, cost: float, n_jobs: int, words: str) -> Iterator[Any]:
    """Yield what to call after each job: the caller's function, or a :class:`Bar`."""
    if not isinstance(progress, bool):
        yield progress
        return
    try:
        from rich import progress as rich
        from rich.console import Console
    except ImportError:
        yield Bar()
        return
    console = Console(stderr=True)
    if not (progress and n_jobs and (console.is_terminal or console.is_jupyter)):
        yield Bar()
        return
    with rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[done]}/{task.fields[jobs]}"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        console=console,
        # Jobs differ in length; a long memory steadies the estimate.
        speed_estimate_period=600,
    ) as bar:
        yield Bar(bar, bar.add_task(words, total=cost, done=0, jobs=n_jobs))
