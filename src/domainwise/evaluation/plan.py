"""How long an evaluation takes, how many workers it gets, and what a quick one skips."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from domainwise.evaluation.problem import Problem, outer_splits
from domainwise.jobs.runner import clock, on_cluster, worker_count
from domainwise.models.registry import EXACT_ROWS, Method, choose_methods
from domainwise.splits.folds import LeaveDomainsOut, Split

#: Iterations of the boosting that costs of methods are measured by, of which some are timed; trees
#: of all classes together; and seconds that do not depend on them.
ITERATIONS, TIMED, MOST_TREES, LEAST_SECONDS = 100, 10, 500, 0.1
#: Seconds of work below which more workers would mostly start.
ALONE = 6.0
#: Seconds for the jobs of a quick evaluation, beyond which there are fewer rows, and then fewer
#: methods: reading and checking the table and drawing the page take as long again.
QUICK_SECONDS = (10.0, 16.0)
#: Part of the usual cost, with fewer inner splits.
QUICK_SHARE = 0.45
#: Rows that a quick evaluation learns from, or else fewer; groups of domains, and rows scored.
QUICK_ROWS, QUICK_GROUPS, QUICK_SCORED = (600, 300), 3, 5000
#: Methods that a quick evaluation never skips.
FIRST = ("constant", "linear")


def seconds_per_cost(problem: Problem, split: Split) -> float:
    """Seconds of a cost of 1: half a fit of boosting to the training rows of a split, and a little.

    It is CPU time, from a few iterations: a busy machine does not change what is evaluated.
    """
    rows, _ = split
    X = clone(problem.preprocessor).fit_transform(problem.rows(rows))
    names: Any = () if problem.classes is None else problem.classes
    boosting = HistGradientBoostingClassifier if len(names) else HistGradientBoostingRegressor
    model = boosting(max_iter=TIMED, early_stopping=False)
    trees = len(names) if len(names) > 2 else 1  # of one iteration
    with threadpool_limits(limits=1):  # as in jobs
        started = time.thread_time()
        model.fit(X, problem.y[rows])
        seconds = (time.thread_time() - started) / TIMED
    return LEAST_SECONDS + seconds * min(ITERATIONS, MOST_TREES / trees) / 2


def workers_for(problem: Problem, n_jobs: int | None, seconds: float) -> int:
    """Workers for work of some seconds; -1: all cores, or one core where that is as fast.

    A worker needs memory for libraries, the table, and a few kernels.
    """
    if n_jobs is not None and n_jobs < 0 and seconds < ALONE and not on_cluster():
        return 1
    table, n = problem.everything, min(len(problem.y), EXACT_ROWS)
    memory = 250_000_000 + 8 * (4 * table.X.shape[0] * table.X.shape[1] + 6 * n * n)
    return worker_count(n_jobs, memory)


@dataclass(frozen=True)
class Quick:
    """A smaller evaluation, which is done in half a minute."""

    problem: Problem
    methods: list[Method]
    cv: Any
    inner_cv: Any
    left_out: dict[str, str]  #: methods that are skipped, and why

    @property
    def in_words(self) -> str:
        """Describe how a quick evaluation differs from a full one."""
        problem, whole = self.problem, self.problem.everything
        parts = [f"domains are held out in {len(outer_splits(problem, self.cv))} groups"]
        if problem.whole is not None:
            rows = f"{len(problem.y):,} of {len(whole.y):,} rows, drawn evenly from the domains"
            parts.insert(0, f"methods learn from {rows}")
            if len(whole.scored) < len(whole.y):
                parts.append(f"scores are computed on {len(whole.scored):,} rows")
        if self.left_out:
            parts.append(f"{', '.join(self.left_out)} would take too long and are not run")
        parts.append("scores on seen domains are not computed")
        return (
            f"Quick evaluation: {'; '.join(parts)}. The table was checked on all rows. Run it "
            "without quick for the full comparison."
        )


def plan_quick(
    source: Problem,
    methods: Sequence[Method],
    cv: Any,
    inner_cv: Any,
    max_rows: int | str | None,
    n_jobs: int | None,
) -> Quick:
    """Decide how many rows and which methods a quick evaluation takes, by timing boosting.

    Methods of the default list are skipped, the slowest first; methods chosen by name all run.
    """
    n_domains, methods, left_out = len(source.domains), list(methods), {}
    if cv is None:
        cv = LeaveDomainsOut(max_splits=QUICK_GROUPS, random_state=source.seed)
    if inner_cv is None and n_domains > 2:  # else there is one source domain, and folds of rows
        inner_cv = LeaveDomainsOut(max_splits=QUICK_GROUPS)
    by_default = [m.key for m in methods] == [m.key for m in choose_methods(None)]
    most, least = (
        n if max_rows in ("auto", None) else min(int(max_rows or n), n) for n in QUICK_ROWS
    )

    def timed(rows: int) -> tuple[Problem, float]:
        """Draw rows, and estimate the seconds of a cost of 1."""
        problem = source.drawn(max(rows, 4 * n_domains))
        splits = outer_splits(problem, cv)
        seconds = QUICK_SHARE * seconds_per_cost(problem, splits[0]) * len(splits)
        return problem, seconds / workers_for(problem, n_jobs, ALONE)

    problem, unit = timed(most)
    if unit * sum(method.cost for method in methods) > QUICK_SECONDS[0]:
        problem, unit = timed(least)
    while by_default and unit * sum(method.cost for method in methods) > QUICK_SECONDS[1]:
        longest = max(methods, key=lambda method: method.cost)
        if longest.key in FIRST:
            break
        methods.remove(longest)
        left_out[longest.key] = f"not run: it would take about {clock(unit * longest.cost)}"
    return Quick(problem, methods, cv, inner_cv, left_out)
