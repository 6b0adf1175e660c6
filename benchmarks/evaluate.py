"""CPU time of `evaluate` beside an earlier commit, of its quick answer, and of threads in a search.

A table of 1,189 rows, 8 domains and 14 columns; the twelve methods that both commits have. What has
been decided otherwise since is set to what it was, so that the same is computed: inner folds and
the inner score are named, and InvariantRidge has the penalties of the earlier commit, and all rows
for landmarks in both (which landmarks inner splits have was changed). The fit that predicts domains
which are seen, and the importance of columns, were added since, and are left out. Scores and
choices are compared. The time of all methods of today, the ensemble included, is listed beside.
Searches with and without threads run in turn, on the machine as it is and beside busy processes.

    git worktree add FOLDER 3c9f965
    python benchmarks/evaluate.py --old FOLDER              all splits, then EVALUATE.md
    python benchmarks/evaluate.py --old FOLDER --splits 2   the first two splits
    python benchmarks/evaluate.py --old FOLDER --load 2     beside two processes that are busy
    python benchmarks/evaluate.py --old FOLDER --default 0  without the methods as they are
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import Report, Result, serve_point

HERE = Path(__file__).resolve().parent
METHODS = ["constant", "svm", "linear", "boosting", "kpca", "coir", "dica", "dcm", "fastdcm"]
METHODS += ["dcmcv", "invariant", "invariantridge"]
ROWS, DOMAINS, COLUMNS = 1189, 8, 14
PAIRS = 15  #: searches with and without threads


# Tasks: each runs in a child, which alone imports the numerical libraries.


def table() -> tuple[Any, Any, Any]:
    """Draw the rows: domains differ in place, scale, size and share of the classes."""
    import numpy as np

    rng = np.random.default_rng(0)
    shares = np.array([2, 2, 3, 3, 4, 4, 5, 5]) / 28
    domain = np.sort(rng.choice(DOMAINS, ROWS, p=shares))
    scale = rng.uniform(0.7, 1.4, (DOMAINS, COLUMNS))
    place = rng.normal(scale=0.7, size=(DOMAINS, COLUMNS))
    X = rng.normal(size=(ROWS, COLUMNS)) * scale[domain] + place[domain]
    risk = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + rng.normal(size=ROWS)
    risk += rng.normal(scale=0.5, size=DOMAINS)[domain]
    return X, np.where(risk > 0.2, "ill", "well"), np.array(list("abcdefgh"))[domain]


def as_it_was() -> None:
    """Let InvariantRidge search what it searched in the earlier commit, with all rows."""
    try:
        from domainwise.ridge import base as ridge
    except ImportError:
        from domainwise.selection import _ridge_search

        _ridge_search.AUTO_LANDMARKS = 10**6
        return
    ridge.AUTO_LANDMARKS = 10**6
    ridge.RidgeCandidates._alphas = lambda self, n_rows: ridge.RIDGE_ALPHAS


def compare(
    methods: list[str], splits: int = 8, quick: bool = False, default: bool = False
) -> Result:
    """Evaluate, and say how long each method took; ``default`` leaves methods as they are."""
    import inspect
    from dataclasses import replace
    from importlib import import_module

    from domainwise import evaluate
    from domainwise.selection import LeaveDomainsOut

    name = evaluate.__module__.replace("_evaluate", "_jobs").replace(".evaluate", ".jobs")
    jobs = import_module("domainwise.evaluation.jobs" if ".jobs" in name else name)
    run, seconds = jobs.MethodJob.run, dict.fromkeys(methods, 0.0)

    def timed(self: Any) -> Any:
        if not default and hasattr(self, "seen"):
            self = replace(self, seen=None, columns=())
        started = time.process_time()
        rows = run(self)
        seconds[self.method.key] += time.process_time() - started
        return rows

    jobs.MethodJob.run = timed
    X, y, domain = table()
    more: dict[str, Any] = {"quick": True}
    if not quick:
        more = {"cv": list(LeaveDomainsOut().split(X, y, domain))[:splits]}
        more["inner_cv"] = LeaveDomainsOut(2)
    if default:
        more.pop("inner_cv", None)
    else:
        as_it_was()
    if not default and "inner_scoring" in inspect.signature(evaluate).parameters:
        more["inner_scoring"] = "accuracy"
    started = time.process_time()
    found = evaluate(X, y, domain, methods=methods, scoring="accuracy", progress=False, **more)
    total = time.process_time() - started
    chosen = {r.key: [sorted(map(str, p.items())) for p in r.parameters] for r in found.results}
    return {"total": total, "cpu": seconds, "scores": found.scores, "chosen": chosen}


def search() -> Result:
    """Wall and CPU seconds of a search over DCM on 700 rows, one for each line that is read."""
    import numpy as np
    from sklearn import config_context
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    from domainwise import DCM

    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(7), 100)
    X = rng.normal(size=(700, COLUMNS)) + rng.normal(size=(7, COLUMNS))[domain]
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(int)
    model = Pipeline([("project", DCM()), ("predict", LinearDiscriminantAnalysis())])
    grid = {"project__ridge": [1e-3, 1e-1], "project__domain_weight": [0.01, 1.0]}
    with config_context(enable_metadata_routing=True):
        GridSearchCV(model, grid, cv=5).fit(X, y, sample_domain=domain)
        for _ in iter(sys.stdin.readline, ""):
            started = time.perf_counter(), time.process_time()
            GridSearchCV(model, grid, cv=5).fit(X, y, sample_domain=domain)
            taken = time.perf_counter() - started[0], time.process_time() - started[1]
            print(json.dumps(taken), flush=True)
    return {}


TASKS = {"compare": compare, "search": search}


# The parent.


def call(source: Path, threads: str | None, **point: Any) -> dict[str, Any]:
    """How to start a task with the package of a source tree."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment["PYTHONPATH"] = str(source / "src")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = threads
    command = [sys.executable, __file__, "--point", json.dumps(point)]
    return {"args": command, "text": True, "env": environment}


def child(source: Path, **point: Any) -> Result:
    """Run a task with one thread."""
    done = subprocess.run(**call(source, "1", **point), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{point} failed:\n{done.stderr}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def search_ratios(load: int) -> list[list[float]]:
    """Free threads over OMP_NUM_THREADS=1: medians and quartiles of wall, and of CPU time.

    Two processes search in turn, one search each, so that both meet what else the machine does.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    free, one = (
        subprocess.Popen(**call(HERE.parent, n, task="search"), **pipes) for n in (None, "1")
    )

    def searched(process: Any) -> list[float]:
        print(file=process.stdin, flush=True)
        taken: list[float] = json.loads(process.stdout.readline())
        return taken

    pairs = []
    for process in (free, one):  # the first, while it still imports
        searched(process)
    with busy(load):
        for i in range(PAIRS):
            taken = {p: searched(p) for p in ((free, one) if i % 2 else (one, free))}
            pairs.append([a / b for a, b in zip(taken[free], taken[one], strict=True)])
    for process in (free, one):
        process.communicate()
    return [statistics.quantiles(ratios, n=4) for ratios in zip(*pairs, strict=True)]


@contextmanager
def busy(count: int) -> Any:
    """Keep cores busy meanwhile."""
    work = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in work:
            process.kill()
            process.wait()


def differences(old: Result, new: Result, method: str) -> tuple[float, str]:
    """Largest difference of a score, and in how many splits the same was chosen."""
    scores = [(old["scores"][method][d], s) for d, s in new["scores"][method].items()]
    pairs = list(zip(old["chosen"][method], new["chosen"][method], strict=True))
    same = sum(a == b for a, b in pairs)
    return max(abs(a - b) for a, b in scores), f"{same} of {len(pairs)}"


def as_is(usual: Result, method: str, options: argparse.Namespace) -> str:
    """Seconds of a method as it is, for as many splits as the others."""
    taken = usual["cpu"].get(method)
    return "" if taken is None else f"{taken * options.splits / options.default:.2f}"


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, help="source tree of the earlier commit")
    parser.add_argument("--splits", type=int, default=DOMAINS)
    parser.add_argument("--default", type=int, default=2, help="splits of the methods as they are")
    parser.add_argument("--load", type=int, default=0, help="other processes that keep cores busy")
    parser.add_argument("--out", type=Path, default=HERE / "EVALUATE.md")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        serve_point(options.point, TASKS)
        return
    if options.old is None:
        parser.error("name the source tree of the earlier commit: --old FOLDER")
    here = HERE.parent
    point = {"task": "compare", "methods": METHODS, "splits": options.splits}
    with busy(options.load):
        loads = os.getloadavg()[0]
        old, new = child(options.old, **point), child(here, **point)
        usual: Result = {"cpu": {}}
        if options.default:
            point = {**point, "methods": [*METHODS, "ensemble"], "splits": options.default}
            usual = child(here, **point, default=True)
            everyone = [*METHODS, "ensemble"]
            quick = child(here, task="compare", methods=everyone, quick=True, default=True)
    note = (
        f"CPU seconds, one BLAS thread, {options.splits} of {DOMAINS} outer splits, the load was "
        f"{loads:.0f} on {os.cpu_count()} cores. Both compute the same: inner folds and the inner "
        "score (accuracy) are named, and InvariantRidge has the penalties of the earlier commit "
        "and all rows for landmarks. The last column is of the methods as they are today, with "
        "the smooth inner score, scores of domains that are seen and the importance of columns, by "
        f"{options.default} of the splits."
    )
    report = Report("CPU time of evaluate", "python benchmarks/evaluate.py --old FOLDER", note)
    ratio = sum(new["cpu"].values()) / sum(old["cpu"].values())
    report.check(
        "all twelve methods: CPU time, new over old", ratio, 0.5, form="{:.2f}", least=False
    )
    apart = max(differences(old, new, method)[0] for method in METHODS)
    report.check("largest difference of a score", apart, 1e-8, form="{:.0e}", least=False)
    if options.default:
        whole = usual["total"] * DOMAINS / options.default
        report.check(
            "quick: CPU time over that of all splits, the ensemble included",
            quick["total"] / whole,
            0.1,
            form="{:.2f}",
            least=False,
        )
    searches = []
    for load in (0, 2):
        beside = f"beside {load} processes that are busy" if load else "as the machine is"
        for name, ratios in zip(("wall", "CPU"), search_ratios(load), strict=True):
            what = f"GridSearchCV over DCM, 700 rows, {beside}: {name} time over that with "
            what += "OMP_NUM_THREADS=1"
            report.check(what, ratios[1], 1.1, form="{:.2f}", least=False)
            searches.append([name, str(load), *(f"{r:.2f}" for r in ratios)])
    lines = []
    for method in sorted(METHODS, key=lambda name: -old["cpu"][name]):
        a, b = old["cpu"][method], new["cpu"][method]
        apart, same = differences(old, new, method)
        line = [method, f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}", f"{apart:.0e}", same]
        lines.append([*line, as_is(usual, method, options)])
    lines.append(["ensemble", *[""] * 5, as_is(usual, "ensemble", options)])
    header = ["method", "before", "now", "ratio", "largest difference of a score", "same choice"]
    header.append("as it is today")
    report.table(header, lines)
    report.text(
        f"GridSearchCV in two processes, with threads as they come and with OMP_NUM_THREADS=1, "
        f"which search in turn: ratios of {PAIRS} pairs."
    )
    report.table(["time", "busy processes", "lower quartile", "median", "upper quartile"], searches)
    report.write(options.out)


if __name__ == "__main__":
    main()
