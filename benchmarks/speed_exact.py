"""The part "exact" of speed.py: exact DCM, the paper's Algorithm 1 and scikit-learn's KernelPCA.

Rows are standard normal with 16 features, the median gamma, 2 classes and 10 domains. Exact DCM is
measured with and without the compiled functions of the ``fast`` extra.
"""

from __future__ import annotations

import sys
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

#: Enough rows for a streamed fit, so that all code is compiled or loaded before the measurement.
WARM_UP_ROWS = 4200
FEATURES = 16
#: Arithmetic instructions of an exponential in ``algebra/kernels/compiled.py``, by precision. A
#: fused multiplication and addition counts once, as do comparisons and bit operations.
EXPONENTIAL = {"float32": 15, "float64": 21}


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows for each measurement."""

    algorithm1: tuple[int, ...] = (500, 1000, 2000)
    compared: int = 10_000
    compiled: tuple[int, ...] = (2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000)
    plain: tuple[int, ...] = (2000, 5000, 10_000, 20_000, 50_000, 100_000)
    dense: tuple[int, ...] = (2000, 5000, 10_000, 20_000)
    large: int = 100_000
    transformed: int = 100_000
    roofline: int = 16_384
    rounds: int = 3


QUICK = Sizes(
    algorithm1=(125, 250, 500), compared=5000, compiled=(2000, 5000, 8000), plain=(2000, 5000),
    dense=(500, 1000, 2000), large=8000, transformed=10_000, roofline=4096, rounds=1,
)  # fmt: skip


# Tasks, each of which runs in a child process. Only child processes import numerical libraries.


def problem(n: int) -> tuple[Any, Any, Any]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.standard_normal((n, FEATURES)), rng.integers(2, size=n), rng.integers(10, size=n)


def without_numba() -> None:
    """Make the import of Numba fail, as if it were not installed."""
    sys.modules["numba"] = None  # type: ignore[assignment]


def fit_dcm(n: int, ridge: float = 1e-3, solver: str = "exact", compiled: bool = False) -> Result:
    if not compiled:
        without_numba()
    from domainwise import DCM

    def fit(rows: int) -> Any:
        X, y, domain = problem(rows)
        model = DCM(ridge=ridge, solver=solver)
        with measured(baseline) as meter:
            model.fit(X, y, sample_domain=domain)
        return model, meter

    baseline = peak_rss()
    fit(WARM_UP_ROWS if compiled else 200)
    baseline = peak_rss()
    model, meter = fit(n)
    return meter.result(info=model.solver_info_)


def fit_kernel_pca(n: int) -> Result:
    from sklearn.decomposition import KernelPCA

    from domainwise.algebra.kernels.functions import resolve_gamma

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
    fit(200)
    baseline = peak_rss()
    return fit(n).result()


def fit_algorithm1(n: int) -> Result:
    from sklearn.metrics.pairwise import rbf_kernel

    from domainwise.algebra.kernels.functions import resolve_gamma
    from reproduction.reference import algorithm1

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


def transform(n: int, working_memory: int, folder: str, compiled: bool = False) -> Result:
    import pickle

    from sklearn import config_context

    if not compiled:
        without_numba()
    model = pickle.loads((Path(folder) / "model.pickle").read_bytes())
    X, _, _ = problem(n)
    model.transform(X[:WARM_UP_ROWS])
    with config_context(working_memory=working_memory), measured() as meter:
        Z = model.transform(X)
    return meter.result(output=Z.nbytes)


def compile_functions(n: int) -> Result:
    """Time of the first product in both precisions: compiling, or loading the compiled code."""
    import numpy as np

    from domainwise.algebra.gram.tiles import symmetric_product
    from domainwise.algebra.kernels.functions import make_kernel

    X, V = problem(n)[0], np.ones((n, 1))
    kernel = make_kernel("rbf", X, gamma=0.1)
    rows = kernel.prepare(X)
    with measured() as meter:
        for float32 in (True, False):
            symmetric_product(kernel, rows, V, float32=float32)
    with measured() as second_meter:
        for float32 in (True, False):
            symmetric_product(kernel, rows, V, float32=float32)
    meter.seconds -= second_meter.seconds
    return meter.result()


def roofline(n: int, precision: str, columns: int) -> Result:
    """Compare the instructions of a fused product with those of a matrix product, on one thread."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from domainwise.algebra.gram.tiles import symmetric_product
    from domainwise.algebra.kernels.compiled import BLOCK
    from domainwise.algebra.kernels.functions import make_kernel

    X, V = problem(n)[0].astype(precision), np.ones((n, columns))
    kernel = make_kernel("rbf", X, gamma=0.1)
    rows, A = kernel.prepare(X), np.ones((1536, 1536), dtype=precision)
    blocks = -(-n // BLOCK)
    evaluated = blocks * (blocks + 1) / 2 * BLOCK**2
    mirrored = (blocks - 1) / (blocks + 1)
    operations = FEATURES + 1 + EXPONENTIAL[precision] + columns * (1 + mirrored)
    times = {}
    with threadpool_limits(1):
        for name, work in (
            ("fused", lambda: symmetric_product(kernel, rows, V)),
            ("peak", lambda: A @ A),
        ):
            work()
            runs = []
            for _ in range(7):
                with measured() as meter:
                    work()
                runs.append(meter.cpu)
            times[name] = min(runs)
    rate, peak = operations * evaluated / times["fused"], len(A) ** 3 / times["peak"]
    nanoseconds = 1e9 * times["fused"] / evaluated
    return meter.result(share=rate / peak, peak_rate=peak, nanoseconds=nanoseconds)


TASKS = {
    "DCM": fit_dcm,
    "KernelPCA": fit_kernel_pca,
    "Algorithm 1": fit_algorithm1,
    "save": save_model,
    "transform": transform,
    "compile": compile_functions,
    "roofline": roofline,
}


@dataclass
class Bench:
    """The report, and the settings of all measurements."""

    report: Report
    sizes: Sizes

    def run(self, task: str, **options: Any) -> Result:
        return run_point(__file__, {"task": task, **options})

    def in_turn(self, *points: dict[str, Any]) -> list[Result]:
        return alternate(__file__, points, self.sizes.rounds)

    def compare_with_algorithm1(self) -> list[Result]:
        n = self.sizes.algorithm1[-1]
        slow = [self.run("Algorithm 1", n=k) for k in self.sizes.algorithm1]
        (fast,) = self.in_turn({"task": "DCM", "n": n})
        self.report.check(
            f"N={size(n)}: speed-up over Algorithm 1 (`scipy.linalg.eig`)",
            slow[-1]["seconds"] / fast["seconds"],
            200,
            form="{:.0f}×",
            least=True,
        )
        return slow

    def compare_with_kernel_pca(self) -> None:
        n = self.sizes.compared
        names = {
            "`KernelPCA`, 2 components, randomized": {"task": "KernelPCA"},
            "`DCM`, compiled": {"task": "DCM", "compiled": True},
            "`DCM`, NumPy": {"task": "DCM"},
            "`DCM(ridge=inf)`, compiled": {"task": "DCM", "compiled": True, "ridge": float("inf")},
            "`DCM(ridge=inf)`, NumPy": {"task": "DCM", "ridge": float("inf")},
        }
        results = self.in_turn(*({**point, "n": n} for point in names.values()))
        kernel_pca, compiled, plain = results[:3]
        for preposition, result, bound in (("with", compiled, 0.2), ("without", plain, 0.5)):
            for unit, time_name in (("seconds", "time"), ("cpu", "CPU time")):
                self.report.check(
                    f"N={size(n)}: {time_name} of `DCM().fit` {preposition} `[fast]` relative to "
                    "`KernelPCA.fit`",
                    result[unit] / kernel_pca[unit],
                    bound,
                    form="{:.2f}×",
                    least=False,
                )
        self.report.check(
            f"N={size(n)}: peak memory of `DCM().fit` relative to `KernelPCA.fit`",
            plain["above"] / kernel_pca["above"],
            0.3,
            form="{:.2f}×",
            least=False,
        )
        self.report.text(f"### N={size(n)}")
        self.report.table(
            ["fit", "seconds", "CPU seconds", "peak memory (MiB)", "relative to KernelPCA"],
            [
                [
                    name,
                    f"{r['seconds']:.2f}",
                    f"{r['cpu']:.2f}",
                    mib(r["above"]),
                    f"{r['seconds'] / kernel_pca['seconds']:.2f}",
                ]
                for name, r in zip(names, results, strict=True)
            ],
        )

    def growth(self, algorithm1: list[Result]) -> None:
        sizes = self.sizes
        lines: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
            ("`DCM`, compiled", sizes.compiled, {"task": "DCM", "compiled": True}),
            ("`DCM`, NumPy", sizes.plain, {"task": "DCM"}),
            (
                "`DCM(ridge=inf)`, compiled",
                sizes.compiled,
                {"task": "DCM", "compiled": True, "ridge": float("inf")},
            ),
            ('`DCM(solver="dense")`', sizes.dense, {"task": "DCM", "solver": "dense"}),
            ("`KernelPCA`", sizes.dense, {"task": "KernelPCA"}),
        ]
        lines_by_name = {name: (ns, [self.run(**p, n=n) for n in ns]) for name, ns, p in lines}
        for compiled, bound in ((True, 50), (False, 130)):
            ns, results = lines_by_name["`DCM`, compiled" if compiled else "`DCM`, NumPy"]
            if sizes.large not in ns:
                continue
            result = results[ns.index(sizes.large)]
            setting = f"N={size(sizes.large)} {'with' if compiled else 'without'} `[fast]`"
            self.report.check(
                f"{setting}: seconds", result["seconds"], bound, form="{:.0f}", least=False
            )
            self.report.check(
                f"{setting}: peak RSS of the whole process (GiB)",
                result["peak"] / 2**30,
                1.0,
                form="{:.2f}",
                least=False,
            )
            self.report.check(
                f"{setting}: PCG iterations to a residual of 1e-6",
                result["info"]["n_iterations"],
                10,
                form="{:.0f}",
                least=False,
            )
        lines_by_name["Algorithm 1"] = (sizes.algorithm1, algorithm1)
        self.report.text("### Growth with N\n\nThe exponent is the slope of log(time) over log(N).")
        self.report.table(
            ["fit", "N", "seconds", "CPU seconds", "peak memory (MiB)", "exponent"],
            [
                [
                    name,
                    ", ".join(size(n) for n in ns),
                    ", ".join(f"{r['seconds']:.3g}" for r in results),
                    ", ".join(f"{r['cpu']:.3g}" for r in results),
                    ", ".join(mib(r["above"]) for r in results),
                    f"{exponent(ns, [r['seconds'] for r in results]):.2f}",
                ]
                for name, (ns, results) in lines_by_name.items()
            ],
        )
        info = lines_by_name["`DCM`, compiled"][1][-1]["info"]
        self.report.text(
            f"At N={size(sizes.compiled[-1])}, products are computed by {info['product']}, and "
            f"iterations by {info['iterations']}; the relative residual is "
            f"{info['residual']:.1e}. The kernel matrix alone would take "
            f"{8 * sizes.compiled[-1] ** 2 / 2**30:.0f} GiB."
        )

    def instructions(self) -> None:
        n, rows = self.sizes.roofline, []
        for precision in ("float32", "float64"):
            for columns in (1, 10):
                result = self.run("roofline", n=n, precision=precision, columns=columns)
                what = f"{precision}, {columns} column{'s' if columns > 1 else ''}"
                self.report.check(
                    f"fused product, {what}: share of the roofline",
                    100 * result["share"],
                    60,
                    form="{:.0f} %",
                    least=True,
                )
                rows.append([
                    what,
                    f"{result['nanoseconds']:.2f}",
                    f"{result['peak_rate'] / 1e9:.0f}",
                    f"{100 * result['share']:.0f} %",
                ])  # fmt: skip
        self.report.text(
            "### The fused product\n\nThe table shows CPU times on one thread with "
            f"N={size(n)}. An entry of K takes {FEATURES} multiplications and additions for its "
            f"exponent, one more for the norms, {EXPONENTIAL['float32']} (float32) or "
            f"{EXPONENTIAL['float64']} "
            "(float64) for its exponential, and two for each column, because K is symmetric and "
            "each entry is used twice. The peak is the measured rate of fused multiplications and "
            "additions in a matrix product."
        )
        header = ["precision", "ns per evaluated entry", "peak (10⁹/s)", "share of the peak"]
        self.report.table(header, rows)

    def compile_time(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            variables = {"NUMBA_CACHE_DIR": folder}
            point = {"task": "compile", "n": WARM_UP_ROWS}
            first, later = (run_point(__file__, point, variables) for _ in range(2))
        self.report.text(
            f"Compiling both precisions takes {first['seconds']:.1f} s the first time, and "
            f"loading them takes {later['seconds']:.1f} s in each later process. These times are "
            "not included above."
        )

    def transform_many(self) -> None:
        n, rows = self.sizes.transformed, self.sizes.compared
        with tempfile.TemporaryDirectory() as folder:
            self.run("save", n=rows, folder=folder)
            for compiled in (True, False):
                for working_memory in (1024, 64):
                    options = {"working_memory": working_memory, "compiled": compiled}
                    result = self.run("transform", n=n, folder=folder, **options)
                    self.report.check(
                        f"`transform` of {size(n)} rows, model fitted to {size(rows)}, "
                        f"{'with' if compiled else 'without'} `[fast]`: memory (MiB) at "
                        f"`working_memory={working_memory}`",
                        result["above"] / MIB,
                        working_memory,
                        form="{:.0f}",
                        least=False,
                    )


def measure(report: Report, *, quick: bool) -> None:
    """Measure everything, and add it to the report."""
    sizes = QUICK if quick else Sizes()
    bench = Bench(report, sizes)
    report.text(
        "Rows are standard normal with 16 features, gamma follows the median rule, and there are 2 "
        f"classes and 10 domains. Compared times are medians of {sizes.rounds} alternating rounds. "
        "Memory is the peak RSS minus that of the interpreter, its imports and a small fit. "
        "`[fast]` is the extra that compiles code with Numba."
    )
    algorithm1 = bench.compare_with_algorithm1()
    bench.compare_with_kernel_pca()
    bench.growth(algorithm1)
    bench.instructions()
    bench.compile_time()
    bench.transform_many()


if __name__ == "__main__":
    serve_point(sys.argv[2], TASKS)
