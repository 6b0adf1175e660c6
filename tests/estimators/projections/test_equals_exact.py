"""Fast estimators equal exact ones: the same methods with another operator."""

import warnings

import numpy as np
import pytest

from domainwise import COIR, DCM, DICA, KPCA, FastCOIR, FastDCM, FastDICA, FastKPCA
from domainwise.datasets import make_synthetic

PAIRS = {"dcm": (DCM, FastDCM), "coir": (COIR, FastCOIR), "dica": (DICA, FastDICA)}
ALL = {**PAIRS, "kpca": (KPCA, FastKPCA)}


def problem(kind="classes", n_per_domain=25, seed=0):
    data = make_synthetic(n_per_domain=n_per_domain, random_state=seed)
    X, y = data.data, data.target
    if kind == "three":
        y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    elif kind == "regression":
        y = X[:, 0] + X[:, 1] ** 2
    elif kind == "outputs":
        y = np.column_stack([X[:, 0] + X[:, 1] ** 2, np.sin(X[:, 2])])
    return X, y, data.sample_domain


def fit_both(pair, X, y, domain, fast=None, **params):
    exact, quick = pair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        a = exact(gamma=0.1, **params).fit(X, y, sample_domain=domain)
        b = quick(gamma=0.1, **params, **(fast or {"n_landmarks": 1.0}))
        return a, b.fit(X, y, sample_domain=domain)


def angle(A, B):
    """Largest principal angle between the column spaces of two embeddings, in radians."""
    Q, R = (np.linalg.qr(Z - Z.mean(axis=0))[0] for Z in (A, B))
    outside = R - Q @ (Q.T @ R)
    return float(np.arcsin(min(1.0, np.linalg.norm(outside, 2))))


@pytest.mark.parametrize("kind", ["classes", "three", "regression", "outputs"])
@pytest.mark.parametrize("name", list(ALL))
def test_with_every_row_as_a_landmark_results_equal_the_exact_method(name, kind):
    X, y, domain = problem(kind)
    new = problem(kind, seed=1)[0]
    exact, fast = fit_both(ALL[name], X, y, domain)
    np.testing.assert_allclose(fast.eigenvalues_, exact.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=3e-8)
    np.testing.assert_allclose(fast.transform(new), exact.transform(new), atol=3e-8)
    assert fast.n_informative_ == exact.n_informative_


@pytest.mark.parametrize("kind", ["classes", "regression"])
@pytest.mark.parametrize("name", ["dcm", "coir"])
def test_an_infinite_ridge_agrees_to_nine_digits(name, kind):
    X, y, domain = problem(kind)
    exact, fast = fit_both(PAIRS[name], X, y, domain, ridge=np.inf)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=1e-9)


@pytest.mark.parametrize(
    "params", [{"conditional": True}, {"domain_weight": 0.01}, {"epsilon": 0.1}]
)
def test_arguments_have_the_same_meaning(params):
    X, y, domain = problem("three")
    exact, fast = fit_both(PAIRS["dcm"], X, y, domain, **params)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=3e-8)


@pytest.mark.parametrize("name", list(PAIRS))
def test_extra_components_are_the_same(name):
    X, y, domain = problem("three")
    exact, fast = fit_both(PAIRS[name], X, y, domain, n_components=5)
    assert fast.transform(X).shape[1] == 5
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=3e-8)


@pytest.mark.parametrize("name", ["dcm", "dica"])
def test_without_a_target_the_unsupervised_methods_agree(name):
    X, _, domain = problem()
    exact, fast = fit_both(PAIRS[name], X, None, domain)
    np.testing.assert_allclose(fast.eigenvalues_, exact.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=1e-7)


@pytest.mark.parametrize("y_kind", ["classes", "regression"])
def test_continuous_domain_descriptors_agree(y_kind):
    X, y, domain = problem(y_kind)
    rng = np.random.default_rng(0)
    descriptors = np.column_stack([domain + 0.1 * rng.standard_normal(len(X)), rng.random(len(X))])
    exact, fast = fit_both(PAIRS["dcm"], X, y, descriptors)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=3e-8)


@pytest.mark.parametrize("kernel", ["linear", "poly", "laplacian", "cosine"])
def test_other_kernels_agree(kernel):
    X, y, domain = problem("three")
    exact, fast = fit_both(PAIRS["dcm"], X, y, domain, kernel=kernel)
    np.testing.assert_allclose(fast.transform(X), exact.embedding_, atol=1e-6)


@pytest.mark.parametrize("kind", ["classes", "regression"])
@pytest.mark.parametrize("name", list(ALL))
def test_few_landmarks_solve_the_dense_nystrom_problem(name, kind):
    """Independent check: the exact method on the dense matrix C W^+ C' of the same landmarks."""
    X, y, domain = problem(kind)
    new = problem(kind, seed=1)[0][:40]
    exact, quick = ALL[name]
    fast = quick(gamma=0.1, n_landmarks=30, random_state=3).fit(X, y, sample_domain=domain)
    landmarks = fast.landmarks_

    def rbf(A, B):
        return np.exp(-0.1 * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    inverse = np.linalg.pinv(rbf(landmarks, landmarks), hermitian=True)
    K = rbf(X, landmarks) @ inverse @ rbf(landmarks, X)
    dense = exact(kernel="precomputed").fit((K + K.T) / 2, y, sample_domain=domain)
    np.testing.assert_allclose(fast.eigenvalues_, dense.eigenvalues_, rtol=1e-8)
    # Without a target, landmarks decide the signs of one, and all rows those of the other.
    signs = np.sign(np.sum(fast.transform(X) * dense.embedding_, axis=0))
    np.testing.assert_allclose(fast.transform(X) * signs, dense.embedding_, atol=1e-6)
    K_new = rbf(new, landmarks) @ inverse @ rbf(landmarks, X)
    np.testing.assert_allclose(fast.transform(new) * signs, dense.transform(K_new), atol=1e-6)


@pytest.mark.parametrize("name", ["dcm", "coir"])
def test_more_landmarks_come_closer_to_the_exact_solution(name):
    X, y, domain = problem("three", n_per_domain=60)
    errors = []
    for m in (20, 80, 320, 580):
        exact, fast = fit_both(
            PAIRS[name], X, y, domain, fast={"n_landmarks": m, "random_state": 0}
        )
        errors.append(angle(exact.embedding_, fast.transform(X)))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1 < 0.5 < errors[0]


def test_components_have_unit_variance_and_the_sign_of_the_last_class():
    X, y, domain = problem("three")
    Z = FastDCM(n_landmarks=50).fit_transform(X, y, sample_domain=domain)
    np.testing.assert_allclose(Z.std(axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    assert (Z[y == 2].mean(axis=0) >= 0).all()


def test_a_row_has_the_same_projection_alone_and_among_others():
    X, y, domain = problem()
    fast = FastDCM(n_landmarks=60).fit(X, y, sample_domain=domain)
    Z = fast.transform(X)
    np.testing.assert_allclose(fast.transform(X[7:8])[0], Z[7], rtol=1e-10)


def test_training_rows_are_not_stored():
    X, y, domain = problem(n_per_domain=100)
    fast = FastDCM(n_landmarks=20).fit(X, y, sample_domain=domain)
    assert fast.landmarks_.shape == (20, X.shape[1])
    assert fast.dual_coef_.shape == (20, 1)
    sizes = [v.shape[0] for v in vars(fast).values() if isinstance(v, np.ndarray) and v.ndim]
    assert max(sizes) <= 20
