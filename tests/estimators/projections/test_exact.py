"""Exact estimators equal dense computations that share no code with them."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn.decomposition import KernelPCA
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from domainwise import COIR, DCM, DICA, KPCA
from reproduction.reference import algorithm1, dica_original

EPSILON = 1e-3
GAMMA = 0.2
EXTRAS = "ignore:only .* components are informative about the target"


def delta(a):
    return (a[:, None] == a[None, :]).astype(float)


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def smoother(K, epsilon=EPSILON):
    K = centred(K)
    return K @ np.linalg.inv(K + len(K) * epsilon * np.eye(len(K)))


def unit(Z):
    """Columns of unit variance."""
    return Z / np.sqrt(np.mean((Z - Z.mean(axis=0)) ** 2, axis=0))


def same_up_to_sign(A, B, atol):
    assert A.shape == B.shape
    np.testing.assert_allclose(A * np.sign((A * B).sum(axis=0)), B, atol=atol)


class Problem:
    """Rows with targets and domains, and explicit label kernels."""

    def __init__(self, y, d, seed=0, p=4, target_gamma=None):
        rng = np.random.default_rng(seed)
        self.y, self.d, self.n = np.asarray(y), np.asarray(d), len(y)
        shift = rng.normal(size=(int(self.d.max()) + 1, p))
        self.X = rng.normal(size=(self.n, p)) + 0.8 * shift[self.d]
        self.X += 0.7 * self.y[:, None] * rng.normal(size=p)
        self.new = rng.normal(size=(11, p))
        self.target_gamma = target_gamma
        self.K_y = (
            delta(self.y)
            if target_gamma is None
            else rbf_kernel(self.y[:, None], gamma=target_gamma)
        )
        self.K_d = delta(self.d)
        self.P_y, self.P_d = smoother(self.K_y), smoother(self.K_d)
        self.K_raw = rbf_kernel(self.X, gamma=GAMMA)
        self.K = centred(self.K_raw)

    def fit(self, model, **params):
        if "target_gamma" in model.get_params() and self.target_gamma is not None:
            params["target_gamma"] = self.target_gamma
        params = {"gamma": GAMMA, **params}
        return model.set_params(**params).fit(self.X, self.y, sample_domain=self.d)


def draw(n, n_classes, n_domains, seed):
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, size=n - n_classes)]
    return rng.permutation(y), np.r_[
        np.arange(n_domains), rng.integers(0, n_domains, n - n_domains)
    ]


def unequal(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, size=45), np.repeat([0, 1, 2], [30, 12, 3])


def one_sample_domains(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, size=40), np.r_[np.repeat([0, 1], 18), 2, 3, 4, 5]


def missing_classes(seed):
    # Domain 0 contains only class 0, domain 1 classes 1 and 2, and the others all classes.
    rng = np.random.default_rng(seed)
    d = np.repeat([0, 1, 2, 3], 11)
    y = np.where(
        d == 0, 0, np.where(d == 1, rng.integers(1, 3, size=44), rng.integers(0, 3, size=44))
    )
    return y, d


def regression(seed, n=40):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.permutation(np.arange(n) % 4)


PROBLEMS = {
    "binary": Problem(*draw(40, 2, 4, 0), seed=0),
    "binary, many domains": Problem(*draw(36, 2, 9, 1), seed=1),
    "multi-class": Problem(*draw(45, 5, 3, 2), seed=2),
    "unequal domains": Problem(*unequal(3), seed=3),
    "one-sample domains": Problem(*one_sample_domains(4), seed=4),
    "classes missing in a domain": Problem(*missing_classes(5), seed=5),
    "regression": Problem(*regression(6), seed=6, target_gamma=0.5),
    "regression, narrow kernel": Problem(*regression(7), seed=7, target_gamma=5.0),
}
CLASSES = [name for name, p in PROBLEMS.items() if p.target_gamma is None]
each_problem = pytest.mark.parametrize("p", PROBLEMS.values(), ids=list(PROBLEMS))
each_class_problem = pytest.mark.parametrize("p", [PROBLEMS[k] for k in CLASSES], ids=CLASSES)


# DCM ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.01, 1.0, 30.0])
@each_problem
def test_dcm_at_a_tiny_ridge_is_the_papers_algorithm_1(p, weight):
    # A Laplacian kernel of distinct rows is well conditioned, so a ridge of 1e-12 has no effect.
    K = laplacian_kernel(p.X, gamma=1.0)
    model = p.fit(DCM(kernel="laplacian", ridge=1e-13, domain_weight=weight), gamma=1.0)
    m = len(model.eigenvalues_)
    expected = algorithm1(K, p.K_y, p.K_d, epsilon=EPSILON, n_components=m, domain_weight=weight)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)
    same_up_to_sign(model.embedding_, expected.projected, 1e-6)
    assert model.eigenvalues_.min() > 1


@each_class_problem
def test_dcm_finds_one_component_fewer_than_classes(p):
    model = p.fit(DCM())
    assert model.n_informative_ == len(np.unique(p.y)) - 1 == model.embedding_.shape[1]


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_a_class_determined_by_its_domain_is_not_separable_and_warns(gap):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X = rng.normal(size=(40, 4)) + gap * y[:, None]
    K = laplacian_kernel(X, gamma=1.0)
    with pytest.warns(UserWarning, match="the target cannot be separated from the domain"):
        model = DCM(kernel="laplacian", gamma=1.0, ridge=1e-13).fit(X, y, sample_domain=y)
    expected = algorithm1(K, delta(y), delta(y), epsilon=EPSILON, n_components=1)
    assert model.n_informative_ == 0
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)
    assert model.embedding_.shape == (40, 1)
    np.testing.assert_allclose(model.eigenvalues_, 1.0, rtol=1e-8)


def test_a_class_that_is_a_union_of_domains_still_has_a_component():
    rng = np.random.default_rng(0)
    d = np.arange(60) % 6
    y = d // 3
    X = rng.normal(size=(60, 4)) + y[:, None]
    K = laplacian_kernel(X, gamma=1.0)
    with pytest.warns(UserWarning, match="the target cannot be separated from the domain"):
        model = DCM(kernel="laplacian", gamma=1.0, ridge=1e-13, domain_weight=3.0).fit(
            X, y, sample_domain=d
        )
    gammas = algorithm1(
        K, delta(y), delta(d), epsilon=EPSILON, n_components=59, domain_weight=3.0
    ).eigenvalues
    # The 54 directions outside both label spaces have eigenvalue 1, all others have less.
    inside = gammas[gammas < 1 - 1e-9]
    assert len(inside) == 5
    np.testing.assert_allclose(model.eigenvalues_, inside[:1], rtol=1e-6)


@pytest.mark.parametrize("weight", [0.3, 1.0])
@each_problem
def test_an_infinite_ridge_is_the_symmetric_problem(p, weight):
    model = p.fit(DCM(ridge=np.inf, domain_weight=weight))
    d, U = np.linalg.eigh(p.K)
    U = U[:, d > 1e-11 * d[-1]]
    sides = [
        U.T @ (factor * p.K @ P @ p.K + p.K) @ U for factor, P in ((1.0, p.P_y), (weight, p.P_d))
    ]
    gammas, B = scipy.linalg.eigh(*[(S + S.T) / 2 for S in sides])
    m = len(model.eigenvalues_)
    np.testing.assert_allclose(model.eigenvalues_, gammas[::-1][:m], rtol=1e-7)
    same_up_to_sign(model.embedding_, unit(p.K @ U @ B[:, ::-1][:, :m]), 2e-5)


@pytest.mark.parametrize("ridge", [1e-5, 1e-3, 1.0])
@each_problem
def test_coefficients_are_the_ridge_solution_of_the_papers_scores(p, ridge):
    # The scores v = K beta in Algorithm 1 do not depend on the ridge; beta = (K + N ridge I)^-1 v.
    K = centred(laplacian_kernel(p.X, gamma=1.0))
    model = p.fit(DCM(kernel="laplacian", ridge=ridge, tol=1e-10), gamma=1.0)
    m = len(model.eigenvalues_)
    scores = algorithm1(
        laplacian_kernel(p.X, gamma=1.0), p.K_y, p.K_d, epsilon=EPSILON, n_components=m
    ).projected
    beta = np.linalg.solve(K + p.n * ridge * np.eye(p.n), scores)
    beta -= beta.mean(axis=0)
    scale = np.sqrt(np.mean((K @ beta) ** 2, axis=0))
    same_up_to_sign(model.embedding_, K @ beta / scale, 1e-6)
    k_new = laplacian_kernel(p.new, p.X, gamma=1.0)
    raw = laplacian_kernel(p.X, gamma=1.0)
    expected = (k_new - raw.mean(axis=0)) @ beta / scale
    same_up_to_sign(model.transform(p.new), expected, 1e-5)
    same_up_to_sign(model.dual_coef_, beta / scale, 1e-5 * np.abs(beta / scale).max())


def test_a_very_large_ridge_approaches_the_infinite_one():
    p = PROBLEMS["multi-class"]
    large, infinite = p.fit(DCM(ridge=1e6)), p.fit(DCM(ridge=np.inf))
    np.testing.assert_allclose(large.transform(p.new), infinite.transform(p.new), atol=1e-5)


def test_no_ridge_is_the_pseudo_inverse_and_equals_algorithm_1_on_an_invertible_kernel():
    p = PROBLEMS["multi-class"]
    K = laplacian_kernel(p.X, gamma=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # K has full rank, so there is no warning
        model = p.fit(DCM(kernel="laplacian", ridge=0), gamma=1.0)
    expected = algorithm1(
        K,
        p.K_y,
        p.K_d,
        laplacian_kernel(p.X, p.new, gamma=1.0),
        epsilon=EPSILON,
        n_components=len(model.eigenvalues_),
    )
    same_up_to_sign(model.embedding_, expected.projected, 1e-7)
    same_up_to_sign(model.transform(p.new), expected.projected_new, 1e-6)


def test_conditional_dcm_equals_the_dense_problem_with_deviations_within_classes():
    p = PROBLEMS["classes missing in a domain"]
    columns = []
    for c in np.unique(p.y):
        for g in np.unique(p.d[p.y == c]):
            column = ((p.y == c) & (p.d == g)).astype(float)
            column[p.y == c] -= column[p.y == c].mean()
            columns.append(column)
    E = np.stack(columns, axis=1)
    K = laplacian_kernel(p.X, gamma=1.0)
    model = p.fit(DCM(kernel="laplacian", ridge=1e-13, conditional=True), gamma=1.0)
    expected = algorithm1(K, p.K_y, E @ E.T, epsilon=EPSILON, n_components=2)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)
    same_up_to_sign(model.embedding_, expected.projected, 1e-6)


def test_continuous_domain_descriptors_equal_the_dense_problem():
    p = PROBLEMS["binary"]
    time = np.random.default_rng(0).uniform(size=(p.n, 2))
    K = laplacian_kernel(p.X, gamma=1.0)
    model = DCM(kernel="laplacian", gamma=1.0, ridge=1e-13, domain_gamma=2.0)
    model.fit(p.X, p.y, sample_domain=time)
    expected = algorithm1(K, p.K_y, rbf_kernel(time, gamma=2.0), epsilon=EPSILON, n_components=1)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)
    same_up_to_sign(model.embedding_, expected.projected, 1e-5)
    assert model.domains_ is None


def test_several_targets_at_once_equal_the_dense_problem():
    p = PROBLEMS["regression"]
    Y = np.c_[p.y, np.random.default_rng(1).normal(size=p.n)]
    K = laplacian_kernel(p.X, gamma=1.0)
    model = DCM(kernel="laplacian", gamma=1.0, ridge=1e-13, target_gamma=0.3)
    model.fit(p.X, Y, sample_domain=p.d)
    m = len(model.eigenvalues_)
    expected = algorithm1(K, rbf_kernel(Y, gamma=0.3), p.K_d, epsilon=EPSILON, n_components=m)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)


def test_a_continuous_target_keeps_components_down_to_a_hundredth_of_the_first():
    p = PROBLEMS["regression"]
    model = p.fit(DCM())
    mu = model.eigenvalues_ - 1
    assert mu.min() > 1e-2 * mu[0]
    assert model.n_informative_ > len(mu)
    more = p.fit(DCM(n_components=len(mu) + 1))
    assert more.eigenvalues_[-1] - 1 <= 1e-2 * mu[0]
    assert more.eigenvalues_[-1] > 1


def test_components_do_not_depend_on_their_number():
    p = PROBLEMS["multi-class"]
    four = p.fit(DCM())
    for m in (1, 2, 3):
        fewer = p.fit(DCM(n_components=m))
        np.testing.assert_allclose(fewer.eigenvalues_, four.eigenvalues_[:m], rtol=1e-12)
        np.testing.assert_allclose(fewer.embedding_, four.embedding_[:, :m], atol=1e-10)


# COIR ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(EXTRAS)
@each_problem
def test_weight_zero_one_domain_and_no_domains_equal_coir(p):
    m = len(p.fit(COIR()).eigenvalues_) if p.target_gamma else len(np.unique(p.y)) + 2
    coir = p.fit(COIR(n_components=m))
    weightless = p.fit(DCM(n_components=m, domain_weight=0))
    dcm = DCM(n_components=m, **{k: v for k, v in coir.get_params().items() if k != "n_components"})
    nothing = dcm.fit(p.X, p.y)
    constant = DCM(**dcm.get_params()).fit(p.X, p.y, sample_domain=np.full(p.n, "here"))
    for other in (weightless, nothing, constant):
        np.testing.assert_allclose(other.eigenvalues_, coir.eigenvalues_, rtol=1e-12)
        np.testing.assert_allclose(other.embedding_, coir.embedding_, atol=1e-9)
        np.testing.assert_allclose(other.transform(p.new), coir.transform(p.new), atol=1e-8)


@each_class_problem
def test_coir_equals_algorithm_1_without_domains(p):
    K = laplacian_kernel(p.X, gamma=1.0)
    model = p.fit(COIR(kernel="laplacian", ridge=1e-13), gamma=1.0)
    expected = algorithm1(
        K,
        p.K_y,
        p.K_d,
        epsilon=EPSILON,
        n_components=len(model.eigenvalues_),
        domain_weight=0,
    )
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-6)
    same_up_to_sign(model.embedding_, expected.projected, 1e-6)


# KPCA ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "cosine"])
@each_problem
def test_kpca_equals_scikit_learn_with_unit_variance(p, kernel):
    model = p.fit(KPCA(n_components=3, kernel=kernel, coef0=0.7, degree=2))
    expected = KernelPCA(
        n_components=3, kernel=kernel, gamma=GAMMA, coef0=0.7, degree=2, eigen_solver="dense"
    ).fit(p.X)
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues_, rtol=1e-9)
    Z = expected.transform(p.X)
    scale = Z.std(axis=0)
    same_up_to_sign(model.embedding_, Z / scale, 1e-7)
    same_up_to_sign(model.transform(p.new), expected.transform(p.new) / scale, 1e-7)


def test_kpca_eigenvalues_are_those_of_unsupervised_dcm_without_domains():
    # theory 5: K_y = I, P_d = 0 gives gamma = 1 + lambda / (1 + N eps).
    p = PROBLEMS["binary"]
    kpca = p.fit(KPCA(n_components=4))
    dcm = DCM(n_components=4, gamma=GAMMA, ridge=np.inf).fit(p.X)
    np.testing.assert_allclose(
        dcm.eigenvalues_, 1 + kpca.eigenvalues_ / (1 + p.n * EPSILON), rtol=1e-10
    )
    same_up_to_sign(dcm.embedding_, kpca.embedding_, 1e-6)


@pytest.mark.parametrize("n", [6, 30])
def test_kpca_finds_ten_components_or_as_many_as_rows_allow(n):
    X = np.random.default_rng(0).normal(size=(n, 12))
    assert KPCA().fit(X).embedding_.shape == (n, min(10, n - 1))


# DICA ---------------------------------------------------------------------------------------------


def domain_scatter(d):
    """The matrix L of DICA, computed entry by entry."""
    names, counts = np.unique(d, return_counts=True)
    T, size = len(names), dict(zip(names, counts, strict=True))
    L = np.empty((len(d), len(d)))
    for i, a in enumerate(d):
        for j, b in enumerate(d):
            L[i, j] = ((T - 1 if a == b else -1) / T**2) / (size[a] * size[b])
    return L


@pytest.mark.parametrize("lam", [1e-3, 1.0])
@each_problem
def test_dica_equals_a_dense_non_symmetric_solution(p, lam, monkeypatch):
    # To compare eigenvalues up to 1e-8, the target kernel must be more precise than in theory 6.2.
    monkeypatch.setattr("domainwise.algebra.labels.CHOLESKY_TOLERANCE", 1e-13)
    model = p.fit(DICA(lam=lam))
    right = p.K @ domain_scatter(p.d) @ p.K + p.K + lam * np.eye(p.n)
    gammas, B = np.linalg.eig(np.linalg.solve(right, p.P_y @ p.K @ p.K))
    order = np.argsort(-gammas.real)
    m = len(model.eigenvalues_)
    np.testing.assert_allclose(model.eigenvalues_, gammas[order][:m].real, rtol=1e-8)
    # Centring the coefficients does not change products with a centred kernel.
    same_up_to_sign(model.embedding_, unit(p.K @ B[:, order][:, :m].real), 1e-5)


@each_class_problem
def test_dica_equals_the_authors_code_up_to_scale(p):
    model = p.fit(DICA(lam=0.01))
    m = len(model.eigenvalues_)
    expected = dica_original(
        p.K_raw,
        p.K_y,
        p.d,
        rbf_kernel(p.X, p.new, gamma=GAMMA),
        epsilon=EPSILON,
        lam=0.01,
        n_components=m,
    )
    np.testing.assert_allclose(model.eigenvalues_, expected.eigenvalues, rtol=1e-8)
    scale = expected.projected.std(axis=0)
    same_up_to_sign(model.embedding_, expected.projected / scale, 1e-5)
    same_up_to_sign(model.transform(p.new), expected.projected_new / scale, 1e-5)


@pytest.mark.parametrize("lam", [1e-3, 1.0])
@each_class_problem
def test_unsupervised_dica_equals_a_dense_generalized_solution(p, lam):
    model = DICA(n_components=4, gamma=GAMMA, lam=lam).fit(p.X, sample_domain=p.d)
    right = p.K @ domain_scatter(p.d) @ p.K + p.K + lam * np.eye(p.n)
    gammas, B = scipy.linalg.eigh(p.K @ p.K, (right + right.T) / 2)
    np.testing.assert_allclose(model.eigenvalues_, gammas[::-1][:4], rtol=1e-8)
    same_up_to_sign(model.embedding_, unit(p.K @ B[:, ::-1][:, :4]), 1e-5)
    expected = dica_original(p.K_raw, None, p.d, epsilon=EPSILON, lam=lam, n_components=4)
    same_up_to_sign(model.embedding_, unit(expected.projected), 1e-5)


def test_dica_with_one_domain_has_no_domain_term():
    p = PROBLEMS["binary"]
    model = DICA(gamma=GAMMA).fit(p.X, p.y)
    right = p.K + 1e-3 * np.eye(p.n)
    gammas = np.linalg.eigvals(np.linalg.solve(right, p.P_y @ p.K @ p.K))
    np.testing.assert_allclose(model.eigenvalues_, [gammas.real.max()], rtol=1e-8)


# unsupervised DCM ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.01, 1.0, 30.0])
@each_class_problem
def test_unsupervised_dcm_equals_the_dense_problem_with_a_target_kernel_of_one(p, weight):
    K = centred(laplacian_kernel(p.X, gamma=1.0))
    model = DCM(
        n_components=4, kernel="laplacian", gamma=1.0, ridge=1e-13, domain_weight=weight
    ).fit(p.X, sample_domain=p.d)
    c = 1 / (1 + p.n * EPSILON)
    left, right = np.eye(p.n) + c * K, np.eye(p.n) + weight * p.P_d @ K
    gammas, V = scipy.linalg.eig(left, right)
    order = np.argsort(-gammas.real)[:4]
    np.testing.assert_allclose(model.eigenvalues_, gammas[order].real, rtol=1e-8)
    same_up_to_sign(model.embedding_, unit(V[:, order].real), 1e-5)


def test_unsupervised_dcm_separates_domains_less_with_larger_weights():
    p = PROBLEMS["unequal domains"]
    explained = []
    for weight in (0.0, 0.1, 10.0):
        model = DCM(n_components=1, gamma=GAMMA, ridge=np.inf, domain_weight=weight)
        Z = model.fit(p.X, sample_domain=p.d).embedding_
        explained.append(float((Z.T @ p.P_d @ Z)[0, 0] / p.n))
    assert explained[0] > explained[1] > explained[2]


# extra components ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-3, np.inf])
@each_class_problem
def test_extra_components_are_uncorrelated_with_labels_and_domains_in_variance_order(p, ridge):
    classes = len(np.unique(p.y))
    m = classes + 3
    message = f"only {classes - 1} of {m} components are informative about the target"
    with pytest.warns(UserWarning, match=message):
        model = p.fit(DCM(n_components=m, ridge=ridge))
    extra = model.embedding_[:, classes - 1 :]
    assert extra.shape[1] == 4
    np.testing.assert_array_equal(model.eigenvalues_[classes - 1 :], 1.0)
    for labels in (p.y, p.d):
        onehot = np.eye(labels.max() + 1)[labels]
        np.testing.assert_allclose((onehot - onehot.mean(axis=0)).T @ extra / p.n, 0, atol=1e-8)
    # Leading eigenvectors of K - K Q G^+ Q'K, which are their own projections.
    F = np.hstack([np.eye(labels.max() + 1)[labels] for labels in (p.y, p.d)])
    Q = scipy.linalg.orth(F - F.mean(axis=0), rcond=1e-10)
    KQ = p.K @ Q
    deflated = p.K - KQ @ np.linalg.pinv(Q.T @ KQ, hermitian=True) @ KQ.T
    values, vectors = np.linalg.eigh((deflated + deflated.T) / 2)
    same_up_to_sign(extra, unit(vectors[:, ::-1][:, :4]), 1e-5)
    assert np.all(np.diff(values[::-1][:4]) < 0)


def test_extra_components_are_the_same_for_every_ridge():
    p = PROBLEMS["multi-class"]
    with pytest.warns(UserWarning, match="only 4 of 7 components"):
        small = p.fit(DCM(n_components=7, ridge=1e-5))
    with pytest.warns(UserWarning, match="only 4 of 7 components"):
        large = p.fit(DCM(n_components=7, ridge=10.0))
    np.testing.assert_allclose(small.embedding_[:, 4:], large.embedding_[:, 4:], atol=1e-7)
    np.testing.assert_allclose(
        small.transform(p.new)[:, 4:], large.transform(p.new)[:, 4:], atol=1e-7
    )


def test_extra_components_of_dica_are_uncorrelated_with_labels_and_domains():
    p = PROBLEMS["binary"]
    with pytest.warns(UserWarning, match="only 1 of 4 components"):
        model = p.fit(DICA(n_components=4))
    for labels in (p.y, p.d):
        onehot = np.eye(labels.max() + 1)[labels]
        covariance = (onehot - onehot.mean(axis=0)).T @ model.embedding_[:, 1:] / p.n
        np.testing.assert_allclose(covariance, 0, atol=1e-8)
    np.testing.assert_array_equal(model.eigenvalues_[1:], 0.0)


# invariances --------------------------------------------------------------------------------------

MODELS = [
    pytest.param(DCM(), id="dcm"),
    pytest.param(DCM(ridge=np.inf, domain_weight=0.1), id="dcm-inf"),
    pytest.param(DCM(conditional=True), id="dcm-conditional"),
    pytest.param(COIR(), id="coir"),
    pytest.param(DICA(lam=0.01), id="dica"),
    pytest.param(KPCA(n_components=3), id="kpca"),
]
each_model = pytest.mark.parametrize("model", MODELS)
each_model_and_problem = pytest.mark.parametrize(
    ("model", "p"),
    [
        pytest.param(*model.values, p, id=f"{model.id}-{name}")
        for model in MODELS
        for name, p in PROBLEMS.items()
        if p.target_gamma is None or not getattr(model.values[0], "conditional", False)
    ],
)


def refit(model, *args, **params):
    X, y, d = args
    return type(model)(**{**model.get_params(), **params}).fit(X, y, sample_domain=d)


@each_model
def test_the_order_of_rows_does_not_matter(model):
    p = PROBLEMS["classes missing in a domain"]
    order = np.random.default_rng(0).permutation(p.n)
    one = refit(model, p.X, p.y, p.d, gamma=GAMMA)
    other = refit(model, p.X[order], p.y[order], p.d[order], gamma=GAMMA)
    np.testing.assert_allclose(other.eigenvalues_, one.eigenvalues_, rtol=1e-10)
    same_up_to_sign(other.embedding_, one.embedding_[order], 1e-7)
    same_up_to_sign(other.transform(p.new), one.transform(p.new), 1e-7)


@each_model
def test_the_names_of_domains_do_not_matter(model):
    p = PROBLEMS["classes missing in a domain"]
    one = refit(model, p.X, p.y, p.d)
    names = np.array(["south", "east", "north", "west"])[p.d]
    for domains in (names, 3 - p.d, p.d * 1000 - 7):
        other = refit(model, p.X, p.y, domains)
        np.testing.assert_allclose(other.transform(p.new), one.transform(p.new), atol=1e-9)


@each_model
def test_the_names_of_classes_only_choose_the_sign(model):
    p = PROBLEMS["multi-class"]
    one = refit(model, p.X, p.y, p.d)
    other = refit(model, p.X, np.array(list("dbeac"))[p.y], p.d)
    same_up_to_sign(other.transform(p.new), one.transform(p.new), 1e-8)


@each_model
def test_a_constant_added_to_the_features_of_a_linear_kernel_changes_nothing(model):
    p = PROBLEMS["binary"]
    n_components = 3 if isinstance(model, KPCA) else None
    one = refit(model, p.X, p.y, p.d, kernel="linear", n_components=n_components)
    moved = refit(model, p.X + 100.0, p.y, p.d, kernel="linear", n_components=n_components)
    np.testing.assert_allclose(moved.eigenvalues_, one.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(moved.transform(p.new + 100.0), one.transform(p.new), atol=1e-7)


@each_model
def test_a_constant_added_to_the_features_of_an_rbf_kernel_changes_nothing(model):
    p = PROBLEMS["binary"]
    one = refit(model, p.X, p.y, p.d)
    moved = refit(model, p.X - 37.0, p.y, p.d)
    np.testing.assert_allclose(moved.transform(p.new - 37.0), one.transform(p.new), atol=1e-7)


@each_model
def test_constant_features_change_nothing(model):
    p = PROBLEMS["binary"]
    wide = np.hstack([p.X, np.full((p.n, 2), 5.0)])
    one, other = refit(model, p.X, p.y, p.d), refit(model, wide, p.y, p.d)
    new = np.hstack([p.new, np.full((len(p.new), 2), 5.0)])
    assert one.gamma_ == pytest.approx(other.gamma_, rel=1e-12)
    np.testing.assert_allclose(other.transform(new), one.transform(p.new), atol=1e-7)


def test_units_do_not_matter_under_the_median_rule():
    p = PROBLEMS["multi-class"]
    one = p.fit(DCM(), gamma="median")
    for unit_of_measure in (1e-30, 1e-6, 1e6, 1e30):
        other = DCM().fit(p.X * unit_of_measure, p.y, sample_domain=p.d)
        np.testing.assert_allclose(other.embedding_, one.embedding_, atol=1e-8)
        np.testing.assert_allclose(
            other.transform(p.new * unit_of_measure), one.transform(p.new), atol=1e-7
        )


@each_model
def test_duplicated_rows_get_one_projection_and_invent_no_component(model):
    p = PROBLEMS["multi-class"]
    X, y, d = (np.concatenate([a, a]) for a in (p.X, p.y, p.d))
    one = refit(model, p.X, p.y, p.d, gamma=GAMMA)
    twice = refit(model, X, y, d, gamma=GAMMA)
    assert twice.embedding_.shape[1] == one.embedding_.shape[1]
    np.testing.assert_allclose(twice.embedding_[: p.n], twice.embedding_[p.n :], atol=1e-9)
    np.testing.assert_allclose(twice.transform(p.X), twice.embedding_[: p.n], atol=1e-7)


@pytest.mark.parametrize("ridge", [1e-3, np.inf])
def test_doubling_the_data_doubles_mu_and_keeps_the_directions(ridge):
    # Means over duplicates are the same, and v'Kv and v'v both double, so mu = gamma - 1 doubles.
    p = PROBLEMS["multi-class"]
    one = p.fit(COIR(ridge=ridge))
    twice = COIR(gamma=GAMMA, ridge=ridge).fit(np.vstack([p.X, p.X]), np.r_[p.y, p.y])
    np.testing.assert_allclose(twice.eigenvalues_ - 1, 2 * (one.eigenvalues_ - 1), rtol=1e-8)
    same_up_to_sign(twice.transform(p.new), one.transform(p.new), 1e-6)


def test_a_linear_kernel_has_no_more_components_than_independent_features():
    p = PROBLEMS["multi-class"]  # five classes have four components
    rank_two = p.X[:, :2] @ np.random.default_rng(0).normal(size=(2, 6))
    for solver in ("auto", "dense"):
        model = DCM(kernel="linear", solver=solver).fit(rank_two, p.y, sample_domain=p.d)
        assert model.n_informative_ <= 2
        assert model.embedding_.shape[1] == model.n_informative_
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kpca = KPCA(kernel="linear", solver=solver).fit(rank_two)
        assert kpca.embedding_.shape[1] == 2
        with pytest.warns(
            UserWarning, match="3 of 5 components were dropped, because they have no variance"
        ):
            KPCA(n_components=5, kernel="linear", solver=solver).fit(rank_two)


@pytest.mark.filterwarnings(EXTRAS)
def test_extras_of_a_low_rank_kernel_stop_where_its_rank_ends():
    p = PROBLEMS["binary"]
    with pytest.warns(UserWarning, match="no variance"):
        model = COIR(n_components=8, kernel="linear").fit(p.X, p.y)
    assert model.embedding_.shape[1] == p.X.shape[1]
    by_class = model.embedding_[p.y == 1].mean(axis=0)
    assert by_class[0] > 0.1
    np.testing.assert_allclose(by_class[1:], 0, atol=1e-8)


@pytest.mark.parametrize("gamma", [1e-12, 1e-6, 1e6, 1e12])
@each_model
def test_tiny_and_huge_gammas_work_without_inventing_components(model, gamma):
    p = PROBLEMS["multi-class"]
    fitted = refit(model, p.X, p.y, p.d, gamma=gamma)
    classes = len(np.unique(p.y))
    assert np.isfinite(fitted.embedding_).all()
    assert np.isfinite(fitted.transform(p.new)).all()
    if not isinstance(model, KPCA):
        assert fitted.n_informative_ <= classes - 1
        assert fitted.embedding_.shape[1] <= classes - 1


def test_a_tiny_gamma_approaches_the_linear_kernel():
    # exp(-g d^2) - 1 is -g d^2 to first order, which after centring is 2 g x'y.
    p = PROBLEMS["multi-class"]
    g = 1e-9
    rbf = COIR(gamma=g, ridge=np.inf).fit(p.X, p.y)
    linear = COIR(kernel="linear", ridge=np.inf).fit(p.X * np.sqrt(2 * g), p.y)
    np.testing.assert_allclose(rbf.eigenvalues_[:4] - 1, linear.eigenvalues_ - 1, rtol=1e-5)
    same_up_to_sign(rbf.embedding_[:, :2], linear.embedding_[:, :2], 1e-4)


def test_features_without_any_difference_are_an_error_that_names_the_cause():
    X, y = np.ones((12, 3)), np.arange(12) % 2
    with pytest.raises(ValueError, match="gamma='median' cannot be computed: .* identical"):
        DCM().fit(X, y)
    for model in (DCM(gamma=1.0), COIR(kernel="linear"), KPCA(gamma=1.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match="rows of X are equal for this kernel"):
                model.fit(X, y, sample_domain=np.arange(12) // 4)


# conventions --------------------------------------------------------------------------------------


@each_model_and_problem
def test_fit_transform_equals_fit_then_transform_and_the_embedding(model, p):
    one = refit(model, p.X, p.y, p.d)
    two = type(model)(**model.get_params())
    np.testing.assert_array_equal(two.fit_transform(p.X, p.y, sample_domain=p.d), one.embedding_)
    np.testing.assert_allclose(one.transform(p.X), one.embedding_, atol=1e-8)


@each_model
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian", "cosine"])
def test_a_row_has_the_same_projection_alone_and_among_others(model, kernel):
    p = PROBLEMS["binary"]
    fitted = refit(model, p.X, p.y, p.d, kernel=kernel)
    many = fitted.transform(p.new)
    single = np.vstack([fitted.transform(row[None, :]) for row in p.new])
    np.testing.assert_allclose(single, many, rtol=1e-10, atol=1e-13)


@each_model
def test_refitting_gives_identical_results(model, monkeypatch):
    p = PROBLEMS["binary"]
    for rows in (3000, 10):
        monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", rows)
        one, two = (refit(model, p.X, p.y, p.d) for _ in range(2))
        np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)
        np.testing.assert_array_equal(one.embedding_, two.embedding_)
        one.fit(p.X, p.y, sample_domain=p.d)
        np.testing.assert_array_equal(one.embedding_, two.embedding_)


@pytest.mark.filterwarnings(EXTRAS)
@each_model_and_problem
def test_components_are_centred_with_unit_variance_and_coefficients_sum_to_zero(model, p):
    fitted = refit(model, p.X, p.y, p.d)
    np.testing.assert_allclose(fitted.embedding_.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(fitted.embedding_.std(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(
        fitted.dual_coef_.sum(axis=0), 0, atol=1e-9 * np.abs(fitted.dual_coef_).max()
    )
    assert np.all(np.diff(fitted.eigenvalues_) <= 1e-12)


@each_class_problem
def test_the_last_class_has_a_positive_mean(p):
    for model in (DCM(), COIR(), DICA(lam=0.01)):
        Z = refit(model, p.X, p.y, p.d).embedding_
        mean = Z[p.y == p.y.max()].mean(axis=0)
        assert np.all(mean > -1e-6)
    names = np.array(["e", "d", "c", "b", "a"])
    Z = DCM().fit_transform(p.X, names[p.y], sample_domain=p.d)
    assert np.all(Z[p.y == 0].mean(axis=0) > -1e-6)


def test_a_continuous_target_covaries_positively_with_its_components():
    for name in ("regression", "regression, narrow kernel"):
        p = PROBLEMS[name]
        for model in (DCM(), COIR(), DICA(lam=0.01)):
            Z = refit(model, p.X, p.y, p.d).embedding_
            covariance = (p.y - p.y.mean()) @ Z / p.n / p.y.std()
            assert np.all(covariance > -1e-6)


def test_without_a_target_the_largest_entry_is_positive():
    p = PROBLEMS["binary"]
    for model in (KPCA(n_components=4), DCM(n_components=4), DICA(n_components=4)):
        Z = model.fit(p.X, sample_domain=p.d).embedding_
        assert np.all(Z[np.abs(Z).argmax(axis=0), np.arange(4)] > 0)


def test_a_precomputed_kernel_equals_the_named_kernel():
    p = PROBLEMS["multi-class"]
    K, K_new = p.K_raw, rbf_kernel(p.new, p.X, gamma=GAMMA)
    for model in (DCM(), COIR(), DICA(lam=0.01), KPCA(n_components=3)):
        direct = refit(model, p.X, p.y, p.d, gamma=GAMMA)
        precomputed = refit(model, K, p.y, p.d, kernel="precomputed")
        np.testing.assert_allclose(precomputed.eigenvalues_, direct.eigenvalues_, rtol=1e-8)
        same_up_to_sign(precomputed.embedding_, direct.embedding_, 1e-6)
        same_up_to_sign(precomputed.transform(K_new), direct.transform(p.new), 1e-6)


def test_a_callable_kernel_equals_the_named_kernel():
    p = PROBLEMS["multi-class"]
    direct = p.fit(DCM())
    called = DCM(kernel=rbf_kernel, kernel_params={"gamma": GAMMA}).fit(p.X, p.y, sample_domain=p.d)
    np.testing.assert_allclose(called.transform(p.new), direct.transform(p.new), atol=1e-7)
