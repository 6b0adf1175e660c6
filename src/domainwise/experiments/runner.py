"""Do a list of jobs on several workers, append each result at once, resume where it stopped.

A job is any picklable object with a ``cost`` and a ``run()`` that returns rows. What is already in
the results file is not done again. :func:`plan_trials` makes the jobs of ``reproduce``; other
commands bring their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from joblib import Parallel, delayed

from domainwise.experiments.cases import SETTINGS, Case
from domainwise.experiments.store import ResultsError
from domainwise.experiments.trials import Trial

Row = dict[str, Any]


class Job(Protocol):
    """A piece of work that knows nothing of the others."""

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left."""

    def run(self) -> list[Row]:
        """Do it."""


class Sink(Protocol):
    """Where rows go: a results file, or memory."""

    def append(self, rows: list[Row]) -> None:
        """Take the rows of a finished job."""


class Progress(Protocol):
    """Told about every finished job."""

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Take note."""


def run_jobs(
    jobs: Sequence[Job],
    store: Sink,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> None:
    """Run jobs in parallel; rows reach the file as each job finishes.

    An interruption (Ctrl-C) leaves the rows of all finished jobs in the file.

    Parameters
    ----------
    jobs : sequence of Job
        What to do; long jobs first keeps workers busy until the end.
    store : ResultStore or Sink
        An opened file, or anything that takes rows; only this process writes to it.
    n_jobs : int
        Worker processes; -1 for one per core.
    progress : callable, optional
        ``progress(cost, rows)`` after each job.
    """
    if not jobs:
        return
    ordered = sorted(jobs, key=lambda job: -job.cost)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    for cost, rows in parallel(delayed(_run)(job) for job in ordered):
        store.append(rows)
        if progress is not None:
            progress(cost, rows)


def plan_trials(
    cases: Iterable[Case],
    done: Iterable[Row],
    *,
    root_seed: int,
    repeats: int | None = None,
    settings: Sequence[str] = SETTINGS,
    available: Callable[[str], bool] | None = None,
) -> list[Trial]:
    """Trials that are still to do.

    Parameters
    ----------
    cases : iterable of Case
        What to run, in the size it is to be run in.
    done : iterable of dict
        Rows of an earlier session. Those that failed are tried again.
    root_seed : int
        Seed of the whole run.
    repeats : int, optional
        In place of each case's own number.
    settings : sequence of str
        Out of "paper" and "tuned".
    available : callable, optional
        ``available(method)``: leave methods out that cannot be run here.

    Returns
    -------
    list of Trial

    Raises
    ------
    ResultsError
        If a row was made by another protocol under the same name.
    """
    finished: set[tuple[str, str, int, str]] = set()
    prints: dict[str, str] = {}
    for row in done:
        prints[row["case"]] = row["fingerprint"]
        if row["status"] == "ok":
            finished.add((row["case"], row["setting"], row["repeat"], row["method"]))
    trials = []
    for case in cases:
        if prints.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results of {case.key} in this folder come from another protocol; choose"
                " another folder with --out"
            )
        for setting in settings:
            names = [m for m in case.methods_of(setting) if available is None or available(m)]
            most = max((case.n_repeats(setting, name, repeats) for name in names), default=0)
            for repeat in range(most):
                todo = tuple(
                    name
                    for name in names
                    if repeat < case.n_repeats(setting, name, repeats)
                    and (case.key, setting, repeat, name) not in finished
                )
                if todo:
                    trials.append(Trial(case, setting, repeat, todo, root_seed))
    return trials


def _run(job: Job) -> tuple[float, list[Row]]:
    return job.cost, job.run()
