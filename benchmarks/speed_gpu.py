"""The part "gpu" of speed.py: products and fits on a CUDA device.

Times are medians after a warm-up, end to end from tensors on the device. Errors are measured
against float64. The roofline is the larger of two times: all exponentials at the measured rate,
and all float16 products at the measured rate of a large matrix product.
"""

from __future__ import annotations

import math
import time
import traceback
import warnings

import numpy as np
import torch
from measuring import Report

from domainwise import COIR, DCM, DICA, KPCA, FastDCM, precision
from domainwise.algebra.backends import backend_of
from domainwise.algebra.gram.tiles import cross_product, symmetric_product
from domainwise.algebra.gram.torch.fused import FusedKernel, GroupedProduct
from domainwise.algebra.kernels.functions import Kernel

DEVICE = torch.device("cuda")
lines: list[str] = []


def say(text: str = "") -> None:
    print(text, flush=True)
    lines.append(text)


def row(*cells: object) -> None:
    say("| " + " | ".join(str(cell) for cell in cells) + " |")


def header(*cells: str) -> None:
    say()
    row(*cells)
    row(*("---" for _ in cells))


def seconds(work, repeats: int = 3) -> float:
    """Median wall-clock time of ``work`` after one warm-up call."""
    times = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def problem(n: int, p: int = 16, n_domains: int = 30, seed: int = 0):
    """Rows of two classes in shifted domains; the classes differ in the same way in all domains."""
    make = torch.Generator(DEVICE).manual_seed(seed)
    X = torch.randn((n, p), generator=make, device=DEVICE)
    domain = torch.randint(n_domains, (n,), generator=make, device=DEVICE)
    noise = torch.randn(n, generator=make, device=DEVICE)
    y = (X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * noise > 0).long()
    shifts = torch.randn((n_domains, p), generator=make, device=DEVICE)
    return X + 0.5 * shifts[domain], y, domain


def thin(n: int, r: int) -> torch.Tensor:
    V = torch.randn((n, r), dtype=torch.float64, device=DEVICE)
    return V - V.mean(0)


def rbf(X: torch.Tensor) -> Kernel:
    return Kernel("rbf", gamma=1.0 / (4 * X.shape[1]), origin=X.mean(0).cpu().numpy())


def reference(kernel: Kernel, X: torch.Tensor, V: torch.Tensor, rows: int = 512) -> torch.Tensor:
    """First rows of (K - constant) V in float64."""
    total = torch.zeros((rows, V.shape[1]), dtype=torch.float64, device=DEVICE)
    left = kernel.prepare(X[:rows].double()).left
    for i in range(0, len(X), 65536):
        right = kernel.prepare(X[i : i + 65536].double()).right
        total += kernel.block(left, right) @ V[i : i + 65536]
    return total


def relative(result: torch.Tensor, reference: torch.Tensor) -> float:
    return float((result[: len(reference)] - reference).norm() / reference.norm())


def rates() -> dict[str, float]:
    """Peak rates of this device, as measured."""
    import triton
    import triton.language as tl

    from domainwise.algebra.gram.torch.triton_kernel import _exp2

    @triton.jit
    def exponentials(x, STEPS: tl.constexpr):
        at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
        value = tl.load(x + at)
        for _ in range(STEPS):
            value = _exp2(value)
        tl.store(x + at, value)

    source = torch.empty(2**29, device=DEVICE)
    target = torch.empty_like(source)
    copy_rate = 2 * source.numel() * 4 / seconds(lambda: target.copy_(source), 5)
    x = torch.rand(1024 * 132 * 64, device=DEVICE)
    steps = 1024
    exponential_rate = (
        x.numel() * steps / seconds(lambda: exponentials[(len(x) // 1024,)](x, steps), 5)
    )
    A, B = (torch.randn((8192, 8192), device=DEVICE).half() for _ in range(2))
    matmul_rate = 2 * 8192**3 / seconds(lambda: A @ B, 5)
    C, D = (torch.randn((4096, 4096), device=DEVICE).double() for _ in range(2))
    double_rate = 2 * 4096**3 / seconds(lambda: C @ D, 5)
    header("ceiling", "measured")
    row("device-to-device copy", f"{copy_rate / 1e12:.2f} TB/s")
    row("exponentials", f"{exponential_rate / 1e12:.2f} T/s")
    row("float16 matrix product", f"{matmul_rate / 1e12:.0f} TFLOP/s")
    row("float64 matrix product", f"{double_rate / 1e12:.0f} TFLOP/s")
    return {"copy": copy_rate, "exp": exponential_rate, "matmul": matmul_rate}


def products(ceiling: dict[str, float], n: int) -> None:
    """Compare the fused product with its roofline and with blocked torch."""
    r = 32
    header("product, p=16", "columns", "rows", "time", "relative error", "roofline", "share")
    X, _, _ = problem(n)
    for columns in (r, 1):
        V = thin(n, columns)
        kernel = rbf(X)
        expected = reference(kernel, X, V)
        for name, pieces in (("tf32x3", 3), ("tf32", 1), ("ieee", None)):
            if name == "ieee" and columns > 1 and n > 300_000:
                continue
            fused = FusedKernel(kernel, X, precision=name)
            elapsed = seconds(lambda f=fused, V=V: f.product(V), 3 if n < 500_000 else 2)
            error = relative(fused.product(V), expected)
            roofline = n * n / ceiling["exp"]
            if pieces:
                flops = 2.0 * n * n * pieces * (16 + (columns if columns > 1 else 0))
                roofline = max(roofline, flops / ceiling["matmul"])
            row(name, columns, f"{n:,}", f"{elapsed:.3f} s", f"{error:.1e}", f"{roofline:.3f} s",
                f"{roofline / elapsed:.0%}" if pieces else "-")  # fmt: skip
    codes = torch.randint(60, (n,), device=DEVICE)
    table = np.random.default_rng(0).standard_normal((60, r - 1))
    counts = codes.bincount().double().cpu().numpy()
    table -= counts @ table / n
    expected = reference(kernel, X, torch.from_numpy(table).to(DEVICE)[codes])
    for name, pieces in (("tf32x3", 3), ("tf32", 1)):
        grouped = GroupedProduct(kernel, X, codes, counts, precision=name)
        elapsed = seconds(lambda g=grouped: g.product(table), 2)
        roofline = max(n * n / ceiling["exp"], 2.0 * n * n * pieces * 16 / ceiling["matmul"])
        error = relative(grouped.product(table), expected)
        row(f"{name}, labels of 60 groups", r - 1, f"{n:,}", f"{elapsed:.3f} s", f"{error:.1e}",
            f"{roofline:.3f} s", f"{roofline / elapsed:.0%}")  # fmt: skip
    small = 262_144
    X, V, codes = problem(small)[0], thin(small, r), torch.randint(60, (small,), device=DEVICE)
    kernel = rbf(X)
    counts = codes.bincount().double().cpu().numpy()
    fused = FusedKernel(kernel, X, precision="tf32x3")
    grouped = GroupedProduct(kernel, X, codes, counts, precision="tf32x3")
    times = {
        "fused, any columns": seconds(lambda: fused.product(V)),
        "fused, labels of 60 groups": seconds(lambda: grouped.product(table)),
        "blocked torch, every tile": seconds(
            lambda: cross_product(kernel, X, kernel.prepare(X), V), 1
        ),
        "blocked torch, half the tiles": seconds(
            lambda: symmetric_product(kernel, kernel.prepare(X), V), 1
        ),
    }
    header(f"{small:,} rows, {r} columns", "time", "relative to fused", "to fused with labels")
    for name, elapsed in times.items():
        ratios = [elapsed / times[other] for other in list(times)[:2]]
        row(name, f"{elapsed:.4f} s", *(f"{ratio:.1f}" for ratio in ratios))


def other_kernels() -> None:
    n, r = 65_536, 32
    header("kernel", "features", "precision", "time, 65,536 rows, 32 columns", "relative error")
    cases = [
        ("rbf", 64, {}), ("rbf", 512, {}), ("rbf", 16, {"gamma": 1e-6}),
        ("rbf", 16, {"gamma": 3.0}), ("laplacian", 16, {"gamma": 0.05}),
        ("poly", 16, {"gamma": 1 / 16}),
    ]  # fmt: skip
    for name, p, arguments in cases:
        X = torch.randn((n, p), device=DEVICE)
        V = thin(n, r)
        base = rbf(X) if name == "rbf" else Kernel(name)
        kernel = Kernel(name, **{"gamma": base.gamma, "origin": base.origin, **arguments})
        expected = reference(kernel, X, V)
        for precision_level in ("tf32x3", "ieee"):
            fused = FusedKernel(kernel, X, precision=precision_level)
            elapsed = seconds(lambda f=fused, V=V: f.product(V))
            label = ", ".join([name, *(f"{key}={value}" for key, value in arguments.items())])
            row(
                label,
                p,
                precision_level,
                f"{elapsed:.4f} s",
                f"{relative(fused.product(V), expected):.1e}",
            )


def outside_label_space(model: DCM, X, y, domain, ridge: float) -> float:
    """Relative residual of the linear solve, from the fitted coefficients alone.

    (K + N ridge I) dual must lie in the span of the class and domain indicators. The product is
    computed in IEEE float32 (or float64 for few rows), not with the code that was used in the fit.
    """
    n = len(X)
    dual = model.dual_coef_.double()
    dual = dual - dual.mean(0)
    image = FusedKernel(model._kernel, X, precision="ieee").product(dual)
    image = image - image.mean(0) + n * ridge * dual
    groups = torch.cat([torch.nn.functional.one_hot(c).double() for c in (y, domain)], 1)
    Q, S, _ = torch.linalg.svd(groups.T @ groups)
    Q = groups @ (Q[:, 1e-9 * S[0] < S] / S[1e-9 * S[0] < S].sqrt())
    return float((image - Q @ (Q.T @ image)).norm() / image.norm())


def fit(n: int, repeats: int, **params) -> tuple[float, float, DCM, tuple]:
    data = problem(n)
    X, y, domain = data
    model = DCM(**params)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    memory_before = torch.cuda.memory_allocated()
    elapsed = (
        seconds(lambda: model.fit(X, y, sample_domain=domain), repeats)
        if repeats
        else once(lambda: model.fit(X, y, sample_domain=domain))
    )
    peak = (torch.cuda.max_memory_allocated() - memory_before) / 2**30
    return elapsed, peak, model, data


def once(work) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def fits() -> None:
    header(
        "fit, p=16, 2 classes, 30 domains",
        "rows",
        "time",
        "target",
        "peak memory beyond X",
        "notes",
    )
    sizes = (125_000, 250_000, 500_000, 1_000_000)
    times = []
    for n in sizes:
        took, peak, _, _ = fit(n, 3 if n < 1e6 else 2, ridge=math.inf)
        times.append(took)
        row(
            "DCM(ridge=inf)",
            f"{n:,}",
            f"{took:.3f} s",
            "0.8 s" if n == 1e6 else "",
            f"{peak:.2f} GiB",
            "",
        )
    exponent = np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0]
    for n, target in ((100_000, "0.5 s"), (1_000_000, "12 s")):
        took, peak, model, (X, y, domain) = fit(n, 3 if n < 1e6 else 2)
        info = model.solver_info_
        check = outside_label_space(model, X, y, domain, 1e-3)
        row("DCM()", f"{n:,}", f"{took:.3f} s", target, f"{peak:.2f} GiB",
            f"{info['n_iterations']} iterations, residual {info['residual']:.1e}; recomputed with "
            f"an ieee product {check:.1e}; {info['product']}")  # fmt: skip
    took = seconds(lambda: model.transform(X), 2)
    row("transform, 1,000,000-row model", "1,000,000", f"{took:.3f} s", "1 s", "", "")
    with precision("tf32"):
        took = seconds(lambda: model.transform(X), 2)
    row('the same, precision("tf32")', "1,000,000", f"{took:.3f} s", "", "", "")
    X, y, domain = problem(100_000)
    for other in (COIR(), DICA(lam=1.0), KPCA(n_components=5)):
        took = once(lambda e=other: e.fit(X, y, sample_domain=domain))
        row(
            repr(other),
            "100,000",
            f"{took:.2f} s",
            "",
            "",
            f"{other.solver_info_.get('n_iterations')} iterations",
        )
    say()
    say(f"From 250,000 to 1,000,000 rows, time grows with N^{exponent:.2f} (ridge=inf).")


def agreement(n: int) -> None:
    """Angles between components from float32 tensors and from float64 arrays on the host."""
    header(
        "agreement with float64 NumPy",
        "rows",
        "angle, training rows",
        "angle, transform",
        "NumPy time",
    )
    X, y, domain = problem(n)
    host = (X.double().cpu().numpy(), y.cpu().numpy(), domain.cpu().numpy())
    for ridge in (1e-3, math.inf):
        start = time.perf_counter()
        reference = DCM(ridge=ridge).fit(host[0], host[1], sample_domain=host[2])
        took = time.perf_counter() - start
        for precision_level in ("tf32x3", "tf32"):
            with precision(precision_level):
                model = DCM(ridge=ridge).fit(X, y, sample_domain=domain)
                device_projection = model.transform(X[:20_000]).double().cpu().numpy()
            host_projection = reference.transform(host[0][:20_000])
            angles = [
                angle(model.embedding_.double().cpu().numpy(), reference.embedding_),
                angle(device_projection, host_projection),
            ]
            row(
                f"ridge={ridge:g}, {precision_level}",
                f"{n:,}",
                f"{angles[0]:.1e}",
                f"{angles[1]:.1e}",
                f"{took:.1f} s",
            )


def angle(A: np.ndarray, B: np.ndarray) -> float:
    """Largest principal angle between two column spaces."""
    A, B = (np.linalg.qr(M - M.mean(0))[0] for M in (A, B))
    return float(np.arcsin(min(1.0, np.linalg.norm(A - B @ (B.T @ A), 2))))


def ten_million() -> None:
    header("ten million rows", "time", "target", "peak memory beyond X")
    took, peak, _, _ = fit(10_000_000, 0, ridge=math.inf)
    row("DCM(ridge=inf)", f"{took:.1f} s", "60 s", f"{peak:.1f} GiB")


def fast() -> None:
    header("fast estimators, 10,000,000 rows", "time", "target", "peak memory beyond X")
    X, y, domain = problem(10_000_000)
    base = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model = FastDCM(n_landmarks=2000)
    model.fit(X[:100_000], y[:100_000], sample_domain=domain[:100_000])
    took = seconds(lambda: model.fit(X, y, sample_domain=domain), 1)
    peak = (torch.cuda.max_memory_allocated() - base) / 2**30
    row("FastDCM(n_landmarks=2000)", f"{took:.2f} s", "10 s", f"{peak:.2f} GiB")
    backend = backend_of(X)
    target, labels = model._check_labels(backend, y, domain, X)
    begin = once(lambda: model._begin(backend, X, target, labels))
    sums = once(lambda: model._sum_rows(backend, X, target, labels))
    finish = once(model._finish)
    say()
    say(
        f"A fit takes {begin:.2f} s for landmarks and their factor (host), "
        f"{sums:.2f} s for sums of {'kernel values' if model._map.direct else 'features'} over "
        f"rows (device), and {finish:.2f} s for small problems (host)."
    )
    took = seconds(lambda: model.fit(X, y, sample_domain=domain).transform(X), 1)
    say(f"`fit` and `transform` of all rows take {took:.2f} s.")


def measure(report: Report, *, quick: bool) -> None:
    """Measure everything, and add it to the report; a section that fails is reported."""
    import triton

    report.text(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}. "
        "Times are medians after a warm-up, for float32 tensors on the device. The precision is "
        "tf32x3 unless stated otherwise."
    )
    warnings.simplefilter("ignore")
    ceiling = rates()
    sections = {
        "products": lambda: products(ceiling, 250_000 if quick else 1_000_000),
        "other kernels": other_kernels,
        "fits": fits,
        "fast": fast,
        "ten million": ten_million,
        "agreement": lambda: agreement(20_000 if quick else 100_000),
    }
    for name, section in sections.items():
        start = time.perf_counter()
        try:
            section()
        except Exception:
            say(f"\n{name} failed:\n\n```\n{traceback.format_exc()}```")
        torch.cuda.empty_cache()
        print(f"[{name}: {time.perf_counter() - start:.0f} s]", flush=True)
    report.text("\n".join(lines).strip())
