"""What is seen while methods run: the last job, the score so far, the time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from domainwise.evaluation.jobs import MethodJob, Row
from domainwise.evaluation.judge import Judge
from domainwise.jobs.progress import Bar, Expected, TimeLeft, clock


class Follow:
    """Told about finished jobs, tells a bar of them; ``rows`` are those of earlier sessions."""

    def __init__(
        self,
        bar: Bar,
        judge: Judge,
        jobs: Mapping[tuple[str, int], MethodJob],
        rows: Sequence[Row],
        workers: int,
    ) -> None:
        self._bar, self._judge, self._jobs = bar, judge, jobs
        # Most methods compare pairs of rows.
        sizes = {k: Expected(k[0], float(len(j.split[0])) ** 2, j.cost) for k, j in jobs.items()}
        self._time = TimeLeft(sizes, workers)
        self._scores: dict[str, list[float]] = {}
        self._open = {key: sum(k == key for k, _ in jobs) for key, _ in jobs}
        for row in rows:
            if row["method"] in self._open:
                self._note(row)

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Take note, and say so."""
        self._bar(cost, rows)
        for row in rows:
            if row["method"] not in self._open:  # the second row of a job
                continue
            told = self._note(row)
            left = self._time.left()
            self._bar.describe(told, left)
            key = row["method"]
            if not self._open[key]:
                others = f"{sum(not n for n in self._open.values())} of {len(self._open)} methods"
                self._bar.line(f"{told} ({others}, {clock(left)} left)")

    def _note(self, row: Row) -> str:
        key, job = row["method"], self._jobs[row["method"], row["split"]]
        problem, measure = self._judge.problem, self._judge.problem.measure
        self._time.done((key, row["split"]), row["seconds"])
        self._open[key] -= 1
        known = self._scores.setdefault(key, [])
        known += [s for s in self._judge(row).get("scores", {}).values() if np.isfinite(s)]
        mean = measure.format(float(np.mean(known))) if known else "–"
        told = ", ".join(str(name) for name in np.unique(problem.domain_of(job.split[1])))
        told = told if len(told) < 30 else f"{told[:29]}…"
        shown = f"{job.method.label(problem.classification)}: {measure.label} {mean}"
        shown += " so far, last" if self._open[key] else ""
        shown = f"{shown} without {told}" if self._open[key] else shown
        return "".join(mark if mark.isprintable() else "?" for mark in shown)
