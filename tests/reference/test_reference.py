"""The paper's algorithms against independent dense computations."""

import warnings

import numpy as np
import pytest
import scipy.linalg

from reproduction.reference import (
    algorithm1,
    algorithm2,
    algorithm2_stable,
    dica_original,
    project,
)

EPSILON = 1e-3


def rbf(A, B, gamma=0.15):
    return np.exp(-gamma * ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=-1))


def delta(a, b=None):
    return (a[:, None] == (a if b is None else b)[None, :]).astype(float)


def centring(n):
    return np.eye(n) - 1 / n


def centred(K):
    H = centring(len(K))
    return H @ K @ H


def smoother(K, epsilon=EPSILON):
    K = centred(K)
    return K @ np.linalg.inv(K + len(K) * epsilon * np.eye(len(K)))


class Problem:
    """Points with classes and domains, their kernels, and a choice of landmarks."""

    def __init__(self, n=40, n_classes=2, n_domains=4, seed=0, n_landmarks=12):
        rng = np.random.default_rng(seed)
        self.y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, size=n - n_classes)]
        self.d = rng.permutation(np.arange(n) % n_domains)
        self.X = rng.normal(size=(n, 4)) + 0.5 * self.y[:, None] + 0.5 * self.d[:, None]
        self.Z = rng.normal(size=(9, 4))
        self.n = n
        self.landmarks = np.sort(rng.permutation(n)[:n_landmarks])
        self.K_x, self.K_y, self.K_d = rbf(self.X, self.X), delta(self.y), delta(self.d)
        self.K_z = rbf(self.X, self.Z)

    def nystroem(self):
        s = self.landmarks
        return [part for K in (self.K_x, self.K_y, self.K_d) for part in (K[:, s], K[np.ix_(s, s)])]

    def approximate_kernels(self):
        """Dense centred C W^+ C' of points, targets and domains."""
        parts = self.nystroem()
        return [
            centred(C @ np.linalg.pinv(W, rcond=1e-13, hermitian=True) @ C.T)
            for C, W in zip(parts[::2], parts[1::2], strict=True)
        ]


PROBLEMS = [
    pytest.param(Problem(), id="binary"),
    pytest.param(Problem(n_classes=4, n_domains=3, seed=1), id="multi-class"),
    pytest.param(Problem(n=33, n_domains=8, seed=2), id="many-domains"),
]


def correlations(A, B):
    return np.abs([np.corrcoef(a, b)[0, 1] for a, b in zip(A.T, B.T, strict=True)])


# Algorithm 1 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("p", PROBLEMS)
def test_algorithm1_satisfies_the_papers_equation(p, weight):
    result = algorithm1(p.K_x, p.K_y, p.K_d, epsilon=EPSILON, n_components=5, domain_weight=weight)
    K, B = centred(p.K_x), result.coefficients
    left = (smoother(p.K_y) @ K @ K + K) @ B
    right = (weight * smoother(p.K_d) @ K @ K + K) @ B * result.eigenvalues
    residual = np.linalg.norm(left - right, axis=0) / np.linalg.norm(left, axis=0)
    assert residual.max() < 1e-9


@pytest.mark.parametrize("p", PROBLEMS)
def test_algorithm1_has_real_eigenvalues_with_at_most_classes_minus_one_above_one(p):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = algorithm1(p.K_x, p.K_y, p.K_d, epsilon=EPSILON, n_components=p.n - 1)
    gammas = result.eigenvalues
    classes, domains = len(np.unique(p.y)), len(np.unique(p.d))
    assert np.sum(gammas > 1 + 1e-8) == classes - 1
    assert np.sum(gammas < 1 - 1e-8) == domains - 1
    assert np.all(np.diff(gammas) <= 0)


@pytest.mark.parametrize("p", PROBLEMS)
def test_algorithm1_eigenvalues_equal_those_of_the_symmetric_form(p):
    # u = K^(1/2) v makes the pencil (I + K^1/2 P_y K^1/2, I + K^1/2 P_d K^1/2) symmetric.
    root = np.real(scipy.linalg.sqrtm(centred(p.K_x) + 0j))
    sides = [np.eye(p.n) + root @ smoother(K) @ root for K in (p.K_y, p.K_d)]
    expected = scipy.linalg.eigh(*[(S + S.T) / 2 for S in sides], eigvals_only=True)[::-1]
    result = algorithm1(p.K_x, p.K_y, p.K_d, epsilon=EPSILON, n_components=3)
    np.testing.assert_allclose(result.eigenvalues, expected[:3], rtol=1e-7)


def test_algorithm1_with_one_domain_or_weight_zero_is_coir():
    p = Problem(n_classes=3)
    one_domain = algorithm1(p.K_x, p.K_y, np.ones((p.n, p.n)), epsilon=EPSILON, n_components=2)
    weight_zero = algorithm1(p.K_x, p.K_y, p.K_d, epsilon=EPSILON, n_components=2, domain_weight=0)
    np.testing.assert_allclose(one_domain.eigenvalues, weight_zero.eigenvalues)
    assert correlations(one_domain.projected, weight_zero.projected).min() > 1 - 1e-9


def test_algorithm1_with_identity_targets_is_kernel_pca():
    # P_y = H / (1 + N eps) and no domains: gamma = 1 + lambda / (1 + N eps) (theory 5).
    p = Problem()
    result = algorithm1(p.K_x, np.eye(p.n), p.K_d, epsilon=EPSILON, n_components=3, domain_weight=0)
    values, vectors = np.linalg.eigh(centred(p.K_x))
    np.testing.assert_allclose(
        result.eigenvalues, 1 + values[::-1][:3] / (1 + p.n * EPSILON), rtol=1e-10
    )
    assert correlations(result.projected, vectors[:, ::-1][:, :3]).min() > 1 - 1e-8


def test_algorithm1_has_no_spurious_component_for_a_rank_deficient_kernel():
    p = Problem()
    result = algorithm1(p.X @ p.X.T, p.K_y, p.K_d, epsilon=EPSILON, n_components=4)
    assert np.sum(result.eigenvalues > 1 + 1e-8) == 1
    with pytest.raises(ValueError, match="between 1 and 4 .the rank of the centred K_x"):
        algorithm1(p.X @ p.X.T, p.K_y, p.K_d, epsilon=EPSILON, n_components=5)


def test_algorithm1_ignores_constants_added_to_the_kernels():
    p = Problem()
    plain = algorithm1(p.K_x, p.K_y, p.K_d, p.K_z, epsilon=EPSILON, n_components=1)
    shifted = algorithm1(
        p.K_x + 3, p.K_y + 1, p.K_d + 2, p.K_z + 3, epsilon=EPSILON, n_components=1
    )
    np.testing.assert_allclose(plain.eigenvalues, shifted.eigenvalues)
    sign = np.sign(plain.projected[0] * shifted.projected[0])
    np.testing.assert_allclose(plain.projected_new, sign * shifted.projected_new, atol=1e-5)


def test_algorithm1_projections_have_unit_variance_and_come_from_the_coefficients():
    p = Problem(n_classes=3)
    result = algorithm1(p.K_x, p.K_y, p.K_d, p.K_x, epsilon=EPSILON, n_components=2)
    np.testing.assert_allclose(result.projected.std(axis=0), 1)
    np.testing.assert_allclose(centred(p.K_x) @ result.coefficients, result.projected, atol=1e-7)
    np.testing.assert_allclose(result.projected_new, result.projected, atol=1e-7)


# Projection ---------------------------------------------------------------------------------------


def test_project_centres_new_points_with_the_training_means():
    p = Problem()
    B = np.random.default_rng(0).normal(size=(p.n, 2))
    # Explicit feature maps: with a linear kernel centring is subtraction of the training mean.
    mean = p.X.mean(axis=0)
    expected = (p.Z - mean) @ (p.X - mean).T @ B
    np.testing.assert_allclose(project(p.X @ p.X.T, p.X @ p.Z.T, B), expected)


def test_a_point_is_projected_independently_of_other_points():
    p = Problem()
    B = np.random.default_rng(0).normal(size=(p.n, 2))
    many = project(p.K_x, p.K_z, B)
    np.testing.assert_allclose(project(p.K_x, p.K_z[:, 3:4], B), many[3:4], rtol=1e-10)


# DICA ---------------------------------------------------------------------------------------------


def variance_matrix(d):
    """L of DICA by its definition, entry by entry."""
    groups = np.unique(d)
    T = len(groups)
    L = np.empty((len(d), len(d)))
    for i, g in enumerate(d):
        for j, h in enumerate(d):
            product = np.sum(d == g) * np.sum(d == h)
            L[i, j] = (1 / T - 1 / T**2 if g == h else -1 / T**2) / product
    return L


def dica_sides(p, lam, supervised):
    K = centred(p.K_x)
    left = (smoother(p.K_y) if supervised else np.eye(p.n)) @ K @ K
    return left, K @ variance_matrix(p.d) @ K + K + lam * np.eye(p.n)


@pytest.mark.parametrize("supervised", [True, False])
@pytest.mark.parametrize("p", PROBLEMS)
def test_dica_solves_its_equation_with_the_original_scaling(p, supervised):
    lam, m = 1e-2, len(np.unique(p.y)) - 1 if supervised else 4
    result = dica_original(
        p.K_x, p.K_y if supervised else None, p.d, epsilon=EPSILON, lam=lam, n_components=m
    )
    left, right = dica_sides(p, lam, supervised)
    B, gammas = result.coefficients, result.eigenvalues
    np.testing.assert_allclose(left @ B, right @ B * gammas, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(B, axis=0), 1 / np.sqrt(gammas))
    expected = np.sort(np.linalg.eigvals(np.linalg.solve(right, left)).real)[::-1][:m]
    np.testing.assert_allclose(gammas, expected, rtol=1e-8)


def test_dica_domain_term_is_the_variance_of_the_domain_means():
    p = Problem()
    K = centred(p.K_x)
    beta = np.random.default_rng(1).normal(size=p.n)
    means = [np.mean((K @ beta)[p.d == g]) for g in np.unique(p.d)]
    assert beta @ K @ variance_matrix(p.d) @ K @ beta == pytest.approx(np.var(means))


def test_dica_may_return_fewer_components_than_requested_with_a_warning():
    p = Problem()
    with pytest.warns(RuntimeWarning, match="DICA has only 1 real positive eigenvalues"):
        result = dica_original(p.K_x, p.K_y, p.d, p.K_z, epsilon=EPSILON, lam=1e-2, n_components=3)
    assert result.projected.shape == (p.n, 1)
    assert result.projected_new.shape == (9, 1)


# Algorithm 2 --------------------------------------------------------------------------------------


def dense_pencil(p, weight=1.0, epsilon=EPSILON):
    K, K_y, K_d = p.approximate_kernels()
    left = K @ (smoother(K_y, epsilon) @ K @ K + K)
    right = K @ (weight * smoother(K_d, epsilon) @ K @ K + K) + p.n * epsilon * np.eye(p.n)
    return left, right


@pytest.mark.parametrize("solve", [algorithm2, algorithm2_stable])
@pytest.mark.parametrize("weight", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("p", PROBLEMS)
def test_algorithm2_equals_the_dense_pencil_of_the_approximate_kernels(p, weight, solve):
    m = 6
    result = solve(*p.nystroem(), epsilon=EPSILON, n_components=m, domain_weight=weight)
    left, right = dense_pencil(p, weight)
    gammas, vectors = scipy.linalg.eig(left, right)
    order = np.argsort(-gammas.real)[:m]
    np.testing.assert_allclose(result.eigenvalues, gammas[order].real, rtol=1e-7)
    K = p.approximate_kernels()[0]
    assert correlations(result.projected, K @ vectors[:, order].real).min() > 1 - 1e-6
    B = result.coefficients
    np.testing.assert_allclose(K @ B, result.projected, atol=1e-6)
    residual = np.linalg.norm(left @ B - right @ B * result.eigenvalues, axis=0)
    assert np.all(residual < 1e-6 * np.linalg.norm(left @ B, axis=0))


@pytest.mark.parametrize("p", PROBLEMS)
def test_both_forms_of_algorithm2_agree_on_new_points(p):
    K_z = p.K_z[p.landmarks]
    printed, stable = (
        solve(*p.nystroem(), K_z, epsilon=EPSILON, n_components=4)
        for solve in (algorithm2, algorithm2_stable)
    )
    signs = np.sign(np.sum(printed.projected * stable.projected, axis=0))
    np.testing.assert_allclose(printed.projected, signs * stable.projected, atol=1e-6)
    np.testing.assert_allclose(printed.projected_new, signs * stable.projected_new, atol=1e-6)


@pytest.mark.parametrize("solve", [algorithm2, algorithm2_stable])
def test_algorithm2_projects_training_points_and_equal_new_points_alike(solve):
    p = Problem()
    K_z = p.K_x[p.landmarks]
    result = solve(*p.nystroem(), K_z, epsilon=EPSILON, n_components=3)
    np.testing.assert_allclose(result.projected_new, result.projected, atol=1e-9)
    np.testing.assert_allclose(result.projected.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(result.projected.std(axis=0), 1)


@pytest.mark.parametrize("solve", [algorithm2, algorithm2_stable])
def test_algorithm2_with_all_landmarks_solves_the_pencil_of_the_true_kernels(solve):
    p = Problem(n_landmarks=40)
    result = solve(*p.nystroem(), epsilon=EPSILON, n_components=3)
    K = centred(p.K_x)
    left = K @ (smoother(p.K_y) @ K @ K + K)
    right = K @ (smoother(p.K_d) @ K @ K + K) + p.n * EPSILON * np.eye(p.n)
    expected = np.sort(scipy.linalg.eigvals(left, right).real)[::-1][:3]
    np.testing.assert_allclose(result.eigenvalues, expected, rtol=1e-6)


def test_algorithm2_with_all_landmarks_tends_to_algorithm1_if_its_ridge_tends_to_zero():
    # Scaling K_x by s scales every term but N eps I, so the added ridge becomes negligible.
    p = Problem(n_landmarks=40)
    p.K_x = p.K_x + np.eye(p.n)
    gaps = []
    for s in (1.0, 10.0, 100.0):
        C_x, W_x, *others = p.nystroem()
        fast = algorithm2_stable(s * C_x, s * W_x, *others, epsilon=EPSILON, n_components=1)
        exact = algorithm1(s * p.K_x, p.K_y, p.K_d, epsilon=EPSILON, n_components=1)
        gaps.append(abs(fast.eigenvalues[0] / exact.eigenvalues[0] - 1))
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert gaps[2] < 1e-4
    assert correlations(fast.projected, exact.projected)[0] > 1 - 1e-4


def test_algorithm2_orders_directions_without_label_information_by_variance():
    # The added ridge turns gamma = 1 into lambda^2 / (lambda^2 + N eps).
    p = Problem(n_domains=1, n_landmarks=40)
    constant = np.ones((p.n, p.n))
    result = algorithm2_stable(
        p.K_x, p.K_x, constant, constant, constant, constant, epsilon=EPSILON, n_components=4
    )
    values = np.linalg.eigvalsh(centred(p.K_x))[::-1][:4]
    np.testing.assert_allclose(
        result.eigenvalues, values**2 / (values**2 + p.n * EPSILON), rtol=1e-7
    )


def test_algorithm2_stable_does_not_depend_on_the_order_of_badly_conditioned_landmarks():
    p = Problem(n=120, n_landmarks=60)
    p.K_x = rbf(p.X, p.X, gamma=1e-3)
    first = algorithm2_stable(*p.nystroem(), epsilon=1e-6, n_components=3)
    assert np.isfinite(first.projected).all()
    p.landmarks = p.landmarks[::-1]
    again = algorithm2_stable(*p.nystroem(), epsilon=1e-6, n_components=3)
    np.testing.assert_allclose(first.eigenvalues, again.eigenvalues, rtol=1e-4)
    assert correlations(first.projected, again.projected).min() > 1 - 1e-4


def test_algorithm2_accepts_duplicated_landmarks():
    p = Problem()
    once = algorithm2_stable(*p.nystroem(), epsilon=EPSILON, n_components=3)
    p.landmarks = np.r_[p.landmarks, p.landmarks[:5]]
    for solve in (algorithm2, algorithm2_stable):
        twice = solve(*p.nystroem(), epsilon=EPSILON, n_components=3)
        np.testing.assert_allclose(once.eigenvalues, twice.eigenvalues, rtol=1e-6)


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K_x": np.ones((3, 4))}, r"K_x must have shape \(3, 3\); got \(3, 4\)"),
        ({"K_y": np.eye(7)}, r"K_y must have shape \(40, 40\); got \(7, 7\)"),
        ({"K_d": np.triu(np.ones((40, 40)))}, "K_d must be symmetric"),
        ({"K_x": np.full((40, 40), np.nan)}, "K_x contains NaN"),
        ({"K_z": np.ones((7, 2))}, "K_z has 7 rows, but K_x has 40"),
        ({"epsilon": 0}, "epsilon must be a finite positive number; got 0"),
        ({"domain_weight": -1}, "domain_weight must be a finite non-negative number; got -1"),
        ({"n_components": 0}, "n_components must be between 1 and 39"),
    ],
)
def test_algorithm1_names_the_bad_argument(change, message):
    p = Problem()
    arguments = {"K_x": p.K_x, "K_y": p.K_y, "K_d": p.K_d, "epsilon": 1e-3, "n_components": 1}
    with pytest.raises(ValueError, match=message):
        algorithm1(**(arguments | change))


def test_dica_names_the_bad_argument():
    p = Problem()
    with pytest.raises(ValueError, match="lam must be a finite positive number; got 0"):
        dica_original(p.K_x, p.K_y, p.d, epsilon=1e-3, lam=0, n_components=1)
    with pytest.raises(ValueError, match=r"sample_domain has shape \(3,\), but K_x has 40 rows"):
        dica_original(p.K_x, p.K_y, p.d[:3], epsilon=1e-3, lam=1, n_components=1)


@pytest.mark.parametrize("solve", [algorithm2, algorithm2_stable])
def test_algorithm2_names_the_bad_argument(solve):
    C_x, W_x, *others = Problem().nystroem()
    with pytest.raises(ValueError, match=r"W_x must have shape \(12, 12\)"):
        solve(C_x, W_x[:5, :5], *others, epsilon=1e-3, n_components=1)
    with pytest.raises(ValueError, match="C_y has 40 rows, but C_x has 39"):
        solve(C_x[:39], W_x, *others, epsilon=1e-3, n_components=1)
    with pytest.raises(ValueError, match="n_components must be between 1 and 12"):
        solve(C_x, W_x, *others, epsilon=1e-3, n_components=13)
    with pytest.raises(ValueError, match="K_z has 3 rows, but C_x has 12 columns"):
        solve(C_x, W_x, *others, np.ones((3, 2)), epsilon=1e-3, n_components=1)
