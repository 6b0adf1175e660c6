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
    """Finished jobs, and the time that the others take: a line for each job.

    ``rows`` are those of jobs that are done already. ``unit`` are the seconds of a cost of 1;
    seconds of finished jobs correct it, method by method.
    """

    def __init__(
        self, jobs: Sequence[MethodJob], rows: Sequence[Row], workers: int, unit: float
    ) -> None:
        problem, splits = jobs[0].problem, {job.number: job.split for job in jobs}
        self._measure = problem.measure
        self._scorer = Scorer(problem, [splits[number] for number in sorted(splits)])
        self._workers, self._unit, self._started = workers, unit, time.monotonic()
        self._todo: dict[Any, MethodJob] = {}
        # Seconds and cost of finished jobs, by method and part.
        self._spent: dict[tuple[str, str], tuple[float, float]] = {}
        self._n_splits, self._n_finished = len(splits), 0
        variants = [row for job in jobs for row in job.method.rows(problem.classification)]
        self._labels = {key: label for key, label, _ in variants}
        #: Scores by method, a list for each split that is done.
        self._scores: dict[str, list[list[float]]] = {key: [] for key in self._labels}
        for row in rows:
            self._add(row)

    def begin(self, jobs: Sequence[MethodJob]) -> None:
        """Take note of jobs to do, and say how long they will take."""
        self._todo |= {job.rows[0]: job for job in jobs}
        if jobs and jobs[0].part == PARTS[0]:
            n_methods = len({job.method.key for job in jobs})
            workers = f"{self._workers} workers" if self._workers > 1 else "one worker"
            left = clock(self._seconds_left())
            self._print(f"{n_methods} methods, {len(jobs)} fits: about {left} on {workers}.")

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Show the rows of a finished job."""
        job = self._todo.pop(job_key(rows[0]), None)
        self._n_finished += 1
        for row in rows:
            self._add(row)
        if job is not None:
            if cost:
                key, seconds = (job.method.key, job.part), max(row["seconds"] for row in rows)
                before = self._spent.get(key, (0.0, 0.0))
                self._spent[key] = (before[0] + seconds, before[1] + cost)
            self._show(job, rows)

    def _add(self, row: Row) -> None:
        """Add the scores of a job."""
        key, _, part = job_key(row)
        if key in self._labels and part == PARTS[0]:
            scores = self._scorer(row).get("scores", {}).values()
            self._scores[key].append([score for score in scores if np.isfinite(score)])

    def _mean(self, key: str) -> float:
        scores = [score for by_split in self._scores[key] for score in by_split]
        return float(np.mean(scores)) if scores else -np.inf

    def _seconds_left(self) -> float:
        seconds, cost = np.sum([*self._spent.values(), (PRIOR * self._unit, PRIOR)], axis=0)
        total = 0.0
        for job in self._todo.values():
            spent = self._spent.get((job.method.key, job.part), (seconds, cost))
            total += job.cost * spent[0] / spent[1]
        return total / self._workers

    def _status(self) -> str:
        finished, total = self._n_finished, self._n_finished + len(self._todo)
        return f"{finished} of {total} jobs, about {clock(self._seconds_left())} left"

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _show(self, job: MethodJob, rows: Sequence[Row]) -> None:
        """Print a line about a job."""
        row = rows[0]
        held_out = ", ".join(map(str, np.unique(job.problem.domain_of(job.split[1]))))
        held_out = held_out if len(held_out) < 30 else f"{held_out[:29]}…"
        outcome = "on seen domains"
        if "error" in row:
            outcome = "failed"
        elif job.part == PARTS[0]:
            mean = self._measure.format(self._mean(row["method"]))
            outcome = f"{self._measure.label} {mean} so far"
        text = f"{self._labels[row['method']]} without {held_out}: {outcome}"
        self._print(f"{printable(text)} ({self._status()})")


class LiveProgress(JobProgress):
    """Progress as a table in a terminal, which goes away in the end."""

    def __init__(self, console: Any, *arguments: Any) -> None:
        from rich.live import Live

        self._console = console
        super().__init__(*arguments)
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
        table.add_column(f"{self._measure.label} so far", justify="right", no_wrap=True)
        table.add_column("held out", justify="right", no_wrap=True)
        for key in sorted(self._labels, key=self._mean, reverse=True):
            done = f"{len(self._scores[key])} of {self._n_splits}"
            mean = self._measure.format(self._mean(key))
            table.add_row(printable(self._labels[key]), mean, done)
        elapsed = clock(time.monotonic() - self._started)
        status = Text(f"{self._status()}, {elapsed} so far (Ctrl-C stops)", style="dim")
        return Group(table, status)


def printable(text: str) -> str:
    """Text without characters that control a terminal."""
    return "".join(mark if mark.isprintable() else "?" for mark in text)


@contextmanager
def job_progress(progress: bool | Progress, *arguments: Any) -> Iterator[Progress | None]:
    """Yield what finished jobs are reported to; ``arguments`` are those of :class:`JobProgress`."""
    if progress is not True:
        yield progress or None
        return
    console: Any = None
    try:
        from rich.console import Console

        console = Console(stderr=True)
    except ImportError:
        pass
    if console is None or not (console.is_terminal or console.is_jupyter):
        yield JobProgress(*arguments)
        return
    live = LiveProgress(console, *arguments)
    with live.live:
        yield live
