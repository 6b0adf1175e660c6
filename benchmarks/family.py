"""Time and memory of SCA, MDA and MIDA, compared with dense computations, and for many rows.

The dense computations are those of the authors' programs: N x N scatter matrices, a linear system,
and LAPACK's eigenvalue solver. Rows have 16 features, 4 classes and 8 shifted domains.

    python benchmarks/family.py                   the CPU part, then FAMILY.md
    python benchmarks/family.py --quick           small sizes, for a test; writes no files
    python benchmarks/family.py --gpu --out DIR   a million rows each on a CUDA device, to DIR
    python benchmarks/family.py --others PYTHON   pykale and skada, in an interpreter that has them
    python benchmarks/family.py --report          FAMILY.md from stored results

Results are JSON files, in DIR or ``domainwise-results/family``, one for each part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

from measuring import Report, Result, alternate, machine, measured, run_point, serve_point, size

HERE = Path(__file__).resolve().parent
METHODS = ("SCA", "MDA", "MIDA")
N_DENSE, N_LARGE, N_GPU = 1500, 100_000, 1_000_000
FEATURES, CLASSES, DOMAINS = 16, 4, 8
#: Keys that say where and when a section was measured.
ORIGIN = ("machine", "date")
#: MIDA's domain weight; the eigenvalues of the domain kernel grow with the size of domains.
WEIGHT = 10.0


# Tasks, each of which runs in a child process. Only child processes import numerical libraries.


def rows(n: int, dtype: str = "float64") -> tuple[Any, Any, Any]:
    """Draw the rows."""
    import numpy as np

    rng = np.random.default_rng(0)
    y, d = rng.integers(CLASSES, size=n), rng.integers(DOMAINS, size=n)
    X = rng.standard_normal((n, FEATURES), dtype=np.float32)
    X += rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)[y]
    X += 0.5 * rng.standard_normal((DOMAINS, FEATURES), dtype=np.float32)[d]
    return X.astype(dtype), y, d


def estimator(method: str, n: int) -> Any:
    """Build the estimator with its defaults, except for the weight of MIDA, which depends on N."""
    import domainwise

    arguments = {"domain_weight": WEIGHT / n} if method.endswith("MIDA") else {}
    return getattr(domainwise, method)(**arguments)


def fit(method: str, n: int, dtype: str = "float64", cpu_time: bool = False) -> Result:
    """Fit one of our estimators; ``cpu_time`` is for comparisons on a busy machine."""
    from domainwise.kernels.functions import resolve_gamma

    X, y, d = rows(n, dtype)
    warm_up = slice(200)
    estimator(method, 200).fit(X[warm_up], y[warm_up], sample_domain=d[warm_up])
    # The dense computation also gets a fixed width.
    model = estimator(method, n).set_params(gamma=resolve_gamma("median", "rbf", X))
    with measured() as meter:
        started = time.process_time()
        model.fit(X, y, sample_domain=d)
        cpu = time.process_time() - started
    result = meter.result(values=list(model.eigenvalues_[:3]), info=plain(model.solver_info_))
    return result | ({"seconds": cpu} if cpu_time else {})


def dense(method: str, n: int) -> Result:
    """Solve as the authors' programs do, product by product, with the same kernel width.

    SCA and MDA follow S. Hu's programs in MATLAB (with column-major order) and Python. They centre
    by products with the matrix of ones, solve a linear system, call LAPACK's ``eig`` with vectors,
    and sort the result.
    """
    import numpy as np
    from scipy.spatial.distance import cdist

    from domainwise.kernels.functions import resolve_gamma

    X, y, d = rows(n)
    gamma = resolve_gamma("median", "rbf", X)
    np.linalg.eig(np.eye(50))
    with measured() as meter:
        started = time.process_time()
        K = np.exp(-gamma * cdist(X, X) ** 2)
        if method == "MIDA":
            H = np.eye(n) - 1.0 / n
            K = H @ K @ H
            same_domain = (d[:, None] == d).astype(float)
            values = np.linalg.eigh(K @ (np.eye(n) - WEIGHT / n * H @ same_domain @ H) @ K)[0]
        else:
            mean = np.full((n, n), 1.0 / n)
            K = K - mean @ K - K @ mean + mean @ K @ mean
            left, right = (_sca if method == "SCA" else _mda)(K, y, d)
            values, vectors = np.linalg.eig(np.linalg.solve(right, left))
            values, vectors = values.real, vectors.real
            order = np.argsort(values)[::-1]
            values, vectors = values[order], vectors[:, order]
        cpu = time.process_time() - started
    return meter.result(values=sorted(map(float, values))[::-1][:3]) | {"seconds": cpu}


def _sca(K: Any, y: Any, d: Any) -> tuple[Any, Any]:
    """Both sides of SCA with its defaults; the mean of a class is computed for each of its rows."""
    import numpy as np

    n, K = len(K), np.asfortranarray(K)
    between, domains, within = (np.zeros((n, n), order="F") for _ in range(3))
    overall = K.mean(axis=1)
    for i, c in enumerate(np.sort(y)):
        between[:, i] = K[:, y == c].mean(axis=1) - overall
    between = between @ between.T
    for c in range(CLASSES):
        inside = K[:, y == c]
        inside = inside - inside.mean(axis=1)[:, None]
        within = within + inside @ inside.T
    domain_mean = sum(K[:, d == t].mean(axis=1) for t in range(DOMAINS)) / DOMAINS
    for t in range(DOMAINS):
        domains[:, t] = K[:, d == t].mean(axis=1) - domain_mean
    domains = domains @ domains.T / DOMAINS
    total = K @ K / n
    ridge = n * 1e-3 * np.eye(n)
    return 0.5 * between / n + 0.5 * total, domains + within / n + K + ridge


def _mda(K: Any, y: Any, d: Any) -> tuple[Any, Any]:
    """Both sides of MDA with its defaults; each scatter is a sum of N x N matrices."""
    import numpy as np

    n = len(K)

    def cell(t: int, c: int) -> Any:
        return K[:, np.flatnonzero((d == t) & (y == c))].mean(axis=1)

    def outer(a: Any, b: Any) -> Any:
        difference = (a - b)[:, None]
        return difference @ difference.T

    share = np.array(
        [np.bincount(y[d == t], minlength=CLASSES) / (d == t).sum() for t in range(DOMAINS)]
    )
    weight = share.sum(axis=0)
    u = [sum(share[t, c] * cell(t, c) for t in range(DOMAINS)) / weight[c] for c in range(CLASSES)]
    overall_mean = sum(weight[c] / DOMAINS * u[c] for c in range(CLASSES))
    P, F, Q, G = (np.zeros((n, n)) for _ in range(4))
    for c in range(CLASSES):
        P = P + (y == c).sum() * outer(u[c], overall_mean)
        for other_class in range(c):
            F = F + outer(u[c], u[other_class])
        inside = K[:, np.flatnonzero(y == c)] - u[c][:, None]
        Q = Q + inside @ inside.T
        for s in range(DOMAINS - 1):
            first = cell(s, c)
            for t in range(s + 1, DOMAINS):
                G = G + outer(first, cell(t, c))
    P, F, Q = P / n, F / (CLASSES * (CLASSES - 1) / 2), Q / n
    G = G / (CLASSES * DOMAINS * (DOMAINS - 1) / 2)
    return 0.5 * F + 0.5 * P, 1.0 * G + 1.0 * Q + K + n * 1e-3 * np.eye(n)


def other(library: str, n: int) -> Result:
    """Fit the most similar method of another library to the same rows."""
    import numpy as np
    from sklearn.metrics import pairwise_distances

    X, _, d = rows(n)
    gamma = 1 / (2 * np.median(pairwise_distances(X[:1000])) ** 2)
    if library == "pykale":
        from kale.embed.factorization import MIDA as Rival

        model = Rival(num_components=10, kernel="rbf", gamma=gamma, ignore_y=True)
        covariates = np.eye(DOMAINS)[d]
        started = time.process_time()
        with measured() as meter:
            model.fit(X, group_labels=covariates)
    else:
        from skada import TransferComponentAnalysisAdapter

        domains = np.where(d < DOMAINS // 2, 1, -2)
        model = TransferComponentAnalysisAdapter(kernel="rbf", n_components=10)
        started = time.process_time()
        with measured() as meter:
            model.fit(X, sample_domain=domains)
    return meter.result() | {"seconds": time.process_time() - started}


def on_device(method: str, n: int) -> Result:
    """Fit a million rows on a CUDA device."""
    import torch

    X, y, d = (torch.as_tensor(part).cuda() for part in rows(n, "float32"))
    warm_up = slice(5000)
    estimator(method, 5000).fit(X[warm_up], y[warm_up], sample_domain=d[warm_up])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with measured() as meter:
        started = time.perf_counter()
        model = estimator(method, n).fit(X, y, sample_domain=d)
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - started
    return meter.result(
        values=[float(v) for v in model.eigenvalues_[:3]],
        info=plain(model.solver_info_),
        fit_seconds=elapsed,
        device=torch.cuda.get_device_name(),
        device_peak=torch.cuda.max_memory_allocated(),
    )


def plain(info: dict[str, Any]) -> dict[str, Any]:
    """``solver_info_`` as JSON."""
    return {k: v if isinstance(v, str | bool | int) else float(v) for k, v in info.items()}


TASKS = {"fit": fit, "dense": dense, "other": other, "gpu": on_device}


# The sections of a run; each writes a file of results.


def cpu_part(n: int, rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {"n": n, "rounds": rounds, "machine": machine()}
    before = os.getloadavg()[0]
    for method in METHODS:
        points = [
            {"task": "fit", "method": method, "n": n, "cpu_time": True},
            {"task": "dense", "method": method, "n": n},
        ]
        ours, dense = alternate(__file__, points, rounds)
        results[method] = {"ours": ours, "dense": dense}
    # Competition for the cache slows short fits down more than long fits.
    return results | {"load": max(before, os.getloadavg()[0])}


def large_part(n: int, prefix: str = "") -> dict[str, Any]:
    results: dict[str, Any] = {"n": n, "machine": machine()}
    for method in METHODS:
        point = {"task": "fit", "method": prefix + method, "n": n, "dtype": "float32"}
        results[method] = run_point(__file__, point)
    return results


def gpu_part(n: int) -> dict[str, Any]:
    results: dict[str, Any] = {"n": n}
    for method in (*METHODS, *(f"Fast{method}" for method in METHODS)):
        results[method] = run_point(__file__, {"task": "gpu", "method": method, "n": n})
    return results


def others_part(python: str, n: int) -> dict[str, Any]:
    """Measure other libraries in an interpreter that has them; a failure is stored as an error."""
    results: dict[str, Any] = {"n": n, "machine": machine()}
    for library in ("pykale", "skada"):
        point = json.dumps({"task": "other", "library": library, "n": n})
        process = subprocess.run(
            [python, __file__, "--point", point], capture_output=True, text=True, check=False
        )
        lines = (process.stderr if process.returncode else process.stdout).strip().splitlines()
        results[library] = {"failed": lines[-1]} if process.returncode else json.loads(lines[-1])
        print(f"  {library}: {lines[-1][:200]}", flush=True)
    return results


# The report.


def write_report(folder: Path) -> None:
    sections = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")
    }
    report = Report(
        "SCA, MDA and MIDA: time and memory",
        "python benchmarks/family.py",
        note=(
            "Every measurement ran in a separate process. Sections that were measured on another "
            "machine name that machine."
        ),
    )
    if "cpu" in sections:
        _small(report, sections["cpu"], sections.get("others"))
    if "large" in sections or "fast" in sections:
        _large(report, sections)
    if "gpu" in sections:
        _gpu(report, sections["gpu"])
    else:
        report.text(f"The part on a GPU ({size(N_GPU)} rows) has not been run.")
    report.write(HERE / "FAMILY.md")


def _small(report: Report, cpu: dict[str, Any], others: dict[str, Any] | None) -> None:
    lines = []
    for method in METHODS:
        ours, dense_result = cpu[method]["ours"], cpu[method]["dense"]
        ratio = dense_result["seconds"] / ours["seconds"]
        bound = 1.0 if method == "MIDA" else 50.0
        report.check(
            f"N={size(cpu['n'])}: {method}, speed-up over the dense computation",
            ratio,
            bound,
            form="{:.1f}×",
            least=True,
        )
        difference = max(
            abs(a / b - 1) for a, b in zip(ours["values"], dense_result["values"], strict=True)
        )
        report.check(
            f"{method}: largest relative difference of the three leading eigenvalues from the "
            "dense ones",
            difference,
            1e-6,
            form="{:.0e}",
            least=False,
        )
        for name, result in ((f"`{method}`", ours), (f"dense {method}", dense_result)):
            lines.append([name, f"{result['seconds']:.2f}", f"{result['above'] / 2**20:,.0f}"])
    for library, description in (
        ("pykale", "pykale's MIDA"),
        ("skada", "skada's TCA, the most similar method"),
    ):
        result = (others or {}).get(library)
        if result and "failed" not in result:
            took, above = result["seconds"], result["above"] / 2**20
            lines.append([f"{description} ({others['date']})", f"{took:.2f}", f"{above:,.0f}"])
        elif result:
            lines.append([f"{description}: {result['failed'][:80]}", "-", "-"])
    report.text(
        f"## N={size(cpu['n'])}\n\nThe rows have {FEATURES} float64 features, {CLASSES} classes "
        f"and {DOMAINS} domains. The dense computation follows the authors' programs, product by "
        "product: it centres by multiplying by the matrix of ones, forms N x N scatter matrices, "
        "solves a linear system, and calls LAPACK's `eig` with vectors (`eigh` for MIDA). For SCA, "
        "it recomputes the mean of a class for each of its rows, in column-major order as in "
        f"MATLAB. Times are CPU seconds on one thread, medians over {cpu['rounds']} alternating "
        f"rounds, measured on {cpu['date']} at a load average of up to {cpu['load']:.0f}."
    )
    report.table(["", "CPU seconds", "memory (MiB)"], lines)


def _large(report: Report, sections: dict[str, Any]) -> None:
    lines = []
    for section, prefix in (("large", ""), ("fast", "Fast")):
        for method in METHODS:
            result = sections.get(section, {}).get(method)
            if result is None:
                continue
            memory = result["above"] / 2**30
            report.check(
                f"N={size(sections[section]['n'])}: memory of `{prefix}{method}` (GiB)",
                memory,
                2.0,
                form="{:.2f}",
                least=False,
            )
            lines.append([f"`{prefix}{method}`", f"{result['seconds']:.0f}", f"{memory:.2f}"])
    report.text(
        f"## N={size(N_LARGE)}\n\nThe rows are float32. The exact methods evaluate the kernel "
        "matrix tile by tile, and the fast methods use their default landmarks. Memory is the "
        "peak minus that of the interpreter with its imports. Times are wall-clock seconds on "
        f"{', '.join(sections.get('large', sections.get('fast', {}))[key] for key in ORIGIN)}."
    )
    report.table(["", "seconds", "memory (GiB)"], lines)
    measured_names = {line[0] for line in lines}
    names = [f"`{prefix}{method}`" for prefix in ("", "Fast") for method in METHODS]
    missing_names = [name for name in names if name not in measured_names]
    if missing_names:
        report.text(f"Not measured in this run: {', '.join(missing_names)}.")


def _gpu(report: Report, gpu: dict[str, Any]) -> None:
    names = [name for name in gpu if name not in ("n", "date")]
    report.text(
        f"## N={size(gpu['n'])} on {gpu[names[0]]['device']}\n\nThe rows are float32 tensors on "
        f"the device. Measured on {gpu['date']}."
    )
    report.table(
        ["", "seconds", "device memory (GiB)", "iterations"],
        [
            [
                f"`{name}`",
                f"{gpu[name]['fit_seconds']:.2f}",
                f"{gpu[name]['device_peak'] / 2**30:.1f}",
                str(gpu[name]["info"].get("n_iterations", "-")),
            ]
            for name in names
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--only", choices=("cpu", "fast", "large"), help="one part")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of compared times")
    parser.add_argument("--others", metavar="PYTHON")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE.parent / "domainwise-results" / "family")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        sys.path.insert(0, str(HERE.parent / "src"))
        serve_point(arguments.point, TASKS)
        return
    if arguments.quick:
        cpu_part(300, 1)
        large_part(4000)
        large_part(4000, "Fast")
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {}
    if arguments.gpu:
        parts["gpu"] = lambda: gpu_part(N_GPU)
    elif arguments.others:
        parts["others"] = lambda: others_part(arguments.others, N_DENSE)
    elif not arguments.report:
        parts["cpu"] = lambda: cpu_part(N_DENSE, arguments.rounds)
        parts["fast"] = lambda: large_part(N_LARGE, "Fast")
        parts["large"] = lambda: large_part(N_LARGE)
    if arguments.only:
        parts = {arguments.only: parts[arguments.only]}
    for name, run in parts.items():
        text = json.dumps(run() | {"date": date.today().isoformat()}, indent=1)
        (arguments.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if not arguments.gpu:
        write_report(arguments.out)


if __name__ == "__main__":
    main()
