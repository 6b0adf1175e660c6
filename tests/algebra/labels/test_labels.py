"""Label factors compared with the dense smoothers that they represent."""

import numpy as np
import pytest

from domainwise.algebra import labels
from domainwise.algebra.labels import (
    Feature,
    category_space,
    continuous_feature,
    joint_basis,
    kernel_factor,
    label_factor,
    label_rows,
    pivoted_cholesky,
)

EPSILON = 1e-3


def centred(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def smoother(K, epsilon=EPSILON):
    K = centred(K)
    return K @ np.linalg.inv(K + len(K) * epsilon * np.eye(len(K)))


def delta(a):
    return (a[:, None] == a[None, :]).astype(float)


def rbf(V, gamma):
    V = V if V.ndim == 2 else V[:, None]
    return np.exp(-gamma * ((V[:, None] - V[None]) ** 2).sum(axis=-1))


def categories(codes):
    return Feature(codes, int(codes.max()) + 1)


def continuous(values, kernel="rbf", gamma=0.5):
    values = values if values.ndim == 2 else values[:, None]
    return continuous_feature(
        values, kernel, gamma, labels.CHOLESKY_TOLERANCE * len(values) * EPSILON, "the kernel"
    )


def dense_P(rows, features, epsilon=EPSILON):
    F = rows.lift(label_factor(features, rows.space.n_samples, epsilon))
    return F @ F.T


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def y(rng):
    return np.r_[np.arange(3), rng.integers(0, 3, size=37)]


@pytest.fixture
def d(rng):
    # One domain contains a single row.
    return rng.permutation(np.r_[np.repeat([0, 1, 2], 13), 3])


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0])
def test_factors_of_categories_give_the_dense_smoother(y, d, epsilon):
    rows = label_rows(40, categories(y), categories(d))
    np.testing.assert_allclose(
        dense_P(rows, rows.space.target, epsilon), smoother(delta(y), epsilon), atol=1e-12
    )
    np.testing.assert_allclose(
        dense_P(rows, rows.space.domain, epsilon), smoother(delta(d), epsilon), atol=1e-12
    )


def test_factors_of_categories_have_one_column_fewer_than_categories(y, d):
    space = label_rows(40, categories(y), categories(d)).space
    F_y = label_factor(space.target, 40, EPSILON)
    F_d = label_factor(space.domain, 40, EPSILON)
    assert F_y.shape[1] == 2
    assert F_d.shape[1] == 3
    np.testing.assert_allclose(F_y.T @ F_y, np.diag(np.diagonal(F_y.T @ F_y)), atol=1e-12)


def test_lifting_preserves_inner_products_and_centres_columns(y, d, rng):
    for feature in (categories(y), continuous(rng.normal(size=40))):
        rows = label_rows(40, feature, categories(d))
        A = rows.space.target @ rng.normal(size=(rows.space.target.shape[1], 4))
        V = rows.lift(A)
        np.testing.assert_allclose(V.T @ V, A.T @ A, atol=1e-12)
        np.testing.assert_allclose(V.mean(axis=0), 0, atol=1e-13)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("gamma", [0.05, 2.0])
def test_factors_of_continuous_targets_give_the_dense_smoother(rng, d, n_outputs, gamma):
    values = rng.normal(size=(40, n_outputs))
    rows = label_rows(40, continuous(values, gamma=gamma), categories(d), target_values=values)
    P = dense_P(rows, rows.space.target)
    # |P - P_exact| is at most the residual trace divided by N eps, which is below 1e-6.
    np.testing.assert_allclose(P, smoother(rbf(values, gamma)), atol=1e-6)
    np.testing.assert_allclose(dense_P(rows, rows.space.domain), smoother(delta(d)), atol=1e-12)


def test_factors_of_continuous_domain_descriptors_give_the_dense_smoother(rng, y):
    values = rng.normal(size=(40, 2))
    rows = label_rows(40, categories(y), continuous(values, gamma=0.3))
    np.testing.assert_allclose(
        dense_P(rows, rows.space.domain), smoother(rbf(values, 0.3)), atol=1e-6
    )
    np.testing.assert_allclose(dense_P(rows, rows.space.target), smoother(delta(y)), atol=1e-12)


def test_a_linear_label_kernel_gives_the_dense_smoother_of_low_rank(rng, y):
    values = rng.normal(size=(40, 2)) + 5
    rows = label_rows(40, categories(y), continuous(values, kernel="linear"))
    F = label_factor(rows.space.domain, 40, EPSILON)
    assert F.shape[1] == 2
    np.testing.assert_allclose(
        dense_P(rows, rows.space.domain), smoother(values @ values.T), atol=1e-12
    )


def test_a_callable_label_kernel_gives_the_dense_smoother(rng, y):
    values = rng.normal(size=(40, 1))

    def quadratic(A, B):
        return (A @ B.T + 1) ** 2

    rows = label_rows(40, continuous(values, kernel=quadratic), categories(y))
    np.testing.assert_allclose(
        dense_P(rows, rows.space.target), smoother(quadratic(values, values)), atol=1e-6
    )


def test_a_constant_continuous_label_has_no_directions(y):
    rows = label_rows(40, categories(y), continuous(np.full(40, 2.5)))
    assert label_factor(rows.space.domain, 40, EPSILON).shape[1] == 0


# conditional --------------------------------------------------------------------------------------


def within_class_indicators(y, d):
    """(class, domain) indicators minus their class mean, row by row."""
    columns = []
    for c in np.unique(y):
        for g in np.unique(d[y == c]):
            column = ((y == c) & (d == g)).astype(float)
            column[y == c] -= column[y == c].mean()
            columns.append(column)
    return np.stack(columns, axis=1)


def test_conditional_factors_are_deviations_within_each_class(y, d):
    rows = label_rows(40, categories(y), categories(d), conditional=True)
    features = rows.lift(rows.space.domain)
    E = within_class_indicators(y, d)
    np.testing.assert_allclose(features @ features.T, E @ E.T, atol=1e-12)
    np.testing.assert_allclose(features.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.T @ np.eye(3)[y], 0, atol=1e-12)
    F = label_factor(rows.space.domain, 40, EPSILON)
    assert F.shape[1] == sum(len(np.unique(d[y == c])) - 1 for c in range(3))


def test_conditional_factors_ignore_differences_in_class_frequencies():
    # Each class occurs in one domain only, so domains do not differ within a class.
    y = np.repeat([0, 0, 1, 1], 5)
    d = np.repeat([0, 0, 1, 1], 5)
    rows = label_rows(20, categories(y), categories(d), conditional=True)
    assert label_factor(rows.space.domain, 20, EPSILON).shape[1] == 0


def test_conditional_descriptors_are_centred_within_each_class(rng, y):
    values = rng.normal(size=(40, 2))
    feature = continuous(values, kernel="linear")
    rows = label_rows(40, categories(y), feature, conditional=True)
    F = rows.lift(rows.space.domain)
    np.testing.assert_allclose(F.T @ np.eye(3)[y], 0, atol=1e-12)
    within = np.zeros((40, 40))
    for c in range(3):
        rows_c = np.flatnonzero(y == c)
        deviations = values[rows_c] - values[rows_c].mean(axis=0)
        within[np.ix_(rows_c, rows_c)] = deviations @ deviations.T
    np.testing.assert_allclose(F @ F.T, within, atol=1e-12)


def test_group_counts_give_the_same_label_space_as_rows(y, d):
    groups, counts = np.unique(y * 4 + d, return_counts=True)
    for conditional in (False, True):
        space = category_space(
            counts.astype(float), groups // 4, groups % 4, conditional=conditional
        )
        expected = label_rows(40, categories(y), categories(d), conditional=conditional).space
        np.testing.assert_allclose(
            space.target @ space.target.T, expected.target @ expected.target.T
        )
        np.testing.assert_allclose(
            space.domain @ space.domain.T, expected.domain @ expected.domain.T
        )


# basis --------------------------------------------------------------------------------------------


def test_the_joint_basis_is_orthonormal_and_spans_both_factors(y, d):
    rows = label_rows(40, categories(y), categories(d))
    F_y = label_factor(rows.space.target, 40, EPSILON)
    F_d = label_factor(rows.space.domain, 40, EPSILON)
    Q = joint_basis(F_y, F_d)
    assert Q.shape[1] == 5
    np.testing.assert_allclose(Q.T @ Q, np.eye(5), atol=1e-12)
    for F in (F_y, F_d):
        np.testing.assert_allclose(Q @ (Q.T @ F), F, atol=1e-12)


def test_the_joint_basis_counts_shared_directions_once(y):
    rows = label_rows(40, categories(y), categories(y))
    factors = [
        label_factor(features, 40, EPSILON) for features in (rows.space.target, rows.space.domain)
    ]
    assert joint_basis(*factors).shape[1] == 2


# pivoted Cholesky ---------------------------------------------------------------------------------


def random_kernel(rng, n=60, decay=0.5):
    U = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (U * decay ** np.arange(n)) @ U.T


@pytest.mark.parametrize("tolerance", [1e-1, 1e-4, 1e-8])
def test_pivoted_cholesky_stops_at_the_first_column_within_the_residual_trace(rng, tolerance):
    K = random_kernel(rng)
    L = pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), tolerance)[0]
    residual = K - L @ L.T
    assert np.trace(residual) <= tolerance
    assert np.linalg.eigvalsh(residual).min() > -1e-12
    shorter = K - L[:, :-1] @ L[:, :-1].T
    assert np.trace(shorter) > tolerance


def test_pivoted_cholesky_without_a_tolerance_stops_at_rounding_errors(rng):
    A = rng.normal(size=(50, 4))
    K = A @ A.T
    L = pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), 0.0)[0]
    assert L.shape == (50, 4)
    np.testing.assert_allclose(L @ L.T, K, atol=1e-10)


def test_pivoted_cholesky_grows_beyond_its_first_allocation(rng):
    K = random_kernel(rng, n=90, decay=0.95)
    L = pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), 1e-13)[0]
    assert L.shape[1] > 64
    np.testing.assert_allclose(L @ L.T, K, atol=1e-12)


def test_pivoted_cholesky_refuses_matrices_that_are_not_kernels(rng):
    K = np.diag([1.0, -0.5, 2.0])
    with pytest.raises(ValueError, match="the target kernel has a negative or non-finite diagonal"):
        pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), 0.0, "the target kernel")
    K = np.array([[1.0, 3.0], [3.0, 1.0]])
    with pytest.raises(ValueError, match="the target kernel is not positive semi-definite"):
        pivoted_cholesky(lambda j: K[:, j], np.diagonal(K), 0.0, "the target kernel")


def test_a_label_kernel_that_is_too_narrow_for_a_thin_factor_is_refused(rng, monkeypatch):
    monkeypatch.setattr(labels, "MAX_FACTOR_BYTES", 8 * 40 * 10)
    with pytest.raises(ValueError, match="more than 10 columns for 40 rows.*smaller gamma"):
        continuous(rng.normal(size=40), gamma=1e6)


# kernel_factor ------------------------------------------------------------------------------------


def test_kernel_factor_with_a_linear_kernel_represents_the_precomputed_matrix(rng, y):
    K = random_kernel(rng, n=40, decay=0.7)
    L = kernel_factor(K)
    np.testing.assert_allclose(L @ L.T, K, atol=1e-9)
    rows = label_rows(40, categories(y), continuous(L, kernel="linear"))
    np.testing.assert_allclose(dense_P(rows, rows.space.domain), smoother(K), atol=1e-7)


def test_kernel_factor_of_low_rank_is_thin_for_any_unit(rng):
    A = rng.normal(size=(50, 3))
    for unit in (1e-12, 1.0, 1e12):
        assert kernel_factor(unit * A @ A.T).shape == (50, 3)


@pytest.mark.parametrize(
    ("K", "message"),
    [
        (np.ones((2, 3)), r"K must be a square matrix; got shape \(2, 3\)"),
        (np.ones(3), r"K must be a square matrix; got shape \(3,\)"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "K contains NaN"),
        (np.array([[1.0, 0.5], [0.1, 1.0]]), "K must be symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "K is not positive semi-definite"),
    ],
)
def test_kernel_factor_refuses_invalid_matrices(K, message):
    with pytest.raises(ValueError, match=message):
        kernel_factor(K)
