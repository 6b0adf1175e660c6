"""The part "sums" of speed.py: models that need one pass over any number of rows.

`InvariantRidgeClassifierCV` scores candidates on held-out domains from sums, and `FastDCM` is a
projection from sums. Rows have 16 features, 2 classes and 10 domains. Times are compared with one
pass of scikit-learn's ``Nystroem(500).transform`` over the same rows, and with scikit-learn's grid
search of the same model with the same folds. The part "cluster" reads 20 million rows from Parquet
files on worker processes; the part "sums-gpu" uses tensors on a CUDA device.
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
    run_point,
    serve_point,
    size,
)

FEATURES, DOMAINS, LANDMARKS = 16, 10, 500
#: The grid: one kernel and width, and several domain weights and penalties.
WEIGHTS, N_ALPHAS = (0.0, 0.1, 1.0, 10.0, 100.0), 9
GAMMA = 1.0 / (2 * FEATURES)
#: Rows per block in the Nystroem pass: 1,000 to 10,000 are equally fast, other sizes are slower.
BLOCK_ROWS = 2000
GPU_LANDMARKS = 1000
PROJECTION_LANDMARKS = 300
#: Memory limit of a worker, and rows of a row group.
WORKER_MEMORY, GROUP_ROWS = 2 * 2**30, 100_000


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows, and rounds of compared measurements."""

    growth: tuple[int, ...] = (62_500, 125_000, 250_000, 500_000, 1_000_000)
    grid: int = 50_000
    projection: int = 100_000
    rounds: int = 3
    gpu: tuple[int, ...] = (1_000_000, 10_000_000)
    cluster: int = 20_000_000
    in_memory: int = 2_000_000
    traffic: int = 400_000


QUICK = Sizes((3000, 6000), 3000, 4000, 1, (20_000,), 200_000, 100_000, 40_000)


# Tasks, each of which runs in a child process. Only child processes import numerical libraries.


def make_rows(n: int, folder: str) -> Result:
    """Write the rows and the labels to two files."""
    import numpy as np

    rng = np.random.default_rng(0)
    with measured() as meter:
        X = np.memmap(Path(folder) / "rows.dat", dtype=np.float64, mode="w+", shape=(n, FEATURES))
        labels = rng.integers((2, DOMAINS), size=(n, 2))
        for start in range(0, n, 100_000):
            block = slice(start, min(start + 100_000, n))
            X[block] = rng.standard_normal((block.stop - start, FEATURES))
            X[block, 2] += labels[block, 1] / 4
            score = X[block, 0] + X[block, 1] ** 2 + rng.standard_normal(block.stop - start)
            labels[block, 0] = score > 1
        X.flush()
        np.save(Path(folder) / "labels.npy", labels)
    return meter.result()


def search(n: int, folder: str) -> Result:
    """Search on the first n rows of the file, all folds and candidates."""
    X, y, domain = _open(n, folder)
    warm_up = slice(3000)
    _model(3000).fit(X[warm_up], y[warm_up], sample_domain=domain[warm_up])
    with measured() as meter:
        model = _model(n).fit(X, y, sample_domain=domain)
    results = model.cv_results_
    return meter.result(candidates=len(results["params"]), splits=model.n_splits_)


def project(n: int, folder: str, transform: bool = False) -> Result:
    """Fit `FastDCM` to the first n rows of the file, or project them."""
    X, y, domain = _open(n, folder)
    few = slice(min(n, 20_000))
    model = _projection().fit(X[few], y[few], sample_domain=domain[few])
    with measured() as meter:
        if transform:
            model.transform(X)
        else:
            model.fit(X, y, sample_domain=domain)
    return meter.result()


def nystroem_pass(n: int, folder: str) -> Result:
    """Compute scikit-learn's features for the first n rows, block by block."""
    from sklearn.kernel_approximation import Nystroem

    X, _, _ = _open(n, folder)
    nystroem = Nystroem(gamma=GAMMA, n_components=LANDMARKS, random_state=0)
    nystroem.fit(X[:BLOCK_ROWS]).transform(X[:BLOCK_ROWS])
    with measured() as meter:
        for start in range(0, n, BLOCK_ROWS):
            nystroem.transform(X[start : start + BLOCK_ROWS])
    return meter.result()


def grid_search(n: int, folder: str, candidates: int = 2) -> Result:
    """Search some penalties with scikit-learn, on the same folds."""
    import numpy as np
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut
    from sklearn.pipeline import make_pipeline

    X, y, domain = _open(n, folder)
    machine_ = make_pipeline(
        Nystroem(gamma=GAMMA, n_components=LANDMARKS, random_state=0), Ridge(solver="cholesky")
    )
    grid = {"ridge__alpha": np.geomspace(1.0, 100.0, candidates)}
    search = GridSearchCV(
        machine_, grid, cv=LeaveOneGroupOut(), scoring="neg_mean_squared_error", refit=False
    )
    with measured() as meter:
        search.fit(X, 2.0 * y - 1.0, groups=domain)
    return meter.result(candidates=candidates, splits=search.n_splits_)


def projection_search(n: int, folder: str, rows: bool = False) -> Result:
    """Search FastDCMCV's grid at one gamma, from moments or by projecting the rows of each fold."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    from domainwise import FastDCMCV

    X, y, domain = _open(n, folder)
    predictor = LinearDiscriminantAnalysis() if rows else None
    model = FastDCMCV(
        gammas=[GAMMA],
        landmarks=X[:PROJECTION_LANDMARKS],
        estimator=predictor,
        conditionals=(False,),
    )
    warm_up = slice(3000)
    model.fit(X[warm_up], y[warm_up], sample_domain=domain[warm_up])
    with measured() as meter:
        model.fit(X, y, sample_domain=domain)
    results = model.cv_results_
    scores = results["mean_test_score"].tolist()
    return meter.result(candidates=len(results["params"]), splits=model.n_splits_, scores=scores)


def on_device(n: int, device: str = "cuda") -> Result:
    """Search on float32 tensors on a device: two kernels with three widths, the default grid."""
    import time

    import torch

    from domainwise import InvariantRidgeClassifierCV

    generator = torch.Generator(device).manual_seed(0)
    X = torch.randn((n, FEATURES), generator=generator, device=device)
    domain = torch.randint(DOMAINS, (n,), generator=generator, device=device)
    X[:, 2] += domain / 4
    y = (X[:, 0] + X[:, 1] ** 2 + torch.randn(n, generator=generator, device=device) > 1).long()
    small_rows = [X[:20_000].double(), y[:20_000], domain[:20_000]]
    options: dict[str, Any] = {"n_landmarks": GPU_LANDMARKS, "landmarks": "uniform"}
    small_models = [
        InvariantRidgeClassifierCV(gammas=[GAMMA], **options).fit(*rows)
        for rows in (small_rows, [array.cpu().numpy() for array in small_rows])
    ]
    device_scores, numpy_scores = (model.cv_results_["mean_test_score"] for model in small_models)
    model = InvariantRidgeClassifierCV(**options)
    model.fit(X[:20_000], y[:20_000], sample_domain=domain[:20_000])
    result: dict[str, Any] = {"device": device}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    with measured() as meter:
        started = time.perf_counter()
        model.fit(X, y, sample_domain=domain)
        result["fit_seconds"] = time.perf_counter() - started
    if device == "cuda":
        result["device"] = torch.cuda.get_device_name()
        result["device_peak"] = torch.cuda.max_memory_allocated()
    return meter.result(
        **result,
        candidates=len(model.cv_results_["params"]),
        splits=model.n_splits_,
        difference=float(abs(device_scores / numpy_scores - 1).max()),
    )


def make_files(folder: str, rows: int, group_rows: int) -> Result:
    """Write Parquet files with up to a million rows each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(folder)
    target.mkdir(parents=True)
    with measured() as meter:
        for i, start in enumerate(range(0, rows, 1_000_000)):
            n, rng = min(1_000_000, rows - start), np.random.default_rng(i)
            X = rng.standard_normal((n, FEATURES), dtype=np.float32)
            domain = rng.integers(DOMAINS, size=n, dtype=np.int32)
            X[:, 2] += domain / np.float32(4)
            y = (X[:, 0] + X[:, 1] ** 2 + rng.standard_normal(n) > 1).astype(np.int32)
            table = {f"x{j}": X[:, j] for j in range(FEATURES)} | {"y": y, "domain": domain}
            pq.write_table(pa.table(table), target / f"{i:04d}.parquet", row_group_size=group_rows)
    return meter.result()


def one_process(folder: str, rows: int, projection: bool) -> Result:
    """Fit rows in memory, on one core."""
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    columns = [*(f"x{j}" for j in range(FEATURES)), "y", "domain"]
    files = sorted(Path(folder).iterdir())[: -(-rows // 1_000_000)]
    table = pq.ParquetDataset([str(file) for file in files]).read(columns=columns)
    X = np.column_stack([table[name].to_numpy() for name in columns[:FEATURES]])[:rows]
    y, domain = (table[name].to_numpy()[:rows] for name in columns[FEATURES:])
    model = _projection() if projection else _model(len(X))
    model.fit(X[:5000], y[:5000], sample_domain=domain[:5000])  # loads all libraries
    with threadpool_limits(limits=1), measured() as meter:
        model.fit(X, y, sample_domain=domain)
    return meter.result(rows=len(X))


def on_cluster(folder: str, workers: int, projection: bool, each_group: bool = False) -> Result:
    """Fit files, on worker processes with one thread each."""
    import resource

    from distributed import Client, LocalCluster

    import domainwise.distributed.parquet as parquet
    from domainwise.distributed.fit import fit_parquet

    def state(dask_worker: Any) -> tuple[int, int]:
        import domainwise.distributed.fit  # noqa: F401  (so that it counts as memory at rest)

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return peak, int(dask_worker.transfer_outgoing_bytes_total)

    if each_group:
        parquet.PARTITION_BYTES = 1
    options = {"threads_per_worker": 1, "memory_limit": WORKER_MEMORY, "dashboard_address": None}
    with LocalCluster(workers, host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        at_rest = client.run(state)
        model = _projection() if projection else _model(10**6)
        with measured() as meter:
            fit_parquet(model, folder, target="y", domain="domain", client=client)
        states = client.run(state)
        assert set(states) == set(at_rest), "a worker was lost"
    return meter.result(
        worker_peaks=[peak for peak, _ in states.values()],
        at_rest=max(peak for peak, _ in at_rest.values()),
        sent=sum(sent for _, sent in states.values()),
    )


def _open(n: int, folder: str) -> tuple[Any, Any, Any]:
    import numpy as np

    rows = Path(folder) / "rows.dat"
    total = rows.stat().st_size // (8 * FEATURES)
    X = np.memmap(rows, dtype=np.float64, mode="r", shape=(total, FEATURES))[:n]
    labels = np.load(Path(folder) / "labels.npy", mmap_mode="r")[:n]
    return X, np.ascontiguousarray(labels[:, 0]), np.ascontiguousarray(labels[:, 1])


def _model(n: int) -> Any:
    import numpy as np

    from domainwise import InvariantRidgeClassifierCV

    return InvariantRidgeClassifierCV(
        kernels=["rbf"],
        gammas=[GAMMA],
        alphas=np.geomspace(1e-2, 1e2, N_ALPHAS) * max(1.0, n / 1000),
        domain_weights=WEIGHTS,
        conditionals=(False,),
        n_landmarks=LANDMARKS,
        landmarks="uniform",
    )


def _projection() -> Any:
    from domainwise import FastDCM

    return FastDCM(n_landmarks=LANDMARKS, gamma=GAMMA, random_state=0)


TASKS = {
    "rows": make_rows,
    "search": search,
    "FastDCM": project,
    "Nystroem.transform": nystroem_pass,
    "GridSearchCV": grid_search,
    "FastDCMCV": projection_search,
    "gpu": on_device,
    "files": make_files,
    "one process": one_process,
    "cluster": on_cluster,
}


def measure(report: Report, *, quick: bool) -> None:
    """Measure all sizes on the CPU, and add them to the report."""
    sizes = QUICK if quick else Sizes()
    n = sizes.growth[-1]
    report.text(
        f"Rows have {FEATURES} features, {DOMAINS} domains and two classes. "
        f"`InvariantRidgeClassifierCV` searches {len(WEIGHTS)} domain weights and {N_ALPHAS} "
        "penalties, and holds out one domain at a time. The squared error of every candidate on "
        f"every fold is computed from sums. There are {LANDMARKS} landmarks."
    )
    with tempfile.TemporaryDirectory() as folder:
        run_point(__file__, {"task": "rows", "n": n, "folder": folder})
        points: list[dict[str, Any]] = [
            {"task": "search"},
            {"task": "FastDCM"},
            {"task": "FastDCM", "transform": True},
            {"task": "Nystroem.transform"},
        ]
        points = [{**point, "n": n, "folder": folder} for point in points]
        results = alternate(__file__, points, sizes.rounds)
        growth = [
            [run_point(__file__, {**point, "n": k}) for k in sizes.growth[:-1]] + [result]
            for point, result in zip(points[:2], results[:2], strict=True)
        ]
        points = [
            {"task": task, "n": sizes.grid, "folder": folder} for task in ("search", "GridSearchCV")
        ]
        search_, grid = alternate(__file__, points, 1)
        points = [
            {"task": "FastDCMCV", "n": sizes.projection, "folder": folder, "rows": rows}
            for rows in (False, True)
        ]
        moments, from_rows = alternate(__file__, points, sizes.rounds)
    ours, projection, projected, nystroem = results
    for name, result, bound in (
        (f"{ours['candidates']} candidates, {ours['splits']} folds", ours, 1.5),
        ("`FastDCM.fit`", projection, 1.0),
    ):
        report.check(
            f"N={size(n)}, {name}: time relative to one pass of `Nystroem({LANDMARKS}).transform`",
            result["seconds"] / nystroem["seconds"],
            bound,
            form="{:.2f}×",
            least=False,
        )
        report.check(
            f"N={size(n)}, {name}: peak RSS of the whole process, including the mapped file (GiB)",
            result["peak"] / 2**30,
            1.5,
            form="{:.2f}",
            least=False,
        )
    grid_seconds, search_seconds = (r["seconds"] / r["candidates"] for r in (grid, search_))
    report.check(
        f"N={size(sizes.grid)}: time per candidate of `GridSearchCV(make_pipeline(Nystroem, "
        "Ridge))` relative to ours, same folds",
        grid_seconds / search_seconds,
        50,
        form="{:.0f}×",
        least=True,
    )
    for name, runs in zip(("search", "`FastDCM.fit`"), growth, strict=True):
        report.check(
            f"{name}: exponent of time with N, from {size(sizes.growth[0])} to {size(n)}",
            exponent(sizes.growth, [r["seconds"] for r in runs]),
            1.1,
            form="{:.2f}",
            least=False,
        )
    report.table(
        ["N", "search (s)", "`FastDCM.fit` (s)"],
        [
            [size(k), *(f"{r['seconds']:.2f}" for r in runs)]
            for k, *runs in zip(sizes.growth, *growth, strict=True)
        ],
    )
    pairs = zip(moments["scores"], from_rows["scores"], strict=True)
    report.text(
        f"One pass of `Nystroem.transform` over {size(n)} rows takes {nystroem['seconds']:.2f} s, "
        f"and `FastDCM.transform` {projected['seconds']:.2f} s. At N={size(sizes.grid)}, a "
        f"candidate takes {search_seconds:.3f} s here and {grid_seconds:.2f} s in `GridSearchCV`, "
        f"in both cases with one fold per domain. `FastDCMCV` with {PROJECTION_LANDMARKS} "
        f"landmarks, {moments['candidates']} candidates with one gamma and {moments['splits']} "
        f"folds, N={size(sizes.projection)}: {moments['seconds']:.2f} s from sums, and "
        f"{from_rows['seconds']:.2f} s with `estimator=LinearDiscriminantAnalysis()`, which is "
        "fitted to the projected rows of each fold. Mean scores differ by at most "
        f"{max(abs(a - b) for a, b in pairs):.0e}."
    )


def measure_gpu(report: Report, *, quick: bool) -> None:
    """Measure searches on a CUDA device, and add them to the report."""
    lines = []
    for n in (QUICK if quick else Sizes()).gpu:
        result = run_point(__file__, {"task": "gpu", "n": n})
        report.check(
            f"{result['device']}, N={size(n)}, {GPU_LANDMARKS} landmarks, 6 kernels and widths, "
            f"{result['candidates']} candidates, {result['splits']} folds (s)",
            result["fit_seconds"],
            6.0 if n <= 10**6 else 45.0,
            form="{:.1f}",
            least=False,
        )
        peak = f"{result['device_peak'] / 2**30:.1f}"
        difference = f"{result['difference']:.0e}"
        lines.append([size(n), f"{result['fit_seconds']:.2f}", peak, difference])
    report.text(
        "The rows are float32 tensors on the device, and a fit to 20,000 rows serves as a warm-up. "
        "The last column is the largest relative difference from the scores with NumPy, for 20,000 "
        "float64 rows."
    )
    report.table(["N", "seconds", "peak device memory (GiB)", "difference"], lines)


def measure_cluster(report: Report, *, quick: bool) -> None:
    """Measure throughput, memory and data transfer of `fit_parquet`, and add them to the report."""
    sizes, lines = QUICK if quick else Sizes(), []
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "rows")
        files: dict[str, Any] = {"task": "files", "group_rows": GROUP_ROWS}
        run_point(__file__, {**files, "folder": data, "rows": sizes.cluster})
        for name, projection in (("`FastDCM`", True), ("`InvariantRidgeClassifierCV`", False)):
            shared = {"folder": data, "projection": projection}
            point = {"task": "one process", "rows": sizes.in_memory, **shared}
            single = run_point(__file__, point)
            rate = single["rows"] / single["seconds"]
            lines.append([f"{name}, in memory, one core", "", size(rate), mib(single["peak"]), ""])
            for workers in (1, 2):
                result = run_point(__file__, {"task": "cluster", "workers": workers, **shared})
                worker_rate = sizes.cluster / result["seconds"] / workers
                peaks = ", ".join(map(mib, result["worker_peaks"]))
                cells = [f"{result['seconds']:.1f}", size(worker_rate), peaks, mib(result["sent"])]
                lines.append([f"{name}, workers: {workers}", *cells])
            report.check(
                f"{name}, two workers: throughput of a worker relative to one process in memory",
                worker_rate / rate,
                0.7,
                form="{:.2f}×",
                least=True,
            )
            report.check(
                f"{name}: peak memory of a worker (MiB)",
                max(result["worker_peaks"]) / MIB,
                WORKER_MEMORY / MIB,
                form="{:.0f}",
                least=False,
            )
        sent = []
        for rows in (sizes.traffic, 2 * sizes.traffic):
            # Eight partitions each: traffic must not depend on the number of rows in them.
            few = {"folder": str(Path(folder) / f"traffic-{rows}")}
            run_point(__file__, {**files, **few, "rows": rows, "group_rows": -(-rows // 8)})
            point = {"task": "cluster", "workers": 2, "projection": True, "each_group": True}
            sent.append(run_point(__file__, {**point, **few})["sent"])
    report.check(
        f"traffic between workers with {size(2 * sizes.traffic)} rows relative to that with "
        f"{size(sizes.traffic)}, 8 partitions",
        sent[1] / max(sent[0], 1),
        1.2,
        form="{:.2f}×",
        least=False,
    )
    report.text(
        f"{size(sizes.cluster)} rows with {FEATURES} float32 features are in Parquet files with "
        f"row groups of {size(GROUP_ROWS)} rows; {size(sizes.in_memory)} rows are fitted in memory "
        "for comparison, without the time for reading. A worker is a process with one thread; an "
        f"idle worker, with everything imported, uses {mib(result['at_rest'])} MiB."
    )
    heading = ["fit", "seconds", "rows per second and core", "peak (MiB)", "sent by workers (MiB)"]
    report.table(heading, lines)


if __name__ == "__main__":
    serve_point(sys.argv[2], TASKS)
