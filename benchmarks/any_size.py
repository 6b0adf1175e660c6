"""Scoring candidates on held-out domains, from moments: time, memory, growth, GPU, cluster.

Rows have 16 features, 2 classes and 10 domains. Times are compared with one pass of scikit-learn's
``Nystroem(500).transform`` over the same rows, and with scikit-learn's grid search of the same
model with the same folds.

    python benchmarks/any_size.py                   the CPU part, then ANY_SIZE.md
    python benchmarks/any_size.py --quick           small sizes, for a test; writes no files
    python benchmarks/any_size.py --gpu --out DIR   ten million rows on a CUDA device, to DIR
    python benchmarks/any_size.py --dask            Parquet files on two workers, then ANY_SIZE.md
    python benchmarks/any_size.py --report          ANY_SIZE.md from stored results

Results are JSON files, in DIR or ``domainwise-results/any-size``, one for each part.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measuring import (  # noqa: E402
    Report,
    Result,
    alternate,
    exponent,
    machine,
    measured,
    run_point,
    serve_point,
    size,
)

# Files in this folder, such as distributed.py, must not hide installed packages.
sys.path[:] = [entry for entry in sys.path if entry != str(HERE)]

FEATURES, DOMAINS, LANDMARKS = 16, 10, 500
#: The grid: one kernel and width, and several domain weights and penalties.
WEIGHTS, N_ALPHAS = (0.0, 0.1, 1.0, 10.0, 100.0), 9
GAMMA = 1.0 / (2 * FEATURES)
#: Rows per block in the Nystroem pass: 1,000 to 10,000 are equally fast, other sizes are slower.
BLOCK_ROWS = 2000
GPU_LANDMARKS = 1000
PROJECTION_LANDMARKS = 300
DASK_MEMORY = 2 * 2**30


@dataclass(frozen=True)
class Sizes:
    """Numbers of rows, and rounds of compared measurements."""

    growth: tuple[int, ...] = (62_500, 125_000, 250_000, 500_000, 1_000_000)
    grid: int = 50_000
    projection: int = 100_000
    rounds: int = 3
    gpu: tuple[int, ...] = (1_000_000, 10_000_000)
    dask: int = 20_000_000
    dask_here: int = 2_000_000


QUICK = Sizes((3000, 6000), 3000, 4000, 1, (20_000,), 200_000, 100_000)


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


def one_process(folder: str, rows: int) -> Result:
    """Search with rows in memory, on one core."""
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    import domainwise.selection  # noqa: F401  (limits apply only to libraries that are already loaded)

    columns = [*(f"x{j}" for j in range(FEATURES)), "y", "domain"]
    files = sorted(Path(folder).iterdir())[: -(-rows // 1_000_000)]
    table = pq.ParquetDataset([str(file) for file in files]).read(columns=columns)
    X = np.column_stack([table[name].to_numpy() for name in columns[:FEATURES]])[:rows]
    y, domain = (table[name].to_numpy()[:rows] for name in columns[FEATURES:])
    with threadpool_limits(limits=1):
        model = _model(len(X))
        model.fit(X[:3000], y[:3000], sample_domain=domain[:3000])
        with measured() as meter:
            model.fit(X, y, sample_domain=domain)
    return meter.result(rows=len(X))


def on_cluster(folder: str, workers: int, each_group: bool = False) -> Result:
    """Search with files, on worker processes with one thread each."""
    from distributed import Client, LocalCluster

    import domainwise.distributed.parquet as parquet
    from domainwise.distributed.fit import fit_parquet

    def prepare() -> None:
        import domainwise.distributed.fit  # noqa: F401

    def sent(dask_worker: Any) -> int:
        return int(dask_worker.transfer_outgoing_bytes_total)

    if each_group:
        parquet.PARTITION_BYTES = 1
    options = {"threads_per_worker": 1, "memory_limit": DASK_MEMORY, "dashboard_address": None}
    with LocalCluster(workers, host="127.0.0.1", **options) as cluster, Client(cluster) as client:
        client.run(prepare)
        with measured() as meter:
            model = fit_parquet(_model(10**6), folder, target="y", domain="domain", client=client)
        traffic = sum(client.run(sent).values())
    return meter.result(splits=model.n_splits_, sent=traffic)


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


TASKS = {
    "rows": make_rows,
    "search": search,
    "Nystroem.transform": nystroem_pass,
    "GridSearchCV": grid_search,
    "FastDCMCV": projection_search,
    "gpu": on_device,
    "files": make_files,
    "one process": one_process,
    "cluster": on_cluster,
}


# The parts.


def cpu_part(sizes: Sizes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run_point(__file__, {"task": "rows", "n": sizes.growth[-1], "folder": folder})
        n = sizes.growth[-1]
        points = [
            {"task": task, "n": n, "folder": folder} for task in ("search", "Nystroem.transform")
        ]
        our_search, nystroem = alternate(__file__, points, sizes.rounds)
        growth = [
            run_point(__file__, {"task": "search", "n": k, "folder": folder})
            for k in sizes.growth[:-1]
        ]
        points = [
            {"task": task, "n": sizes.grid, "folder": folder} for task in ("search", "GridSearchCV")
        ]
        small_search, grid = alternate(__file__, points, 1)
        points = [
            {"task": "FastDCMCV", "n": sizes.projection, "folder": folder, "rows": rows}
            for rows in (False, True)
        ]
        moments, from_rows = alternate(__file__, points, sizes.rounds)
    return {
        "machine": machine(),
        "load": os.getloadavg()[2],
        "n": n,
        "search": our_search,
        "pass": nystroem,
        "growth": {"n": sizes.growth, "seconds": [r["seconds"] for r in [*growth, our_search]]},
        "grid": {"n": sizes.grid, "search": small_search, "GridSearchCV": grid},
        "projection": {"n": sizes.projection, "moments": moments, "rows": from_rows},
    }


def gpu_part(sizes: Sizes) -> dict[str, Any]:
    return {str(n): run_point(__file__, {"task": "gpu", "n": n}) for n in sizes.gpu}


def dask_part(sizes: Sizes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "rows")
        run_point(
            __file__, {"task": "files", "folder": data, "rows": sizes.dask, "group_rows": 100_000}
        )
        single = run_point(
            __file__, {"task": "one process", "folder": data, "rows": sizes.dask_here}
        )
        two_workers = run_point(__file__, {"task": "cluster", "folder": data, "workers": 2})
        traffic = {}
        for rows in (sizes.dask // 100, sizes.dask // 50):
            small_folder = str(Path(folder) / f"traffic-{rows}")
            # Eight partitions each: traffic must not depend on the number of rows in them.
            run_point(
                __file__,
                {
                    "task": "files",
                    "folder": small_folder,
                    "rows": rows,
                    "group_rows": -(-rows // 8),
                },
            )
            point = {"task": "cluster", "folder": small_folder, "workers": 2, "each_group": True}
            traffic[str(rows)] = run_point(__file__, point)["sent"]
    result = {"machine": machine(), "load": os.getloadavg()[2], "n": sizes.dask}
    return {**result, "here": single, "two": two_workers, "traffic": traffic}


# The report.


def write_report(folder: Path, path: Path | None) -> None:
    sections = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")
    }
    report = Report(
        "Choosing parameters on held-out domains for any number of rows",
        "python benchmarks/any_size.py [--gpu | --dask]",
    )
    report.text(
        f"Rows have {FEATURES} features, {DOMAINS} domains and two classes. "
        f"`InvariantRidgeClassifierCV` searches {len(WEIGHTS)} domain weights and {N_ALPHAS} "
        "penalties, and holds out one domain at a time. The squared error of every candidate on "
        "every fold is computed from moments."
    )
    if "cpu" in sections:
        _cpu(report, sections["cpu"])
        if "projection" in sections["cpu"]:
            _projection(report, sections["cpu"]["projection"])
    if "gpu" in sections:
        _gpu(report, sections["gpu"])
    if "dask" in sections:
        _dask(report, sections["dask"])
    report.write(path)


def _cpu(report: Report, cpu: dict[str, Any]) -> None:
    n, ours, nystroem = cpu["n"], cpu["search"], cpu["pass"]
    report.check(
        f"N={size(n)}, {LANDMARKS} landmarks, {ours['candidates']} candidates, {ours['splits']} "
        f"folds: time relative to one pass of `Nystroem({LANDMARKS}).transform`",
        ours["seconds"] / nystroem["seconds"],
        1.5,
        form="{:.2f}×",
        least=False,
    )
    report.check(
        f"N={size(n)}: peak RSS of the whole process, including the mapped file (GiB)",
        ours["peak"] / 2**30,
        1.5,
        form="{:.2f}",
        least=False,
    )
    grid, search = cpu["grid"]["GridSearchCV"], cpu["grid"]["search"]
    grid_seconds, search_seconds = (
        result["seconds"] / result["candidates"] for result in (grid, search)
    )
    report.check(
        f"N={size(cpu['grid']['n'])}: time per candidate of `GridSearchCV(make_pipeline(Nystroem, "
        "Ridge))` relative to ours, same folds",
        grid_seconds / search_seconds,
        50,
        form="{:.0f}×",
        least=True,
    )
    ns, seconds = cpu["growth"]["n"], cpu["growth"]["seconds"]
    report.check(
        f"growth of time with N, from {size(ns[0])} to {size(ns[-1])}: exponent",
        exponent(ns, seconds),
        1.05,
        form="{:.2f}",
        least=False,
    )
    report.text(
        f"## On {cpu['machine']}\n\nThe load average over the last fifteen minutes was "
        f"{cpu['load']:.0f}, including the benchmark itself."
    )
    report.table(
        ["N", "search (s)"],
        [[size(k), f"{s:.2f}"] for k, s in zip(ns, seconds, strict=True)],
    )
    report.text(
        f"One pass of `Nystroem.transform` over {size(n)} rows takes {nystroem['seconds']:.2f} s. "
        f"At N={size(cpu['grid']['n'])}, a candidate takes {search_seconds:.3f} s here and "
        f"{grid_seconds:.2f} s in `GridSearchCV`, in both cases with one fold per domain."
    )


def _projection(report: Report, projection: dict[str, Any]) -> None:
    moments, rows = projection["moments"], projection["rows"]
    pairs = zip(moments["scores"], rows["scores"], strict=True)
    report.text(
        f"`FastDCMCV` with {PROJECTION_LANDMARKS} landmarks, {moments['candidates']} candidates "
        f"with one gamma and {moments['splits']} folds, N={size(projection['n'])}: "
        f"{moments['seconds']:.2f} s from moments, and {rows['seconds']:.2f} s "
        f"({rows['seconds'] / moments['seconds']:.1f}×) with "
        "`estimator=LinearDiscriminantAnalysis()`, which is fitted to the projected rows of each "
        f"fold. Mean scores differ by at most {max(abs(a - b) for a, b in pairs):.0e}."
    )


def _gpu(report: Report, gpu: dict[str, Any]) -> None:
    for n, bound in (("1000000", 6.0), ("10000000", 45.0)):
        if n in gpu:
            result = gpu[n]
            report.check(
                f"{result['device']}, N={size(int(n))}, {GPU_LANDMARKS} landmarks, 6 kernels and "
                f"widths, {result['candidates']} candidates, {result['splits']} folds (s)",
                result["fit_seconds"],
                bound,
                form="{:.1f}",
                least=False,
            )
    first = next(iter(gpu.values()))
    report.text(
        f"## On {first['device']}\n\nThe rows are float32 tensors on the device, and a fit to "
        "20,000 rows serves as a warm-up. With 20,000 float64 rows, the relative difference from "
        f"the scores with NumPy is at most {first['difference']:.0e}."
    )
    report.table(
        ["N", "seconds", "peak device memory (GiB)"],
        [
            [size(int(n)), f"{result['fit_seconds']:.2f}", f"{result['device_peak'] / 2**30:.1f}"]
            for n, result in gpu.items()
        ],
    )


def _dask(report: Report, dask: dict[str, Any]) -> None:
    single, two_workers = dask["here"], dask["two"]
    rate, worker_rate = (
        single["rows"] / single["seconds"],
        dask["n"] / two_workers["seconds"] / 2,
    )
    report.check(
        f"{size(dask['n'])} rows in Parquet files, two workers with {DASK_MEMORY // 2**30} GiB "
        "each: throughput of a worker relative to one process with rows in memory",
        worker_rate / rate,
        0.7,
        form="{:.2f}×",
        least=True,
    )
    (n_small, sent_small), (n_large, sent_large) = (
        (int(n), sent) for n, sent in dask["traffic"].items()
    )
    report.check(
        f"traffic between workers with {size(n_large)} rows relative to that with {size(n_small)}, "
        "8 partitions",
        sent_large / max(sent_small, 1),
        1.1,
        form="{:.2f}×",
        least=False,
    )
    report.text(
        f"## On Dask\n\n{dask['machine']}, with a load average of {dask['load']:.0f}. One process "
        f"with {size(single['rows'])} rows in memory on one core processes {rate:,.0f} rows per "
        f"second, and two workers {2 * worker_rate:,.0f}. With eight partitions, workers send "
        f"{sent_small / 2**20:.0f} MiB to each other."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use small sizes and write no files")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE.parent / "domainwise-results" / "any-size")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        sys.path.insert(0, str(HERE.parent / "src"))
        serve_point(arguments.point, TASKS)
        return
    sizes = QUICK if arguments.quick else Sizes()
    name, measure = "cpu", cpu_part
    if arguments.gpu:
        name, measure = "gpu", gpu_part
    elif arguments.dask:
        name, measure = "dask", dask_part
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) if arguments.quick else arguments.out
        if not arguments.report:
            out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(measure(sizes), indent=1, default=float)
            (out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        if not arguments.gpu or arguments.quick:
            write_report(out, None if arguments.quick else HERE / "ANY_SIZE.md")


if __name__ == "__main__":
    main()
