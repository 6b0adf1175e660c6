"""Federated fits: random Fourier features, which do not depend on any row.

Random Fourier features are compared with Nyström features on the development sets, by scores on
held-out domains and by the error of the kernel. All parameters have their defaults. The second
round of a site with a million rows is compared with scikit-learn's RBFSampler and a second moment.

    python benchmarks/sites.py             all parts, then SITES.md
    python benchmarks/sites.py maps        one part, then SITES.md from stored results
    python benchmarks/sites.py --quick     few rows, for a test; writes no files
    python benchmarks/sites.py --report    SITES.md from stored results

Results are JSON files in ``domainwise-results/sites``, one for each part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measuring import (  # noqa: E402
    Report,
    Result,
    exponent,
    measured,
    run_point,
    serve_point,
    size,
)

# Files in this folder, such as distributed.py, must not hide installed packages.
sys.path[:] = [entry for entry in sys.path if entry != str(HERE)]

COLUMNS = (500, 1000, 2000)
MAPS = ("nystroem", "fourier")
METHODS = {
    "dcm": (
        "`FastDCM`, followed by linear discriminant analysis (by ridge regression for a "
        "continuous target)"
    ),
    "invariant": (
        "`InvariantFeatures`, followed by ridge regression (for classes, of class indicators "
        "with balanced weights)"
    ),
}
#: Loaders for the development sets, with their arguments.
DATA_SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "facies": ("load_facies", {"missing": "drop_columns"}),
    "GvHD": ("load_gvhd", {}),
    "Parkinson's": ("load_parkinsons", {}),
    "synthetic": ("make_synthetic", {"eta": 0.1, "n_per_domain": 300, "random_state": 0}),
    "adult": ("load_adult", {}),
    "bike": ("load_bike", {}),
    "communities": ("load_communities", {}),
}
#: Rows per data set, and groups of domains; each group is held out once.
ROWS, GROUPS = 3600, 3
#: Rows for which kernels are compared.
KERNEL_ROWS = 600


# Tasks, each of which runs in a child process. Only child processes import numerical libraries.


def maps_of(name: str, rows: int = ROWS, columns: tuple[int, ...] = COLUMNS) -> Result:
    """Scores of both maps and methods on one data set, and the errors of the kernel."""
    import warnings

    import numpy as np
    from sklearn.preprocessing import StandardScaler

    from domainwise.splits.folds import draw_rows
    from reproduction import data as datasets

    warnings.simplefilter("ignore", UserWarning)
    loader, arguments = DATA_SETS[name]
    data = getattr(datasets, loader)(**arguments)
    names, codes = np.unique(data.sample_domain, return_inverse=True)
    sample = draw_rows(codes, min(rows, len(codes)), 0)
    X, y, codes = data.data[sample], data.target[sample], codes[sample]
    # Domains are assigned to groups of equal size at random.
    group = np.random.default_rng(0).permutation(len(names)) % GROUPS
    points = [(method, kind, m) for method in METHODS for m in columns for kind in MAPS]
    scores: dict[tuple[str, str, int], list[float]] = {point: [] for point in points}
    errors: dict[tuple[str, int], list[float]] = {}
    with measured() as meter:
        for held_out in range(GROUPS):
            test = group[codes] == held_out
            scaler = StandardScaler().fit(X[~test])
            sources = scaler.transform(X[~test]), y[~test], codes[~test]
            new = scaler.transform(X[test]), y[test]
            for method, kind, m in points:
                options = dict(n_landmarks=m, feature_map=kind, random_state=held_out)
                scores[method, kind, m].append(_score(method, options, sources, new))
            for kind in MAPS:
                for m in columns:
                    error = _kernel_error(kind, m, held_out, sources[0], new[0])
                    errors.setdefault((kind, m), []).append(error)
    return meter.result(
        rows=len(X),
        sources=int(len(X) * (1 - 1 / GROUPS)),
        domains=len(names),
        measure="balanced accuracy" if _is_classes(y) else "RMSE",
        scores={"|".join(map(str, point)): float(np.mean(s)) for point, s in scores.items()},
        errors={"|".join(map(str, point)): float(np.mean(e)) for point, e in errors.items()},
    )


def _is_classes(y: Any) -> bool:
    return bool(y.dtype.kind in "biuUO")


def _score(method: str, options: dict[str, Any], sources: Any, new: Any) -> float:
    """Fit a method to source domains and score it on new domains."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error

    from domainwise import FastDCM, InvariantFeatures

    X, y, domain = sources
    if options["feature_map"] == "nystroem":
        options = options | {"n_landmarks": min(options["n_landmarks"], len(X))}
    classes = _is_classes(y)
    if method == "dcm":
        features, machine = FastDCM(**options), LinearDiscriminantAnalysis() if classes else Ridge()
    else:
        features = InvariantFeatures(**options)
        machine = RidgeClassifier(class_weight="balanced") if classes else Ridge()
    machine.fit(features.fit(X, y, sample_domain=domain).transform(X), y)
    predicted = machine.predict(features.transform(new[0]))
    return float(
        (balanced_accuracy_score if classes else root_mean_squared_error)(new[1], predicted)
    )


def _kernel_error(kind: str, m: int, seed: int, X: Any, new: Any) -> float:
    """Root mean squared error of the centred kernel between rows of new domains."""
    import numpy as np
    from sklearn.metrics.pairwise import rbf_kernel

    from domainwise import InvariantFeatures

    n_columns = m if kind == "fourier" else min(m, len(X))
    features = InvariantFeatures(n_columns, feature_map=kind, domain_weight=0.0, random_state=seed)
    Phi = features.fit(X).transform(new[:KERNEL_ROWS])
    K = rbf_kernel(new[:KERNEL_ROWS], gamma=features.gamma_)
    Phi = Phi - Phi.mean(axis=0)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.sqrt(np.mean((Phi @ Phi.T - K) ** 2)))


#: Numeric columns in a site's table, which has two classes and four domains.
SITE_ROWS, SITE_COLUMNS, SITE_FEATURES = 1_000_000, 20, 1000
#: Rows per block in scikit-learn's transform.
BLOCK = 4096


def _site_table(rows: int) -> Any:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, SITE_COLUMNS))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(SITE_COLUMNS)], copy=False)
    frame["y"] = X[:, 0] + rng.standard_normal(rows) > 0
    frame["ward"] = np.arange(rows) % 4
    return frame


def second_round(rows: int, features: int) -> Result:
    """Compute a site file with the moments of one map, and its size."""
    from domainwise import federated

    frame = _site_table(rows)
    options = {"kernels": ("rbf",), "gammas": (0.02,), "n_features": features}
    plan = federated.Plan.of_table(frame[:1000], target="y", domain="ward", **options)
    plan = federated.merge(plan, [federated.statistics(frame[:20_000], plan, site="first")])
    cpu_started = time.process_time()
    with measured(baseline=0) as meter:
        file = federated.moments(frame, plan, site="second")
    cpu = time.process_time() - cpu_started
    size = sum(array.nbytes for array in file.arrays.values())
    return meter.result(cpu=cpu, bytes=size, load=os.getloadavg()[0])


def sampler_pass(rows: int, features: int) -> Result:
    """scikit-learn's random Fourier features of all rows, and their second moment."""
    import numpy as np
    from sklearn.kernel_approximation import RBFSampler

    frame = _site_table(rows)
    X = frame[[f"x{i}" for i in range(SITE_COLUMNS)]].to_numpy()
    sampler = RBFSampler(gamma=0.02, n_components=features, random_state=0).fit(X[:10])
    second_moment, cpu_started = np.zeros((features, features)), time.process_time()
    with measured(baseline=0) as meter:
        for start in range(0, rows, BLOCK):
            Phi = sampler.transform(X[start : start + BLOCK])
            second_moment += Phi.T @ Phi
    return meter.result(cpu=time.process_time() - cpu_started, load=os.getloadavg()[0])


TASKS = {"maps": maps_of, "moments": second_round, "sampler": sampler_pass}


# Parts: functions that measure, and functions that add the results to the report.


def maps_part(quick: bool) -> Result:
    """Both maps on every development set, or on two small ones."""
    names = ["synthetic", "communities"] if quick else list(DATA_SETS)
    quick_options: dict[str, Any] = {"rows": 300, "columns": [20, 40]} if quick else {}
    script = str(Path(__file__))
    return {
        name: run_point(script, {"task": "maps", "name": name, **quick_options}) for name in names
    }


def report_maps(report: Report, results: Result) -> None:
    """Add a table for each method and one for the error of the kernel."""
    counts = sorted({int(key.split("|")[2]) for r in results.values() for key in r["scores"]})
    slopes = [
        exponent(counts, [r["errors"][f"fourier|{m}"] for m in counts]) for r in results.values()
    ]
    report.check(
        f"Fourier features: exponent of the kernel error over M, median of {len(results)} sets",
        statistics.median(slopes),
        -0.45,
        form="{:.2f}",
        least=False,
    )
    report.text("## Fourier features and Nyström features")
    report.text(
        f"Up to {size(ROWS)} rows are drawn from each development set, with equal numbers from all "
        f"domains where possible. Domains are held out in {GROUPS} groups, and scores are means "
        "over these groups. Features are standardized on the source domains. All other settings "
        "are defaults: an RBF kernel with the median rule, uniform landmarks, `domain_weight=1`. "
        "There are at most as many Nyström features as source rows; with all rows, the method is "
        "exact. Scores are balanced accuracy (larger is better), or RMSE if the table says so "
        "(smaller is better)."
    )
    header = ["data (rows, domains)", *[f"{m:,}: {kind}" for m in counts for kind in MAPS]]
    for method, title in METHODS.items():
        report.text(f"{title}:")
        rows = []
        for name, r in results.items():
            measure = ", RMSE" if r["measure"] == "RMSE" else ""
            cells = [r["scores"][f"{method}|{kind}|{m}"] for m in counts for kind in MAPS]
            label = f"{name} ({size(r['rows'])}, {r['domains']}{measure})"
            rows.append([label, *[f"{value:.3f}" for value in cells]])
        gains = [statistics.mean(_gains(results, method, m)) for m in counts]
        rows.append(
            ["Fourier against Nyström, mean", *[c for g in gains for c in ("", f"{g:+.1%}")]]
        )
        report.table(header, rows)
    report.text("Root mean squared error of the centred kernel between rows of held-out domains:")
    report.table(
        header,
        [
            [name, *[f"{r['errors'][f'{kind}|{m}']:.1e}" for m in counts for kind in MAPS]]
            for name, r in results.items()
        ],
    )


def _gains(results: Result, method: str, m: int) -> list[float]:
    """Relative change of each score from Nyström to Fourier features; positive is better."""
    gains = []
    for r in results.values():
        nystroem, fourier = (r["scores"][f"{method}|{kind}|{m}"] for kind in MAPS)
        sign = -1 if r["measure"] == "RMSE" else 1
        gains.append(sign * (fourier - nystroem) / nystroem)
    return gains


def round_part(quick: bool) -> Result:
    """Run a second round and scikit-learn's pass, one after the other."""
    shape = (50_000, 100) if quick else (SITE_ROWS, SITE_FEATURES)
    points = [{"task": t, "rows": shape[0], "features": shape[1]} for t in ("moments", "sampler")]
    return {point["task"]: run_point(str(Path(__file__)), point) for point in points}


def report_round(report: Report, results: Result) -> None:
    """Compare the two in time and memory."""
    ours, theirs = results["moments"], results["sampler"]
    title = f"second round of {size(SITE_ROWS)} rows at M = {size(SITE_FEATURES)}"
    check_options: dict[str, Any] = {"form": "{:.2f}", "least": False}
    ratio = ours["cpu"] / theirs["cpu"]
    report.check(f"{title}: CPU time relative to `RBFSampler`", ratio, 1.5, **check_options)
    report.check(
        f"{title}: memory including the table (GiB)", ours["peak"] / 2**30, 1.0, **check_options
    )
    report.text("## The second round of one site")
    report.text(
        f"The table has {SITE_COLUMNS} numeric columns, two classes and four domains. The second "
        f"round is compared with `RBFSampler.transform` in blocks of {size(BLOCK)} rows and the "
        "sum of `Phi.T @ Phi`, without classes, domains, preprocessing or means. Each was run "
        f"once, on a busy machine (load averages {ours['load']:.1f} and {theirs['load']:.1f} on "
        "two cores), so compare CPU seconds."
    )
    report.table(
        ["", "seconds", "CPU seconds", "peak MiB"],
        [
            [name, f"{r['seconds']:.1f}", f"{r['cpu']:.1f}", f"{r['peak'] / 2**20:.0f}"]
            for name, r in (("`federated.moments`", ours), ("`RBFSampler`, second moment", theirs))
        ],
    )
    report.text(
        f"The size of the site file is {ours['bytes'] / 1e6:.1f} MB, regardless of the number of "
        "rows."
    )


#: For each part, the function that measures and the function that reports.
PARTS: dict[str, tuple[Callable[[bool], Result], Callable[[Report, Result], None]]] = {
    "maps": (maps_part, report_maps),
    "round": (round_part, report_round),
}


def write_report(folder: Path, path: Path | None) -> None:
    """Write all stored parts into one file."""
    report = Report(
        "Federated fits: feature maps and the second round",
        "python benchmarks/sites.py",
        "Every measurement ran in a separate process.",
    )
    for name, (_, add_part) in PARTS.items():
        file = folder / f"{name}.json"
        if file.exists():
            add_part(report, json.loads(file.read_text(encoding="utf-8")))
    report.write(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="use few rows and write no files")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE.parent / "domainwise-results" / "sites")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        sys.path.insert(0, str(HERE.parent / "src"))
        serve_point(arguments.point, TASKS)
        return
    if unknown_parts := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown_parts))}: choose from {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if arguments.quick else arguments.out
        out.mkdir(parents=True, exist_ok=True)
        for name in [] if arguments.report else arguments.parts or PARTS:
            text = json.dumps(PARTS[name][0](arguments.quick), indent=1, default=float)
            (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        write_report(out, None if arguments.quick else HERE / "SITES.md")


if __name__ == "__main__":
    main()
