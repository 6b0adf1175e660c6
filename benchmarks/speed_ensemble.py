"""The part "ensemble" of speed.py: its time and memory by number of rows, beside boosting's.

Every measurement runs in a separate process, with rows of 20 columns in ten domains and two
workers. Up to 10,000 rows, one process is used, so that the start of workers does not count. CPU
seconds and memory are sums over all processes; memory is sampled ten times a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import Point, Report, Result, alternate, mib, serve_point, size

COLUMNS, DOMAINS, WORKERS = 20, 10, 2
#: Number of rows for the comparison with a search for LightGBM.
SEARCH_ROWS = 20_000
#: Largest number of rows that one process fits.
ONE_PROCESS = 10_000
TARGETS = {2: "two classes", 6: "six classes", 0: "continuous"}
#: Largest CPU time of the ensemble relative to one boosting fit, from 2,000 rows on.
MOST_TIMES = {2: 30.0, 6: 20.0}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def make_rows(n: int, classes: int) -> tuple[Any, Any, Any]:
    """Rows whose level and whose relation to the target depend slightly on their domain."""
    import numpy as np

    rng = np.random.default_rng(0)
    domain = rng.integers(0, DOMAINS, n)
    level = rng.normal(size=(DOMAINS, COLUMNS))
    slope = rng.normal(size=COLUMNS) + 0.3 * rng.normal(size=(DOMAINS, COLUMNS))
    Z = rng.normal(size=(n, COLUMNS))
    signal = (Z * slope[domain]).sum(axis=1) / 4 + np.sin(2 * Z[:, 0]) * Z[:, 1]
    signal += 0.5 * rng.normal(size=n)
    y = signal
    if classes:
        y = np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))
    return Z + 0.5 * level[domain], y, domain


def fit(n: int, classes: int, model: str, folder: str) -> Result:
    """Fit one model; the time of drawing rows and of imports is not included."""
    import warnings

    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

    warnings.simplefilter("ignore")
    X, y, domain = make_rows(n, classes)
    options: dict[str, Any] = {"n_jobs": 1 if n <= ONE_PROCESS else WORKERS}
    ensemble: Any = (DomainEnsembleClassifier if classes else DomainEnsembleRegressor)(**options)
    boosting: Any = HistGradientBoostingClassifier() if classes else HistGradientBoostingRegressor()
    times_before, started = os.times(), time.perf_counter()
    file_size = 0
    if model == "boosting":
        boosting.fit(X, y)
    else:
        ensemble.fit(X, y, sample_domain=domain)
    wall = time.perf_counter() - started
    if model == "ensemble":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)  # so that the time of the workers is counted
    times_after = os.times()
    cpu = sum(times_after[:4]) - sum(times_before[:4])
    if model == "ensemble" and find_spec("skops"):
        from domainwise import save

        path = Path(folder) / "growth.skops"
        save(ensemble, path)
        file_size = path.stat().st_size
        path.unlink()
    return {"seconds": wall, "cpu": cpu, "file": file_size}


def resident(group: int) -> int:
    """Resident memory of all processes of a group, in bytes."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getpgid(int(entry.name)) == group:
                    pages = int((entry / "statm").read_text().split()[1])
                    total += pages * os.sysconf("SC_PAGE_SIZE")
            except (OSError, IndexError):
                continue  # the process has ended
    return total


def run(point: Point) -> Result:
    """Run a measurement in a separate process group, and sample the memory of the group."""
    command = [sys.executable, __file__, "--point", json.dumps(point)]
    variables = os.environ | ONE_THREAD
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=variables, start_new_session=True
    )
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, resident(process.pid))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"{point} failed")
    result = json.loads(output.splitlines()[-1]) | {"peak": peak}
    print(point, {name: round(value, 1) for name, value in result.items()}, flush=True)
    return result


def search(classes: int, model: str) -> Result:
    """Fit the ensemble, or search LightGBM's size of trees and rounds on five groups of domains."""
    import warnings

    import lightgbm
    from sklearn.model_selection import GroupKFold

    from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

    warnings.simplefilter("ignore")
    X, y, domain = make_rows(SEARCH_ROWS, classes)
    started, cpu = time.perf_counter(), time.process_time()
    if model == "ensemble":
        ensemble: Any = DomainEnsembleClassifier() if classes else DomainEnsembleRegressor()
        ensemble.fit(X, y, sample_domain=domain)
    else:
        kind: Any = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
        for leaves in (7, 31):
            booster = kind(num_leaves=leaves, n_estimators=200, n_jobs=1, verbose=-1)
            for train, test in GroupKFold(5).split(X, y, domain):
                booster.fit(X[train], y[train])
                predict = booster.predict_proba if classes else booster.predict
                for n_rounds in (25, 50, 100, 200):
                    predict(X[test], num_iteration=n_rounds)
        booster.fit(X, y)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "above": 0, "peak": 0}


def measure_search(report: Report, *, quick: bool) -> None:
    """Compare the ensemble with a search for LightGBM, both on one core."""
    report.text(
        f"{size(SEARCH_ROWS)} rows, {COLUMNS} columns, {DOMAINS} domains. LightGBM is fitted with "
        "7 and 31 leaves and 200 rounds to five groups of source domains, scored after four "
        "numbers of rounds, and fitted to all rows. The ensemble's search includes its members "
        "with context. Medians of three alternating runs, on one thread."
    )
    rows = []
    for classes in (0,) if quick else TARGETS:
        models = ("lightgbm", "ensemble")
        points: list[Point] = [{"task": "search", "classes": classes, "model": m} for m in models]
        lightgbm, ensemble = alternate(__file__, points, 1 if quick else 3, ONE_THREAD)
        ratio, text = ensemble["cpu"] / lightgbm["cpu"], TARGETS[classes]
        description = f"{text}: CPU time relative to LightGBM's search"
        report.check(description, ratio, 2.0, form="{:.2f}", least=False)
        rows.append([text, f"{lightgbm['cpu']:.1f}", f"{ensemble['cpu']:.1f}", f"{ratio:.2f}"])
    report.table(["target", "LightGBM, CPU s", "ensemble, CPU s", "ratio"], rows)


def measure(report: Report, *, quick: bool) -> None:
    """Measure all sizes, and add them to the report."""
    report.text(
        f"The rows have {COLUMNS} columns and {DOMAINS} domains. {WORKERS} workers are used above "
        f"{size(ONE_PROCESS)} rows, and one process otherwise. Boosting is one fit of "
        "`HistGradientBoosting` with scikit-learn's defaults to the same rows, on one thread. "
        "Memory is that of all processes together, including the rows. CPU seconds include the "
        "start of the workers."
    )
    lines = []
    sizes = (1000,) if quick else (1000, 2000, 10**4, 10**5, 10**6)
    with tempfile.TemporaryDirectory() as folder:
        for n, classes in ((n, c) for n in sizes for c in TARGETS):
            point = {"task": "fit", "n": n, "classes": classes, "folder": folder}
            boosting, ensemble = (run({**point, "model": m}) for m in ("boosting", "ensemble"))
            target, times = TARGETS[classes], ensemble["cpu"] / boosting["cpu"]
            if n >= 2000 and classes in MOST_TIMES:
                check_name = f"{size(n)} rows, {target}: CPU time relative to boosting"
                report.check(check_name, times, MOST_TIMES[classes], form="{:.0f}", least=False)
            cells = [f"{boosting['cpu']:.1f}", f"{ensemble['cpu']:.0f}", f"{times:.0f}"]
            cells += [f"{ensemble['seconds']:.0f}", mib(ensemble["peak"])]
            file_size = f"{ensemble['file'] / 1e6:.1f}" if ensemble["file"] else "no skops"
            lines.append([size(n), target, *cells, file_size])
    heading = ["rows", "target", "boosting, CPU s", "ensemble, CPU s", "ratio"]
    report.table([*heading, "ensemble, s", "ensemble, MiB", "file, MB"], lines)


if __name__ == "__main__":
    serve_point(sys.argv[2], {"fit": fit, "search": search})
