"""``domainwise reproduce`` as a function: plan, run, resume.

Beside the trials of the tables it runs the SVM over many repeats, and makes the data of the paper's
figure and of the spectrum behind it. The figure has projections of the synthetic data on two
components of COIR, DICA and DCM: n ~ Poisson(500) rows per domain in 5 dimensions, γ = 1
(theory 10.2). A binary target determines one direction (theory 4), so the second component is the
leading principal direction that neither target nor domain explains.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.datasets import make_synthetic
from domainwise.datasets.loaders import verified_path
from domainwise.estimators import COIR, DCM, DICA
from domainwise.jobs.runner import Job, Progress, Row, long_first, run_jobs
from domainwise.jobs.store import ResultStore
from domainwise.paper.methods import delta_kernel
from domainwise.paper.protocols import Case, Table
from domainwise.paper.timing import plan_timing
from domainwise.paper.trials import Trial, plan_trials, seed_of
from domainwise.reference import algorithm1
from domainwise.scoring.statistics import summarise

#: Parameters of the paper's figure, and of DCM's ridge.
GAMMA, EPSILON, RIDGE = 1.0, 1e-3, 1e-3
#: Points stored per panel; all rows are used for fitting.
SHOWN_TRAIN, SHOWN_TEST = 700, 250


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
class ProjectionJob:
    """The panels of one method: training rows and three unseen domains."""

    method: str
    rows_per_domain: int
    root_seed: int
    cost: float = 6.0

    def run(self) -> list[Row]:
        """Fit on seven domains and project all ten."""
        data, (X, y, d) = _draw(self, "figure", n_features=5)
        shared: dict[str, Any] = {"n_components": 2, "gamma": GAMMA, "epsilon": EPSILON}
        model: Any = {
            "coir": COIR(ridge=RIDGE, **shared),
            "dica": DICA(lam=len(X) * RIDGE, solver="dense", **shared),
            "dcm": DCM(ridge=RIDGE, **shared),
        }[self.method]
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, sample_domain=d)
            panels = [_panel("source domains", model.transform(X), y, SHOWN_TRAIN, d)]
            for number in (1, 2, 3):
                rows = data.sample_domain == 6 + number
                Z = model.transform(data.data[rows])
                panels.append(_panel(f"unseen {number}", Z, data.target[rows], SHOWN_TEST))
        return [
            {
                "kind": "projection",
                "method": self.method,
                "rows_per_domain": self.rows_per_domain,
                "n_informative": int(model.n_informative_),
                "panels": panels,
            }
        ]


@dataclass(frozen=True)
class SpectrumJob:
    """Every eigenvalue of Algorithm 1 on one draw of the synthetic table's first row."""

    root_seed: int
    rows_per_domain: int = 100
    cost: float = 5.0

    def run(self) -> list[Row]:
        """Solve the dense problem for all components."""
        _, (X, y, d) = _draw(self, "spectrum")
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            K = rbf_kernel(X, gamma=0.1)
            labels = delta_kernel(y, y), delta_kernel(d, d)
            result = algorithm1(K, *labels, epsilon=EPSILON, n_components=_rank(K))
        return [
            {
                "kind": "spectrum",
                "method": "algorithm1",
                "n_classes": len(np.unique(y)),
                "n_domains": len(np.unique(d)),
                "eigenvalues": [round(float(value), 10) for value in result.eigenvalues],
            }
        ]


def plan_figures(
    done: Iterable[Row], *, quick: bool, root_seed: int
) -> list[ProjectionJob | SpectrumJob]:
    """Jobs for the figure and the spectrum that are still to do."""
    finished = {(row["kind"], row["method"]) for row in done}
    rows = 150 if quick else 500
    jobs: list[ProjectionJob | SpectrumJob] = [
        ProjectionJob(method, rows, root_seed)
        for method in ("coir", "dica", "dcm")
        if ("projection", method) not in finished
    ]
    if ("spectrum", "algorithm1") not in finished:
        jobs.append(SpectrumJob(root_seed, 40 if quick else 100))
    return jobs


def _draw(job: ProjectionJob | SpectrumJob, name: str, **options: Any) -> tuple[Bunch, list[Array]]:
    """Ten synthetic domains, and X, y and sample_domain of the first seven, the sources."""
    rng = np.random.default_rng(seed_of(job.root_seed, name))
    seed = int(rng.integers(2**31 - 1))
    data = make_synthetic(0.1, n_per_domain=job.rows_per_domain, random_state=seed, **options)
    source = data.sample_domain < 7
    return data, [values[source] for values in (data.data, data.target, data.sample_domain)]


def _panel(title: str, Z: Array, y: Array, most: int, domain: Array | None = None) -> Row:
    shown = np.unique(np.linspace(0, len(Z) - 1, min(len(Z), most)).astype(int))
    Z = np.column_stack([Z, np.zeros(len(Z))])  # there may be one component
    panel: Row = {
        "title": title,
        "n_rows": len(Z),
        "x": Z[shown, 0].round(4).tolist(),
        "y": Z[shown, 1].round(4).tolist(),
        "target": y[shown].tolist(),
    }
    if domain is not None:
        panel["domain"] = domain[shown].tolist()
    return panel


def _rank(K: Array) -> int:
    values = np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean())
    return int(np.sum(values > len(K) * np.finfo(np.float64).eps * values[-1]))


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
    jobs: list[Job] = []
    jobs += plan_trials(cases, store.rows("result"), root_seed=root_seed, repeats=repeats)
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
            verified_path(name)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise FileNotFoundError("\n".join(problems))
