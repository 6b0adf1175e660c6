"""Kernels compared with their formulas, and their precision where formulas lose digits."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from domainwise.algebra.kernels.functions import MEDIAN_ROWS, Kernel, make_kernel, resolve_gamma


def rows(n=23, p=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p)) + 0.7


def by_formula(name, X, Y, gamma=0.3, degree=3, coef0=1.5):
    K = np.empty((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            K[i, j] = {
                "rbf": lambda x, y: np.exp(-gamma * np.sum((x - y) ** 2)),
                "laplacian": lambda x, y: np.exp(-gamma * np.sum(np.abs(x - y))),
                "linear": lambda x, y: x @ y,
                "poly": lambda x, y: (gamma * x @ y + coef0) ** degree,
                "cosine": lambda x, y: x @ y / np.linalg.norm(x) / np.linalg.norm(y),
            }[name](x, y)
    return K


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


NAMES = ["rbf", "laplacian", "linear", "poly", "cosine"]


@pytest.mark.parametrize("name", NAMES)
def test_matrix_equals_the_formula_entry_by_entry(name):
    X, Y = rows(), rows(n=9, seed=1)
    kernel = Kernel(name, gamma=0.3, degree=3, coef0=1.5)
    np.testing.assert_allclose(kernel.matrix(X, Y), by_formula(name, X, Y), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(kernel.matrix(X), by_formula(name, X, X), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_the_kernel_minus_its_constant(name):
    X, Y = rows(), rows(n=9, seed=1)
    kernel = Kernel(name, gamma=0.3, degree=3, coef0=1.5)
    block = kernel.block(kernel.prepare(X).left, kernel.prepare(Y).right)
    np.testing.assert_allclose(
        block + kernel.constant, by_formula(name, X, Y), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("name", NAMES)
def test_kernels_and_formulas_are_equal_after_centring(name):
    X = rows()
    kernel = make_kernel(name, X, gamma=0.3, degree=3, coef0=1.5)
    prepared = kernel.prepare(X)
    K = kernel.block(prepared.left, prepared.right)
    np.testing.assert_allclose(centred(K), centred(by_formula(name, X, X)), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_float32_rows_are_close_to_float64(name):
    X = rows()
    kernel = make_kernel(name, X.astype(np.float32), gamma=0.3, degree=3, coef0=1.5)
    prepared = kernel.prepare(X.astype(np.float32))
    K = kernel.block(prepared.left, prepared.right)
    assert K.dtype == (np.float64 if name == "poly" else np.float32)
    expected = centred(by_formula(name, X, X))
    error = np.abs(centred(K.astype(float)) - expected).max()
    assert error < 3e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_kernels_with_a_tiny_gamma_are_precise_in_float32(name):
    # For gamma = 1e-7, the kernel is 1 - O(1e-6), so that exp() in float32 would lose all digits.
    X = rows(p=6)
    gamma = 1e-7
    d = pairwise.euclidean_distances(X) ** 2 if name == "rbf" else pairwise.manhattan_distances(X)
    expected = centred(np.expm1(-gamma * d))
    X32 = X.astype(np.float32)
    kernel = make_kernel(name, X32, gamma=gamma)
    prepared = kernel.prepare(X32)
    K = centred(kernel.block(prepared.left, prepared.right).astype(float))
    assert np.abs(K - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["rbf", "laplacian", "linear"])
def test_a_large_common_offset_costs_no_precision_in_float32(name):
    # Multiples of 1/16 are not rounded if 1000 is added to them in float32.
    X = np.round(rows(p=6) * 16) / 16
    expected = centred(by_formula(name, X, X))
    shifted_rows = (X + 1000).astype(np.float32)
    kernel = make_kernel(name, shifted_rows, gamma=0.3)
    prepared = kernel.prepare(shifted_rows)
    K = centred(kernel.block(prepared.left, prepared.right).astype(float))
    assert np.abs(K - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_a_huge_exponent_never_makes_an_rbf_value_exceed_one(dtype):
    X = rows(n=40).astype(dtype)
    X[20:] = X[:20]
    kernel = make_kernel("rbf", X, gamma=1e12)
    prepared = kernel.prepare(X)
    block = kernel.block(prepared.left, prepared.right)
    assert np.isfinite(block).all()
    assert block.max() <= 0
    assert block.min() >= -1
    np.testing.assert_array_equal(np.diagonal(block), 0)
    np.testing.assert_array_equal(np.diagonal(block[20:, :20]), 0)


def test_outliers_do_not_affect_the_precision_of_distances_between_float32_rows():
    X = np.vstack([rows(n=30, p=3), rows(n=30, p=3) + 1e4]).astype(np.float32)
    expected = by_formula("rbf", X.astype(float), X.astype(float))
    kernel = make_kernel("rbf", X, gamma=0.3)
    prepared = kernel.prepare(X)
    block = kernel.block(prepared.left, prepared.right)
    assert block.dtype == np.float32
    np.testing.assert_allclose(block + 1, expected, atol=1e-6)


def test_a_polynomial_of_small_products_is_precise():
    # (t + c)^d - c^d for t near 1e-12, from exact fractions; the direct formula keeps 4 digits.
    x = np.array([[1e-6], [3e-6], [-2e-6]])
    kernel = Kernel("poly", gamma=1.0, degree=4, coef0=1.0)
    block = kernel.block(kernel.prepare(x).left, kernel.prepare(x).right)
    for i in range(3):
        for j in range(3):
            t = Fraction(float(x[i, 0])) * Fraction(float(x[j, 0]))
            assert block[i, j] == pytest.approx(float((t + 1) ** 4 - 1), rel=1e-14)


@pytest.mark.parametrize(
    ("degree", "coef0"), [(1, 2.0), (2, 0.0), (5, -0.5), (0, 1.0), (2.5, 40.0)]
)
def test_every_degree_of_the_polynomial_equals_the_power(degree, coef0):
    X = rows()
    kernel = Kernel("poly", gamma=0.2, degree=degree, coef0=coef0)
    np.testing.assert_allclose(
        kernel.matrix(X), (0.2 * X @ X.T + coef0) ** degree, rtol=1e-11, atol=1e-11
    )


def test_a_zero_row_has_zero_cosine_and_no_warning():
    X = rows()
    X[3] = 0
    with np.errstate(all="raise"):
        K = Kernel("cosine").matrix(X)
    np.testing.assert_array_equal(K[3], 0)
    np.testing.assert_allclose(K[0, 1], by_formula("cosine", X[:1], X[1:2])[0, 0])


def test_a_callable_gets_both_sets_of_rows_and_its_params():
    X, Y = rows(), rows(n=9, seed=1)
    kernel = make_kernel(pairwise.sigmoid_kernel, X, kernel_params={"gamma": 0.1, "coef0": 0.2})
    np.testing.assert_allclose(
        kernel.matrix(X, Y), pairwise.sigmoid_kernel(X, Y, gamma=0.1, coef0=0.2)
    )


def test_a_callable_that_returns_a_wrong_shape_or_nan_is_refused():
    X = rows(n=5)
    with pytest.raises(ValueError, match=r"returned shape \(5,\) for 5 and 5 rows"):
        Kernel("callable", function=lambda A, B: np.ones(len(A))).matrix(X)
    with pytest.raises(ValueError, match="callable kernel returned NaN"):
        Kernel("callable", function=lambda A, B: np.full((5, 5), np.nan)).matrix(X)


def test_kernel_params_with_a_named_kernel_are_refused():
    with pytest.raises(ValueError, match="kernel_params=.*'width'.*needs a callable kernel"):
        make_kernel("rbf", rows(), kernel_params={"width": 2})


# gamma rules --------------------------------------------------------------------------------------


def test_the_median_rule_is_the_median_of_the_nonzero_distances():
    X = np.vstack([rows(), rows()[:5]])  # the zero distances of five duplicates do not count
    d = pairwise.euclidean_distances(X)[np.triu_indices(len(X), 1)]
    d = d[d > 1e-6]
    assert resolve_gamma("median", "rbf", X) == pytest.approx(1 / (2 * np.median(d) ** 2))
    l1 = pairwise.manhattan_distances(X)[np.triu_indices(len(X), 1)]
    assert resolve_gamma("median", "laplacian", X) == pytest.approx(1 / np.median(l1[l1 > 1e-6]))


def test_the_median_of_many_rows_is_computed_from_evenly_spaced_ones():
    n = 3 * MEDIAN_ROWS
    X = np.random.default_rng(0).normal(size=(n, 2))
    sample = X[np.linspace(0, n - 1, MEDIAN_ROWS).astype(int)]
    assert resolve_gamma("median", "rbf", X) == resolve_gamma("median", "rbf", sample)
    assert resolve_gamma("median", "rbf", X[:MEDIAN_ROWS]) != resolve_gamma("median", "rbf", X)


def test_the_scale_rule_equals_the_rule_of_svc():
    X = rows()
    svc = SVC(gamma="scale").fit(X, np.arange(len(X)) % 2)
    assert resolve_gamma("scale", "rbf", X) == pytest.approx(svc._gamma, rel=1e-12)
    assert resolve_gamma("scale", "rbf", np.ones((4, 3))) == 1.0


@pytest.mark.parametrize("name", ["poly", "linear", "cosine"])
def test_the_median_rule_of_kernels_without_distances_is_one_over_n_features(name):
    assert resolve_gamma("median", name, rows(p=5)) == pytest.approx(0.2)


def test_a_numeric_gamma_is_unchanged():
    assert resolve_gamma(0.25, "rbf", rows()) == 0.25


def test_identical_rows_have_no_median_distance():
    with pytest.raises(ValueError, match="gamma='median' cannot be computed: .* identical"):
        resolve_gamma("median", "rbf", np.ones((6, 2)))


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_the_median_rule_is_precise_for_extreme_units(scale):
    X = rows()
    gamma = resolve_gamma("median", "rbf", X * scale)
    assert gamma * scale**2 == pytest.approx(resolve_gamma("median", "rbf", X), rel=1e-12)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e4), (np.float64, 1e17)])
def test_a_polynomial_that_would_overflow_is_refused(dtype, scale):
    X = rows().astype(dtype)
    make_kernel("poly", X * dtype(scale / 1e3), degree=3)
    with pytest.raises(ValueError, match="polynomial kernel overflows .*: its values reach 1e"):
        make_kernel("poly", X * dtype(scale), degree=3)
