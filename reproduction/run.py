"""Plan, run and resume the jobs of ``python -m reproduction``.

In addition to the trials for the tables, other jobs run the SVM for many repeats, compute the data
for the paper's figure and for a plot of eigenvalues, and measure time and memory.

The figure shows projections of the synthetic data onto two components of COIR, DICA and DCM, with
n ~ Poisson(500) rows per domain in 5 dimensions and γ = 1 (theory 10.2). A binary target determines
one direction (theory 4), so the second component is the leading principal direction that neither
the target nor the domain explains.

Peak memory is a property of a process, so each method is measured in a new process. No other job of
the run is active at the same time, and BLAS uses one thread, as in the trials. Times are CPU
seconds, which hardly depend on other processes on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise import COIR, DCM, DICA
from domainwise.base.arrays import Array, evenly_spaced
from domainwise.base.files import ResultsError, ResultStore
from domainwise.base.process import Job, Progress, Row, run_jobs
from domainwise.datasets import make_synthetic
from domainwise.held_out.scoring.predictions import fit_with_domains
from reproduction.data import verified_path
from reproduction.methods import METHODS, build_pipeline, delta_kernel
from reproduction.protocols import Case, Table, find_case
from reproduction.ranks import summarize
from reproduction.reference import algorithm1
from reproduction.trials import Trial, derive_seed, make_split, plan_trials


def describe_environment() -> Row:
    """Describe the software versions and the machine, for the header."""
    versions, processor = {}, platform.processor() or "unknown"
    for package in ("numpy", "scipy", "scikit-learn", "joblib", "pandas"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model_line = next(line for line in lines if line.startswith("model name"))
        processor = model_line.split(":", 1)[1].strip()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": versions,
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": processor,
            "cores": os.cpu_count(),
        },
    }


@contextlib.contextmanager
def one_thread_without_warnings() -> Iterator[None]:
    """Use one BLAS thread, and suppress warnings."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class SingleRowJob:
    """A job with a unique key that computes one row of the results file."""

    kind: str
    method: str
    case: Case | None
    cost: float  #: approximate seconds, to estimate the remaining time
    compute: Callable[[], Row]  #: returns the other entries of the row

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
        with one_thread_without_warnings():
            return [row | self.compute()]


# Synthetic data: the figure, the eigenvalues and long runs of the SVM -----------------------------

GAMMA, EPSILON, RIDGE = 1.0, 1e-3, 1e-3  #: for the figure; EPSILON also for eigenvalues
#: Maximum number of points stored for each panel of the figure; models are fitted to all rows.
MAX_SOURCE_POINTS, MAX_UNSEEN_POINTS = 700, 250


def synthetic_jobs(cases: Sequence[Case], *, quick: bool, root_seed: int) -> list[SingleRowJob]:
    """Return jobs for the figure, the eigenvalues and, unless ``quick``, the SVM's long runs."""
    n_figure_rows, n_spectrum_rows = (150, 40) if quick else (500, 100)  # mean rows per domain
    jobs = []
    for method in ("coir", "dica", "dcm"):
        compute = partial(compute_projection, method, n_figure_rows, root_seed)
        jobs.append(SingleRowJob("projection", method, None, 6.0, compute))
    compute = partial(compute_eigenvalues, n_spectrum_rows, root_seed)
    jobs.append(SingleRowJob("spectrum", "algorithm1", None, 5.0, compute))
    for case in cases:
        if case.source == "synthetic" and not quick:
            compute = partial(compute_long_run, case, root_seed)
            jobs.append(SingleRowJob("long_run", "svm", case, 15.0, compute))
    return jobs


def compute_long_run(case: Case, root_seed: int, n_repeats: int = 200) -> Row:
    """Return the mean accuracy of the SVM over many repeats, and its standard error.

    The paper gives all parameters of the SVM, so its accuracy shows whether our synthetic data are
    like the paper's. The 20 repeats in the table are too few for this: their mean has a standard
    error of about one percentage point. The first 20 repeats are the same as in the table.
    """
    trials = (Trial(case, "long", repeat, ("svm",), root_seed) for repeat in range(n_repeats))
    summary = summarize([trial.run()[0]["metrics"]["accuracy"] for trial in trials])
    standard_error = summary.deviation / summary.n**0.5
    return {"repeats": summary.n, "mean": summary.mean, "standard_error": standard_error}


def compute_projection(method: str, rows_per_domain: int, root_seed: int) -> Row:
    """Return a method's panels: one for all source domains, and one for each unseen domain."""
    bunch, (X, y, d) = _synthetic_domains("figure", rows_per_domain, root_seed, n_features=5)
    shared_arguments: dict[str, Any] = {"n_components": 2, "gamma": GAMMA, "epsilon": EPSILON}
    model: Any = {
        "coir": COIR(ridge=RIDGE, **shared_arguments),
        "dica": DICA(lam=len(X) * RIDGE, solver="dense", **shared_arguments),
        "dcm": DCM(ridge=RIDGE, **shared_arguments),
    }[method].fit(X, y, sample_domain=d)
    panels = [_panel("source domains", model.transform(X), y, MAX_SOURCE_POINTS)]
    panels[0]["domain"] = d[evenly_spaced(len(X), MAX_SOURCE_POINTS)].tolist()
    for number in (1, 2, 3):
        domain_mask = bunch.sample_domain == 6 + number
        Z = model.transform(bunch.data[domain_mask])
        panels.append(_panel(f"unseen {number}", Z, bunch.target[domain_mask], MAX_UNSEEN_POINTS))
    n_informative = int(model.n_informative_)
    return {"rows_per_domain": rows_per_domain, "n_informative": n_informative, "panels": panels}


def compute_eigenvalues(rows_per_domain: int, root_seed: int) -> Row:
    """Return all eigenvalues of Algorithm 1 on synthetic data with η = 0.1 and γ = 0.1."""
    _, (X, y, d) = _synthetic_domains("spectrum", rows_per_domain, root_seed)
    K = rbf_kernel(X, gamma=0.1)
    column_means = K.mean(axis=0)
    kernel_eigenvalues = np.linalg.eigvalsh(K - column_means - column_means[:, None] + K.mean())
    threshold = len(K) * np.finfo(np.float64).eps * kernel_eigenvalues[-1]
    rank = int(np.sum(kernel_eigenvalues > threshold))
    label_kernels = delta_kernel(y, y), delta_kernel(d, d)
    solution = algorithm1(K, *label_kernels, epsilon=EPSILON, n_components=rank)
    return {
        "n_classes": len(np.unique(y)),
        "n_domains": len(np.unique(d)),
        "eigenvalues": [round(float(eigenvalue), 10) for eigenvalue in solution.eigenvalues],
    }


def _synthetic_domains(
    seed_name: str, rows_per_domain: int, root_seed: int, **options: Any
) -> tuple[Bunch, list[Array]]:
    """Return ten synthetic domains, and X, y and sample_domain of the seven source domains."""
    seed = int(np.random.default_rng(derive_seed(root_seed, seed_name)).integers(2**31 - 1))
    bunch = make_synthetic(0.1, n_per_domain=rows_per_domain, random_state=seed, **options)
    is_source = bunch.sample_domain < 7
    return bunch, [array[is_source] for array in (bunch.data, bunch.target, bunch.sample_domain)]


def _panel(title: str, Z: Array, y: Array, max_points: int) -> Row:
    row_indices = evenly_spaced(len(Z), max_points)
    Z = np.column_stack([Z, np.zeros(len(Z))])  # adds a second component if there is only one
    return {
        "title": title,
        "n_rows": len(Z),
        "x": Z[row_indices, 0].round(4).tolist(),
        "y": Z[row_indices, 1].round(4).tolist(),
        "target": y[row_indices].tolist(),
    }


# Time and memory ----------------------------------------------------------------------------------

ENOUGH_SECONDS = 3.0  #: total time after which a fit is not repeated (at most three fits)
MAX_SECONDS = 600  #: a process that measures fits is stopped after this time
#: Quick runs measure only these methods, on one case per data set: each starts a process.
QUICK_METHODS = ("svm", "dcm")


def timing_jobs(cases: Sequence[Case], *, quick: bool, root_seed: int) -> list[SingleRowJob]:
    """Return jobs that measure fits to the first split, in the paper setting.

    Only the first synthetic case is measured, because all synthetic cases have the same size.
    """
    jobs = []
    timed_sources: set[str] = set()
    for case in cases:
        if case.source in timed_sources and (quick or case.source == "synthetic"):
            continue
        timed_sources.add(case.source)
        for method in case.methods:
            is_timed = METHODS[method].kind in ("exact", "fast", "reference") or method == "svm"
            if is_timed and (method in QUICK_METHODS or not quick):
                compute = partial(measure_in_process, case.key, method, quick, root_seed)
                jobs.append(SingleRowJob("timing", method, case, 4.0, compute))
    return jobs


def measure_in_process(*arguments: Any) -> Row:
    """Call :func:`measure` in a new process; if it fails, the row contains the error."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "reproduction.run"],
            cwd=Path(__file__).parents[1],
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            timeout=MAX_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": "error", "error": f"the measurement took more than {MAX_SECONDS} s"}
    if process.returncode != 0:
        message = (process.stderr.strip().splitlines() or ["no message"])[-1]
        return {"status": "error", "error": message[:300]}
    return {"status": "ok", **json.loads(process.stdout.strip().splitlines()[-1])}


def measure(case_key: str, method: str, quick: bool, root_seed: int) -> Row:
    """Measure the time and memory of a fit and a prediction; must be called in a new process."""
    case = find_case(case_key)
    case = case.quick() if quick else case
    with one_thread_without_warnings():
        split = make_split(case, root_seed, 0)
        trial = Trial(case, "paper", 0, (method,), root_seed)
        parameters, _ = trial.choose_parameters(METHODS[method], split)
        initial_mib = peak_mib()
        cpu_seconds: list[float] = []
        wall_seconds: list[float] = []
        while len(cpu_seconds) < 3 and sum(cpu_seconds) < ENOUGH_SECONDS:
            pipeline = build_pipeline(case, METHODS[method], parameters, impute=split.has_nan)
            cpu_start, wall_start = time.process_time(), time.perf_counter()
            fit_with_domains(pipeline, split.X, split.y, split.sample_domain)
            pipeline.predict(split.X_test)
            cpu_seconds.append(time.process_time() - cpu_start)
            wall_seconds.append(time.perf_counter() - wall_start)
    return {
        "seconds": float(np.median(cpu_seconds)),
        "wall_seconds": float(np.median(wall_seconds)),
        "fits": len(cpu_seconds),
        "peak_mib": round(peak_mib(), 1),
        "before_mib": round(initial_mib, 1),
        "n_train": len(split.X),
        "n_test": len(split.X_test),
        "n_landmarks": parameters.n_landmarks,
    }


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB, or 0 if it is unknown.

    On Linux, ``getrusage`` may return the peak of the parent process, so ``/proc`` is read instead.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024.0
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    max_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The unit is bytes on macOS, and KiB on other systems.
    return max_rss / (1024.0 * 1024.0) if sys.platform == "darwin" else max_rss / 1024.0


# The whole run ------------------------------------------------------------------------------------


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """Sort jobs by cost, in descending order."""
    return sorted(jobs, key=lambda job: -job.cost)


@dataclass(frozen=True)
class Plan:
    """Remaining jobs: first those that run in parallel, then those that run one at a time."""

    parallel_jobs: Sequence[Job]
    serial_jobs: Sequence[Job]

    @property
    def cost(self) -> float:
        """Sum of the costs of all jobs."""
        return sum(job.cost for job in (*self.parallel_jobs, *self.serial_jobs))


def make_plan(
    tables: Sequence[Table],
    store: ResultStore,
    *,
    quick: bool,
    root_seed: int,
    repeats: int | None = None,
    timing: bool = True,
) -> Plan:
    """Plan the jobs for the tables, except those whose results are already in the results file.

    ``repeats`` overrides the number of repeats in the protocols; ``timing`` adds jobs that measure
    time and memory. Raises ResultsError if stored results were computed with another protocol.
    """
    cases = [case.quick() if quick else case for table in tables for case in table.cases]
    fingerprints = {row["case"]: row["fingerprint"] for row in store.rows() if "fingerprint" in row}
    for case in cases:
        if fingerprints.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results for {case.key} in this folder were computed with another protocol;"
                " choose another folder"
            )
    parallel_jobs: list[Job] = []
    parallel_jobs += plan_trials(cases, store.rows("result"), root_seed=root_seed, repeats=repeats)
    finished_keys = {
        (row["kind"], row.get("case"), row["method"])
        for row in store.rows()
        if "method" in row and row.get("status") != "error"
    }
    options: Any = {"quick": quick, "root_seed": root_seed}
    if any(table.key == "synthetic" for table in tables):
        jobs = synthetic_jobs(cases, **options)
        parallel_jobs += [job for job in jobs if job.key not in finished_keys]
    serial_jobs = timing_jobs(cases, **options) if timing else []
    return Plan(parallel_jobs, [job for job in serial_jobs if job.key not in finished_keys])


def reproduce(
    plan: Plan,
    store: ResultStore,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
    before_serial: Callable[[], None] | None = None,
) -> list[Row]:
    """Run a plan, store the rows of each job when it finishes, and return the rows with errors.

    ``progress(cost, rows)`` is called after each job, ``before_serial`` before the serial jobs.
    """
    failed_rows: list[Row] = []

    def after_job(cost: float, rows: list[Row]) -> None:
        failed_rows.extend(row for row in rows if row.get("status") == "error")
        if progress is not None:
            progress(cost, rows)

    with store.locked():
        run_jobs(longest_first(plan.parallel_jobs), store, n_jobs=n_jobs, progress=after_job)
        if plan.serial_jobs and before_serial is not None:
            before_serial()
        run_jobs(longest_first(plan.serial_jobs), store, n_jobs=1, progress=after_job)
    return failed_rows


def check_data(tables: Sequence[Table]) -> None:
    """Raise FileNotFoundError if data files are missing or invalid; the message names them all."""
    messages = []
    for name in dict.fromkeys(name for table in tables for name in table.data_files):
        try:
            verified_path(name)
        except (FileNotFoundError, ValueError) as error:
            messages.append(str(error))
    if messages:
        raise FileNotFoundError("\n".join(messages))


if __name__ == "__main__":
    print(json.dumps(measure(*json.load(sys.stdin))))
