"""Fit and predict in threads and processes at the same time, and compare with serial results.

    python tests/hostile/soak.py --count 200

Each of ``count`` tasks fits one of six models to its own data and predicts. Eight threads and then
two processes run all tasks; their results must equal serial ones. At the end, the number of BLAS
threads, warning filters and torch's precision must be unchanged, and memory must not have grown.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info

from domainwise import DCM, DomainEnsembleRegressor, FastDCM, InvariantSVC, SiteAdapter
from domainwise.selection import InvariantRidgeClassifierCV

MODELS = (
    DCM(),
    FastDCM(n_landmarks=20, random_state=0),
    InvariantSVC(probability=True),
    InvariantRidgeClassifierCV(n_landmarks=20, random_state=0),
    SiteAdapter(LogisticRegression()),
    DomainEnsembleRegressor(["linear", "extra_trees"], random_state=0),
)
#: Memory that threads and libraries keep after their first use.
ALLOWED_MIB = 150


def run_task(number: int) -> np.ndarray:
    """Fit a model to data that depend on the number of the task, and predict."""
    rng = np.random.default_rng(number)
    domain = np.repeat(np.arange(5), 24)
    X = rng.normal(size=(len(domain), 3)) + 0.3 * domain[:, None]
    target = X[:, 0] + rng.normal(size=len(domain))
    model: Any = MODELS[number % len(MODELS)]
    y = target if isinstance(model, DomainEnsembleRegressor) else target > np.median(target)
    fitted = clone(model).fit(X, y, sample_domain=domain)
    if isinstance(fitted, SiteAdapter):
        fitted = fitted.adapt(X[:6], y[:6])
    names = ("transform", "predict_proba", "predict")
    return np.asarray(getattr(fitted, next(n for n in names if hasattr(fitted, n)))(X[:9]))


def settings() -> dict[str, Any]:
    """Return settings of the process that fits may change while they run."""
    state = {
        "blas": sorted((m["filepath"], m["num_threads"]) for m in threadpool_info()),
        "filters": list(warnings.filters),
    }
    if "torch" in sys.modules:
        state["precision"] = sys.modules["torch"].get_float32_matmul_precision()
    return state


def soak(count: int, *, processes: int = 2) -> list[str]:
    """Return what went wrong, an empty list if nothing did."""
    problems = []
    expected = [run_task(number) for number in range(count)]
    with ThreadPoolExecutor(8) as pool:  # libraries start their threads before memory is measured
        list(pool.map(run_task, range(len(MODELS))))
    gc.collect()
    before, memory = settings(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with ThreadPoolExecutor(8) as pool:
        compare("threads", expected, list(pool.map(run_task, range(count))), problems)
    gc.collect()
    if settings() != before:
        problems.append(f"settings changed from {before} to {settings()}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    if grown > ALLOWED_MIB:
        problems.append(f"memory grew by {grown:.0f} MiB")
    if processes:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            compare("processes", expected, list(pool.map(run_task, range(count))), problems)
    return problems


def compare(name: str, expected: list[Any], actual: list[Any], problems: list[str]) -> None:
    """Add a message for each result that differs from the serial one."""
    for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
        if not np.allclose(a, b, rtol=1e-9, atol=1e-12):
            model = type(MODELS[number % len(MODELS)]).__name__
            difference = np.abs(a - b).max()
            problems.append(f"{name}: task {number} ({model}) differs by {difference:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    found = soak(parser.parse_args().count)
    print("\n".join(found) or "no differences")
    sys.exit(bool(found))
