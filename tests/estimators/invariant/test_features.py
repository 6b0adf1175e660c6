"""InvariantFeatures: exact kernel, batches, and memory that does not depend on the rows."""

import tracemalloc

import numpy as np
import pytest

from domainwise import InvariantFeatures, InvariantKernel


def problem(seed=0, n=80, p=3, n_domains=4):
    rng = np.random.default_rng(seed)
    d = np.arange(n) % n_domains
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, p)) + rng.normal(size=(n_domains, p))[d] + 0.5 * y[:, None], y, d


@pytest.mark.parametrize("w", [0.0, 0.1, 3.0, np.inf])
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kernel", [dict(gamma=0.2), dict(kernel="laplacian")])
def test_all_rows_as_landmarks_reproduce_the_exact_kernel(w, conditional, kernel):
    X, y, d = problem()
    new = np.random.default_rng(5).normal(size=(6, 3))
    arguments = dict(domain_weight=w, conditional=conditional, **kernel)
    exact = InvariantKernel(**arguments).fit(X, y, sample_domain=d)
    features = InvariantFeatures(len(X), **arguments)
    Z = features.fit_transform(X, y, sample_domain=d)
    np.testing.assert_allclose(Z @ Z.T, exact.transform(X), atol=1e-8)
    np.testing.assert_allclose(features.transform(new) @ Z.T, exact.transform(new), atol=1e-8)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-9)


def test_continuous_descriptors_reproduce_the_exact_kernel():
    X, _, _ = problem()
    site = np.random.default_rng(1).normal(size=(80, 2))
    arguments = dict(gamma=0.2, domain_weight=2.0)
    exact = InvariantKernel(**arguments).fit_transform(X, sample_domain=site)
    Z = InvariantFeatures(80, **arguments).fit_transform(X, sample_domain=site)
    np.testing.assert_allclose(Z @ Z.T, exact, atol=1e-6)


@pytest.mark.parametrize("w", [0.5, np.inf])
def test_fewer_landmarks_do_not_separate_domain_means(w):
    X, _, d = problem(n=400)
    uncorrected = InvariantFeatures(40, domain_weight=0, random_state=0)
    priced = InvariantFeatures(40, domain_weight=w, random_state=0)

    def spread(Z):
        return np.linalg.norm([Z[d == g].mean(axis=0) for g in range(4)])

    before = spread(uncorrected.fit_transform(X, sample_domain=d))
    after = spread(priced.fit_transform(X, sample_domain=d))
    assert after < (0.5 if w == 0.5 else 1e-8) * before


@pytest.mark.parametrize("conditional", [False, True])
def test_batches_with_late_classes_and_domains_equal_one_fit(conditional):
    X, y, d = problem(n=240)
    order = np.lexsort((y, d))  # sorted by domain, then by class
    X, y, d = X[order], y[order], d[order]
    arguments = dict(landmarks=X[::6], gamma=0.2, conditional=conditional)
    expected = InvariantFeatures(**arguments).fit(X, y, sample_domain=d)
    batched = InvariantFeatures(**arguments)
    for rows in np.array_split(np.arange(240), 12):
        batched.partial_fit(X[rows], y[rows], sample_domain=d[rows])
        assert batched.transform(X[:2]).shape == (2, 40)
    assert batched.n_samples_seen_ == 240
    np.testing.assert_array_equal(batched.domains_, [0, 1, 2, 3])
    np.testing.assert_allclose(batched.transform(X), expected.transform(X), atol=1e-9)


def test_float32_gives_float32_close_to_float64():
    X, _, d = problem(n=300)
    arguments = dict(landmarks=X[::10], gamma=0.2)
    double = InvariantFeatures(**arguments).fit(X, sample_domain=d)
    single = InvariantFeatures(**arguments).fit(X.astype(np.float32), sample_domain=d)
    Z, expected = single.transform(X.astype(np.float32)), double.transform(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z @ Z.T, expected @ expected.T, atol=2e-3)


def test_feature_names_and_fitted_attributes():
    X, y, d = problem()
    model = InvariantFeatures(10, conditional=True, random_state=0).fit(X, y, sample_domain=d)
    assert model.get_feature_names_out()[0] == "invariantfeatures0"
    assert len(model.get_feature_names_out()) == len(model.landmarks_) == 10
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert model.solver_info_["n_landmarks_used"] == 10
    assert len(model.domain_eigenvalues_) == 9  # (4 domains - 1) in each of 3 classes


def test_domain_eigenvalues_are_those_of_the_exact_kernel():
    X, _, d = problem()
    exact = InvariantKernel(gamma=0.2).fit(X, sample_domain=d)
    fast = InvariantFeatures(80, gamma=0.2).fit(X, sample_domain=d)
    np.testing.assert_allclose(fast.domain_eigenvalues_, exact.domain_eigenvalues_, rtol=1e-8)


def test_one_domain_gives_plain_centred_features():
    X, y, _ = problem()
    for arguments in (dict(), dict(conditional=True)):
        one = InvariantFeatures(20, random_state=0, **arguments).fit(X, y)
        uncorrected = InvariantFeatures(20, random_state=0, domain_weight=0).fit(X)
        np.testing.assert_allclose(one.transform(X), uncorrected.transform(X), atol=1e-9)


def test_memory_of_a_fit_does_not_grow_with_the_rows():
    rng = np.random.default_rng(0)
    landmarks = rng.normal(size=(50, 4))

    def peak(n):
        X, d = rng.normal(size=(n, 4)), np.arange(n) % 5
        model = InvariantFeatures(landmarks=landmarks, gamma=0.2)
        batches = np.array_split(np.arange(n), n // 2000)
        tracemalloc.start()
        for rows in batches:
            model.partial_fit(X[rows], sample_domain=d[rows])
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    assert peak(40_000) < 1.2 * peak(8_000)


def test_the_second_moment_of_the_features_is_not_summed():
    X, _, d = problem()
    model = InvariantFeatures(20, random_state=0).fit(X, sample_domain=d)
    assert not model._sums.second.any()


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        (dict(kernel="precomputed"), dict(), 'not available with kernel="precomputed"'),
        (dict(conditional=True), dict(), "y is missing"),
        (dict(n_landmarks=500), dict(), "n_landmarks=500 is more than the number of rows, 80"),
        (dict(landmarks="grid"), dict(), "landmarks"),
        (dict(domain_weight=-1), dict(), "domain_weight"),
        (
            dict(conditional=True),
            dict(y=np.arange(80) % 2, sample_domain=np.linspace(0.1, 1, 80)),
            "Use InvariantKernel",
        ),
    ],
)
def test_errors_name_the_invalid_argument(arguments, labels, message):
    X, _, _ = problem()
    with pytest.raises(ValueError, match=message):
        InvariantFeatures(**arguments).fit(X, **labels)
