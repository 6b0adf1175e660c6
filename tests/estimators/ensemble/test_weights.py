"""Scores by domain, member weights and checks for context equal values computed by hand."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, r2_score

from domainwise import DomainEnsembleRegressor, SiteAdapter
from domainwise.estimators.ensemble import held_out
from domainwise.estimators.ensemble.held_out import (
    HeldOutScore,
    ShareRange,
    class_shares,
    equal_weights,
    member_weights,
    mixed_domains,
    paired_deficits,
)
from domainwise.held_out.calibration.curves import fit_curve
from domainwise.held_out.folds import draw_rows
from domainwise.held_out.scoring.statistics import expected_score


def test_domains_have_equal_weights():
    domains = np.array([0, 0, 0, 0, 1])
    np.testing.assert_allclose(equal_weights(domains), [1 / 8] * 4 + [1 / 2])


def test_balanced_accuracy_is_over_the_classes_a_domain_has():
    domains, y = np.array([0, 0, 0, 0, 2]), np.array([0, 0, 0, 1, 1])
    scored = HeldOutScore(y, np.array(["a", "b", "c"]), domains, 3, np.arange(5), None)
    found = scored.scores(np.eye(3)[[0, 0, 1, 1, 0]])
    np.testing.assert_allclose(found, [(2 / 3 + 1) / 2, np.nan, 0.0])


def score(y, domains, classes=None):
    return HeldOutScore(y, classes, domains, int(domains.max()) + 1, np.arange(len(y)), None)


def test_losses_are_means_of_each_domain():
    domains = np.array([0, 0, 2])
    y, predicted = np.array([1.0, 2.0, 5.0]), np.array([[0.0], [4.0], [5.0]])
    np.testing.assert_allclose(score(y, domains).losses(predicted), [2.5, np.nan, 0.0])
    p = np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
    losses = score(np.array([0, 1, 0]), domains, np.array(["a", "b"])).losses(p)
    np.testing.assert_allclose(losses, [-(np.log(0.5) + np.log(0.8)) / 2, np.nan, 0.0])


def test_an_rmse_larger_by_1_percent_is_worse_by_0_01():
    deficits, errors = paired_deficits(np.array([[1.0, 2.0], [1.01**2, 2 * 1.01**2]]))
    np.testing.assert_allclose(deficits, [0.0, np.log(1.01)])
    np.testing.assert_allclose(errors, 0.0, atol=1e-12)
    assert np.isfinite(paired_deficits(np.zeros((2, 2)))[0]).all()


def test_standard_errors_of_deficits_are_close_to_those_of_a_jackknife():
    losses = np.exp(0.2 * np.random.default_rng(0).standard_normal((2, 12)))
    deficits, errors = paired_deficits(losses)
    worst = int(deficits.argmax())
    without = np.array(
        [
            0.5 * np.log(part[worst].mean() / part[1 - worst].mean())
            for part in (np.delete(losses, d, axis=1) for d in range(12))
        ]
    )
    jackknife = np.sqrt(11 * without.var())
    assert errors[worst] == pytest.approx(jackknife, rel=0.05)


def test_weights_decrease_with_the_deficit_in_standard_errors():
    rng = np.random.default_rng(1)
    losses = np.stack([np.ones(16), np.exp(0.5 * rng.standard_normal(16))])
    deficits, errors = paired_deficits(losses)
    assert errors[1] > 0.02
    weights = member_weights(losses)
    assert weights[1] / weights[0] == pytest.approx(np.exp(-deficits[1] / errors[1]))
    # If domains agree, the temperature is 0.02, and members that are 5 % worse are dropped.
    weights = member_weights(np.array([[1.0] * 3, [1.02**2] * 3, [1.05**2] * 3]))
    assert weights[1] / weights[0] == pytest.approx(np.exp(-np.log(1.02) / 0.02))
    assert weights[2] == 0.0
    np.testing.assert_allclose(member_weights(np.ones((2, 3)), (0.6, 0.4)), [0.6, 0.4])


def test_weights_for_a_domain_do_not_depend_on_its_own_scores():
    y, domains = np.zeros(6), np.repeat([0, 1, 2], 2)
    members = {"one": np.array([[1.0], [1], [1.2], [1.2], [1], [1]]), "two": np.full((6, 1), 1.1)}
    weights, _, without = score(y, domains).mix_predictions(members)
    losses = np.array([[1.0, 1.44, 1.0], [1.21, 1.21, 1.21]])
    for domain, others in enumerate([[1, 2], [0, 2], [0, 1]]):
        values = np.array([member[2 * domain, 0] for member in members.values()])
        expected = member_weights(losses[:, others]) @ values
        np.testing.assert_allclose(without[2 * domain : 2 * domain + 2, 0], expected)
    np.testing.assert_allclose(list(weights.values()), member_weights(losses))


def test_a_member_is_used_alone_if_the_average_is_clearly_worse():
    domains = np.repeat(np.arange(8), 5)
    y = np.zeros(40)
    one, other = np.full((40, 1), 0.1), np.where(domains[:, None] % 2, 0.05, -0.16)
    losses = np.array([score(y, domains).losses(values) for values in (one, other)])
    assert member_weights(losses).min() > 0.0
    weights, mixture, _ = score(y, domains).mix_predictions({"one": one, "other": other})
    assert min(weights.values()) > 0.0  # errors cancel in the average
    # Two members that are equally good, but whose average is worse than both.
    shape = np.tile([True] * 4 + [False], 8)
    classes = np.array(["a", "b"])
    loss = score(np.zeros(40, dtype=int), domains, classes)
    p = np.where(shape[:, None], [[0.9, 0.1]], [[0.4, 0.6]])
    assert loss.mix_predictions({"p": p, "q": p})[1] == pytest.approx(p)
    worse = np.clip(p - [[0.02, -0.02]], 0.01, 0.99)
    weights, mixture, _ = loss.mix_predictions({"p": p, "worse": worse})
    assert weights == {"p": 1.0, "worse": 0.0}
    np.testing.assert_array_equal(mixture, p)


def test_predictions_are_bounded_where_held_out_domains_show_that_this_is_safe():
    domains = np.repeat(np.arange(4), 10)
    y = np.tile(np.linspace(0.0, 1.0, 10), 4)
    values = y[:, None].copy()
    values[3] = 5.0  # no target is beyond those of the other domains
    (low, high), bounded = score(y, domains).safe_bounds(values)
    assert (low, high) == (0.0, 1.0)
    assert bounded[3] == 1.0
    # The last domain continues the others, so predictions may go as far beyond as it did.
    trend = y + 0.5 * (domains == 3)
    (low, high), bounded = score(trend, domains).safe_bounds(trend[:, None])
    np.testing.assert_allclose(bounded[:, 0], trend)
    assert high == pytest.approx(1.5 + 0.5 * 1.5)


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
    score = HeldOutScore(y, np.array(["a", "b"]), domains, 3, np.arange(4, 12), None)
    tests = [np.arange(4), np.arange(4, 8), np.arange(8, 12)]
    good, bad = 2.0 * np.eye(2)[y], -2.0 * np.eye(2)[y]
    outcomes = [[values[test] for test in tests] for values in (good, bad)]
    assert score.table([each[:1] for each in outcomes], tests[:1]).shape == (2, 0)
    table = score.table(outcomes, tests)
    assert table.shape == (2, 2)
    assert (table[0] > table[1]).all()
    _, loss = fit_curve(good[4:], y[4:], np.ones(8))
    assert table[0].mean() == pytest.approx(-loss)


@pytest.mark.parametrize(("n_candidates", "n_rows"), [(2, 6000), (40, 4000), (100, 2000)])
def test_few_candidates_are_compared_on_more_rows(n_candidates, n_rows, monkeypatch):
    y, domains = np.zeros(6000), np.repeat([0, 1, 2], 2000)
    drawn = []
    monkeypatch.setattr(
        held_out, "draw_rows", lambda *args: drawn.append(draw_rows(*args)) or drawn[-1]
    )
    outcomes = [[np.full((6000, 1), float(i))] for i in range(n_candidates)]
    found = score(y, domains).table(outcomes, [np.arange(6000)])
    np.testing.assert_allclose(found.mean(axis=1), -(np.arange(n_candidates) ** 2.0))
    assert [len(rows) for rows in drawn] == [n_rows]


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
