"""Time and memory of FastDCM: a million rows from a file, and a comparison with DCM on LandMine.

Rows have 16 features, 2 classes and 10 domains; there are 500 uniform landmarks. Times are compared
with one pass of scikit-learn's ``Nystroem(500).transform`` over the same rows in blocks, which
computes the same features and stores nothing.

    python benchmarks/fast_family.py            writes FAST_FAMILY.md
    python benchmarks/fast_family.py --quick    small sizes, for a test; writes no files
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import (
    Report,
    Result,
    alternate,
    exponent,
    measured,
    mib,
    run_point,
    serve_point,
    size,
)

FEATURES = 16
LANDMARKS = 500
#: Rows per block in the Nystroem pass: 1,000 to 10,000 are equally fast, other sizes are slower.
BLOCK_ROWS = 2000
#: Rows per call to partial_fit.
BATCH_ROWS = 10_000
WARM_UP_ROWS = 2000
#: Class weights of the SVM on LandMine: none, as in the paper, and balanced, because only six of a
#: hundred objects are mines.
WEIGHTS = {"plain": None, "balanced": "balanced"}


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows, rounds of measurements, and repeats on LandMine."""

    growth: tuple[int, ...] = (10_000, 31_623, 100_000, 316_228, 1_000_000)
    rounds: int = 3
    repeats: int = 10
    landmine_rows: int | None = None


QUICK = Sizes((3000, 10_000, 30_000), 1, 2, 60)


# Tasks, each of which runs in a child process. Only child processes import numerical libraries.


def make_rows(n: int, folder: str) -> Result:
    """Write the rows and the labels to two files."""
    import numpy as np

    rng = np.random.default_rng(0)
    with measured() as meter:
        X = np.memmap(_rows_file(folder), dtype=np.float64, mode="w+", shape=(n, FEATURES))
        for start in range(0, n, 100_000):
            X[start : start + 100_000] = rng.standard_normal((min(100_000, n - start), FEATURES))
        X.flush()
        np.save(Path(folder) / "labels.npy", rng.integers((2, 10), size=(n, 2)))
    return meter.result()


def fit(n: int, folder: str) -> Result:
    """Fit on the first n rows of the file."""
    X, y, domain = _open(n, folder)
    _fit(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS], domain[:WARM_UP_ROWS])
    with measured() as meter:
        model = _fit(X, y, domain)
    return meter.result(info=model.solver_info_)


def partial_fit(n: int, folder: str) -> Result:
    """Fit batch by batch; each batch is mapped, used and released."""
    model = _model()
    X, y, domain = _open(n, folder)
    _fit(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS], domain[:WARM_UP_ROWS])
    del X
    with measured() as meter:
        for start in range(0, n, BATCH_ROWS):
            rows = slice(start, start + BATCH_ROWS)
            X = _open(n, folder)[0][rows]
            model.partial_fit(X, y[rows], sample_domain=domain[rows])
    return meter.result()


def nystroem_pass(n: int, folder: str) -> Result:
    """Compute scikit-learn's features for the first n rows, block by block."""
    from sklearn.kernel_approximation import Nystroem

    from domainwise.kernels.functions import resolve_gamma

    X, _, _ = _open(n, folder)
    gamma = resolve_gamma("median", "rbf", X[:2000])
    nystroem = Nystroem(kernel="rbf", gamma=gamma, n_components=LANDMARKS, random_state=0)
    nystroem.fit(X[:WARM_UP_ROWS]).transform(X[:WARM_UP_ROWS])
    with measured() as meter:
        for start in range(0, n, BLOCK_ROWS):
            nystroem.transform(X[start : start + BLOCK_ROWS])
    return meter.result()


def transform(n: int, folder: str) -> Result:
    """Project the first n rows."""
    X, y, domain = _open(n, folder)
    first = slice(min(n, 20_000))
    model = _fit(X[first], y[first], domain[first])
    with measured() as meter:
        model.transform(X)
    return meter.result()


def landmine(repeat: int, rows_per_field: int | None) -> Result:
    """Fit FastDCM and DCM to 9 fields; compute the label AUC of an SVM on the other 20 fields."""
    import time

    import numpy as np
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.svm import SVC

    from domainwise import DCM, FastDCM
    from reproduction.data import load_landmine

    data = load_landmine()
    fields = np.random.default_rng(repeat).permutation(np.unique(data.sample_domain))
    kept_rows = np.concatenate(
        [np.flatnonzero(data.sample_domain == field)[:rows_per_field] for field in fields]
    )
    source = np.isin(data.sample_domain[kept_rows], fields[:9])
    seen, unseen = kept_rows[source], kept_rows[~source]
    X, y, domain = data.data[seen], data.target[seen], data.sample_domain[seen]
    shared_arguments = {"gamma": 0.5, "epsilon": 1e-6, "domain_weight": 1.0, "random_state": repeat}
    models = {
        "exact": DCM(**shared_arguments),
        "fast": FastDCM(n_landmarks=min(LANDMARKS, len(X)), **shared_arguments),
    }
    results: dict[str, Any] = {"n": len(X)}
    with measured() as meter:
        for name, model in models.items():
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                model.fit(X, y, sample_domain=domain)
                seconds.append(time.perf_counter() - started)
            results[f"{name}_seconds"] = statistics.median(seconds)
    for name, model in models.items():
        Z, Z_new = model.transform(X), model.transform(data.data[unseen])
        for weights in WEIGHTS:
            svm = SVC(C=1.0, gamma=0.5, class_weight=WEIGHTS[weights]).fit(Z, y)
            # The AUC of predicted labels, which the paper reports, equals balanced accuracy.
            auc = balanced_accuracy_score(data.target[unseen], svm.predict(Z_new))
            results[f"{name}_{weights}"] = auc
    return meter.result(**results)


def _rows_file(folder: str) -> Path:
    return Path(folder) / "rows.dat"


def _open(n: int, folder: str) -> tuple[Any, Any, Any]:
    import numpy as np

    rows = _rows_file(folder)
    total = rows.stat().st_size // (8 * FEATURES)
    X = np.memmap(rows, dtype=np.float64, mode="r", shape=(total, FEATURES))[:n]
    labels = np.load(Path(folder) / "labels.npy", mmap_mode="r")[:n]
    return X, np.ascontiguousarray(labels[:, 0]), np.ascontiguousarray(labels[:, 1])


def _model() -> Any:
    from domainwise import FastDCM

    return FastDCM(n_landmarks=LANDMARKS, random_state=0)


def _fit(X: Any, y: Any, domain: Any) -> Any:
    return _model().fit(X, y, sample_domain=domain)


TASKS = {
    "rows": make_rows,
    "FastDCM.fit": fit,
    "FastDCM.partial_fit": partial_fit,
    "Nystroem.transform": nystroem_pass,
    "FastDCM.transform": transform,
    "LandMine": landmine,
}


# The report.


def compare_with_nystroem(report: Report, n: int, rounds: int, folder: str) -> Result:
    names = ("FastDCM.fit", "Nystroem.transform", "FastDCM.transform")
    points = [{"task": name, "n": n, "folder": folder} for name in names]
    ours, nystroem, projected = alternate(__file__, points, rounds)
    report.check(
        f"N={size(n)}: time of `FastDCM.fit` relative to one pass of `Nystroem(500).transform`",
        ours["seconds"] / nystroem["seconds"],
        1.0,
        form="{:.2f}×",
        least=False,
    )
    report.check(
        f"N={size(n)}: peak RSS of the whole process, including the mapped file (GiB)",
        ours["peak"] / 2**30,
        1.0,
        form="{:.2f}",
        least=False,
    )
    report.check(
        f"`transform` of {size(n)} rows: million rows per minute",
        60e-6 * n / projected["seconds"],
        1.0,
        form="{:.1f}",
        least=True,
    )
    report.text(f"## N={size(n)}\n\nThe file is {mib(8 * FEATURES * n)} MiB.")
    report.table(
        ["one pass", "seconds", "peak RSS (MiB)"],
        [
            [f"`{name}`", f"{result['seconds']:.2f}", mib(result["peak"])]
            for name, result in zip(names, (ours, nystroem, projected), strict=True)
        ],
    )
    return ours


def growth(report: Report, ns: tuple[int, ...], largest: Result, folder: str) -> None:
    fits = [run_point(__file__, {"task": "FastDCM.fit", "n": n, "folder": folder}) for n in ns[:-1]]
    fits.append(largest)
    batch_fits = [
        run_point(__file__, {"task": "FastDCM.partial_fit", "n": n, "folder": folder}) for n in ns
    ]
    slope = exponent(ns, [r["seconds"] for r in fits])
    report.check(
        f"growth of the time of `fit` with N, from {size(ns[0])} to {size(ns[-1])}: exponent",
        slope,
        1.1,
        form="{:.2f}",
        least=False,
    )
    file_sizes = [8 * FEATURES * n for n in ns]
    own_memory = [r["above"] - file for r, file in zip(fits, file_sizes, strict=True)]
    per_row = (own_memory[-1] - own_memory[0]) / (ns[-1] - ns[0])
    report.check(
        "memory of `fit` beyond the mapped file: growth (bytes per row)",
        per_row,
        64,
        form="{:.0f}",
        least=False,
    )
    report.check(
        f"memory of `partial_fit` at N={size(ns[-1])} minus that at {size(ns[0])} (MiB)",
        (batch_fits[-1]["above"] - batch_fits[0]["above"]) / 2**20,
        32,
        form="{:.0f}",
        least=False,
    )
    report.text(
        "## Growth with N\n\nMemory is the peak RSS minus that of the interpreter, its imports "
        f"and a fit to {size(WARM_UP_ROWS)} rows. Pages of the mapped file count as resident "
        "until the system needs the memory. `fit` also stores the labels and a few numbers for "
        f"each row; `partial_fit`, in batches of {size(BATCH_ROWS)}, stores one batch."
    )
    report.table(
        ["N", "`fit` (s)", "its memory (MiB)", "mapped file", "`partial_fit` (s)", "its memory"],
        [
            [
                size(n),
                f"{a['seconds']:.2f}",
                mib(a["above"]),
                mib(file),
                f"{b['seconds']:.2f}",
                mib(b["above"]),
            ]
            for n, a, file, b in zip(ns, fits, file_sizes, batch_fits, strict=True)
        ],
    )


def compare_with_exact(report: Report, repeats: int, rows_per_field: int | None) -> None:
    runs = [
        run_point(__file__, {"task": "LandMine", "repeat": r, "rows_per_field": rows_per_field})
        for r in range(repeats)
    ]
    scores = {
        (name, weights): [run[f"{name}_{weights}"] for run in runs]
        for name in ("exact", "fast")
        for weights in WEIGHTS
    }
    ratio = statistics.median(run["exact_seconds"] / run["fast_seconds"] for run in runs)
    for weights in WEIGHTS:
        exact, fast = scores["exact", weights], scores["fast", weights]
        report.check(
            f"LandMine, {weights} SVM: difference of the mean label AUC from exact DCM, in "
            "standard deviations of exact DCM",
            abs(statistics.mean(fast) - statistics.mean(exact)) / statistics.stdev(exact),
            1.0,
            form="{:.2f}",
            least=False,
        )
    report.check("LandMine: speed-up over exact DCM", ratio, 5, form="{:.1f}×", least=True)
    report.text(
        "## LandMine with all rows\n\nThe source domains are 9 of 29 fields (about "
        f"{size(statistics.mean(run['n'] for run in runs))} rows). The table shows the AUC of "
        "predicted labels on the other 20 fields, with `SVC(C=1, gamma=0.5)` on the component, "
        f"averaged over {repeats} choices of fields. Both methods have gamma 0.5 and epsilon 1e-6."
    )
    report.table(
        ["method", *(f"label AUC, {weights} SVM" for weights in WEIGHTS), "fit (s)"],
        [
            [
                label,
                *(_spread(scores[key, weights]) for weights in WEIGHTS),
                f"{statistics.median(run[f'{key}_seconds'] for run in runs):.3f}",
            ]
            for label, key in (("`DCM`", "exact"), (f"`FastDCM`, {LANDMARKS} landmarks", "fast"))
        ],
    )


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use small sizes and write no files")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        serve_point(arguments.point, TASKS)
        return
    sizes = QUICK if arguments.quick else Sizes()
    report = Report("Time and memory of FastDCM", "python benchmarks/fast_family.py")
    report.text(
        f"Rows with {FEATURES} float64 features are read from a memory-mapped file. There are 2 "
        f"classes, 10 domains and {LANDMARKS} uniform landmarks. Compared times are medians of "
        f"{sizes.rounds} alternating rounds. `Nystroem` transforms blocks of {size(BLOCK_ROWS)} "
        "rows."
    )
    n = sizes.growth[-1]
    with tempfile.TemporaryDirectory() as folder:
        run_point(__file__, {"task": "rows", "n": n, "folder": folder})
        largest = compare_with_nystroem(report, n, sizes.rounds, folder)
        growth(report, sizes.growth, largest, folder)
    compare_with_exact(report, sizes.repeats, sizes.landmine_rows)
    report.write(None if arguments.quick else Path(__file__).with_name("FAST_FAMILY.md"))


if __name__ == "__main__":
    main()
