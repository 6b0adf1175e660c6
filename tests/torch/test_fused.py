"""The fused kernel compared with float64, on a GPU or under Triton's interpreter."""

import os
from dataclasses import replace

import numpy as np
import pytest

from domainwise.algebra.kernels.functions import Kernel, make_kernel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernel is imported
pytest.importorskip("triton")

TOLERANCE = {"tf32": 2e-3, "tf32x3": 3e-6, "ieee": 3e-6}


def errors(kernel, X, new, r, precision, V=None):
    """Return the fused kernel, and the relative error of its product."""
    from domainwise.algebra.gram.torch.fused import FusedKernel, Tile

    rng = np.random.default_rng(1)
    V = rng.standard_normal((len(X), r)) if V is None else V
    origin = None if kernel.origin is None else kernel.origin.astype(np.float64)
    exact = replace(kernel, origin=origin)
    left, right = exact.prepare(new.astype(np.float64)), exact.prepare(X.astype(np.float64))
    wanted = exact.block(left.left, right.right) @ V
    rows, others = torch.as_tensor(X, device=DEVICE), torch.as_tensor(new, device=DEVICE)
    fused = FusedKernel(kernel, rows, None if new is X else others, precision=precision)
    found = fused.product(torch.as_tensor(V, device=DEVICE), tile=Tile(flush=128)).cpu().numpy()
    return fused, float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def rows(n, p, scale=1.0, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, p)) * scale
    return X.astype(np.float32)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3", "ieee"])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "poly"])
@pytest.mark.parametrize("r", [1, 3, 20])
def test_products_have_the_requested_precision(name, precision, r):
    X = rows(300, 5)
    assert errors(make_kernel(name, X), X, X, r, precision)[1] < TOLERANCE[precision]


@pytest.mark.parametrize("p", [1, 16, 17, 70, 130])
def test_any_number_of_features(p):
    X, new = rows(200, p), rows(70, p, seed=2)
    assert errors(make_kernel("rbf", X), X, new, 2, "tf32x3")[1] < 3e-6


def test_any_number_of_columns():
    X = rows(150, 4)
    for r in (8, 9, 33, 70):
        assert errors(make_kernel("rbf", X), X, X, r, "tf32x3")[1] < 3e-6


def test_products_with_a_tiny_gamma_are_precise():
    X = rows(200, 5)
    V = np.random.default_rng(0).standard_normal((200, 3))
    for name in ("rbf", "laplacian"):
        kernel = make_kernel(name, X, gamma=1e-7)
        fused, error = errors(kernel, X, X, 3, "tf32x3", V - V.mean(0))
        assert fused.uses_exp2m1
        assert error < 1e-5


def test_narrow_kernels_and_distant_rows_use_differences():
    X = rows(200, 5, scale=3000.0)
    fused, error = errors(make_kernel("rbf", X, gamma=1.0), X, X, 2, "tf32x3")
    assert fused.formula == 2
    assert error < 3e-6
    X[0] *= 1e6  # with an outlier, no common scale fits float16
    fused, error = errors(Kernel("rbf", gamma=1e-7), X, X, 2, "tf32x3")
    assert fused.formula == 2
    assert error < 3e-6


def test_norms_are_factored_out_only_if_values_fit_float16():
    X = rows(200, 16)
    assert errors(make_kernel("rbf", X), X, X, 2, "tf32x3")[0].is_factored
    fused, error = errors(make_kernel("rbf", X), X, 10 * rows(40, 16, seed=2), 2, "tf32x3")
    assert not fused.is_factored
    assert error < 1e-5


@pytest.mark.parametrize(
    "name, gamma", [("rbf", 0.1), ("rbf", 3.0), ("rbf", 1e-6), ("laplacian", 0.1)]
)
def test_sums_over_groups_equal_the_product(name, gamma, monkeypatch):
    from domainwise.algebra.gram.torch import fused as groups

    monkeypatch.setattr(groups, "SEGMENT_ROWS", 128)
    X, rng = rows(400, 5), np.random.default_rng(3)
    codes = np.concatenate([np.arange(7), rng.integers(0, 7, 393)])
    table = rng.standard_normal((7, 70))
    kernel = make_kernel(name, X, gamma=gamma)
    exact = replace(kernel, origin=None if kernel.origin is None else kernel.origin.astype(float))
    both = exact.prepare(X.astype(np.float64))
    wanted = exact.block(both.left, both.right) @ table[codes]
    product = groups.GroupedProduct(
        kernel,
        torch.as_tensor(X, device=DEVICE),
        torch.as_tensor(codes, device=DEVICE),
        np.bincount(codes).astype(float),
        precision="tf32x3",
    )
    found = product.product(table).cpu().numpy()
    assert np.linalg.norm(found - wanted) < 5e-6 * np.linalg.norm(wanted)
