"""The plan of an evaluation within a time budget, the number of workers, and a progress bar.

A plan has one to three sizes. At each size, methods are compared on the same rows with the same
groups of held-out domains; methods that are clearly worse than the best one are not run at the next
size. If all methods on all rows are expected to take less time than the budget, there is one size.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.interpolate import RegularGridInterpolator
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import check_cv

from domainwise.base.files import ResultsError, from_json, read_json, to_json
from domainwise.base.messages import listed
from domainwise.base.process import (
    Progress,
    Row,
    format_duration,
    on_cluster,
    one_thread,
    worker_count,
)
from domainwise.evaluation.jobs import MethodJob, job_key
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import Results
from domainwise.held_out.folds import MAX_FOLDS, LeaveDomainsOut
from domainwise.models.registry import EXACT_ROWS, METHODS, Method

#: Default time budget in seconds, and that of a quick evaluation, on this number of cores.
AUTO_SECONDS, QUICK_SECONDS, AUTO_CORES = 120.0, 30.0, 2
#: Share of the budget for the fits. The rest is for reading, checks, scores on seen domains, and
#: the report.
FIT_SHARE = 0.55
#: Share of the time for the fits that the first sizes may take.
FIRST_SHARE = 0.25
#: Seconds of one CPU core for fitting a method with five inner splits and predicting the held-out
#: rows, by number of training rows (rows of a table) and features (columns).
TRAINING_ROWS, FEATURES = (500, 2000, 8000, 32_000), (10, 40, 160)
SECONDS: dict[str, tuple[tuple[float, ...], ...]] = {
    "constant": ((0.03, 0.03, 0.05), (0.03, 0.04, 0.06), (0.04, 0.06, 0.2), (0.1, 0.2, 0.5)),
    "linear": ((0.05, 0.06, 0.2), (0.06, 0.08, 0.3), (0.08, 0.2, 0.6), (0.15, 0.3, 1.2)),
    "boosting": ((0.2, 0.6, 1.8), (0.5, 1.2, 4.0), (0.9, 2.6, 9.0), (1.2, 3.2, 12.0)),
    "svm": ((0.15, 0.25, 0.5), (1.0, 1.8, 4.0), (8.0, 12.0, 25.0), (100.0, 150.0, 300.0)),
    "dcmcv": ((0.2, 0.25, 0.5), (1.0, 1.2, 2.0), (5.0, 6.0, 8.0), (5.0, 6.0, 12.0)),
    "invariantridge": ((0.3, 0.4, 0.9), (0.5, 0.6, 1.2), (0.8, 1.2, 2.5), (2.5, 4.2, 9.0)),
    "ensemble": ((1.2, 2.0, 5.0), (2.0, 5.0, 16.0), (4.0, 8.0, 20.0), (6.0, 10.0, 30.0)),
}
#: Seconds that the computation in measure_speed takes on the machine where these were measured.
SPEED_SECONDS = 0.12
#: Time of an evaluation with three inner splits, relative to one with five.
QUICK_COST, QUICK_GROUPS = 0.7, 3
#: Numbers of groups of held-out domains that are tried, most first.
GROUPS = (MAX_FOLDS, 5, 3)
#: Numbers of rows that are tried for the first of several sizes.
FIRST_ROWS = (8000, 4000, 2000, 1000)
#: If the time is not enough for all methods, those listed first are left out first. Other methods,
#: and methods that the user has named, are never left out.
EXPENDABLE = ("svm", "dcmcv", "invariantridge", "ensemble", "boosting")
#: Methods that are run at the largest size, even if fewer rows are used because of this.
EXPECTED = ("constant", "linear", "boosting", "ensemble")
#: Methods that are run at all sizes, because they are fast and improve with more rows.
ALWAYS_RUN = ("constant", "linear", "boosting")
#: Maximum number of scored rows in a quick evaluation.
QUICK_SCORED = 5000
#: With less work than this, one worker is as fast as several, because starting workers takes time.
MIN_PARALLEL_SECONDS = 6.0


@dataclass(frozen=True)
class Size:
    """One training size of a plan."""

    rows: int  #: number of rows, drawn evenly from the domains
    groups: int | None  #: number of groups of held-out domains; None for the user's ``cv``
    methods: tuple[str, ...]  #: keys of the methods that are run


@dataclass(frozen=True)
class Plan:
    """The rows, folds and methods of an evaluation.

    The same plan gives the same scores on every machine, because nothing is timed again. After an
    evaluation, it contains the methods that were run at each size.
    """

    sizes: tuple[Size, ...]  #: smallest first
    inner_groups: int | None = None  #: groups of source domains in searches; None: the default
    quick: bool = False  #: whether scores on seen domains are omitted
    is_decided: bool = False  #: whether all methods of a size are run, however well they scored
    seconds: float = 0.0  #: expected time of the fits on one core
    #: Reasons for methods that are not run, or not at the largest size.
    left_out: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, plan: Any) -> Self:
        """Return a plan from a dict, an evaluation, or a file or results folder of one."""
        if isinstance(plan, Results):
            plan = plan.plan
        if isinstance(plan, cls):
            return replace(plan, is_decided=True)
        location = "plan"
        if isinstance(plan, (str, Path)):
            path = Path(plan) / "evaluation.json" if Path(plan).is_dir() else Path(plan)
            location = str(path)
            if not path.is_file():
                raise ResultsError(f"{path} does not exist. Pass a file that evaluate has written")
            plan = read_json(path)
        if isinstance(plan, Mapping) and isinstance(plan.get("plan"), Mapping):
            plan = plan["plan"]
        read: Self = from_json(cls, to_json(plan), location)
        if not read.sizes or not all(size.methods for size in read.sizes):
            raise ResultsError(f"{location} contains no methods. Pass another plan, or None")
        return replace(read, is_decided=True)

    def without(self, keys: Collection[str], number: int) -> Plan:
        """Return the plan without some methods at the sizes after this one."""
        later_sizes = (
            replace(size, methods=tuple(key for key in size.methods if key not in keys))
            for size in self.sizes[number + 1 :]
        )
        return replace(self, sizes=(*self.sizes[: number + 1], *later_sizes))

    def splitter(self, size: Size, cv: Any, seed: int) -> Any:
        """Return the splitter for a size; None for the default."""
        if size.groups is None or cv is not None:
            return cv
        return LeaveDomainsOut(max_splits=size.groups, random_state=seed)

    def description(self, problem: Problem) -> str:
        """How the evaluation differs from one with all rows, folds and methods; "" if it does not.

        ``problem`` has the rows of the largest size.
        """
        differences, last_size, n_rows = [], self.sizes[-1], len(problem.full.y)
        if last_size.rows < n_rows:
            differences.append(
                f"methods are trained on {last_size.rows:,} of {n_rows:,} rows, drawn evenly from "
                f"the domains, and scored on {len(problem.full.scored):,} rows"
            )
        elif len(problem.full.scored) < n_rows:
            differences.append(f"scores are computed on {len(problem.full.scored):,} rows")
        if (n_groups := last_size.groups or MAX_FOLDS) < min(MAX_FOLDS, len(problem.domains)):
            differences.append(f"domains are held out in {n_groups} groups")
        if self.left_out:
            names = listed([*self.left_out])
            differences.append(f"methods that would take too long are not run ({names})")
        if self.quick:
            differences.append("scores on seen domains are not computed")
        text = "; ".join(differences)
        if not self.quick:
            return f"{text[:1].upper()}{text[1:]}." if text else ""
        return (
            f"Quick evaluation: {text}. All rows were checked for problems in the table. For the "
            "full comparison, evaluate again without the quick option."
        )


class Costs:
    """Expected times of fits, in seconds of one core of the machine that ``SECONDS`` describes."""

    def __init__(self, problem: Problem, methods: Sequence[Method], cv: Any, quick: bool) -> None:
        self.problem, self.cv, self.quick = problem, cv, quick
        self.methods = {method.key: method for method in methods}
        sample = problem.drawn(max(200, 2 * len(problem.domains))).X
        n_features = clone(problem.preprocessor).fit_transform(sample).shape[1]
        n_classes = 1 if problem.classes is None else len(problem.classes)
        self._log_features = np.log(max(n_features, FEATURES[0]))
        self._factor = (QUICK_COST if quick else 1.0) * max(1.0, n_classes / 4)
        axes = np.log(TRAINING_ROWS), np.log(FEATURES)
        self._laws = {
            key: RegularGridInterpolator(axes, np.log(seconds), bounds_error=False, fill_value=None)
            for key, seconds in SECONDS.items()
        }

    def of_fit(self, method: Method, n_rows: int) -> float:
        """Seconds for one fit; methods without a law are compared with boosting."""
        law, factor = self._laws.get(method.key), self._factor
        if law is None:
            law, factor = self._laws["boosting"], factor * method.cost / METHODS["boosting"].cost
        log_rows = np.log(max(n_rows, TRAINING_ROWS[0] / 4))
        return factor * float(np.exp(law((log_rows, self._log_features))))

    def of_job(self, job: MethodJob) -> float:
        """Seconds for a job."""
        return self.of_fit(job.method, len(job.split[0])) * job.cost / job.method.cost

    def total(self, keys: Collection[str], n_rows: int, groups: int | None) -> float:
        """Seconds for fitting methods to all groups of held-out domains."""
        problem, n_splits = self.problem, groups
        if n_splits is None and self.cv is None:
            n_splits = min(MAX_FOLDS, len(problem.domains))
        elif n_splits is None:
            splitter = check_cv(self.cv, problem.y, classifier=problem.classification)
            n_splits = splitter.get_n_splits(problem.X, problem.y, problem.codes)
        n_training_rows = round(n_rows * (1 - 1 / n_splits))
        return n_splits * sum(self.of_fit(self.methods[key], n_training_rows) for key in keys)


def make_plan(
    problem: Problem,
    methods: Sequence[Method],
    *,
    cv: Any = None,
    max_rows: int | str | None = "auto",
    time_budget: float | str = "auto",
    quick: bool = False,
    n_jobs: int | None = None,
    can_skip: bool = True,
) -> Plan:
    """Decide on rows, groups of held-out domains and methods; see :class:`Plan`.

    ``problem`` contains all rows. A number of rows replaces the budget, unless ``quick`` is True.
    If ``can_skip`` is False, all methods are run at all sizes.
    """
    n_domains, keys = len(problem.domains), tuple(method.key for method in methods)
    n_rows = len(problem.y) if max_rows in ("auto", None) else min(int(max_rows), len(problem.y))
    options = [None] if cv is not None else sorted({min(g, n_domains) for g in GROUPS})[::-1]
    if quick and cv is None:
        options = options[-1:]
    inner_groups = QUICK_GROUPS if quick and n_domains > 2 else None
    costs = Costs(problem, methods, cv, quick)

    def plan(*sizes: Size) -> Plan:
        seconds = sum(costs.total(size.methods, size.rows, size.groups) for size in sizes)
        left_out = {}
        for key in keys:
            if not any(key in size.methods for size in sizes):
                missing_seconds = costs.total([key], sizes[-1].rows, sizes[-1].groups)
                time_text = format_duration(speed * missing_seconds / cores)
                left_out[key] = f"not run, because it would take about {time_text}"
        return Plan(sizes, inner_groups, quick, seconds=round(seconds, 1), left_out=left_out)

    cores = AUTO_CORES
    if time_budget != "auto" or quick:
        cores = workers_for(problem, n_jobs, np.inf)
    speed, full_size = 1.0, Size(n_rows, options[0], keys)
    if (max_rows != "auto" and not quick) or hasattr(cv, "__len__"):
        return plan(full_size)
    seconds = QUICK_SECONDS if quick else AUTO_SECONDS
    limit = FIT_SHARE * cores * (seconds if time_budget == "auto" else float(time_budget))
    # Nothing is timed for a table that fits into the budget, so all machines have the same plan.
    if costs.total(keys, n_rows, options[0]) > limit:
        speed = measure_speed()
    limit /= speed

    def affordable(rows: int, seconds: float, required: Collection[str] = ()) -> tuple[str, ...]:
        """Return methods that take at most this time; none if required ones take longer."""
        chosen = list(keys)
        for key in (None, *EXPENDABLE):
            if key in chosen and can_skip and key not in required:
                chosen.remove(key)
            if costs.total(chosen, rows, groups) <= seconds:
                return tuple(chosen)
        return ()

    for groups in options:
        if costs.total(keys, n_rows, groups) <= limit:
            return plan(Size(n_rows, groups, keys))
    min_rows = min(n_rows, max(FIRST_ROWS[-1] // 2, 4 * n_domains))
    all_rows = [n_rows]
    while all_rows[-1] > min_rows:
        all_rows.append(max(all_rows[-1] // 2, min_rows))
    first_sizes: list[Size] = []
    for rows in (r for r in FIRST_ROWS if min_rows <= r <= n_rows // 2 and not quick):
        if not first_sizes and affordable(rows, FIRST_SHARE * limit, keys):
            first_sizes = [Size(rows, groups, keys)]
            limit -= costs.total(keys, rows, groups)
    first_rows = first_sizes[0].rows if first_sizes else 0
    for rows in (r for r in all_rows if r >= 2 * first_rows):
        if last_keys := affordable(rows, limit, EXPENDABLE[-1:] if quick else EXPECTED):
            limit -= costs.total(last_keys, rows, groups)
            middle_rows = round(np.sqrt(rows * first_rows) / 100) * 100
            if middle_rows >= 3 * first_rows > 0 and (middle := affordable(middle_rows, limit)):
                first_sizes.append(Size(middle_rows, groups, middle))
            return plan(*first_sizes, Size(rows, groups, last_keys))
    if first_sizes:
        return plan(*first_sizes)
    cheap_keys = tuple(key for key in keys if not can_skip or key not in EXPENDABLE)
    return plan(Size(min_rows, groups, affordable(min_rows, limit) or cheap_keys or keys))


def measure_speed() -> float:
    """Time of a fixed computation on one core, divided by that on the machine of ``SECONDS``.

    CPU time is measured, so that other processes hardly change the plan.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 20))
    y, times = X[:, 0] + rng.normal(size=2000), []
    with one_thread():  # as in MethodJob.run
        for _ in range(3):
            start_seconds = time.thread_time()
            HistGradientBoostingRegressor(max_iter=20, early_stopping=False).fit(X, y)
            times.append(time.thread_time() - start_seconds)
    return min(times) / SPEED_SECONDS


def clearly_worse(results: Results) -> list[str]:
    """Keys of methods that are clearly worse than the best one, and need not be run on more rows.

    The mean difference over domains is larger than the margin for recommendations, and than two
    standard errors.
    """
    best, keys = results.leader(), []
    for result in results.row_by_row:
        differences = [
            best.known[d] - score for d, score in result.known.items() if d in best.known
        ]
        n, mean = len(differences), float(np.mean(differences))
        error = np.std(differences, ddof=1) / np.sqrt(n) if n > 2 else np.inf
        if mean > max(results.margin, 2 * error) and result.key not in ALWAYS_RUN:
            keys.append(result.key)
    return keys


def planned_methods(plan: Plan, methods: Sequence[Method]) -> list[Method]:
    """Methods of a plan; those of the user are taken from ``methods``."""
    method_by_key = {**METHODS, **{method.key: method for method in methods}}
    keys = list(dict.fromkeys(key for size in plan.sizes for key in size.methods))
    if missing_keys := [key for key in keys if key not in method_by_key]:
        raise ValueError(
            f"the plan contains methods of your own that were not passed: {', '.join(missing_keys)}"
        )
    return [method_by_key[key] for key in keys]


def workers_for(problem: Problem, n_jobs: int | None, seconds: float) -> int:
    """Number of workers for work that takes ``seconds`` in total.

    With ``n_jobs=-1``, there is one worker per core, or only one if more would not be faster. There
    are fewer if memory is limited: each worker needs libraries, the table, and kernel matrices.
    """
    if n_jobs is not None and n_jobs < 0 and seconds < MIN_PARALLEL_SECONDS and not on_cluster():
        return 1
    (n_rows, n_columns), n_kernel_rows = problem.full.X.shape, min(len(problem.y), EXACT_ROWS)
    worker_bytes = 250_000_000 + 8 * (4 * n_rows * n_columns + 6 * n_kernel_rows * n_kernel_rows)
    return worker_count(n_jobs, worker_bytes)


#: The initial time estimate has the same weight as finished jobs that take this number of seconds.
PRIOR_SECONDS = 5.0
#: Number of characters of the progress bar.
BAR_WIDTH = 24


class JobProgress:
    """A progress bar on one line of a terminal; otherwise, a line for each quarter of the fits."""

    def __init__(self, costs: Costs, n_workers: int) -> None:
        self._costs, self._n_workers = costs, n_workers
        self._jobs_left: dict[Any, float] = {}
        self._later_seconds, self._n_finished, self._quarter = 0.0, 0, 0
        self._expected_seconds = self._measured_seconds = PRIOR_SECONDS
        self._is_terminal = sys.stderr.isatty()

    def begin(self, jobs: Sequence[MethodJob], later_seconds: float = 0.0) -> None:
        """Add jobs that will be run, before others that take ``later_seconds``."""
        self._jobs_left |= {job.row_keys[0]: self._costs.of_job(job) for job in jobs}
        self._later_seconds, self._quarter = later_seconds, 0
        if jobs and not self._n_finished:
            n_methods = len({job.method.key for job in jobs})
            methods_text = f"{n_methods} methods" if n_methods > 1 else "One method"
            workers_text = f"{self._n_workers} workers" if self._n_workers > 1 else "one worker"
            time_text = format_duration(self._seconds_left())
            print(f"{methods_text}, about {time_text} on {workers_text}.", file=sys.stderr)

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Add the results of a finished job, and show the progress."""
        expected_seconds = self._jobs_left.pop(job_key(rows[0]), None)
        self._n_finished += 1
        if expected_seconds is not None:
            self._expected_seconds += expected_seconds
            self._measured_seconds += max(row["seconds"] for row in rows)
        n_jobs = self._n_finished + len(self._jobs_left)
        share, time_text = self._n_finished / n_jobs, format_duration(self._seconds_left())
        text = f"{self._n_finished} of {n_jobs} fits, about {time_text} left"
        if self._is_terminal:
            bar = ("━" * round(BAR_WIDTH * share)).ljust(BAR_WIDTH, "─")
            print(f"\r{bar} {text} (Ctrl-C to stop)\x1b[K", end="", file=sys.stderr, flush=True)
        elif int(4 * share) > self._quarter:
            self._quarter = int(4 * share)
            print(text, file=sys.stderr, flush=True)

    def _seconds_left(self) -> float:
        """Estimated time until all jobs are finished."""
        seconds = sum(self._jobs_left.values()) + self._later_seconds
        return seconds * self._measured_seconds / self._expected_seconds / self._n_workers

    def end(self) -> None:
        """Remove the bar."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def job_progress(
    progress: bool | Progress, costs: Costs, n_workers: int
) -> Iterator[Progress | None]:
    """Yield the callback for finished jobs."""
    if progress is not True:
        yield progress or None
        return
    job_progress = JobProgress(costs, n_workers)
    try:
        yield job_progress
    finally:
        job_progress.end()
