"""Scores by domain, member weights and checks for context equal values computed by hand."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, r2_score

from domainwise import DomainEnsembleRegressor, SiteAdapter
from domainwise.estimators.ensemble.held_out import (
    HeldOutScore,
    ShareRange,
    balanced_accuracies,
    class_shares,
    equal_weights,
    exponent_scores,
    mixed_domains,
    softmax_weights,
    squared_errors,
)
from domainwise.held_out.calibration.curves import fit_curve
from domainwise.held_out.scoring.statistics import expected_score


def test_domains_and_their_classes_have_equal_weights():
    domains = np.array([0, 0, 0, 0, 1])
    classes = np.array([0, 0, 0, 1, 1])
    np.testing.assert_allclose(equal_weights(domains), [1 / 8] * 4 + [1 / 2])
    np.testing.assert_allclose(
        equal_weights(domains, classes), [1 / 12, 1 / 12, 1 / 12, 1 / 4, 1 / 2]
    )


def test_balanced_accuracy_is_over_the_classes_a_domain_has():
    found = balanced_accuracies(
        np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 0]), np.array([0, 0, 0, 0, 2]), 3
    )
    np.testing.assert_allclose(found, [(2 / 3 + 1) / 2, np.nan, 0.0])


def test_squared_errors_are_means_of_each_domain():
    y, predicted = np.array([1.0, 2.0, 5.0]), np.array([0.0, 4.0, 5.0])
    np.testing.assert_allclose(squared_errors(y, predicted, np.array([0, 0, 1]), 2), [2.5, 0.0])


def test_one_percent_of_rmse_counts_as_0_01_of_accuracy():
    errors = np.array([[1.0, 1.0], [1.01**2, 1.01**2]])
    scores = exponent_scores(errors, are_errors=True)
    assert scores[0] - scores[1] == pytest.approx(0.01, rel=0.01)
    assert np.isfinite(exponent_scores(np.zeros((1, 2)), are_errors=True)).all()


def test_weights_decrease_exponentially_with_the_score_difference():
    weights = softmax_weights(np.array([0.80, 0.78]))
    assert weights[0] / weights[1] == pytest.approx(np.e)
    assert softmax_weights(np.array([1e6, 0.0])).tolist() == [1.0, 0.0]
    likely = softmax_weights(np.array([0.5, 0.5]), prior=(0.6, 0.4))
    np.testing.assert_allclose(likely, [0.6, 0.4])


def test_weights_for_a_domain_do_not_depend_on_its_own_scores():
    y, domains = np.zeros(6), np.repeat([0, 1, 2], 2)
    members = {"one": np.array([[1.0], [1], [2], [2], [1], [1]]), "two": np.full((6, 1), 1.1)}
    judge = HeldOutScore(y, None, domains, 3, np.arange(6), np.ones(6), False, None)
    weights, _, without = judge.mix_predictions(members)
    errors = np.array([[1.0, 4.0, 1.0], [1.21, 1.21, 1.21]])
    for domain, others in enumerate([[1, 2], [0, 2], [0, 1]]):
        by_others = softmax_weights(exponent_scores(errors[:, others], are_errors=True))
        values = np.array([member[2 * domain, 0] for member in members.values()])
        np.testing.assert_allclose(without[2 * domain : 2 * domain + 2, 0], by_others @ values)
    by_all = softmax_weights(exponent_scores(errors, are_errors=True))
    np.testing.assert_allclose(list(weights.values()), by_all)


def test_an_expected_score_has_the_interval_of_its_domains():
    scores = np.array([0.6, 0.7, 0.8, np.nan])
    mean, low, high = expected_score(scores, 0)
    assert mean == pytest.approx(0.7)
    # Student's t interval is 0.452 to 0.948; means of three draws have few distinct values.
    assert 0.4 < low < 0.5
    assert 0.9 < high <= 1.0
    assert expected_score(scores - 1, 0)[2] <= 0.0
    r2 = [-0.1, -2.0, -0.3, -0.2]  # can be positive on another domain
    for scoring in ("r2", make_scorer(r2_score)):
        assert 0.0 < expected_score(r2, 0, scoring)[2] <= 1.0
    for scoring in ("neg_mean_squared_error", make_scorer(r2_score, greater_is_better=False)):
        assert expected_score(r2, 0, scoring)[2] == 0.0
    assert np.isnan(expected_score([0.5], 0)[1])
    wide = expected_score([0.4, 1.0] * 2, 0)
    narrow = expected_score([0.4, 1.0] * 50, 0)
    assert narrow[2] - narrow[1] < (wide[2] - wide[1]) / 3


def test_intervals_of_expected_scores_contain_the_mean_with_few_domains():
    rng = np.random.default_rng(0)
    for n_domains in (3, 6, 12):
        ends = [expected_score(rng.normal(5, 1, size=n_domains), 0)[1:] for _ in range(300)]
        assert 0.89 < np.mean([low <= 5 <= high for low, high in ends]) < 0.99


def test_domains_of_one_class_are_not_mixed():
    domains = np.repeat([0, 1, 2], 12)
    codes = np.concatenate([[0] * 12, [0] * 8 + [1] * 4, [0] * 7 + [1] * 5])
    assert mixed_domains(codes, domains, 3).tolist() == [2]


def test_shares_outside_the_range_of_the_sources_are_found():
    hard = np.eye(2)
    domains = np.repeat(np.arange(5), 100)
    predicted = np.concatenate([hard[[0] * (100 - k) + [1] * k] for k in (20, 25, 30, 35, 40)])
    kept = np.arange(5)
    shares = class_shares(predicted, domains, 5)
    np.testing.assert_allclose(shares[:, 1], [0.2, 0.25, 0.3, 0.35, 0.4])
    allowed = ShareRange.of_sources(predicted, domains, kept)
    new = np.array([[0.7, 0.3], [0.1, 0.9], [1.0, 0.0], [0.55, 0.45]])
    assert allowed.excludes(new, np.full(4, 1000)).tolist() == [False, True, True, False]
    # A single row contains only one class, whatever its domain.
    assert not allowed.excludes(np.eye(2), np.ones(2)).any()


def test_splits_without_scored_rows_have_no_scores():
    y, domains = np.array([0, 1] * 6), np.repeat([0, 1, 2], 4)
    score = HeldOutScore(
        y, np.array(["a", "b"]), domains, 3, np.arange(4, 12), np.ones(12), False, None
    )
    tests = [np.arange(4), np.arange(4, 8), np.arange(8, 12)]
    good, bad = 2.0 * np.eye(2)[y], -2.0 * np.eye(2)[y]
    outcomes = [[values[test] for test in tests] for values in (good, bad)]
    assert score.table([each[:1] for each in outcomes], tests[:1]).shape == (2, 0)
    table = score.table(outcomes, tests)
    assert table.shape == (2, 2)
    assert (table[0] > table[1]).all()
    _, loss = fit_curve(good[4:], y[4:], np.ones(8))
    assert table[0].mean() == pytest.approx(-loss)


def test_the_interval_of_a_negative_r2_is_not_cut_at_zero():
    rng = np.random.default_rng(0)
    X, domain = rng.normal(size=(60, 2)), np.repeat(np.arange(4), 15)
    y = rng.normal(size=60) + np.array([0.0, 0.5, 1.0, -3.0])[domain]
    for model in (
        DomainEnsembleRegressor(members=["linear"], scoring="r2"),
        SiteAdapter(Ridge(), scoring="r2"),
    ):
        model.fit(X, y, sample_domain=domain)
        assert model.domain_scores_.max() < 0.0
        expected = expected_score(model.domain_scores_, 0, "r2")
        assert model.expected_score_ == pytest.approx(expected)
        assert model.expected_score_[2] > 0.0
