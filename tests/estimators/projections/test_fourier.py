"""Fast estimators with random Fourier features equal exact ones with the same features."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import (
    COIR,
    DCM,
    DICA,
    KPCA,
    MDA,
    MIDA,
    SCA,
    FastCOIR,
    FastDCM,
    FastDICA,
    FastKPCA,
    FastMDA,
    FastMIDA,
    FastSCA,
    InvariantFeatures,
    InvariantKernel,
    load,
    save,
)
from domainwise.datasets import make_synthetic
from reproduction.reference import algorithm1

PAIRS = {
    "dcm": (DCM, FastDCM, {}),
    "conditional": (DCM, FastDCM, {"conditional": True, "domain_weight": 0.1}),
    "coir": (COIR, FastCOIR, {}),
    "dica": (DICA, FastDICA, {"lam": 0.1}),
    "kpca": (KPCA, FastKPCA, {"n_components": 3}),
    "sca": (SCA, FastSCA, {"n_components": 2}),
    "mda": (MDA, FastMDA, {}),
    "mida": (MIDA, FastMIDA, {"n_components": 3, "domain_weight": 1e-3}),
}
FAST = [fast for _, fast, _ in PAIRS.values() if fast is not FastDCM] + [FastDCM, InvariantFeatures]


def problem(n_per_domain=25, seed=0, kind="classes"):
    data = make_synthetic(n_per_domain=n_per_domain, n_domains=5, n_features=4, random_state=seed)
    X, y = data.data, data.target
    if kind == "three":
        y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    elif kind == "regression":
        y = X[:, 0] + X[:, 1] ** 2
    return X, y, data.sample_domain


def columns(X, gamma, m, seed=0, kernel="rbf"):
    """Pairs of cosines and sines, computed without code from the package."""
    rng = np.random.RandomState(seed)
    if kernel == "rbf":
        frequencies = rng.standard_normal((m // 2, X.shape[1])) * np.sqrt(2 * gamma)
    else:
        frequencies = rng.standard_cauchy((m // 2, X.shape[1])) * gamma
    angles = X.astype(np.float64) @ frequencies.T
    pairs = np.stack([np.cos(angles), np.sin(angles)], axis=2)
    return np.sqrt(2 / m) * pairs.reshape(len(X), m)


def up_to_sign(Z, expected):
    return Z * np.sign((Z * expected).sum(axis=0))


def fitted(model, *rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        X, y, domain = rows
        return model.fit(X, y, sample_domain=domain)


@pytest.mark.parametrize("m", [30, 300])  # fewer and more columns than rows
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
@pytest.mark.parametrize("name", PAIRS)
def test_results_equal_the_exact_method_with_a_linear_kernel_of_the_columns(name, kernel, m):
    exact, fast, params = PAIRS[name]
    X, y, domain = problem(kind="three")
    new = problem(seed=1)[0]
    Phi, Phi_new = (columns(rows, 0.2, m, 7, kernel) for rows in (X, new))
    expected = fitted(exact(kernel="linear", solver="dense", **params), Phi, y, domain)
    arguments = dict(kernel=kernel, gamma=0.2, feature_map="fourier", n_landmarks=m, random_state=7)
    model = fitted(fast(**arguments, **params), X, y, domain)
    k = min(len(expected.eigenvalues_), len(model.eigenvalues_))
    assert k == model.transform(X).shape[1]
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-7)
    for rows, Z in ((X, expected.transform(Phi)), (new, expected.transform(Phi_new))):
        np.testing.assert_allclose(up_to_sign(model.transform(rows), Z), Z, atol=2e-6)


def test_eigenvalues_are_those_of_the_papers_algorithm():
    X, y, domain = problem()
    Phi = columns(X, 0.2, 40)
    same = [(labels[:, None] == labels).astype(float) for labels in (y, domain)]
    dense = algorithm1(Phi @ Phi.T, *same, epsilon=1e-3, n_components=1)
    model = FastDCM(gamma=0.2, feature_map="fourier", n_landmarks=40)
    fitted(model, X, y, domain)
    np.testing.assert_allclose(model.eigenvalues_, dense.eigenvalues, rtol=1e-8)


@pytest.mark.parametrize("weight", [0.0, 0.5, np.inf])
@pytest.mark.parametrize("conditional", [False, True])
def test_invariant_features_equal_those_of_a_linear_kernel_of_the_columns(conditional, weight):
    X, y, domain = problem()
    new = problem(seed=1)[0]
    Phi, Phi_new = columns(X, 0.2, 30), columns(new, 0.2, 30)
    params = dict(domain_weight=weight, conditional=conditional)
    exact = InvariantKernel(kernel="linear", **params).fit(Phi, y, sample_domain=domain)
    model = InvariantFeatures(30, feature_map="fourier", gamma=0.2, **params)
    Z = model.fit_transform(X, y, sample_domain=domain)
    np.testing.assert_allclose(Z @ Z.T, exact.transform(Phi), atol=1e-9)
    np.testing.assert_allclose(model.transform(new) @ Z.T, exact.transform(Phi_new), atol=1e-9)


def test_many_columns_approximate_the_exact_kernel():
    X, y, domain = problem()
    exact = fitted(DCM(gamma=0.2, ridge=0.1), X, y, domain).transform(X)
    distances = []
    for m in (60, 1500):
        model = FastDCM(gamma=0.2, ridge=0.1, feature_map="fourier", n_landmarks=m)
        distances.append(np.abs(fitted(model, X, y, domain).transform(X) - exact).mean())
    assert distances[1] < 0.4 * distances[0]


@pytest.mark.parametrize("kind", ["three", "regression"])
@pytest.mark.parametrize("method", [FastDCM, FastMIDA, InvariantFeatures])
def test_batches_in_any_order_equal_one_fit(method, kind):
    X, y, domain = problem(kind=kind)
    params = dict(gamma=0.2, feature_map="fourier", n_landmarks=51)
    if method is FastDCM:  # otherwise, target landmarks would be chosen from the first batch
        params |= dict(target_landmarks=(-3.0, 12.0), target_gamma=0.3, epsilon=0.1)
    expected = fitted(method(**params), X, y, domain).transform(X)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(X))
        model = method(**params)
        for batch in np.array_split(order, 4):
            model.partial_fit(X[batch], y[batch], sample_domain=domain[batch])
        Z = model.transform(X)
        np.testing.assert_allclose(up_to_sign(Z, expected), expected, atol=1e-8)


def test_the_first_batch_may_have_fewer_rows_than_there_are_columns():
    X, y, domain = problem()
    model = FastDCM(gamma=0.2, feature_map="fourier", n_landmarks=400)
    model.partial_fit(X[:10], y[:10], sample_domain=domain[:10])
    assert model.frequencies_.shape == (400, 5)


@pytest.mark.parametrize("method", FAST)
def test_float32_rows_give_float32_close_to_float64(method):
    X, y, domain = problem(kind="three")
    X32 = X.astype(np.float32)
    params = dict(gamma=0.2, feature_map="fourier", n_landmarks=60)
    double = fitted(method(**params), X32.astype(np.float64), y, domain)
    single = fitted(method(**params), X32, y, domain)
    Z = single.transform(X32)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, double.transform(X32.astype(np.float64)), atol=2e-6)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_one_column_constant_columns_and_a_domain_with_one_row_work(kernel):
    X, y, domain = problem()
    domain = domain.copy()
    domain[0] = 99
    params = dict(kernel=kernel, gamma=0.2, feature_map="fourier", n_landmarks=21)
    for rows in (X[:, :1], np.column_stack([X, np.full(len(X), 5.0)]), np.ones_like(X) * X[:, :1]):
        for model in (FastDCM(ridge=1e-3, **params), InvariantFeatures(**params)):
            Z = fitted(model, rows, y, domain).transform(rows)
            assert np.isfinite(Z).all()
            assert Z.std(axis=0).max() > 0
    constant = InvariantFeatures(**params).fit(np.ones((6, 2)), sample_domain=[0, 0, 1, 1, 2, 2])
    np.testing.assert_allclose(constant.transform(np.ones((2, 2))), 0.0, atol=1e-12)


def test_a_constant_added_to_all_rows_does_not_change_the_projection():
    X, y, domain = problem()
    params = dict(gamma=0.2, feature_map="fourier", n_landmarks=40)
    near, far = (
        fitted(FastDCM(**params), shifted, y, domain).transform(shifted)
        for shifted in (X, X + 1000.0)
    )
    np.testing.assert_allclose(up_to_sign(far, near), near, atol=1e-6)


@pytest.mark.parametrize("method", FAST)
def test_models_are_cloned_and_saved_with_their_columns(method, tmp_path):
    X, y, domain = problem()
    model = method(feature_map="fourier", n_landmarks=25, random_state=3)
    fitted(model, X, y, domain)
    assert clone(model).get_params()["feature_map"] == "fourier"
    assert model.frequencies_.shape == (25, 5)
    assert not hasattr(model, "landmarks_")
    save(model, tmp_path / "model.skops")
    back = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    back.partial_fit(X, y, sample_domain=domain)
    assert back.n_samples_seen_ == 2 * len(X)


def test_refitting_discards_the_other_feature_map():
    X, y, domain = problem()
    model = fitted(FastDCM(n_landmarks=20), X, y, domain)
    before = model.transform(X)
    fitted(model.set_params(feature_map="fourier"), X, y, domain)
    assert not hasattr(model, "landmarks_")
    fitted(model.set_params(feature_map="nystroem"), X, y, domain)
    assert not hasattr(model, "frequencies_")
    np.testing.assert_array_equal(model.transform(X), before)


def test_results_depend_only_on_the_seed():
    X, y, domain = problem()
    one, again, other = (
        fitted(FastDCM(feature_map="fourier", random_state=seed), X, y, domain)
        for seed in (None, 0, 1)
    )
    np.testing.assert_array_equal(one.transform(X), again.transform(X))
    assert (one.frequencies_ != other.frequencies_).any()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"kernel": "linear"}, "kernel='linear' has no random Fourier features.*rbf, laplacian"),
        ({"kernel": lambda A, B: A @ B.T}, "kernel=<function.*rbf, laplacian"),
        ({"kernel": "precomputed"}, "precomputed"),
        ({"landmarks": np.zeros((3, 4))}, 'landmarks were passed, but feature_map="fourier"'),
        ({"feature_map": "sketch"}, "'feature_map' parameter of .* must be a str among"),
        ({"n_landmarks": 0}, "'n_landmarks' parameter"),
    ],
)
@pytest.mark.parametrize("method", [FastDCM, FastKPCA, InvariantFeatures])
def test_kernels_without_fourier_features_are_errors(method, params, said):
    X, y, domain = problem()
    model = method(**{"feature_map": "fourier", **params})
    with pytest.raises(ValueError, match=said):
        model.fit(X, y, sample_domain=domain)


def test_more_components_than_columns_are_an_error():
    X, _, _ = problem()
    with pytest.raises(
        ValueError, match="n_components=9 is more than the number of Fourier features, 8"
    ):
        FastKPCA(9, feature_map="fourier", n_landmarks=8).fit(X)
