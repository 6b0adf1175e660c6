"""``domainwise reproduce`` as a function: plan, run, resume."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from domainwise.datasets.files import data_files, verified_path
from domainwise.jobs.runner import Job, Progress, Row, long_first, run_jobs
from domainwise.jobs.store import ResultStore
from domainwise.paper.figures import plan_figures
from domainwise.paper.protocols import Case, Table
from domainwise.paper.timing import plan_timing
from domainwise.paper.trials import Trial, plan_trials
from domainwise.scoring.statistics import summarise


@dataclass(frozen=True)
class LongRun:
    """The SVM of one synthetic case over many more repeats than a table has.

    The SVM has no parameter the paper leaves open, so its mean shows whether the synthetic data are
    the paper's; a mean of 20 repeats alone is uncertain by about a point. The first repeats are the
    table's. A case is one job and one row of the results file.
    """

    case: Case
    root_seed: int
    repeats: int = 200
    cost: float = 15.0

    def run(self) -> list[Row]:
        """Mean and standard error of the accuracy."""
        values = []
        for repeat in range(self.repeats):
            (row,) = Trial(self.case, "long", repeat, ("svm",), self.root_seed).run()
            values.append(row["metrics"]["accuracy"])
        accuracy = summarise(values)
        return [
            {
                "kind": "long_run",
                "case": self.case.key,
                "fingerprint": self.case.fingerprint(),
                "method": "svm",
                "repeats": accuracy.n,
                "mean": accuracy.mean,
                "standard_error": accuracy.deviation / accuracy.n**0.5,
            }
        ]


def plan_long_runs(cases: Iterable[Case], done: Iterable[Row], *, root_seed: int) -> list[LongRun]:
    """Long runs of the synthetic cases that are still to do."""
    finished = {row["case"] for row in done}
    return [
        LongRun(case, root_seed)
        for case in cases
        if case.source == "synthetic" and case.key not in finished
    ]


@dataclass(frozen=True)
class Plan:
    """Jobs that are still to do: in parallel, then one after the other."""

    parallel: Sequence[Job]
    serial: Sequence[Job]

    @property
    def cost(self) -> float:
        """Sum of the jobs' costs."""
        return sum(job.cost for job in (*self.parallel, *self.serial))


def make_plan(
    tables: Sequence[Table],
    store: ResultStore,
    *,
    quick: bool,
    root_seed: int,
    repeats: int | None = None,
    timing: bool = True,
) -> Plan:
    """Jobs of these tables that the opened results file does not hold yet.

    ``repeats`` replaces the protocols' own numbers; ``timing`` measures time and memory afterwards.
    """
    cases = [case.quick() if quick else case for table in tables for case in table.cases]
    jobs: list[Job] = [
        *plan_trials(cases, store.rows("result"), root_seed=root_seed, repeats=repeats)
    ]
    if any(table.key == "synthetic" for table in tables):
        figures = [*store.rows("projection"), *store.rows("spectrum")]
        jobs += plan_figures(figures, quick=quick, root_seed=root_seed)
        if not quick:
            jobs += plan_long_runs(cases, store.rows("long_run"), root_seed=root_seed)
    serial: list[Job] = []
    if timing:
        serial += plan_timing(cases, store.rows("timing"), quick=quick, root_seed=root_seed)
    return Plan(jobs, serial)


def reproduce(
    plan: Plan,
    store: ResultStore,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
    on_serial: Callable[[], None] | None = None,
) -> list[Row]:
    """Run a plan and return the rows that failed; rows reach the results file as they are finished.

    ``progress(cost, rows)`` is called after each job, ``on_serial`` when the timing pass begins.
    """
    failed: list[Row] = []

    def after_job(cost: float, rows: list[Row]) -> None:
        failed.extend(row for row in rows if row.get("status") == "error")
        if progress is not None:
            progress(cost, rows)

    with store.locked():
        run_jobs(long_first(plan.parallel), store, n_jobs=n_jobs, progress=after_job)
        if plan.serial and on_serial is not None:
            on_serial()
        run_jobs(long_first(plan.serial), store, n_jobs=1, progress=after_job)
    return failed


def check_data(tables: Sequence[Table]) -> None:
    """Fail before anything is run if a data file is absent, with the messages of the loaders."""
    problems = []
    for name in {name: None for table in tables for name in table.data_files}:
        try:
            verified_path(data_files()[name])
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise FileNotFoundError("\n".join(problems))
