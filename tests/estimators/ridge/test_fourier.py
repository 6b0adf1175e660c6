"""Ridge searches on random Fourier features, which the tests compute independently."""

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import InvariantKernel, InvariantRidgeClassifierCV, InvariantRidgeCV, load, save

POINT = dict(gammas=[0.3], alphas=[0.5], domain_weights=[2.0], n_average=1)
GRID = dict(gammas=[0.1, 0.4], alphas=[0.1, 2.0], domain_weights=[0.0, 3.0], n_average=4)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    d = rng.integers(5, size=150)
    X = rng.standard_normal((150, 3)) + 0.3 * d[:, None]
    t = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(150)
    return X, np.array(["no", "yes", "maybe"])[np.digitize(t, [0.4, 1.4])], t, d


def columns(X, kernel, gamma, m, seed):
    """Draw and evaluate pairs of cosines and sines independently of the package."""
    rng = np.random.RandomState(seed)
    draw, scale = rng.standard_normal, np.sqrt(2 * gamma)
    if kernel == "laplacian":
        draw, scale = rng.standard_cauchy, gamma
    angles = X @ (scale * draw((m // 2, X.shape[1]))).T
    return np.sqrt(2 / m) * np.stack([np.cos(angles), np.sin(angles)], 2).reshape(len(X), m)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_one_member_is_dense_ridge_regression_on_the_columns(rows, kernel):
    X, _, t, d = rows
    model = InvariantRidgeCV(
        kernels=[kernel], feature_map="fourier", n_landmarks=60, random_state=9, **POINT
    ).fit(X, t, sample_domain=d)
    Phi, Phi_new = (columns(each, kernel, 0.3, 60, 9) for each in (X, X + 0.1))
    invariant = InvariantKernel(kernel="linear", domain_weight=2.0)
    K = invariant.fit_transform(Phi, sample_domain=d)
    dual = np.linalg.solve(K + 0.5 * np.eye(len(K)), t - t.mean())
    expected = t.mean() + invariant.transform(Phi_new) @ dual
    np.testing.assert_allclose(model.predict(X + 0.1), expected, atol=1e-9)
    assert model.members_[0]["kernel"] == kernel


def test_there_may_be_more_columns_than_rows(rows):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(feature_map="fourier", n_landmarks=400, **POINT)
    values = model.fit(X, y, sample_domain=d).decision_function(X)
    assert values.shape == (150, 3)
    assert model.predict_proba(X[:2]).shape == (2, 3)


def test_batches_in_any_order_equal_one_fit_and_survive_a_file(rows, tmp_path):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(feature_map="fourier", n_landmarks=51, **GRID)
    whole = clone(model).fit(X, y, sample_domain=d)
    parts = clone(model)
    batches = np.array_split(np.random.default_rng(1).permutation(150), 4)
    for batch in batches[:3]:
        parts.partial_fit(X[batch], y[batch], sample_domain=d[batch])
    save(parts, tmp_path / "parts.skops")
    parts = load(tmp_path / "parts.skops")
    last = batches[3]
    parts.partial_fit(X[last], y[last], sample_domain=d[last])
    assert parts.finalize().members_ == whole.members_
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-9)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tensors_give_what_arrays_give(rows, dtype):
    torch = pytest.importorskip("torch")
    X, _, t, d = rows
    X = X.astype(dtype)
    model = InvariantRidgeCV(feature_map="fourier", n_landmarks=50, **GRID)
    expected = clone(model).fit(X, t, sample_domain=d).predict(X)
    T = torch.from_numpy(X)
    found = clone(model).fit(T, torch.from_numpy(t), sample_domain=d).predict(T)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9 if dtype == "float64" else 1e-5)


@pytest.mark.dask
def test_partitions_give_what_arrays_give(rows):
    da = pytest.importorskip("dask.array")
    X, _, t, d = rows
    model = InvariantRidgeCV(feature_map="fourier", n_landmarks=50, **GRID)
    expected = clone(model).fit(X, t, sample_domain=d).predict(X)
    apart = [da.from_array(each, chunks=(40, *each.shape[1:])) for each in (X, t, d)]
    found = clone(model).fit(apart[0], apart[1], sample_domain=apart[2])
    np.testing.assert_allclose(found.predict(X), expected, atol=1e-8)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kernels": ["rbf", "poly"]}, "kernel='poly' has no random Fourier features"),
        ({"landmarks": np.zeros((3, 3))}, 'landmarks were passed, but feature_map="fourier"'),
    ],
)
def test_arguments_without_fourier_features_are_refused(rows, params, message):
    X, _, t, d = rows
    with pytest.raises(ValueError, match=message):
        InvariantRidgeCV(feature_map="fourier", **params).fit(X, t, sample_domain=d)
