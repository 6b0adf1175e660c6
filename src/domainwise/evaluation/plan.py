"""Time estimates, number of workers, plan of a quick evaluation, and progress display."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from domainwise.base.process import (
    Progress,
    Row,
    format_duration,
    on_cluster,
    one_thread,
    worker_count,
)
from domainwise.evaluation.jobs import JobScorer, MethodJob, job_key
from domainwise.evaluation.problem import Problem, outer_splits
from domainwise.evaluation.results import Kind
from domainwise.held_out.folds import LeaveDomainsOut, Split
from domainwise.models.registry import EXACT_ROWS, Method, choose_methods

#: Numbers for seconds_per_cost, which times boosting: iterations of a full fit, timed iterations,
#: maximum number of trees for all classes together, and seconds that are always added.
ITERATIONS, TIMED_ITERATIONS, MAX_TREES, FIXED_SECONDS = 100, 10, 500, 0.1
#: With less work than this, one worker is as fast as several, because starting workers takes time.
MIN_PARALLEL_SECONDS = 6.0
#: If the fits of a quick evaluation would take more seconds than the first number, fewer rows are
#: used; if they would still take more than the second number, fewer methods are run. Reading the
#: table and writing the report take about as long as the fits.
MAX_SECONDS_QUICK_ROWS, MAX_SECONDS = 10.0, 16.0
#: Cost in a quick evaluation, which has fewer inner splits, as a share of the usual cost.
QUICK_COST = 0.45
#: Number of training rows in a quick evaluation, and a smaller number if fits take too long.
QUICK_ROWS, FEWER_ROWS = 600, 300
#: Number of groups of held-out domains, and maximum number of scored rows, in a quick evaluation.
QUICK_GROUPS, QUICK_SCORED = 3, 5000
#: Methods that a quick evaluation never skips.
NEVER_SKIPPED = ("constant", "linear")


def seconds_per_cost(problem: Problem, split: Split) -> float:
    """Seconds for a method of cost 1: half of the time to fit boosting to a split, plus 0.1.

    CPU time is measured, so that other processes do not change which methods are evaluated.
    """
    train, _ = split
    X = clone(problem.preprocessor).fit_transform(problem.rows(train))
    n_classes = 0 if problem.classes is None else len(problem.classes)
    boosting_type = HistGradientBoostingClassifier if n_classes else HistGradientBoostingRegressor
    model = boosting_type(max_iter=TIMED_ITERATIONS, early_stopping=False)
    trees_per_iteration = n_classes if n_classes > 2 else 1
    with one_thread():  # as in MethodJob.run
        start_seconds = time.thread_time()
        model.fit(X, problem.y[train])
        iteration_seconds = (time.thread_time() - start_seconds) / TIMED_ITERATIONS
    return FIXED_SECONDS + iteration_seconds * min(ITERATIONS, MAX_TREES / trees_per_iteration) / 2


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


@dataclass(frozen=True)
class QuickPlan:
    """Plan of a quick evaluation, which takes at most about half a minute."""

    problem: Problem
    methods: list[Method]
    cv: Any
    inner_cv: Any
    left_out: dict[str, str]  #: skipped methods, with the reason

    @property
    def description(self) -> str:
        """How the evaluation differs from a full one."""
        problem, full, differences = self.problem, self.problem.full, []
        if problem.parent is not None:
            rows_text = f"{len(problem.y):,} of {len(full.y):,} rows, drawn evenly from the domains"
            differences.append(f"methods are trained on {rows_text}")
            if len(full.scored) < len(full.y):
                differences.append(f"scores are computed on {len(full.scored):,} rows")
        n_groups, skipped_text = len(outer_splits(problem, self.cv)), ", ".join(self.left_out)
        differences.append(f"domains are held out in {n_groups} groups")
        if skipped_text:
            differences.append(f"methods that would take too long are not run ({skipped_text})")
        differences.append("scores on seen domains are not computed")
        return (
            f"Quick evaluation: {'; '.join(differences)}. All rows were checked for problems in "
            "the table. For the full comparison, evaluate again without the quick option."
        )


def plan_quick(
    full_problem: Problem,
    methods: Sequence[Method],
    cv: Any,
    inner_cv: Any,
    max_rows: int | str | None,
    n_jobs: int | None,
) -> QuickPlan:
    """Time boosting to decide how many rows and which methods a quick evaluation uses.

    If the user has chosen the methods, all of them are run. Otherwise, methods that take too long
    are skipped, slowest first.
    """
    n_domains, methods, left_out = len(full_problem.domains), list(methods), {}
    if cv is None:
        cv = LeaveDomainsOut(max_splits=QUICK_GROUPS, random_state=full_problem.seed)
    if inner_cv is None and n_domains > 2:  # with one source domain, the default is row folds
        inner_cv = LeaveDomainsOut(max_splits=QUICK_GROUPS)
    can_skip = [m.key for m in methods] == [m.key for m in choose_methods(None)]

    def draw_and_time(n_rows: int) -> tuple[Problem, float]:
        """Draw rows, and estimate the seconds for a method of cost 1."""
        row_limit = n_rows if max_rows is None or max_rows == "auto" else int(max_rows)
        problem = full_problem.drawn(max(min(n_rows, row_limit), 4 * n_domains))
        splits = outer_splits(problem, cv)
        seconds = QUICK_COST * seconds_per_cost(problem, splits[0]) * len(splits)
        return problem, seconds / workers_for(problem, n_jobs, MIN_PARALLEL_SECONDS)

    problem, unit_seconds = draw_and_time(QUICK_ROWS)
    if unit_seconds * sum(method.cost for method in methods) > MAX_SECONDS_QUICK_ROWS:
        problem, unit_seconds = draw_and_time(FEWER_ROWS)
    while can_skip and unit_seconds * sum(method.cost for method in methods) > MAX_SECONDS:
        slowest_method = max(methods, key=lambda method: method.cost)
        if slowest_method.key in NEVER_SKIPPED:
            break
        methods.remove(slowest_method)
        time_text = format_duration(unit_seconds * slowest_method.cost)
        left_out[slowest_method.key] = f"not run, because it would take about {time_text}"
    return QuickPlan(problem, methods, cv, inner_cv, left_out)


#: The initial time estimate has the same weight as finished jobs with this total cost.
PRIOR_COST = 20.0
#: Maximum number of characters of a method's label in the live table.
LABEL_WIDTH = 28


class JobProgress:
    """Print a line for each finished job, with the remaining time.

    ``rows`` contains the results of jobs that an earlier session finished. ``unit_seconds`` is the
    estimated time for a cost of 1; it is refined with the times of each method's finished jobs.
    """

    def __init__(
        self, jobs: Sequence[MethodJob], rows: Sequence[Row], n_workers: int, unit_seconds: float
    ) -> None:
        problem, splits = jobs[0].problem, {job.split_number: job.split for job in jobs}
        self._measure = problem.measure
        self._scorer = JobScorer(problem, [splits[split_number] for split_number in sorted(splits)])
        self._n_workers, self._unit_seconds = n_workers, unit_seconds
        self._start_seconds = time.monotonic()
        self._jobs_left: dict[Any, MethodJob] = {}
        # Total seconds and cost of finished jobs, by method and by part (held-out or seen domains).
        self._totals: dict[tuple[str, Kind], tuple[float, float]] = {}
        self._n_splits, self._n_finished = len(splits), 0
        variants = [v for job in jobs for v in job.method.rows(problem.classification)]
        self._label_by_method = {key: label for key, label, _ in variants}
        # For each method, one list of domain scores per finished split.
        self._scores: dict[str, list[list[float]]] = {key: [] for key in self._label_by_method}
        for row in rows:
            self._add_scores(row)

    def begin(self, jobs: Sequence[MethodJob]) -> None:
        """Add jobs that will be run, and print how long they will take."""
        self._jobs_left |= {job.row_keys[0]: job for job in jobs}
        if jobs and jobs[0].part == Kind.HELD_OUT:
            n_methods = len({job.method.key for job in jobs})
            methods_text = f"{n_methods} methods" if n_methods > 1 else "One method"
            workers_text = f"{self._n_workers} workers" if self._n_workers > 1 else "one worker"
            time_text = format_duration(self._seconds_left())
            self._print(f"{methods_text}, {len(jobs)} fits: about {time_text} on {workers_text}.")

    def __call__(self, cost: float, rows: list[Row]) -> None:
        """Add the results of a finished job, and show them."""
        job = self._jobs_left.pop(job_key(rows[0]), None)
        self._n_finished += 1
        for row in rows:
            self._add_scores(row)
        if job is not None:
            if cost:
                total_key, seconds = (job.method.key, job.part), max(row["seconds"] for row in rows)
                total_seconds, total_cost = self._totals.get(total_key, (0.0, 0.0))
                self._totals[total_key] = (total_seconds + seconds, total_cost + cost)
            self._show(job, rows)

    def _add_scores(self, row: Row) -> None:
        """Add the scores in a row of results if they are scores on held-out domains."""
        method_key, _, part = job_key(row)
        if method_key in self._label_by_method and part == Kind.HELD_OUT:
            scores = self._scorer(row).get("scores", {}).values()
            self._scores[method_key].append([score for score in scores if np.isfinite(score)])

    def _mean_score(self, method_key: str) -> float:
        """Mean score of a method so far."""
        scores = [score for split_scores in self._scores[method_key] for score in split_scores]
        return float(np.mean(scores)) if scores else -np.inf

    def _seconds_left(self) -> float:
        """Estimated time until all jobs are finished."""
        prior_totals = (PRIOR_COST * self._unit_seconds, PRIOR_COST)
        overall_totals = np.sum([*self._totals.values(), prior_totals], axis=0)
        total_seconds = 0.0
        for job in self._jobs_left.values():
            seconds, cost = self._totals.get((job.method.key, job.part), overall_totals)
            total_seconds += job.cost * seconds / cost
        return total_seconds / self._n_workers

    def _status(self) -> str:
        n_finished, n_jobs = self._n_finished, self._n_finished + len(self._jobs_left)
        return f"{n_finished} of {n_jobs} fits, about {format_duration(self._seconds_left())} left"

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _show(self, job: MethodJob, rows: Sequence[Row]) -> None:
        """Print a line about a finished job and the remaining time."""
        row = rows[0]
        domains_text = ", ".join(map(str, np.unique(job.problem.domain_of(job.split[1]))))
        domains_text = domains_text if len(domains_text) < 30 else f"{domains_text[:29]}…"
        mean_text = self._measure.format(self._mean_score(row["method"]))
        subject, outcome = f"{domains_text} held out", f"{self._measure.label} {mean_text} so far"
        if job.part != Kind.HELD_OUT:
            subject, outcome = "score on seen domains", "finished"
        outcome = "failed" if "error" in row else outcome
        text = f"{self._label_by_method[row['method']]}, {subject}: {outcome}"
        self._print(f"{printable(text)} ({self._status()})")


class LiveProgress(JobProgress):
    """Show the progress as a live table in a terminal or notebook, and remove it at the end."""

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
        table.add_column("method", no_wrap=True, max_width=LABEL_WIDTH)
        table.add_column(f"{self._measure.label} so far", justify="right", no_wrap=True)
        table.add_column("finished folds", justify="right", no_wrap=True)
        for key in sorted(self._label_by_method, key=self._mean_score, reverse=True):
            folds_text = f"{len(self._scores[key])} of {self._n_splits}"
            mean_text = self._measure.format(self._mean_score(key))
            table.add_row(printable(self._label_by_method[key]), mean_text, folds_text)
        elapsed_text = format_duration(time.monotonic() - self._start_seconds)
        status = Text(f"{self._status()}, {elapsed_text} elapsed (Ctrl-C to stop)", style="dim")
        return Group(table, status)


def printable(text: str) -> str:
    """Replace unprintable characters, which could control a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


@contextmanager
def job_progress(progress: bool | Progress, *arguments: Any) -> Iterator[Progress | None]:
    """Yield the callback for finished jobs; ``arguments`` are passed to :class:`JobProgress`."""
    if progress is not True:
        yield progress or None
        return
    console: Any = None
    if find_spec("rich") is not None:
        from rich.console import Console

        console = Console(stderr=True)
    if console is None or not (console.is_terminal or console.is_jupyter):
        yield JobProgress(*arguments)
        return
    live_progress = LiveProgress(console, *arguments)
    with live_progress.live:
        yield live_progress
