"""Products in two precisions, by NumPy and by compiled functions, have the same results."""

import sys

import numpy as np
import pytest

import domainwise.algebra.gram.tiles as tiles
import domainwise.algebra.kernels.functions as functions
from domainwise import (
    DCM,
    DICA,
    KPCA,
    FastDCM,
    InvariantFeatures,
    InvariantKernel,
    InvariantRidgeClassifierCV,
)
from domainwise.algebra.gram import StreamedGram
from domainwise.algebra.gram.iterative import conjugate_gradients
from domainwise.algebra.gram.tiles import cross_product, kernel_matrix, symmetric_product
from domainwise.algebra.kernels.functions import Kernel, expm1, make_kernel
from domainwise.algebra.labels import LabelSpace, RowLabels

EPS = {np.float32: 6e-8, np.float64: 1.2e-16}
BOTH = ["numpy", pytest.param("numba", marks=pytest.mark.fast)]


@pytest.fixture(params=BOTH)
def path(request, monkeypatch):
    """The implementation that evaluates tiles, for matrices of any size."""
    if request.param == "numba":
        pytest.importorskip("numba", reason="the fast extra is not installed")
        monkeypatch.setattr(tiles, "COMPILED_ENTRIES", 0)
    else:
        for module in (tiles, functions):
            monkeypatch.setattr(module, "compiled_functions", lambda: None)
    return request.param


def rows(n=333, p=7, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def dense(kernel, X, Y):
    """Kernel values from their formula, with differences of rows, in extended precision."""
    X, Y = X.astype(np.longdouble), Y.astype(np.longdouble)
    if kernel.name == "poly":
        c = np.longdouble(kernel.coef0)
        d = int(kernel.degree)
        return (kernel.gamma * (X @ Y.T) + c) ** d - c**d
    difference = X[:, None] - Y[None]
    distance = np.abs(difference).sum(2) if kernel.name == "laplacian" else (difference**2).sum(2)
    return np.expm1(-kernel.gamma * distance)


KERNELS = {
    "rbf": lambda X: make_kernel("rbf", X, gamma=0.1),
    "rbf, tiny gamma": lambda X: make_kernel("rbf", X, gamma=1e-9),
    "rbf by differences": lambda X: Kernel("rbf", gamma=0.1, by_differences=True),
    "rbf, huge gamma": lambda X: make_kernel("rbf", X, gamma=1e9),
    "laplacian": lambda X: make_kernel("laplacian", X, gamma=0.1),
    "line": lambda X: make_kernel("poly", X, gamma=0.2, degree=1),
    "cubic": lambda X: make_kernel("poly", X, gamma=0.2),
    "power of 5": lambda X: make_kernel("poly", X, gamma=0.05, degree=5, coef0=-0.5),
}


# Exponentials -------------------------------------------------------------------------------------


def exponents(dtype):
    rng = np.random.default_rng(0)
    small = 10.0 ** rng.uniform(-14 if dtype == np.float64 else -30, 2.8, size=20_000)
    return -np.concatenate([small, rng.uniform(0, 45, size=20_000)]).astype(dtype)


@pytest.mark.parametrize("dtype", EPS)
def test_exponentials_are_precise_if_numpy_has_no_vector_code(dtype, monkeypatch):
    monkeypatch.setattr(functions, "_is_vectorized", lambda: False)
    x = exponents(dtype)
    expected = np.expm1(x.astype(np.longdouble))
    np.testing.assert_allclose(expm1(x.copy()), expected, rtol=5 * EPS[dtype], atol=0)
    in_fortran_order = np.asfortranarray(x.reshape(2, -1))
    np.testing.assert_array_equal(expm1(in_fortran_order), expm1(x.reshape(2, -1)))
    extremes = np.full(5000, -np.inf, dtype=dtype)
    extremes[:2000], extremes[2000:2500] = np.nan, 0.0
    expm1(extremes)
    expected = np.repeat(np.array([np.nan, 0.0, -1.0], dtype), [2000, 500, 2500])
    np.testing.assert_array_equal(extremes, expected)


@pytest.mark.fast
@pytest.mark.parametrize("dtype", EPS)
def test_compiled_exponentials_are_precise(dtype):
    compiled = pytest.importorskip("domainwise.algebra.kernels.compiled", reason="no fast extra")
    x = exponents(dtype)
    expected = np.expm1(x.astype(np.longdouble))
    compiled.expm1(x)
    np.testing.assert_allclose(x, expected, rtol=3 * EPS[dtype], atol=0)
    lowest = -1e300 if dtype == np.float64 else -1e38
    extremes = np.array([0.0, 1e-9, -np.inf, lowest, np.nan], dtype)
    compiled.expm1(extremes)
    np.testing.assert_array_equal(extremes, np.array([0.0, 0.0, -1.0, -1.0, np.nan], dtype))


# Products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("columns", [1, 5])
def test_products_equal_those_with_the_formula(name, columns, path):
    X, Y = rows(), rows(150, seed=1)
    kernel = KERNELS[name](X)
    V = np.random.default_rng(2).normal(size=(len(X), columns))
    prepared = kernel.prepare(X)
    K, C = dense(kernel, X, X), dense(kernel, Y, X)
    for actual, expected in (
        (symmetric_product(kernel, prepared, V), K @ V),
        (cross_product(kernel, Y, prepared, V), C @ V),
        (kernel_matrix(kernel, X), K),
    ):
        # Errors of exponents from inner products are relative to norms, not to differences.
        tolerance = 1e-9 if name == "rbf, tiny gamma" else 1e-13
        assert float(np.abs(actual - expected).max() / np.abs(expected).max()) < tolerance


@pytest.mark.parametrize("name", ["rbf", "rbf by differences", "laplacian", "cubic"])
def test_float32_products_of_float64_and_float32_rows_have_single_precision(name, path):
    X = rows()
    kernel, V = KERNELS[name](X), np.random.default_rng(2).normal(size=(len(X), 3))
    K = dense(kernel, X, X)
    prepared = kernel.prepare(X)
    assert tiles.can_use_float32(kernel, prepared) == (path == "numba" or name == "rbf")
    single = kernel.prepare(X.astype(np.float32))
    products = [symmetric_product(kernel, single, V)]
    if tiles.can_use_float32(kernel, prepared):
        products.append(symmetric_product(kernel, prepared, V, float32=True))
        # Columns with values that float32 cannot represent.
        tiny = symmetric_product(kernel, prepared, 1e-60 * V, float32=True)
        np.testing.assert_allclose(tiny, 1e-60 * products[1], rtol=1e-12)
        error = np.abs(products[1] - K @ V).max()
        assert error > 1e-10 * np.abs(K @ V).max()  # the product was computed in float32
    for product in products:
        assert product.dtype == np.float64
        assert float(np.abs(product - K @ V).max() / np.abs(K @ V).max()) < 5e-6


def test_float32_products_are_not_used_if_float32_cannot_represent_the_values(path):
    def float32(kernel, X):
        return tiles.can_use_float32(kernel, kernel.prepare(X))

    X = rows()
    assert not float32(make_kernel("poly", X, gamma=1e6, degree=9), X)
    assert not float32(make_kernel("linear", X), X)
    assert not float32(make_kernel("cosine", X), X)
    assert not float32(make_kernel("rbf", X, gamma=0.1), X.astype(np.float32))
    # The exponents of rows that are far apart are imprecise in float32.
    with_outliers = np.vstack([1e3 * X[:5], X])
    kernel = make_kernel("rbf", with_outliers, gamma=0.1)
    assert not kernel.by_differences
    assert not float32(kernel, with_outliers)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("float32", [False, True])
def test_bits_depend_only_on_the_number_of_threads(threads, float32, path, monkeypatch):
    X = rows(1000)
    kernel, V = make_kernel("rbf", X, gamma=0.1), rows(1000, 2, seed=3)
    monkeypatch.setattr(tiles, "n_threads", lambda: threads)
    prepared = kernel.prepare(X)
    first = symmetric_product(kernel, prepared, V, float32=float32)
    np.testing.assert_array_equal(symmetric_product(kernel, prepared, V, float32=float32), first)
    expected = kernel_matrix(kernel, X) @ V
    assert np.abs(first - expected).max() < (1e-5 if float32 else 1e-13) * np.abs(expected).max()


def test_without_numba_products_are_computed_by_numpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "domainwise.algebra.kernels.compiled", None)
    monkeypatch.delattr("domainwise.algebra.kernels.compiled", raising=False)
    monkeypatch.setattr(tiles, "COMPILED_ENTRIES", 0)
    functions.compiled_functions.cache_clear()
    try:
        assert functions.compiled_functions() is None
        X = rows(50)
        kernel = make_kernel("rbf", X, gamma=0.1)
        assert tiles.product_path(kernel, kernel.prepare(X)) == "numpy tiles, float64"
    finally:
        functions.compiled_functions.cache_clear()


def test_a_numba_that_cannot_be_imported_is_reported_and_not_used(monkeypatch):
    class Broken(dict):
        def __getattr__(self, name):
            raise RuntimeError(f"no {name}")

    monkeypatch.delitem(sys.modules, "domainwise.algebra.kernels.compiled", raising=False)
    monkeypatch.delattr("domainwise.algebra.kernels.compiled", raising=False)
    monkeypatch.setitem(sys.modules, "llvmlite", Broken())
    functions.compiled_functions.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="Numba cannot be imported"):
            assert functions.compiled_functions() is None
    finally:
        functions.compiled_functions.cache_clear()


# Linear systems and estimators --------------------------------------------------------------------


def test_an_iteration_continues_with_accurate_products_if_float32_products_stall():
    rng = np.random.default_rng(0)
    K = np.cov(rng.normal(size=(60, 100)))
    inaccurate = K + 0.5 * np.ones_like(K)  # the error is much larger than the shift
    V, calls = rng.normal(size=(60, 2)), []

    def recorded(name, A):
        return lambda P: (calls.append(name), A @ P)[1]

    result = conjugate_gradients(
        recorded("float32", inaccurate), V, 0.01, lambda R: R, tol=1e-10, max_iter=500,
        accurate_product=recorded("accurate", K),
    )  # fmt: skip
    assert result.info["residual"] <= 1e-10
    np.testing.assert_allclose(result.X, np.linalg.solve(K + 0.01 * np.eye(60), V), rtol=1e-6)
    # At first, accurate products are used only for residuals, then for everything.
    first = calls.index("accurate")
    assert "float32" in calls[:first]
    assert calls[-20:] == ["accurate"] * 20


CASES = {
    "plain": ({}, {}),
    "nearly coincident rows": ({"twins": 1e-9}, {}),
    "tiny gamma": ({}, {"gamma": 1e-7, "ridge": 1e-10}),
    "huge gamma": ({}, {"gamma": 1e3}),
    "large offset": ({"offset": 1e6}, {}),
    "small ridge": ({}, {"ridge": 1e-6}),
    "laplacian": ({}, {"kernel": "laplacian"}),
    "cubic": ({}, {"kernel": "poly"}),
    "far rows": ({"far": 1e5}, {"gamma": 0.1}),
}


def problem(n=500, *, twins=None, offset=0.0, far=None):
    rng = np.random.default_rng(5)
    y, domain = np.arange(n) % 3, rng.integers(4, size=n)
    X = rng.normal(size=(n, 5)) + 0.7 * y[:, None] + 0.3 * domain[:, None]
    if twins is not None:
        X[n // 2 :] = X[: n - n // 2] + twins * rng.normal(size=(n - n // 2, 5))
    if far is not None:
        X[0] *= far
    return X + offset, y, domain


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", [DCM, DICA])
def test_float32_iterations_give_the_results_of_accurate_ones(case, method, path, monkeypatch):
    monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", 0)
    change, arguments = map(dict, CASES[case])  # copies, because "ridge" is removed below
    if method is DICA and (lam := arguments.pop("ridge", None)) is not None:
        arguments["lam"] = 500 * lam
    X, y, domain = problem(**change)
    model = method(tol=1e-9, max_iter=1000, **arguments)
    mixed = model.fit(X, y, sample_domain=domain)
    Z, values, info = mixed.transform(X), mixed.eigenvalues_, mixed.solver_info_
    monkeypatch.setattr(tiles, "can_use_float32", lambda *_: False)
    for module in (tiles, functions):
        monkeypatch.setattr(module, "compiled_functions", lambda: None)
    plain = model.fit(X, y, sample_domain=domain)
    assert plain.solver_info_["iterations"] == "numpy tiles, float64"
    assert info["product"] == ("numba, float64" if path == "numba" else "numpy tiles, float64")
    np.testing.assert_allclose(values, plain.eigenvalues_, rtol=1e-8)
    if info["linear_solver"] == "pcg" == plain.solver_info_["linear_solver"]:
        assert info["residual"] <= 1e-9
        np.testing.assert_allclose(Z, plain.transform(X), rtol=0, atol=1e-6)
        np.testing.assert_allclose(mixed.embedding_, plain.embedding_, rtol=0, atol=1e-6)


def test_float32_rows_use_float32_products(path, monkeypatch):
    monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", 0)
    X, y, domain = problem()
    single = DCM().fit(X.astype(np.float32), y, sample_domain=domain)
    double = DCM().fit(X, y, sample_domain=domain)
    name = "numba" if path == "numba" else "numpy tiles"
    assert single.solver_info_["product"] == f"{name}, float32"
    assert single.solver_info_["iterations"] == f"{name}, float32"
    assert double.solver_info_["iterations"] == f"{name}, float32"
    np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-4)
    np.testing.assert_allclose(single.embedding_, double.embedding_, atol=1e-3)


def test_row_means_are_accurate_even_if_a_linear_system_comes_first(path):
    X = rows()
    kernel = make_kernel("rbf", X, gamma=0.1)
    gram = StreamedGram(X, kernel, RowLabels(LabelSpace(len(X))))
    gram.solve(rows(len(X), 2) - rows(len(X), 2).mean(axis=0), 0.5)
    expected = dense(kernel, X, X).mean(axis=1).astype(np.float64)
    np.testing.assert_allclose(gram.row_means, expected, rtol=1e-13)


def test_streamed_and_dense_fits_transform_new_rows_in_the_same_way(path, monkeypatch):
    X, y, domain = problem()
    new_rows = rows(70, 5, seed=9)
    models = [KPCA(3), InvariantKernel(), DCM(ridge=np.inf)]
    dense_results = [m.fit(X, y, sample_domain=domain).transform(new_rows) for m in models]
    monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", 0)
    monkeypatch.setattr("domainwise.estimators.invariant.kernel.DENSE_ROWS", 0, raising=False)
    for model, expected in zip(models, dense_results, strict=True):
        actual = model.fit(X, y, sample_domain=domain).transform(new_rows)
        np.testing.assert_allclose(actual, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_fits_with_landmarks_equal_those_with_numpy(kernel, path, monkeypatch):
    X, y, domain = problem()
    models = [
        FastDCM(kernel=kernel, n_landmarks=60),
        InvariantFeatures(n_landmarks=60, kernel=kernel),
        InvariantRidgeClassifierCV(n_landmarks=60, kernels=[kernel]),
    ]

    def results():
        for model in models:
            model.fit(X, y, sample_domain=domain)
            yield getattr(model, "transform", getattr(model, "predict_proba", None))(X)

    actual_results = list(results())
    for module in (tiles, functions):
        monkeypatch.setattr(module, "compiled_functions", lambda: None)
    for actual, expected in zip(actual_results, results(), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-8 * np.abs(expected).max())
