"""``domainwise reproduce`` as a function: plan, run, resume."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from domainwise.datasets.lookup import verified_path
from domainwise.datasets.registry import data_files
from domainwise.jobs.runner import Job, Progress, Row, long_first, run_jobs
from domainwise.jobs.store import ResultStore
from domainwise.paper.cases import Case, Table
from domainwise.paper.figures import plan_figures
from domainwise.paper.longrun import plan_long_runs
from domainwise.paper.timing import plan_timing
from domainwise.paper.trials import plan_trials


@dataclass(frozen=True)
class Plan:
    """What is left to do: in parallel, then one after the other."""

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

    ``repeats`` stands in place of the protocols' own numbers; ``timing`` measures time and memory
    afterwards.
    """
    cases: list[Case] = [
        case.quick() if quick else case for table in tables for case in table.cases
    ]
    jobs: list[Job] = list(
        plan_trials(cases, store.rows("result"), root_seed=root_seed, repeats=repeats)
    )
    if any(table.key == "synthetic" for table in tables):
        drawn = [*store.rows("projection"), *store.rows("spectrum")]
        jobs += plan_figures(drawn, quick=quick, root_seed=root_seed)
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

    def note(cost: float, rows: list[Row]) -> None:
        failed.extend(row for row in rows if row.get("status") == "error")
        if progress is not None:
            progress(cost, rows)

    with store.locked():
        run_jobs(long_first(plan.parallel), store, n_jobs=n_jobs, progress=note)
        if plan.serial and on_serial is not None:
            on_serial()
        run_jobs(long_first(plan.serial), store, n_jobs=1, progress=note)
    return failed


def check_data(tables: Sequence[Table]) -> None:
    """Fail before anything is run if a data file is absent, with the messages of the loaders."""
    wanted = {name for table in tables for name in table.data_files}
    problems = []
    for name, entry in data_files().items():
        if name in wanted:
            try:
                verified_path(entry)
            except (FileNotFoundError, ValueError) as error:
                problems.append(str(error))
    if problems:
        raise FileNotFoundError("\n".join(problems))
