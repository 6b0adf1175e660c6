"""Time and peak memory of single fits: one after the other, each in a process of its own.

Peak memory belongs to a process, so a fit that is to be measured gets a fresh one. Nothing of this
run goes on beside it, and BLAS has one thread, as in the accuracy runs. Seconds are CPU seconds: on
one thread that is the time on an idle core, whatever else the machine is doing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from domainwise.jobs.runner import Row
from domainwise.paper.methods import METHODS, build_pipeline
from domainwise.paper.protocols import Case, find_case
from domainwise.paper.trials import Trial, check_protocol, make_split
from domainwise.scoring.predictions import fit_with_domains

#: A fit is repeated up to three times while that takes less than this many seconds.
PATIENCE = 3.0
TIME_LIMIT = 600
#: Starting a process takes seconds: a quick run measures these only, on one case per data set.
QUICK_METHODS = ("svm", "dcm")


@dataclass(frozen=True)
class TimingPoint:
    """One method of one case, to be fitted on the first repeat in the paper setting."""

    case: str
    method: str
    quick: bool
    root_seed: int
    cost: float = 4.0

    def run(self) -> list[Row]:
        """Measure in a new process; a failure gives a row with the error."""
        base: Row = {
            "kind": "timing",
            "table": self.case.split("/")[0],
            "case": self.case,
            "fingerprint": _case(self).fingerprint(),
            "method": self.method,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "domainwise.paper.timing"],
                input=json.dumps(self.__dict__),
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [{**base, "status": "error", "error": f"took more than {TIME_LIMIT} s"}]
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return [{**base, "status": "error", "error": last[:300]}]
        measured = json.loads(done.stdout.strip().splitlines()[-1])
        return [{**base, "status": "ok", **measured}]


def plan_timing(
    cases: Iterable[Case], done: Iterable[Row], *, quick: bool, root_seed: int
) -> list[TimingPoint]:
    """Points that have not been measured yet. Cases of equal size are timed once."""
    cases, done = list(cases), list(done)
    check_protocol(cases, done)
    finished = {(row["case"], row["method"]) for row in done if row["status"] == "ok"}
    points = []
    timed_sources: set[str] = set()
    for case in cases:
        if case.source in timed_sources and (quick or case.source == "synthetic"):
            continue
        timed_sources.add(case.source)
        points += [
            TimingPoint(case.key, method, quick, root_seed)
            for method in case.methods
            if method in QUICK_METHODS or not quick
            if METHODS[method].kind in ("exact", "fast", "reference") or method == "svm"
            if (case.key, method) not in finished
        ]
    return points


def measure(point: TimingPoint) -> Row:
    """Fit and project in this process; meant for a fresh one."""
    case, method = _case(point), METHODS[point.method]
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = make_split(case, point.root_seed, 0)
        trial = Trial(case, "paper", 0, (point.method,), point.root_seed)
        parameters, _ = trial.choose_parameters(method, split)
        before = peak_mib()
        seconds: list[float] = []
        wall: list[float] = []
        while len(seconds) < 3 and sum(seconds) < PATIENCE:
            pipeline = build_pipeline(case, method, parameters, impute=split.has_missing)
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

    Linux's own counter is asked first: ``getrusage`` there inherits the peak of the process that
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


def _case(point: TimingPoint) -> Case:
    case = find_case(point.case)
    return case.quick() if point.quick else case


if __name__ == "__main__":
    print(json.dumps(measure(TimingPoint(**json.load(sys.stdin)))))
