"""Speed and memory of the exact core beside the paper's Algorithm 1 and scikit-learn's KernelPCA.

Standard-normal rows with 16 features, the median gamma, 2 classes and 10 domains.

    python benchmarks/exact_core.py            writes EXACT_CORE.md beside this file
    python benchmarks/exact_core.py --quick    small sizes, to see that it works; writes nothing
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import (
    MIB,
    Report,
    Result,
    alternate,
    exponent,
    measured,
    mib,
    peak_rss,
    run_point,
    serve_point,
    size,
)

WARM_UP_ROWS = 200


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows at which each line is measured."""

    algorithm1: tuple[int, ...] = (500, 1000, 2000)
    compared: int = 10_000
    exact: tuple[int, ...] = (4000, 8000, 16_000, 32_000)
    dense: tuple[int, ...] = (2000, 4000, 8000, 16_000)
    large: int = 100_000
    transformed: int = 100_000
    rounds: int = 3


QUICK = Sizes((125, 250, 500), 4000, (3500, 5000, 7000), (500, 1000, 2000), 10_000, 10_000, 1)


# Tasks: each runs in a child, which alone imports the numerical libraries.


def problem(n: int) -> tuple[Any, Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 16)), rng.integers(2, size=n), rng.integers(10, size=n)


def fit_dcm(n: int, ridge: float = 1e-3, solver: str = "exact") -> Result:
    from domainwise import DCM

    def fit(rows: int) -> Any:
        X, y, domain = problem(rows)
        model = DCM(ridge=ridge, solver=solver)
        with measured(baseline) as meter:
            model.fit(X, y, sample_domain=domain)
        return model, meter

    baseline = peak_rss()
    fit(WARM_UP_ROWS)
    baseline = peak_rss()
    model, meter = fit(n)
    return meter.result(info=model.solver_info_)


def fit_kernel_pca(n: int) -> Result:
    from sklearn.decomposition import KernelPCA

    from domainwise.kernels.functions import resolve_gamma

    def fit(rows: int) -> Any:
        X, _, _ = problem(rows)
        gamma = resolve_gamma("median", "rbf", X)
        model = KernelPCA(
            n_components=2, kernel="rbf", gamma=gamma, eigen_solver="randomized", random_state=0
        )
        with measured(baseline) as meter:
            model.fit(X)
        return meter

    baseline = peak_rss()
    fit(WARM_UP_ROWS)
    baseline = peak_rss()
    return fit(n).result()


def fit_algorithm1(n: int) -> Result:
    from sklearn.metrics.pairwise import rbf_kernel

    from domainwise.kernels.functions import resolve_gamma
    from domainwise.reference import algorithm1

    def fit(rows: int) -> Any:
        X, y, domain = problem(rows)
        gamma = resolve_gamma("median", "rbf", X)
        with measured(baseline) as meter:
            same_class = (y[:, None] == y).astype(float)
            same_domain = (domain[:, None] == domain).astype(float)
            kernel = rbf_kernel(X, gamma=gamma)
            algorithm1(kernel, same_class, same_domain, epsilon=1e-3, n_components=1)
        return meter

    baseline = peak_rss()
    fit(50)
    baseline = peak_rss()
    return fit(n).result()


def save_model(n: int, folder: str) -> Result:
    import pickle

    from domainwise import DCM

    X, y, domain = problem(n)
    with measured() as meter:
        model = DCM(ridge=float("inf")).fit(X, y, sample_domain=domain)
    (Path(folder) / "model.pickle").write_bytes(pickle.dumps(model))
    return meter.result()


def transform(n: int, working_memory: int, folder: str) -> Result:
    import pickle

    from sklearn import config_context

    model = pickle.loads((Path(folder) / "model.pickle").read_bytes())
    X, _, _ = problem(n)
    model.transform(X[:WARM_UP_ROWS])
    with config_context(working_memory=working_memory), measured() as meter:
        Z = model.transform(X)
    return meter.result(output=Z.nbytes)


TASKS = {
    "DCM": fit_dcm,
    "KernelPCA": fit_kernel_pca,
    "Algorithm 1": fit_algorithm1,
    "save": save_model,
    "transform": transform,
}


# The report.


def compare_with_algorithm1(report: Report, sizes: Sizes) -> list[Result]:
    n = sizes.algorithm1[-1]
    slow = [run_point(__file__, {"task": "Algorithm 1", "n": k}) for k in sizes.algorithm1]
    (fast,) = alternate(__file__, [{"task": "DCM", "n": n}], sizes.rounds)
    report.check(
        f"N={size(n)}: times faster than Algorithm 1 (`scipy.linalg.eig`)",
        slow[-1]["seconds"] / fast["seconds"],
        200,
        form="{:.0f}×",
        least=True,
    )
    return slow


def compare_with_kernel_pca(report: Report, sizes: Sizes) -> None:
    n = sizes.compared
    points = [
        {"task": "KernelPCA", "n": n},
        {"task": "DCM", "n": n},
        {"task": "DCM", "n": n, "ridge": float("inf")},
    ]
    rival, ours, without_solve = alternate(__file__, points, sizes.rounds)
    lines = (
        ("time of `DCM().fit` over `KernelPCA.fit`", "seconds", ours, 1.0),
        ("peak memory of `DCM().fit` over `KernelPCA.fit`", "above", ours, 0.3),
        ("time of `DCM(ridge=inf).fit` over `KernelPCA.fit`", "seconds", without_solve, 0.25),
    )
    for what, key, result, bound in lines:
        report.check(
            f"N={size(n)}: {what}", result[key] / rival[key], bound, form="{:.2f}×", least=False
        )
    names = ("`KernelPCA`, 2 components, randomized", "`DCM`", "`DCM(ridge=inf)`")
    report.text(f"## N={size(n)}")
    report.table(
        ["fit", "seconds", "peak memory (MiB)"],
        [
            [name, f"{r['seconds']:.2f}", mib(r["above"])]
            for name, r in zip(names, (rival, ours, without_solve), strict=True)
        ],
    )


def fit_large(report: Report, sizes: Sizes) -> None:
    n = sizes.large
    result = run_point(__file__, {"task": "DCM", "n": n})
    info = result["info"]
    report.check(
        f"N={size(n)}: peak RSS of the whole process (GiB)",
        result["peak"] / 2**30,
        1.5,
        form="{:.2f}",
        least=False,
    )
    report.check(
        f"N={size(n)}: PCG iterations to a residual of 1e-6",
        info["n_iterations"],
        10,
        form="{:.0f}",
        least=False,
    )
    report.text(
        f"## N={size(n)}\n\nThe fit took {result['seconds']:.0f} s and {mib(result['above'])} MiB "
        f"above the interpreter; conjugate gradients stopped at a relative residual of "
        f"{info['residual']:.1e}. The kernel matrix alone would take {8 * n * n / 2**30:.0f} GiB."
    )


def transform_many(report: Report, sizes: Sizes) -> None:
    n, rows = sizes.transformed, sizes.compared
    with tempfile.TemporaryDirectory() as folder:
        run_point(__file__, {"task": "save", "n": rows, "folder": folder})
        for working_memory in (1024, 64):
            point = {"task": "transform", "n": n, "working_memory": working_memory}
            result = run_point(__file__, {**point, "folder": folder})
            report.check(
                f"`transform` of {size(n)} rows, model of {size(rows)}: memory (MiB) at "
                f"`working_memory={working_memory}`",
                result["above"] / MIB,
                working_memory,
                form="{:.0f}",
                least=False,
            )


def growth(report: Report, sizes: Sizes, algorithm1: list[Result]) -> None:
    lines = [
        ("`DCM`", sizes.exact, {"task": "DCM"}),
        ("`DCM(ridge=inf)`", sizes.exact, {"task": "DCM", "ridge": float("inf")}),
        ('`DCM(solver="dense")`', sizes.dense, {"task": "DCM", "solver": "dense"}),
        ("`KernelPCA`", sizes.dense, {"task": "KernelPCA"}),
    ]
    found = [
        (name, ns, [run_point(__file__, {**point, "n": n}) for n in ns])
        for name, ns, point in lines
    ]
    found.append(("Algorithm 1", sizes.algorithm1, algorithm1))
    rows = []
    for name, ns, results in found:
        seconds = [r["seconds"] for r in results]
        rows.append(
            [
                name,
                ", ".join(size(n) for n in ns),
                ", ".join(f"{s:.3g}" for s in seconds),
                ", ".join(mib(r["above"]) for r in results),
                f"{exponent(ns, seconds):.2f}",
            ]
        )
    report.text("## Growth with N\n\nThe exponent is the slope of log(time) over log(N).")
    report.table(["fit", "N", "seconds", "peak memory (MiB)", "exponent"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        serve_point(arguments.point, TASKS)
        return
    sizes = QUICK if arguments.quick else Sizes()
    report = Report("Speed and memory of the exact core", "make bench")
    report.text(
        "Rows are standard normal with 16 features, gamma is the median rule, and there are 2 "
        "classes and 10 domains. Times compared with each other are medians of "
        f"{sizes.rounds} rounds in turn. Memory is the peak RSS above that of the interpreter, its "
        "imports and a fit of 200 rows."
    )
    algorithm1 = compare_with_algorithm1(report, sizes)
    compare_with_kernel_pca(report, sizes)
    growth(report, sizes, algorithm1)
    fit_large(report, sizes)
    transform_many(report, sizes)
    report.write(None if arguments.quick else Path(__file__).with_name("EXACT_CORE.md"))


if __name__ == "__main__":
    main()
