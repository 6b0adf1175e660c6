"""What is shown while methods are evaluated: a running table in a terminal, else a line per job."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from domainwise.evaluation.jobs import PARTS, MethodJob, Row, Scorer, job_key
from domainwise.jobs.runner import Progress, clock

#: Cost of jobs that count as much as the time which was expected of them.
PRIOR = 20.0
#: Characters of a method's name in the table.
NAME_WIDTH = 28


class JobProgress:
    """Finished jobs, and the time that the others take; ``call`` is a caller's own function."""

    def __init__(self, call: Progress | None = None) -> None:
        self._call = call

    def begin(self, jobs: Sequence[MethodJob]) -> None:
        """Take note of jobs to do."""

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Take note of the rows of a finished job."""
        if self._call is not None:
            self._call(cost, rows)


class ShownProgress(JobProgress):
    """Progress that is shown: on a ``console`` of Rich's, or in lines if there is none.

    ``unit`` are the seconds of a cost of 1. Seconds of finished jobs correct it, method by method.
    """

    def __init__(
        self, jobs: Sequence[MethodJob], rows: Sequence[Row], workers: int, unit: float
    ) -> None:
        super().__init__()
        problem = jobs[0].problem
        splits = {job.number: job.split for job in jobs}
        self._scorer = Scorer(problem, [splits[number] for number in sorted(splits)])
        self._workers, self._unit, self._started = workers, unit, time.monotonic()
        self._todo: dict[Any, MethodJob] = {}
        # Seconds and cost of finished jobs, by method and part.
        self._spent: dict[tuple[str, str], tuple[float, float]] = {}
        self._labels: dict[str, str] = {}
        self._scores: dict[str, list[float]] = {}
        self._done: dict[str, int] = {}
        self._n_splits, self._n_finished = len(splits), 0
        for job in jobs:
            for key, label, _ in job.method.rows(problem.classification):
                self._labels[key], self._scores[key], self._done[key] = label, [], 0
        for row in rows:
            self._add(row)

    def begin(self, jobs: Sequence[MethodJob]) -> None:
        """Take note of jobs to do, and say how long they will take."""
        self._todo |= {job.rows[0]: job for job in jobs}
        part = jobs[0].part if jobs else PARTS[0]
        if jobs and part == PARTS[0]:
            methods, workers = len({job.method.key for job in jobs}), self._workers
            on = f"{workers} workers" if workers > 1 else "one worker"
            self._print(
                f"{methods} methods, {len(jobs)} fits: about {clock(self._left())} on {on}."
            )

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Show the rows of a finished job."""
        job = self._todo.pop(job_key(rows[0]), None)
        self._n_finished += 1
        if job is not None and cost:
            key, seconds = (job.method.key, job.part), max(row["seconds"] for row in rows)
            before = self._spent.get(key, (0.0, 0.0))
            self._spent[key] = (before[0] + seconds, before[1] + cost)
        for row in rows:
            self._add(row)
        if job is not None:
            self._show(job, rows)

    def _add(self, row: Row) -> None:
        """Add the scores of a job."""
        key, _, part = job_key(row)
        if key in self._labels and part == PARTS[0]:
            scores = self._scorer(row).get("scores", {})
            self._scores[key] += [score for score in scores.values() if np.isfinite(score)]
            self._done[key] += 1

    def _mean(self, key: str) -> str:
        scores = self._scores[key]
        measure = self._scorer.problem.measure
        return measure.format(float(np.mean(scores))) if scores else "–"

    def _left(self) -> float:
        """Seconds that the rest takes."""
        seconds, cost = np.sum([*self._spent.values(), (PRIOR * self._unit, PRIOR)], axis=0)
        total = 0.0
        for job in self._todo.values():
            mine = self._spent.get((job.method.key, job.part), (seconds, cost))
            total += job.cost * mine[0] / mine[1]
        return total / self._workers

    def _status(self) -> str:
        finished, total = self._n_finished, self._n_finished + len(self._todo)
        return f"{finished} of {total} jobs, about {clock(self._left())} left"

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _show(self, job: MethodJob, rows: Sequence[Row]) -> None:
        """Print a line about a job."""
        problem, row = job.problem, rows[0]
        held_out = ", ".join(map(str, np.unique(problem.domain_of(job.split[1]))))
        held_out = held_out if len(held_out) < 30 else f"{held_out[:29]}…"
        text = f"{self._labels[row['method']]} without {held_out}: "
        if "error" in row:
            text += "failed"
        elif job.part == PARTS[0]:
            text += f"{problem.measure.label} {self._mean(row['method'])} so far"
        else:
            text += "on seen domains"
        self._print(f"{printable(text)} ({self._status()})")


class LiveProgress(ShownProgress):
    """Progress as a table in a terminal, which goes away in the end."""

    def __init__(self, console: Any, *known: Any) -> None:
        from rich.live import Live

        self._console = console
        super().__init__(*known)
        self.live = Live(
            console=console, get_renderable=self._table, refresh_per_second=2, transient=True
        )

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def _show(self, job: MethodJob, rows: Sequence[Row]) -> None:
        self.live.refresh()

    def _table(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("method", no_wrap=True, max_width=NAME_WIDTH)
        label = self._scorer.problem.measure.label
        table.add_column(f"{label} so far", justify="right", no_wrap=True)
        table.add_column("held out", justify="right", no_wrap=True)
        for key in sorted(self._labels, key=lambda key: -self._order(key)):
            done = f"{self._done[key]} of {self._n_splits}"
            table.add_row(printable(self._labels[key]), self._mean(key), done)
        elapsed = clock(time.monotonic() - self._started)
        status = Text(f"{self._status()}, {elapsed} so far (Ctrl-C stops)", style="dim")
        return Group(table, status)

    def _order(self, key: str) -> float:
        scores = self._scores[key]
        return float(np.mean(scores)) if scores else -np.inf


def printable(text: str) -> str:
    """Text that changes nothing in a terminal."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)


@contextmanager
def job_progress(
    progress: bool | Progress,
    jobs: Sequence[MethodJob],
    rows: Sequence[Row],
    workers: int,
    unit: float,
) -> Iterator[JobProgress]:
    """Yield what jobs are reported to, given the rows of those that are done already.

    ``unit`` are the seconds of a cost of 1.
    """
    if progress is not True:
        yield JobProgress(None if progress is False else progress)
        return
    known = (jobs, rows, workers, unit)
    console: Any = None
    try:
        from rich.console import Console

        console = Console(stderr=True)
    except ImportError:
        pass
    if console is None or not (console.is_terminal or console.is_jupyter):
        yield ShownProgress(*known)
        return
    shown = LiveProgress(console, *known)
    with shown.live:
        yield shown
