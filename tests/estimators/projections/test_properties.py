"""Properties over random shapes, label counts and scales."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domainwise import COIR, DCM, DICA, KPCA

#: Documented warnings; all others are errors here.
DOCUMENTED = (
    ".*learns nothing about domains",
    "only .* components? are informative about the target",
    "the target cannot be separated from the domain",
    ".* of .* components were dropped, because they have no variance",
    "DICA dropped .* complex or negative eigenvalue",
)
quick = settings(
    deadline=None,
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def problems(draw):
    n = draw(st.integers(4, 40))
    p = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes = draw(st.integers(2, min(n, 6)))
    n_domains = draw(st.integers(1, min(n, 8)))
    y = rng.permutation(np.r_[np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)])
    d = rng.permutation(np.r_[np.arange(n_domains), rng.integers(0, n_domains, n - n_domains)])
    X = rng.normal(size=(n, p)) + rng.normal(size=(n_domains, p))[d]
    if draw(st.booleans()):
        X += 2 * rng.normal(size=(n_classes, p))[y]
    if draw(st.booleans()):  # repeated rows
        X[n // 2 :] = X[: n - n // 2]
    if draw(st.booleans()):  # few distinct values
        X = np.round(X)
    X = X * 10.0 ** draw(st.integers(-30, 30)) if draw(st.booleans()) else X
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    return X.astype(dtype), y, d


kernels = st.sampled_from(["rbf", "linear", "laplacian", "poly", "cosine"])
ridges = st.sampled_from([1e-8, 1e-3, 1.0, 1e4, np.inf])
epsilons = st.sampled_from([1e-8, 1e-3, 1.0, 1e4])


def fit_quietly(model, X, y, d):
    """Fit with undocumented warnings as errors; None after a documented error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for message in DOCUMENTED:
            warnings.filterwarnings("ignore", message=message)
        try:
            return model.fit(X, y, sample_domain=d)
        except ValueError as error:
            documented = (
                "rows used for it are identical",
                "rows of X are equal for this kernel",
                "no real positive",
                "polynomial kernel overflows",
            )
            if not any(text in str(error) for text in documented):
                raise
            return None


def check(model, X):
    if model is None:
        return
    Z = model.embedding_
    m = Z.shape[1]
    assert np.isfinite(Z).all()
    assert Z.dtype == X.dtype
    assert model.eigenvalues_.shape == (m,)
    assert np.isfinite(model.eigenvalues_).all()
    assert (model.eigenvalues_ >= 0).all()
    assert np.all(np.diff(model.eigenvalues_) <= 1e-9 * model.eigenvalues_[0])
    tolerance = 1e-6 if X.dtype == np.float64 else 1e-3
    np.testing.assert_allclose(Z.mean(axis=0, dtype=float), 0, atol=tolerance)
    np.testing.assert_allclose(Z.std(axis=0, dtype=float), 1, atol=tolerance)
    assert np.isfinite(model.transform(X)).all()


@quick
@given(problems(), kernels, ridges, epsilons, st.sampled_from([0.0, 1e-3, 1.0, 1e3]))
def test_dcm_is_finite_ordered_and_non_negative(problem, kernel, ridge, epsilon, weight):
    X, y, d = problem
    model = DCM(kernel=kernel, ridge=ridge, epsilon=epsilon, domain_weight=weight)
    model = fit_quietly(model, X, y, d)
    check(model, X)
    if model is not None:
        assert model.n_informative_ <= len(np.unique(y)) - 1
        assert model.embedding_.shape[1] == max(1, model.n_informative_)


@quick
@given(problems(), kernels, st.integers(1, 12), st.booleans())
def test_there_are_at_most_n_components(problem, kernel, m, domains):
    X, y, d = problem
    m = min(m, len(X) - 1)
    model = DCM(m, kernel=kernel) if domains else COIR(m, kernel=kernel)
    model = fit_quietly(model, X, y, d)
    check(model, X)
    if model is not None:
        assert 1 <= model.embedding_.shape[1] <= m


@quick
@given(problems(), st.sampled_from(["rbf", "laplacian"]), epsilons, ridges)
def test_a_continuous_target_is_finite_ordered_and_non_negative(problem, kernel, epsilon, ridge):
    X, y, d = problem
    target = y + np.random.default_rng(0).normal(size=len(y))
    model = DCM(kernel=kernel, epsilon=epsilon, ridge=ridge)
    check(fit_quietly(model, X, target, d), X)


@quick
@given(problems(), kernels, ridges)
def test_conditional_dcm_is_finite_ordered_and_non_negative(problem, kernel, ridge):
    X, y, d = problem
    model = DCM(kernel=kernel, ridge=ridge, conditional=True)
    check(fit_quietly(model, X, y, d), X)


@quick
@given(problems(), st.sampled_from(["rbf", "laplacian", "cosine"]), st.sampled_from([1e-3, 1.0]))
def test_dica_is_finite_ordered_and_non_negative(problem, kernel, lam):
    X, y, d = problem
    check(fit_quietly(DICA(kernel=kernel, lam=lam), X, y, d), X)


@quick
@given(problems(), kernels, st.sampled_from(["kpca", "dcm", "dica"]))
def test_methods_without_a_target_are_finite_ordered_and_non_negative(problem, kernel, name):
    X, _, d = problem
    model = {"kpca": KPCA(kernel=kernel), "dcm": DCM(kernel=kernel), "dica": DICA(kernel=kernel)}
    check(fit_quietly(model[name], X, None, d), X)


@quick
@given(problems(), st.sampled_from([1e-9, 1e-3, 1.0, 1e3, 1e9]))
def test_any_gamma_gives_finite_projections(problem, gamma):
    X, y, d = problem
    check(fit_quietly(DCM(gamma=gamma), X, y, d), X)


@pytest.mark.parametrize("exponent", [-30, -8, 8, 30])
def test_a_linear_kernel_has_extra_components_at_any_scale(exponent):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5)) * 10.0**exponent
    with pytest.warns(UserWarning, match="only 1 of 4 components are informative about the"):
        model = COIR(4, kernel="linear").fit(X, np.arange(30) % 2)
    assert model.embedding_.shape == (30, 4)
