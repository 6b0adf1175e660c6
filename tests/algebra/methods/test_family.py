"""SCA, MDA and MIDA compared with their definitions, the authors' programs, and special cases."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import eigh
from sklearn.metrics.pairwise import rbf_kernel

from domainwise import KPCA, MDA, MIDA, SCA, FastMDA, FastMIDA, FastSCA

spec = importlib.util.spec_from_file_location(
    "dense_family", Path(__file__).with_name("dense_family.py")
)
dense = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dense)

GAMMA = 0.2
WEIGHTS = [
    pytest.param(dict(between=0.5, domain_weight=1.0, within_weight=1.0, ridge=1e-3), id="default"),
    pytest.param(dict(between=0.8, domain_weight=30.0, within_weight=5.0, ridge=1e-4), id="heavy"),
    pytest.param(dict(between=0.3, domain_weight=0.0, within_weight=0.0, ridge=1e-2), id="zeros"),
    pytest.param(dict(between=1.0, domain_weight=2.0, within_weight=0.5, ridge=0.1), id="between"),
    pytest.param(dict(between=0.0, domain_weight=2.0, within_weight=60.0, ridge=1e-4), id="none"),
    # 4 within_weight ridge around 1: close, double and complex roots.
    *(
        pytest.param(
            dict(between=0.6, domain_weight=1.0, within_weight=2.0, ridge=product / 8),
            id=f"roots-{product}",
        )
        for product in (0.98, 0.99, 1.0, 1.01, 40.0)
    ),
]


def make(case, seed=0):
    """Rows with classes and domains of unequal sizes, in several difficult cases."""
    rng = np.random.default_rng(seed)
    counts = {
        "unequal": [[12, 5, 9], [4, 15, 7], [8, 3, 20], [6, 6, 2]],
        "missing": [[12, 5, 0], [4, 0, 7], [0, 9, 8]],
        "one row": [[10, 12, 9], [1, 0, 0], [6, 7, 11]],
        "one domain": [[14, 9, 20]],
        "binary": [[20, 11], [9, 25]],
        "class in one domain": [[15, 12, 0], [13, 14, 8]],
    }[case]
    y, d = [], []
    for s, row in enumerate(counts):
        for j, n in enumerate(row):
            y += [j] * n
            d += [s] * n
    y, d = np.array(y), np.array(d)
    X = rng.normal(size=(len(y), 4)) + np.eye(4)[y % 4] * 1.5
    X += rng.normal(size=(len(counts), 4))[d]
    order = rng.permutation(len(y))
    return X[order], y[order], d[order]


CASES = ["unequal", "missing", "one row", "one domain", "binary", "class in one domain"]


def kernel_of(X):
    return dense.centred(rbf_kernel(X, gamma=GAMMA))


def same_up_to_sign(A, B, tolerance):
    A, B = (Z / Z.std(axis=0) for Z in (A, B))
    error = np.minimum(np.abs(A - B).max(axis=0), np.abs(A + B).max(axis=0))
    assert (error <= tolerance).all(), error


def quiet(model, X, y, d):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return model.fit(X, y, sample_domain=d)


def check(model, K, X, values, vectors):
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)
    same_up_to_sign(model.embedding_, K @ vectors, 1e-6)
    new = np.random.default_rng(9).normal(size=(7, X.shape[1]))
    cross = rbf_kernel(new, X, gamma=GAMMA)
    row_means = rbf_kernel(X, gamma=GAMMA).mean(axis=1)
    dual = vectors - vectors.mean(axis=0)
    scale = (K @ vectors).std(axis=0)
    expected = (cross - row_means) @ dual / scale
    projected = model.transform(new)
    error = np.minimum(np.abs(projected - expected).max(0), np.abs(projected + expected).max(0))
    assert (error <= 1e-5 * np.abs(expected).max(0)).all(), error


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_mda_solves_the_eigenproblem_in_its_definition(case, weights):
    X, y, d = make(case)
    K = kernel_of(X)
    model = quiet(MDA(gamma=GAMMA, **weights), X, y, d)
    k = len(np.unique(y)) - 1
    assert model.embedding_.shape == (len(X), k)
    check(model, K, X, *dense.mda(K, y, d, k, **weights))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_sca_solves_the_eigenproblem_in_its_definition(case, weights):
    X, y, d = make(case)
    K = kernel_of(X)
    k = len(np.unique(y)) - 1 if weights["between"] == 1 else 4
    model = quiet(SCA(k, gamma=GAMMA, **weights), X, y, d)
    check(model, K, X, *dense.sca(K, y, d, k, **weights))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weight", [0.0, 1e-3, 0.1, 10.0])
def test_mida_solves_the_eigenproblem_in_its_definition(case, weight):
    X, _, d = make(case)
    K = kernel_of(X)
    model = MIDA(3, gamma=GAMMA, domain_weight=weight).fit(X, sample_domain=d)
    K_d = (d[:, None] == d).astype(float)
    check(model, K, X, *dense.mida(K, K_d, 3, domain_weight=weight))


def test_mida_accepts_continuous_descriptors_of_domains():
    X, _, d = make("unequal")
    time = d + np.random.default_rng(1).normal(size=len(d))
    K, K_d = kernel_of(X), rbf_kernel(time[:, None], gamma=0.7)
    model = MIDA(3, gamma=GAMMA, domain_weight=0.5, domain_gamma=0.7).fit(X, sample_domain=time)
    check(model, K, X, *dense.mida(K, K_d, 3, domain_weight=0.5))


@pytest.mark.parametrize(("beta", "delta", "epsilon"), [(0.5, 1.0, 1e-3), (0.1, 20.0, 0.4)])
def test_sca_equals_the_code_of_hu_et_al_with_other_parameters(beta, delta, epsilon):
    X, y, d = make("unequal")
    K, n = kernel_of(X), len(X)
    values, vectors = dense.hu_sca(K, y, d, 4, beta=beta, delta=delta, epsilon=epsilon)
    total = beta * n + 1 - beta
    model = SCA(
        4,
        kernel="precomputed",
        between=beta * n / total,
        domain_weight=delta,
        within_weight=n,
        ridge=epsilon / n,
    ).fit(K, y, sample_domain=d)
    np.testing.assert_allclose(model.eigenvalues_ * total, values, rtol=1e-8)
    same_up_to_sign(model.embedding_, K @ vectors, 1e-6)


@pytest.mark.parametrize(
    ("beta", "gamma", "alpha", "epsilon"), [(0.5, 1.0, 1.0, 1e-5), (0.2, 1e3, 1e2, 1e-2)]
)
def test_mda_equals_the_code_of_hu_et_al_with_other_parameters(beta, gamma, alpha, epsilon):
    X, y, d = make("unequal")
    K, n = kernel_of(X), len(X)
    values, vectors = dense.hu_mda(K, y, d, 2, beta=beta, gamma=gamma, alpha=alpha, epsilon=epsilon)
    model = MDA(
        kernel="precomputed",
        between=beta,
        domain_weight=gamma,
        within_weight=alpha,
        ridge=epsilon / n,
    ).fit(K, y, sample_domain=d)
    np.testing.assert_allclose(model.eigenvalues_, values, rtol=1e-8)
    same_up_to_sign(model.embedding_, K @ vectors, 1e-6)


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1e-3, 10.0])
def test_sca_with_zero_weights_has_the_directions_of_kpca(ridge):
    X, y, d = make("unequal")
    model = SCA(5, gamma=GAMMA, between=0, domain_weight=0, within_weight=0, ridge=ridge)
    kpca = KPCA(5, gamma=GAMMA).fit(X)
    same_up_to_sign(model.fit(X, y, sample_domain=d).embedding_, kpca.embedding_, 1e-7)


def test_mida_without_a_domain_penalty_has_the_directions_of_kpca():
    X, _, d = make("unequal")
    model = MIDA(5, gamma=GAMMA, domain_weight=0).fit(X, sample_domain=d)
    kpca = KPCA(5, gamma=GAMMA).fit(X)
    same_up_to_sign(model.embedding_, kpca.embedding_, 1e-7)
    np.testing.assert_allclose(model.eigenvalues_, kpca.eigenvalues_**2, rtol=1e-8)


def test_mda_with_one_domain_is_kernel_discriminant_analysis():
    X, y, _ = make("unequal")
    K, n = kernel_of(X), len(X)
    E = np.eye(3)[y]
    means = E / E.sum(axis=0)
    between = (means * E.mean(axis=0)) @ means.T
    within = (np.eye(n) - E @ means.T) / n
    right = K @ within @ K + K + n * 1e-3 * np.eye(n)
    values, vectors = eigh(K @ between @ K, (right + right.T) / 2)
    model = MDA(gamma=GAMMA, between=0).fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:2], rtol=1e-8)
    same_up_to_sign(model.embedding_, K @ vectors[:, ::-1][:, :2], 1e-6)


def test_without_a_ridge_the_problem_is_restricted_to_the_range_of_the_kernel():
    X, y, d = make("unequal")
    for weight in (0.0, 3.0):
        model = MDA(ridge=0, gamma=GAMMA, within_weight=weight).fit(X, y, sample_domain=d)
        values = model.eigenvalues_
        model.set_params(ridge=1e-13).fit(X, y, sample_domain=d)
        np.testing.assert_allclose(values, model.eigenvalues_, rtol=1e-7)


@pytest.mark.parametrize(
    ("exact", "fast"),
    [
        (SCA(4, between=0.7), FastSCA(4, between=0.7)),
        (SCA(4, within_weight=400, ridge=1e-3), FastSCA(4, within_weight=400, ridge=1e-3)),
        (MDA(), FastMDA()),
        (MDA(within_weight=400, ridge=1e-3), FastMDA(within_weight=400, ridge=1e-3)),
        (MDA(within_weight=0), FastMDA(within_weight=0)),
        (MIDA(3, domain_weight=0.01), FastMIDA(3, domain_weight=0.01)),
    ],
)
@pytest.mark.parametrize("case", ["unequal", "missing", "one row"])
def test_nystrom_is_exact_if_every_row_is_a_landmark(exact, fast, case):
    X, y, d = make(case)
    quiet(exact.set_params(gamma=GAMMA), X, y, d)
    quiet(fast.set_params(gamma=GAMMA, landmarks=X), X, y, d)
    np.testing.assert_allclose(fast.eigenvalues_, exact.eigenvalues_, rtol=1e-6)
    new = np.random.default_rng(3).normal(size=(9, 4))
    np.testing.assert_allclose(fast.transform(new), exact.transform(new), atol=2e-5)


def streamed(monkeypatch):
    monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", 0)


@pytest.mark.parametrize(
    "model",
    [
        SCA(4, between=0.5),
        SCA(4, between=0, domain_weight=0, within_weight=0),
        SCA(4, between=0.9, domain_weight=10, within_weight=900, ridge=1e-3),
        SCA(2, between=1.0),
        MDA(),
        MDA(domain_weight=5, within_weight=30, ridge=1e-3),
        MDA(within_weight=2, ridge=0.125),
        MDA(within_weight=900, ridge=1e-3),
        MIDA(3, domain_weight=0.01),
        MIDA(3, domain_weight=5.0),
    ],
    ids=repr,
)
@pytest.mark.parametrize("store", [True, False])
def test_iterative_and_dense_solvers_agree(model, store, monkeypatch):
    rng = np.random.default_rng(0)
    y, d = rng.integers(0, 3, 900), rng.integers(0, 5, 900)
    X = rng.normal(size=(900, 4)) + np.eye(4)[y] + 0.5 * rng.normal(size=(5, 4))[d]
    model.set_params(gamma=GAMMA, solver="dense").fit(X, y, sample_domain=d)
    expected, embedding = model.eigenvalues_, model.embedding_
    if not store:
        streamed(monkeypatch)
    model.set_params(solver="exact", tol=1e-8).fit(X, y, sample_domain=d)
    np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-7)
    np.testing.assert_allclose(model.embedding_, embedding, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "model",
    [
        MDA(),
        MDA(ridge=1e-5, within_weight=30.0),
        MDA(ridge=1e-8),
        MDA(within_weight=0.01, domain_weight=50.0),
        SCA(2, between=1.0),
    ],
    ids=repr,
)
def test_inverses_in_single_precision_do_not_change_the_components(model, dtype):
    rng = np.random.default_rng(0)
    distinct_rows = rng.normal(size=(500, 4))
    indices = rng.integers(0, 500, 840)  # some rows occur more than once
    y, d = rng.integers(0, 3, 840), rng.integers(0, 5, 840)
    d[0], d[(d == 1) & (y == 2)] = 5, 2  # a domain with one row, and one without class 2
    X = (distinct_rows[indices] + 0.5 * np.eye(4)[y]).astype(dtype)
    model.set_params(gamma=GAMMA, tol=1e-6)
    exact = quiet(model.set_params(solver="dense"), X, y, d)
    expected, embedding = exact.eigenvalues_, exact.embedding_
    fitted = quiet(model.set_params(solver="exact"), X, y, d)
    np.testing.assert_allclose(fitted.eigenvalues_, expected, rtol=1e-9)
    atol = 1e-8 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(fitted.embedding_, embedding, atol=atol)


@pytest.mark.parametrize("model", [SCA(3), MDA(), MIDA(3, domain_weight=0.01)], ids=repr)
def test_results_in_single_and_double_precision_agree(model):
    X, y, d = make("unequal")
    double = quiet(model.set_params(gamma=GAMMA), X, y, d).embedding_
    single = quiet(model, X.astype(np.float32), y, d).embedding_
    assert single.dtype == np.float32
    same_up_to_sign(single.astype(float), double, 1e-3)


@pytest.mark.parametrize("model", [SCA(3), MDA(), MIDA(3, domain_weight=0.01)], ids=repr)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_kernels_of_any_scale_have_components(model, scale):
    X, y, d = make("unequal")
    Z = quiet(model.set_params(kernel="linear"), X * scale, y, d).embedding_
    np.testing.assert_allclose(Z.std(axis=0), 1.0, rtol=1e-6)


def test_duplicated_rows_do_not_change_the_components():
    X, y, d = make("missing")
    duplicated = [np.concatenate([array, array]) for array in (X, y, d)]
    for model in (SCA(3, gamma=GAMMA), MDA(gamma=GAMMA)):
        expected = quiet(model, X, y, d).transform(X)
        same_up_to_sign(quiet(model, *duplicated).transform(X), expected, 1e-6)


def test_a_class_without_rows_in_a_domain_is_omitted_with_a_warning():
    X, y, d = make("missing")
    with pytest.warns(UserWarning, match="3 of 9 pairs of a class and a domain have no rows"):
        MDA().fit(X, y, sample_domain=d)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MDA().fit(*make("unequal")[:2], sample_domain=make("unequal")[2])


def test_components_beyond_the_classes_are_principal_directions_with_a_warning():
    X, y, d = make("unequal")
    for model in (MDA(5), SCA(5, between=1.0)):
        with pytest.warns(UserWarning, match="only 2 of 5 components are informative about the"):
            model.fit(X, y, sample_domain=d)
        assert model.n_informative_ == 2
        assert model.embedding_.shape[1] == 5


def test_the_default_is_ten_components():
    X, y, d = make("unequal")
    for model in (SCA(), MIDA(domain_weight=0.01)):
        assert model.fit(X, y, sample_domain=d).embedding_.shape[1] == 10
        few_rows = np.concatenate([np.flatnonzero(y == c)[:2] for c in range(3)])
        assert (
            model.fit(X[few_rows], y[few_rows], sample_domain=d[few_rows]).embedding_.shape[1] <= 5
        )


@pytest.mark.parametrize("model", [SCA(), MDA(), FastSCA(), FastMDA()], ids=repr)
def test_continuous_targets_and_descriptors_are_refused(model):
    X, y, d = make("unequal")
    with pytest.raises(ValueError, match="y is continuous. Pass class labels as y"):
        model.fit(X, X[:, 0], sample_domain=d)
    with pytest.raises(ValueError, match="sample_domain must contain labels"):
        model.fit(X, y, sample_domain=X[:, :2])
    with pytest.raises(ValueError, match="requires y"):
        model.fit(X, sample_domain=d)
    with pytest.raises(ValueError, match="'between' parameter"):
        model.set_params(between=1.5).fit(X, y, sample_domain=d)


def test_mida_refuses_a_weight_that_leaves_no_direction():
    rng = np.random.default_rng(0)
    d = np.repeat([0, 1], 20)
    X = (d + 0.01 * rng.normal(size=40))[:, None]
    with pytest.raises(ValueError, match="domain_weight=10 is too large"):
        MIDA(1, kernel="linear", domain_weight=10.0).fit(X, sample_domain=d)


@pytest.mark.parametrize(
    "model", [FastSCA(3), FastMDA(), FastMIDA(3, domain_weight=0.01)], ids=repr
)
def test_batches_give_the_same_result_as_all_rows(model):
    X, y, d = make("missing")
    model.set_params(landmarks=X[:20], gamma=GAMMA)
    expected = quiet(model, X, y, d).transform(X)
    del model._sums
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for rows in np.array_split(np.arange(len(X)), 3):
            model.partial_fit(X[rows], y[rows], sample_domain=d[rows])
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-7)
