"""Throughput, scaling, memory and traffic of fit_parquet on a local cluster.

``python benchmarks/distributed.py`` writes 20 million rows as Parquet files into a temporary folder
and then writes DISTRIBUTED.md; ``--quick`` writes no report.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = str(Path(__file__).resolve().parent)
sys.path.insert(0, HERE)

from measuring import (  # noqa: E402
    MIB,
    Report,
    Result,
    measured,
    mib,
    run_point,
    serve_point,
    size,
)

# This file must not hide Dask's package of the same name.
sys.path[:] = [entry for entry in sys.path if entry != HERE]

N_FEATURES, N_LANDMARKS, N_DOMAINS = 16, 300, 8
MEMORY_LIMIT = 2**30
GROUP_ROWS = 100_000


@dataclass(frozen=True)
class Sizes:
    """Rows and files of the main comparison, and rows in the table of data transfer."""

    rows: int = 20_000_000
    files: int = 20
    traffic: int = 400_000


QUICK = Sizes(rows=2_000_000, files=10, traffic=100_000)


def make_data(folder: str, rows: int, files: int, group_rows: int) -> Result:
    """Write rows in shifted domains, whose classes depend on two features."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(folder)
    target.mkdir(parents=True)
    with measured() as meter:
        for i in range(files):
            n = rows // files
            rng = np.random.default_rng(i)
            X = rng.standard_normal((n, N_FEATURES), dtype=np.float32)
            domain = rng.integers(N_DOMAINS, size=n, dtype=np.int32)
            X[:, 2] += domain / np.float32(4)
            score = X[:, 0] + X[:, 1] ** 2 + rng.standard_normal(n, dtype=np.float32)
            y = (score > 1).astype(np.int32)
            columns = {f"x{j}": X[:, j] for j in range(N_FEATURES)}
            table = pa.table({**columns, "y": y, "domain": domain})
            pq.write_table(table, target / f"{i:04d}.parquet", row_group_size=group_rows)
    n_bytes = sum(file.stat().st_size for file in target.iterdir())
    return meter.result(stored=n_bytes)


def model() -> Any:
    """The estimator of all measurements; gamma is fixed, so that all fits do the same work."""
    from domainwise import FastDCM

    return FastDCM(n_landmarks=N_LANDMARKS, gamma=1 / (2 * N_FEATURES))


def fit_in_memory(folder: str) -> Result:
    """Fit rows in memory, on one core."""
    import numpy as np
    import pyarrow.parquet as pq
    from threadpoolctl import threadpool_limits

    import domainwise.estimators.fast  # noqa: F401  (limits apply only to libraries that are already loaded)

    table = pq.read_table(folder)
    X = np.empty((table.num_rows, N_FEATURES), dtype=np.float32)
    for j in range(N_FEATURES):
        X[:, j] = table[f"x{j}"].to_numpy()
    y, domain = table["y"].to_numpy(), table["domain"].to_numpy()
    del table
    with threadpool_limits(limits=1):
        model().fit(X[:5000], y[:5000], sample_domain=domain[:5000])
        with measured() as meter:
            model().fit(X, y, sample_domain=domain)
    return meter.result(rows=len(X))


def fit_on_cluster(folder: str, workers: int, each_group: bool = False) -> Result:
    """Fit the files on worker processes with one thread and 1 GiB each."""
    import resource

    from distributed import Client, LocalCluster

    import domainwise.distributed.parquet as parquet
    from domainwise.distributed.fit import fit_parquet

    def prepare() -> int:
        import domainwise.distributed.fit
        import domainwise.estimators.fast  # noqa: F401

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def state(dask_worker: Any) -> tuple[int, int]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return peak, dask_worker.transfer_outgoing_bytes_total

    if each_group:
        parquet.PARTITION_BYTES = 1
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=MEMORY_LIMIT,
            dashboard_address=None,
            host="127.0.0.1",
        ) as cluster,
        Client(cluster) as client,
    ):
        at_rest = client.run(prepare)
        with measured() as meter:
            fitted_model = fit_parquet(model(), folder, target="y", domain="domain", client=client)
        states = client.run(state)
        assert set(states) == set(at_rest), "a worker was lost"
    return meter.result(
        rows=fitted_model.n_samples_seen_,
        partitions=fitted_model.solver_info_["n_partitions"],
        worker_peaks=[peak for peak, _ in states.values()],
        at_rest=max(at_rest.values()),
        sent=sum(sent for _, sent in states.values()),
    )


TASKS = {"make": make_data, "memory": fit_in_memory, "cluster": fit_on_cluster}


def throughput(report: Report, folder: Path, sizes: Sizes) -> Result:
    """Compare one process in memory, one worker and two."""
    data = str(folder / "rows")
    data_files = run(
        task="make", folder=data, rows=sizes.rows, files=sizes.files, group_rows=GROUP_ROWS
    )
    in_memory = run(task="memory", folder=data)
    one_worker = run(task="cluster", folder=data, workers=1)
    two_workers = run(task="cluster", folder=data, workers=2)
    rate = in_memory["rows"] / in_memory["seconds"]
    per_core = two_workers["rows"] / two_workers["seconds"] / 2
    report.check(
        "throughput per worker relative to `fit` in memory on one core, two workers",
        per_core / rate,
        0.7,
        form="{:.2f}",
        least=True,
    )
    report.check(
        "speed of two workers relative to one",
        one_worker["seconds"] / two_workers["seconds"],
        1.6,
        form="{:.2f}x",
        least=True,
    )
    peak = max(*one_worker["worker_peaks"], *two_workers["worker_peaks"]) / MIB
    report.check(
        "peak memory of a worker (MiB)", peak, MEMORY_LIMIT / MIB, form="{:.0f}", least=False
    )
    report.text(
        f"## Throughput\n\nThe data are {size(sizes.rows)} rows with {N_FEATURES} float32 "
        f"features, two classes and {N_DOMAINS} domains: {mib(data_files['stored'])} MiB of "
        f"Parquet in {sizes.files} files with row groups of {size(GROUP_ROWS)} rows. There are "
        f"{N_LANDMARKS} landmarks. A worker is a process with one thread and a memory limit of "
        "1 GiB. *In memory* means `fit` on one core, without the time for reading; for workers, "
        "the time includes reading the files. An idle worker, with everything imported, uses "
        f"{mib(two_workers['at_rest'])} MiB."
    )
    rows = [
        [
            name,
            f"{result['seconds']:.1f}",
            size(result["rows"] / result["seconds"] / cores),
            ", ".join(mib(p) for p in result.get("worker_peaks", [result["peak"]])),
            mib(result["sent"]) if "sent" in result else "",
        ]
        for name, result, cores in [
            ("in memory, one core", in_memory, 1),
            ("one worker", one_worker, 1),
            ("two workers", two_workers, 2),
        ]
    ]
    header = ["fit", "seconds", "rows per second and core", "peak (MiB)", "sent by workers (MiB)"]
    report.table(header, rows)
    return two_workers


def traffic(report: Report, folder: Path, sizes: Sizes) -> None:
    """Measure bytes sent by workers, which depend on the number of partitions, not of rows."""
    lines = []
    for factor, partitions in [(1, 8), (2, 8), (2, 16), (2, 32)]:
        rows = factor * sizes.traffic
        data = str(folder / f"traffic-{rows}-{partitions}")
        run(task="make", folder=data, rows=rows, files=2, group_rows=rows // partitions)
        result = run(task="cluster", folder=data, workers=2, each_group=True)
        per_partition = result["sent"] / result["partitions"]
        share = per_partition / (8 * N_LANDMARKS**2)
        lines.append(
            [
                size(rows),
                size(result["partitions"]),
                f"{result['sent'] / MIB:.1f}",
                f"{per_partition / MIB:.2f}",
                f"{share:.2f}",
            ]
        )
    report.text(
        "## Data transfer\n\nThe table shows the bytes that two workers sent to each other and to "
        "the client during the whole fit. The sums of a partition take slightly more than 8 M² "
        "bytes. They are sent unless the same worker computes and merges them. A partition is "
        "read by the task that sums it, so no rows are sent except those of the first sample (at "
        "most 32,768). Every row of the table includes this sample and the constants of the pass, "
        "which a single worker also sends in the table above."
    )
    header = ["rows", "partitions", "sent (MiB)", "per partition (MiB)", "per partition / 8 M²"]
    report.table(header, lines)


def arithmetic(report: Report, two: Result) -> None:
    """Estimate the time of ten billion rows on a hundred workers."""
    rows, workers = 10**10, 100
    per_partition = two["sent"] / two["partitions"]
    rate = two["rows"] / two["seconds"] / 2
    partition_rows = two["rows"] / two["partitions"]
    partitions = rows / partition_rows
    seconds = rows / rate / workers
    sums = 8 * N_LANDMARKS**2
    tasks = partitions * (1 + 1 / 3)
    report.text(
        "## Estimate for 10¹⁰ rows on 100 workers\n\nThis was not measured. Two workers processed "
        f"{size(rate)} rows per second each. With sufficiently fast storage, 100 workers would "
        f"need 10¹⁰ / (100 × {size(rate)}) = {size(seconds)} s, or {seconds / 60:.0f} minutes. "
        f"With {size(partition_rows)} rows per partition, there are {size(partitions)} partitions, "
        f"and a worker reads and sums one in {partition_rows / rate:.1f} s. If the sums of every "
        f"partition were sent once, {partitions * sums / 2**30:.0f} GiB would be sent over the "
        f"network, {partitions * sums / workers / seconds / MIB:.1f} MiB/s per worker. With the "
        f"measured {per_partition / MIB:.2f} MiB per partition, it would be "
        f"{partitions * per_partition / 2**30:.0f} GiB. The graph has about {size(tasks)} tasks "
        "(one per partition, and one merge for every three). Dask's scheduler needs about a "
        f"millisecond per task, so it is busy for {tasks / 1000:.0f} s of the {size(seconds)} s. "
        "Partitions should therefore not be smaller than this, and they should be larger with "
        f"many more workers. The rows would take {rows * (N_FEATURES + 2) * 4 / 2**40:.2f} TiB of "
        "Parquet. A worker still needs no more than 1 GiB, and the client needs memory for a few "
        "M × M matrices. With five times as many landmarks, the sums take 25 times as many bytes, "
        "and the products up to 25 times as long."
    )


def run(**point: Any) -> Result:
    """Measure one point in a separate process."""
    return run_point(__file__, point)


def main() -> None:
    """Parse the arguments, measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use few rows and write no files")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        serve_point(arguments.point, TASKS)
        return
    sizes = QUICK if arguments.quick else Sizes()
    report = Report("Fitting on a cluster", "python benchmarks/distributed.py")
    folder = Path(tempfile.mkdtemp(prefix="domainwise-distributed-"))
    started = time.perf_counter()
    try:
        two_workers = throughput(report, folder, sizes)
        traffic(report, folder, sizes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    arithmetic(report, two_workers)
    print(f"{time.perf_counter() - started:.0f} s in all")
    report.write(None if arguments.quick else Path(__file__).with_name("DISTRIBUTED.md"))


if __name__ == "__main__":
    main()
