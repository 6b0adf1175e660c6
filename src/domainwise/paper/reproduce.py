"""``domainwise reproduce`` as a function: plan, run, resume.

In addition to the trials of the tables it runs the SVM over many repeats, computes the data of the
paper's figure and of the spectrum, and measures time and memory.

The figure has projections of the synthetic data on two components of COIR, DICA and DCM:
n ~ Poisson(500) rows per domain in 5 dimensions, γ = 1 (theory 10.2). A binary target determines
one direction (theory 4), so the second component is the leading principal direction that neither
target nor domain explains.

Peak memory is that of a process, so a fit is measured in a new one. No other job of this run runs
at the same time, and BLAS has one thread, as in the accuracy runs. Seconds are CPU seconds: with
one thread that is the time on an idle core, however busy the machine is.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
from domainwise.jobs.store import ResultsError, ResultStore
from domainwise.paper.methods import METHODS, build_pipeline, delta_kernel
from domainwise.paper.protocols import Case, Table, find_case
from domainwise.paper.trials import Trial, evenly_spaced, make_split, plan_trials, seed_of
from domainwise.reference import algorithm1
from domainwise.scoring.predictions import fit_with_domains
from domainwise.scoring.statistics import summarise


@contextlib.contextmanager
def quiet_on_one_thread() -> Iterator[None]:
    """Use one BLAS thread, and suppress warnings."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class SingleRow:
    """A job that computes one row of the results file, with a key that no other row has."""

    kind: str
    method: str
    case: Case | None
    cost: float
    compute: Callable[[], Row]  #: returns the rest of the row

    @property
    def key(self) -> tuple[str, str | None, str]:
        """Kind, case and method of the row."""
        return self.kind, None if self.case is None else self.case.key, self.method

    def run(self) -> list[Row]:
        """Compute the row."""
        row: Row = {"kind": self.kind, "method": self.method}
        if self.case is not None:
            row |= {"table": self.case.table, "case": self.case.key}
            row["fingerprint"] = self.case.fingerprint()
        with quiet_on_one_thread():
            return [row | self.compute()]


# The synthetic table's SVM, figure and spectrum ---------------------------------------------------

#: Gamma and epsilon of the paper's figure, and the ridge of its methods.
GAMMA, EPSILON, RIDGE = 1.0, 1e-3, 1e-3
#: Points stored per panel; all rows are used for fitting.
SHOWN_TRAIN, SHOWN_TEST = 700, 250


def synthetic_jobs(cases: Sequence[Case], *, quick: bool, root_seed: int) -> list[SingleRow]:
    """Jobs for the panels of the figure, the spectrum and, unless ``quick``, the long runs."""
    figure, spectrum = (150, 40) if quick else (500, 100)
    jobs = [
        SingleRow("projection", method, None, 6.0, partial(projection, method, figure, root_seed))
        for method in ("coir", "dica", "dcm")
    ]
    values = partial(eigenvalues, spectrum, root_seed)
    jobs.append(SingleRow("spectrum", "algorithm1", None, 5.0, values))
    for case in cases:
        if case.source == "synthetic" and not quick:
            jobs.append(
                SingleRow("long_run", "svm", case, 15.0, partial(long_run, case, root_seed))
            )
    return jobs


def long_run(case: Case, root_seed: int, repeats: int = 200) -> Row:
    """Mean and standard error of the SVM's accuracy over many more repeats than a table has.

    The SVM has no parameter the paper leaves open, so its mean shows whether the synthetic data are
    the paper's; a mean of 20 repeats is uncertain by about one percentage point. The first repeats
    are those of the table.
    """
    trials = (Trial(case, "long", repeat, ("svm",), root_seed) for repeat in range(repeats))
    accuracy = summarise([trial.run()[0]["metrics"]["accuracy"] for trial in trials])
    error = accuracy.deviation / accuracy.n**0.5
    return {"repeats": accuracy.n, "mean": accuracy.mean, "standard_error": error}


def projection(method: str, rows_per_domain: int, root_seed: int) -> Row:
    """Panels of the figure for one method: seven source domains, then three unseen domains."""
    data, (X, y, d) = _draw("figure", rows_per_domain, root_seed, n_features=5)
    shared: dict[str, Any] = {"n_components": 2, "gamma": GAMMA, "epsilon": EPSILON}
    model: Any = {
        "coir": COIR(ridge=RIDGE, **shared),
        "dica": DICA(lam=len(X) * RIDGE, solver="dense", **shared),
        "dcm": DCM(ridge=RIDGE, **shared),
    }[method].fit(X, y, sample_domain=d)
    panels = [_panel("source domains", model.transform(X), y, SHOWN_TRAIN)]
    panels[0]["domain"] = d[evenly_spaced(len(X), SHOWN_TRAIN)].tolist()
    for number in (1, 2, 3):
        rows = data.sample_domain == 6 + number
        Z = model.transform(data.data[rows])
        panels.append(_panel(f"unseen {number}", Z, data.target[rows], SHOWN_TEST))
    informative = int(model.n_informative_)
    return {"rows_per_domain": rows_per_domain, "n_informative": informative, "panels": panels}


def eigenvalues(rows_per_domain: int, root_seed: int) -> Row:
    """Every eigenvalue of Algorithm 1 on one draw of the synthetic table's first row."""
    _, (X, y, d) = _draw("spectrum", rows_per_domain, root_seed)
    K = rbf_kernel(X, gamma=0.1)
    means = K.mean(axis=0)
    values = np.linalg.eigvalsh(K - means - means[:, None] + K.mean())
    rank = int(np.sum(values > len(K) * np.finfo(np.float64).eps * values[-1]))
    labels = delta_kernel(y, y), delta_kernel(d, d)
    result = algorithm1(K, *labels, epsilon=EPSILON, n_components=rank)
    return {
        "n_classes": len(np.unique(y)),
        "n_domains": len(np.unique(d)),
        "eigenvalues": [round(float(value), 10) for value in result.eigenvalues],
    }


def _draw(
    name: str, rows_per_domain: int, root_seed: int, **options: Any
) -> tuple[Bunch, list[Array]]:
    """Ten synthetic domains, and X, y and sample_domain of the first seven, the sources."""
    seed = int(np.random.default_rng(seed_of(root_seed, name)).integers(2**31 - 1))
    data = make_synthetic(0.1, n_per_domain=rows_per_domain, random_state=seed, **options)
    source = data.sample_domain < 7
    return data, [values[source] for values in (data.data, data.target, data.sample_domain)]


def _panel(title: str, Z: Array, y: Array, most: int) -> Row:
    shown = evenly_spaced(len(Z), most)
    Z = np.column_stack([Z, np.zeros(len(Z))])  # there may be only one component
    return {
        "title": title,
        "n_rows": len(Z),
        "x": Z[shown, 0].round(4).tolist(),
        "y": Z[shown, 1].round(4).tolist(),
        "target": y[shown].tolist(),
    }


# Time and memory ----------------------------------------------------------------------------------

#: A fit is measured up to three times, until the total reaches this many seconds.
PATIENCE = 3.0
TIME_LIMIT = 600
#: Starting a process takes seconds: a quick run measures these only, on one case per data set.
QUICK_METHODS = ("svm", "dcm")


def timing_jobs(cases: Sequence[Case], *, quick: bool, root_seed: int) -> list[SingleRow]:
    """Jobs that measure fits, on the first repeat in the paper setting.

    Cases of equal size are timed once.
    """
    jobs = []
    timed_sources: set[str] = set()
    for case in cases:
        if case.source in timed_sources and (quick or case.source == "synthetic"):
            continue
        timed_sources.add(case.source)
        for method in case.methods:
            timed = METHODS[method].kind in ("exact", "fast", "reference") or method == "svm"
            if timed and (method in QUICK_METHODS or not quick):
                compute = partial(measure_in_process, case.key, method, quick, root_seed)
                jobs.append(SingleRow("timing", method, case, 4.0, compute))
    return jobs


def measure_in_process(*arguments: Any) -> Row:
    """Call :func:`measure` in a new process; a failure gives a row with the error."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "domainwise.paper.reproduce"],
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": "error", "error": f"took more than {TIME_LIMIT} s"}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"status": "error", "error": last[:300]}
    return {"status": "ok", **json.loads(done.stdout.strip().splitlines()[-1])}


def measure(case_key: str, method: str, quick: bool, root_seed: int) -> Row:
    """Measure time and memory of fitting and predicting; call it in a new process."""
    case = find_case(case_key)
    case = case.quick() if quick else case
    with quiet_on_one_thread():
        split = make_split(case, root_seed, 0)
        trial = Trial(case, "paper", 0, (method,), root_seed)
        parameters, _ = trial.choose_parameters(METHODS[method], split)
        before = peak_mib()
        seconds: list[float] = []
        wall: list[float] = []
        while len(seconds) < 3 and sum(seconds) < PATIENCE:
            pipeline = build_pipeline(case, METHODS[method], parameters, impute=split.has_missing)
            started, began = time.process_time(), time.perf_counter()
            fit_with_domains(pipeline, split.X, split.y, split.sample_domain)
            pipeline.predict(split.X_test)
            seconds.append(time.process_time() - started)
            wall.append(time.perf_counter() - began)
    return {
        "seconds": float(np.median(seconds)),
        "wall_seconds": float(np.median(wall)),
        "fits": len(seconds),
        "peak_mib": round(peak_mib(), 1),
        "before_mib": round(before, 1),
        "n_train": len(split.X),
        "n_test": len(split.X_test),
        "n_landmarks": parameters.n_landmarks,
    }


def peak_mib() -> float:
    """Largest resident size of this process so far, in MiB; 0 where it is not known.

    Linux's own counter is read first: ``getrusage`` there inherits the peak of the process that
    started this one.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024.0
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts in bytes, the others in KiB.
    return peak / (1024.0 * 1024.0) if sys.platform == "darwin" else peak / 1024.0


# All of it ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Remaining jobs: some run in parallel, then the others one at a time."""

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
    """Plan the jobs of these tables whose rows are not in the results file yet.

    ``repeats`` overrides the numbers in the protocols; ``timing`` adds jobs that measure time and
    memory. Raises ResultsError if stored rows come from another protocol.
    """
    cases = [case.quick() if quick else case for table in tables for case in table.cases]
    stored = {row["case"]: row["fingerprint"] for row in store.rows() if "fingerprint" in row}
    for case in cases:
        if stored.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results of {case.key} in this folder come from another protocol; choose"
                " another folder"
            )
    jobs: list[Job] = []
    jobs += plan_trials(cases, store.rows("result"), root_seed=root_seed, repeats=repeats)
    done = {
        (row["kind"], row.get("case"), row["method"])
        for row in store.rows()
        if "method" in row and row.get("status") != "error"
    }
    options: Any = {"quick": quick, "root_seed": root_seed}
    if any(table.key == "synthetic" for table in tables):
        jobs += [job for job in synthetic_jobs(cases, **options) if job.key not in done]
    timed = timing_jobs(cases, **options) if timing else []
    return Plan(jobs, [job for job in timed if job.key not in done])


def reproduce(
    plan: Plan,
    store: ResultStore,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
    on_serial: Callable[[], None] | None = None,
) -> list[Row]:
    """Run a plan, store each row when it is finished, and return the rows that failed.

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
    """Raise FileNotFoundError, with the loaders' messages, if data files are missing or wrong."""
    problems = []
    for name in {name: None for table in tables for name in table.data_files}:
        try:
            verified_path(name)
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise FileNotFoundError("\n".join(problems))


if __name__ == "__main__":
    print(json.dumps(measure(*json.load(sys.stdin))))
