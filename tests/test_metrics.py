"""Scores over domains and kernel measures of invariance."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import (
    accuracy_score,
    mean_absolute_error,
    recall_score,
    roc_auc_score,
    root_mean_squared_error,
)

from domainwise.metrics import (
    g_mean_score,
    hsic,
    invariance_report,
    mmd,
    worst_domain_score,
)


@pytest.fixture
def sample():
    rng = np.random.default_rng(3)
    domain = rng.integers(0, 4, size=90)
    y = rng.integers(0, 3, size=90)
    Z = rng.normal(size=(90, 3)) + 0.7 * domain[:, None] + 0.3 * y[:, None] ** 2
    return Z, y, domain


def rbf(X, gamma):
    return np.array([[np.exp(-gamma * np.sum((a - b) ** 2)) for b in X] for a in X])


def median_gamma(X):
    distances = [np.linalg.norm(X[i] - X[j]) for i in range(len(X)) for j in range(i)]
    return 1 / (2 * np.median([d for d in distances if d > 0]) ** 2)


def delta(a):
    return (np.asarray(a)[:, None] == np.asarray(a)[None, :]).astype(float)


def dense_hsic(K, L):
    n = len(K)
    H = np.eye(n) - 1 / n
    return np.trace(H @ K @ H @ H @ L @ H) / n**2


# G-mean -------------------------------------------------------------------------------------------


def test_g_mean_of_a_binary_target_is_the_root_of_sensitivity_times_specificity():
    y_true = [0] * 8 + [1] * 5
    y_pred = [0] * 6 + [1] * 2 + [1] * 3 + [0] * 2
    assert g_mean_score(y_true, y_pred) == pytest.approx(np.sqrt(6 / 8 * 3 / 5))


def test_g_mean_of_many_classes_is_the_geometric_mean_of_recalls():
    rng = np.random.default_rng(0)
    y_true = rng.choice(["a", "b", "c"], size=60)
    y_pred = np.where(rng.random(60) < 0.6, y_true, rng.choice(["a", "b", "c", "d"], size=60))
    recalls = recall_score(y_true, y_pred, average=None, labels=["a", "b", "c"])
    assert g_mean_score(y_true, y_pred) == pytest.approx(np.prod(recalls) ** (1 / 3))


def test_g_mean_is_zero_if_a_class_is_never_predicted_correctly():
    assert g_mean_score([0, 0, 1], [0, 0, 0]) == 0.0


def test_g_mean_of_one_class_is_its_recall():
    assert g_mean_score([1, 1, 1, 1], [1, 1, 1, 0]) == pytest.approx(0.75)


def test_g_mean_accepts_pandas_categories():
    y = pd.Series(["u", "v", "u"], dtype="category")
    assert g_mean_score(y, y) == 1.0


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1, 1], [0, 1], "y_pred has 2 entries, but y_true has 3"),
        ([0.5, 1.5], [0, 1], "y_true must contain class labels"),
        ([0, 1], [0.2, 0.7], "y_pred must contain class labels"),
        ([0, np.nan], [0, 1], "y_true has 1 missing or infinite entries"),
        ([[0, 1]], [[0, 1]], "y_true must be 1-D"),
        ([], [], "y_true is empty"),
    ],
)
def test_g_mean_explains_bad_input(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        g_mean_score(y_true, y_pred)


# Worst domain -------------------------------------------------------------------------------------


def test_worst_domain_score_is_the_minimum_over_domains():
    rng = np.random.default_rng(1)
    y_true, y_pred, domain = rng.integers(0, 2, size=(3, 80))
    per_domain = [accuracy_score(y_true[domain == g], y_pred[domain == g]) for g in (0, 1)]
    assert worst_domain_score(y_true, y_pred, domain, accuracy_score) == min(per_domain)


def test_worst_domain_of_a_loss_is_the_maximum():
    y_true, y_pred = np.zeros(4), np.array([0.0, 1.0, 4.0, 2.0])
    worst = worst_domain_score(
        y_true, y_pred, list("aabb"), mean_absolute_error, greater_is_better=False
    )
    assert worst == 3.0


def test_worst_domain_score_of_one_domain_is_the_metric_itself():
    assert worst_domain_score([0, 1, 1], [0, 1, 0], ["x"] * 3, accuracy_score) == 2 / 3


def test_worst_domain_score_accepts_targets_with_several_columns():
    Y = np.arange(8.0).reshape(4, 2)
    worst = worst_domain_score(
        Y,
        Y + np.array([[0.0], [0.0], [3.0], [3.0]]),
        [1, 1, 2, 2],
        root_mean_squared_error,
        greater_is_better=False,
    )
    assert worst == pytest.approx(3.0)


@pytest.mark.filterwarnings("ignore:Only one class")
def test_worst_domain_score_names_the_domain_where_the_metric_is_undefined():
    with pytest.raises(ValueError, match="domain 'B'"):
        worst_domain_score([0, 1, 1, 1], [0.1, 0.9, 0.5, 0.6], list("AABB"), roc_auc_score)


def test_worst_domain_score_explains_bad_input():
    with pytest.raises(TypeError, match="'metric' .* must be a callable"):
        worst_domain_score([0, 1], [0, 1], [0, 0], "accuracy")
    with pytest.raises(ValueError, match="sample_domain has 1 entry, but y_true has 2"):
        worst_domain_score([0, 1], [0, 1], [0], accuracy_score)
    with pytest.raises(ValueError, match="sample_domain contains missing values"):
        worst_domain_score([0, 1], [0, 1], ["a", None], accuracy_score)
    with pytest.raises(ValueError, match="sample_domain mixes labels .*number, string"):
        worst_domain_score([0, 1], [0, 1], np.array(["a", 1], dtype=object), accuracy_score)


# HSIC ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 7, 64, 1024])
def test_hsic_equals_the_trace_of_dense_centred_kernels(sample, block_size):
    Z, y, _ = sample
    expected = dense_hsic(rbf(Z, median_gamma(Z)), delta(y))
    assert hsic(Z, y, block_size=block_size) == pytest.approx(expected, rel=1e-10)


def test_hsic_of_a_continuous_vector_uses_rbf_and_of_integers_delta(sample):
    Z, y, _ = sample
    x = Z[:, 0]
    K_x, K_z = rbf(x[:, None], median_gamma(x[:, None])), rbf(Z, 0.2)
    assert hsic(x, Z, gamma_b=0.2) == pytest.approx(dense_hsic(K_x, K_z), rel=1e-10)
    assert hsic(y.astype(float), Z, gamma_b=0.2) == pytest.approx(dense_hsic(delta(y), K_z))
    assert hsic(y, Z, kernel_a="rbf", gamma_a=2.0, gamma_b=0.2) == pytest.approx(
        dense_hsic(rbf(y[:, None], 2.0), K_z)
    )


def test_hsic_of_linear_kernels_is_the_squared_cross_covariance(sample):
    Z, y, _ = sample
    A, B = Z - Z.mean(axis=0) + 1e4, y[:, None].astype(float)
    covariance = (Z - Z.mean(axis=0)).T @ (B - B.mean()) / len(Z)
    assert hsic(A, B, kernel_a="linear", kernel_b="linear") == pytest.approx(
        np.sum(covariance**2), rel=1e-8
    )


def test_hsic_of_two_labellings_follows_from_their_contingency_table(sample):
    _, y, domain = sample
    table = pd.crosstab(y, domain).to_numpy()
    excess = table - table.sum(axis=1, keepdims=True) * table.sum(axis=0) / len(y)
    assert hsic(y, domain) == pytest.approx(np.sum(excess**2) / len(y) ** 2)


def test_hsic_is_symmetric_and_zero_against_a_constant(sample):
    Z, y, _ = sample
    assert hsic(Z, y) == pytest.approx(hsic(y, Z), rel=1e-12)
    assert hsic(Z, np.ones(len(Z), dtype=int)) == 0.0
    assert hsic(Z, np.ones(len(Z), dtype=int), normalize=True) == 0.0


def test_normalized_hsic_is_one_for_equal_variables_and_ignores_scale(sample):
    Z, y, _ = sample
    assert hsic(Z, Z, normalize=True) == pytest.approx(1.0)
    assert hsic(1e3 * Z + 5, y, normalize=True) == pytest.approx(hsic(Z, y, normalize=True))


def test_hsic_stays_accurate_for_a_tiny_gamma(sample):
    Z, y, _ = sample
    # As gamma -> 0, (k - 1) / gamma -> -d^2, whose centred form is twice the linear kernel.
    gamma = 1e-12
    small = hsic(Z, y, gamma_a=gamma) / gamma
    assert small == pytest.approx(2 * hsic(Z, y, kernel_a="linear"), rel=1e-6)


def test_hsic_does_not_form_the_whole_kernel_matrix():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(6000, 2)), rng.integers(0, 2, size=6000)
    tracemalloc.start()
    hsic(Z, y, gamma_a=0.5, block_size=256)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.05 * 6000**2 * 8


def test_hsic_explains_bad_input(sample):
    Z, y, _ = sample
    with pytest.raises(ValueError, match="B has 89 rows, but A has 90"):
        hsic(Z, y[:-1])
    with pytest.raises(ValueError, match="A contains NaN"):
        hsic(np.where(Z > 2, np.nan, Z), y)
    with pytest.raises(ValueError, match="'kernel_a' .* must be .* Got 'cosine'"):
        hsic(Z, y, kernel_a="cosine")
    with pytest.raises(ValueError, match="'gamma_a' .* must be .* Got -1"):
        hsic(Z, y, gamma_a=-1)
    with pytest.raises(ValueError, match="A: gamma='median' cannot be computed: .* identical"):
        hsic(np.ones((5, 2)), np.arange(5))
    with pytest.raises(ValueError, match="'block_size' .* must be an int"):
        hsic(Z, y, block_size=0)


# MMD ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [1, 13, 1024])
def test_mmd_equals_loops_over_pairs_of_rows(sample, block_size):
    Z, _, domain = sample
    K = rbf(Z, 0.3)
    expected = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            a, b = domain == i, domain == j
            squared = K[np.ix_(a, a)].mean() + K[np.ix_(b, b)].mean() - 2 * K[np.ix_(a, b)].mean()
            expected[i, j] = np.sqrt(max(squared, 0))
    distances = mmd(Z, domain, gamma=0.3, block_size=block_size)
    np.testing.assert_allclose(distances, expected, atol=1e-7)
    np.testing.assert_array_equal(distances, distances.T)
    np.testing.assert_array_equal(np.diag(distances), 0)


def test_mmd_is_a_metric_between_domains(sample):
    Z, _, domain = sample
    D = mmd(Z, domain)
    assert np.all(D[:, :, None] <= D[:, None, :] + D.T[None, :, :] + 1e-9)


def test_mmd_of_single_rows_is_the_distance_of_their_features():
    D = mmd([[0.0], [1.0]], ["a", "b"], gamma=0.7)
    assert D[0, 1] == pytest.approx(np.sqrt(2 - 2 * np.exp(-0.7)))


def test_mmd_is_zero_between_copies_and_for_one_domain(sample):
    Z, _, _ = sample
    twice = mmd(np.vstack([Z, Z]), np.repeat(["a", "b"], len(Z)))
    np.testing.assert_allclose(twice, 0, atol=1e-7)
    np.testing.assert_array_equal(mmd(Z, ["only"] * len(Z)), [[0.0]])


def test_mmd_explains_bad_input(sample):
    Z, _, domain = sample
    with pytest.raises(ValueError, match="sample_domain has 3 entries, but Z has 90 rows"):
        mmd(Z, domain[:3])
    with pytest.raises(ValueError, match="Expected 2D array"):
        mmd(Z[:, 0], domain)
    with pytest.raises(ValueError, match="sample_domain must be 1-D"):
        mmd(Z, domain[:, None])
    with pytest.raises(ValueError, match="sample_domain has 1 missing or infinite"):
        mmd(Z[:2], pd.array([1, pd.NA], dtype="Int64"))


# Report -------------------------------------------------------------------------------------------


def test_invariance_report_contains_hsic_and_mmd(sample):
    Z, y, domain = sample
    names = np.array(["n", "o", "p", "q"])[domain]
    report = invariance_report(Z, y, names)
    assert report.domain_dependence == pytest.approx(hsic(Z, domain, normalize=True))
    assert report.target_dependence == pytest.approx(hsic(Z, y, normalize=True))
    distances = mmd(Z, domain)
    np.testing.assert_allclose(report.mmd, distances)
    above = distances[np.triu_indices(4, 1)]
    assert report.mean_mmd == pytest.approx(above.mean())
    assert report.max_mmd == pytest.approx(above.max())
    np.testing.assert_allclose(report.domain_mmd, distances.sum(axis=1) / 3)
    assert report.domains.tolist() == ["n", "o", "p", "q"]


def test_invariance_report_shows_that_features_without_domain_shifts_are_invariant(sample):
    Z, y, domain = sample
    centred = Z - np.array([Z[domain == g].mean(axis=0) for g in range(4)])[domain]
    before, after = invariance_report(Z, y, domain), invariance_report(centred, y, domain)
    assert after.domain_dependence < 0.2 * before.domain_dependence
    assert after.mean_mmd < before.mean_mmd


def test_invariance_report_works_without_target_and_with_one_domain(sample):
    Z, _, _ = sample
    report = invariance_report(Z, None, np.zeros(len(Z), dtype=int))
    assert report.target_dependence is None
    assert (report.domain_dependence, report.mean_mmd, report.max_mmd) == (0.0, 0.0, 0.0)


def test_invariance_report_can_be_written_as_json(sample):
    Z, y, domain = sample
    back = json.loads(json.dumps(invariance_report(Z, y, domain).to_dict()))
    assert back["domains"] == [0, 1, 2, 3]
    assert len(back["mmd"]) == 4


def test_invariance_report_names_arguments_of_wrong_length(sample):
    Z, y, domain = sample
    with pytest.raises(ValueError, match="y has 4 entries, but Z has 90 rows"):
        invariance_report(Z, y[:4], domain)
    with pytest.raises(ValueError, match="sample_domain has 5 entries, but Z has 90 rows"):
        invariance_report(Z, y, domain[:5])
