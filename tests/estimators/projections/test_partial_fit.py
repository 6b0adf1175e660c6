"""partial_fit: merged sums, and classes and domains that appear in later batches."""

import numpy as np
import pytest

import domainwise.algebra.gram.sums as sums
from domainwise import FastCOIR, FastDCM, FastDICA, FastKPCA
from domainwise.algebra.gram.sums import NystromSums
from domainwise.datasets import make_synthetic

METHODS = [FastDCM, FastCOIR, FastDICA, FastKPCA]


def problem(kind="classes"):
    data = make_synthetic(n_per_domain=40, random_state=0)
    X, y = data.data, data.target
    order = np.random.default_rng(0).permutation(len(X))
    if kind == "regression":
        y = X[:, 0] + X[:, 1] ** 2
    return X[order], y[order], data.sample_domain[order]


def in_batches(model, X, y, domain, cuts):
    for rows in np.split(np.arange(len(X)), cuts):
        model.partial_fit(X[rows], None if y is None else y[rows], sample_domain=domain[rows])
    return model


@pytest.mark.parametrize("kind", ["classes", "regression"])
@pytest.mark.parametrize("method", METHODS)
def test_batches_equal_one_fit_with_the_same_landmarks(method, kind):
    X, y, domain = problem(kind)
    params = {"gamma": 0.1, "landmarks": X[:60]}
    if kind == "regression" and method is not FastKPCA:
        params |= {"target_gamma": 0.5, "target_landmarks": (-3.0, 6.0)}
    expected = method(**params).fit(X, y, sample_domain=domain)
    batched = in_batches(method(**params), X, y, domain, [50, 57, 200])
    np.testing.assert_allclose(batched.eigenvalues_, expected.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(batched.transform(X), expected.transform(X), rtol=1e-8, atol=1e-10)
    assert batched.n_samples_seen_ == len(X)


def test_landmarks_and_gamma_come_from_the_first_batch():
    X, y, domain = problem()
    model = in_batches(FastDCM(n_landmarks=30), X, y, domain, [100, 250])
    first = FastDCM(n_landmarks=30).fit(X[:100], y[:100], sample_domain=domain[:100])
    assert model.gamma_ == first.gamma_
    np.testing.assert_array_equal(model.landmarks_, first.landmarks_)


def test_classes_and_domains_may_appear_later():
    X, y, domain = problem()
    order = np.lexsort([domain, y])  # sorted by class, then by domain
    X, y, domain = X[order], y[order], domain[order]
    params = {"gamma": 0.1, "landmarks": X[::10]}
    cuts = [30, 60, 190, 300]
    model = in_batches(FastDCM(**params), X, y, domain, cuts)
    expected = FastDCM(**params).fit(X, y, sample_domain=domain)
    np.testing.assert_array_equal(model.classes_, expected.classes_)
    np.testing.assert_array_equal(model.domains_, expected.domains_)
    np.testing.assert_allclose(model.transform(X), expected.transform(X), rtol=1e-8, atol=1e-10)


def test_a_model_with_one_class_so_far_is_not_fitted():
    X, y, domain = problem()
    one = y == 1
    model = FastDCM(n_landmarks=20).partial_fit(X[one], y[one], sample_domain=domain[one])
    with pytest.raises(AttributeError, match="not fitted"):
        model.transform(X)
    model.partial_fit(X[~one], y[~one], sample_domain=domain[~one])
    assert model.transform(X).shape == (len(X), 1)


def test_the_order_of_batches_changes_rounding_only():
    X, y, domain = problem()
    params = {"gamma": 0.1, "landmarks": X[:40]}
    forward = in_batches(FastDCM(**params), X, y, domain, [100, 200])
    back = in_batches(FastDCM(**params), X[::-1], y[::-1], domain[::-1], [33, 150])
    np.testing.assert_allclose(forward.transform(X), back.transform(X), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("rows", [7, 64, 5000])
def test_the_block_size_does_not_change_results(monkeypatch, rows):
    X, y, domain = problem()
    model = FastDCM(gamma=0.1, n_landmarks=40)
    expected = model.fit(X, y, sample_domain=domain).transform(X)
    monkeypatch.setattr(sums, "BATCH_ROWS", rows)
    refitted = model.fit(X, y, sample_domain=domain).transform(X)
    np.testing.assert_allclose(refitted, expected, rtol=1e-8, atol=1e-11)


def test_landmarks_depend_only_on_the_seed():
    X, y, domain = problem()
    one, two, three = (
        FastDCM(n_landmarks=30, random_state=seed).fit(X, y, sample_domain=domain)
        for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
    assert not np.array_equal(one.landmarks_, three.landmarks_)


def test_fit_discards_earlier_batches():
    X, y, domain = problem()
    model = FastDCM(gamma=0.1, landmarks=X[:30])
    fresh = model.fit(X[:200], y[:200], sample_domain=domain[:200]).dual_coef_
    model.partial_fit(X[200:], y[200:], sample_domain=domain[200:])
    assert model.n_samples_seen_ == len(X)
    model.fit(X[:200], y[:200], sample_domain=domain[:200])
    np.testing.assert_array_equal(model.dual_coef_, fresh)
    assert model.n_samples_seen_ == 200


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_merged_sums_equal_those_of_all_rows(dtype):
    rng = np.random.default_rng(0)
    # With a large offset, the variance would be lost in sums of squares.
    Phi = (1000.0 + rng.standard_normal((400, 5))).astype(dtype)
    codes = rng.integers(0, 3, 400)
    keys = [("a", 1), ("b", 1), ("b", 2)]
    total = None
    for rows in np.split(np.arange(400), [3, 100, 101]):
        batch = NystromSums.partial(Phi[rows].copy(), codes[rows], keys)
        total = batch if total is None else total.merge(batch)
    exact = Phi.astype(np.float64)
    centred = exact - exact.mean(axis=0)
    tolerance = 1e-11 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(total.second, centred.T @ centred, atol=400 * tolerance)
    np.testing.assert_allclose(
        total.mean, exact.mean(axis=0), rtol=1e-7 if dtype == np.float32 else 1e-14
    )
    for g, key in enumerate(keys):
        count, sums = total.groups[key]
        assert count == (codes == g).sum()
        np.testing.assert_allclose(
            sums, exact[codes == g].sum(axis=0), rtol=1e-6 if dtype == np.float32 else 1e-13
        )
