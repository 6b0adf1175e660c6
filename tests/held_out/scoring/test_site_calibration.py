"""Calibration and net benefit, compared with statsmodels and with arithmetic by hand."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit, logit
from scipy.stats import binomtest

from domainwise.held_out.scoring.pooling import pool_transformed
from domainwise.held_out.scoring.site_calibration import SiteRows, decision_curves
from domainwise.metrics import (
    calibration_slope,
    decision_scores,
    net_benefit,
    observed_expected,
    pool_scores,
)


def made_rows(seed, n=400, n_sites=5):
    """Probabilities that are too extreme, with another level at each site."""
    rng = np.random.default_rng(seed)
    site = rng.integers(n_sites, size=n)
    predictors = rng.normal(-1.0, 1.2, size=n)
    true_p = expit(0.2 * rng.normal(size=n_sites)[site] + 0.7 * predictors)
    return (rng.random(n) < true_p).astype(int), expit(predictors), site


@pytest.mark.parametrize("seed", range(4))
def test_slope_and_intercept_agree_with_statsmodels(seed):
    y, p, _ = made_rows(seed)
    slope = calibration_slope(y, p)
    binomial = sm.families.Binomial()
    fit = sm.GLM(y, sm.add_constant(logit(p)), family=binomial).fit(tol=1e-12)
    assert slope.value == pytest.approx(fit.params[1], abs=1e-6)
    assert slope.error == pytest.approx(fit.bse[1], abs=1e-6)
    np.testing.assert_allclose(slope.interval, fit.conf_int()[1], atol=1e-6)
    fit = sm.GLM(y, np.ones(len(y)), family=binomial, offset=logit(p)).fit(tol=1e-12)
    assert slope.intercept.value == pytest.approx(fit.params[0], abs=1e-6)
    np.testing.assert_allclose(slope.intercept.interval, fit.conf_int()[0], atol=1e-6)


def test_observed_and_expected_events_by_hand():
    y, p = [1] * 20 + [0] * 80, [0.1] * 100
    ratio = observed_expected(y, p)
    assert (ratio.value, ratio.n_rows, ratio.n_events) == (pytest.approx(2.0), 100, 20)
    error = np.sqrt(0.8 / 20)
    assert ratio.error == pytest.approx(error)
    np.testing.assert_allclose(ratio.interval, 2 * np.exp([-1.959964 * error, 1.959964 * error]))
    none = observed_expected([0] * 10, [0.1] * 10)
    assert none.value == pytest.approx(0.5)
    assert none.error == pytest.approx(np.sqrt(0.95 / 0.5))
    assert observed_expected([1] * 10, [0.5] * 10).value == pytest.approx(1.9)


def test_values_of_sites_are_pooled():
    y, p, site = made_rows(9)
    ratio, slope = observed_expected(y, p, site), calibration_slope(y, p, site)
    assert list(ratio.sites) == list(range(5))
    one = observed_expected(y[site == 3], p[site == 3])
    assert ratio.sites[3] == one
    values = np.array([estimate.value for estimate in ratio.sites.values()])
    errors = np.array([estimate.error for estimate in ratio.sites.values()])
    expected = pool_scores(values, values * errors, scale="log", level=0.95)
    assert ratio.pooled == expected
    assert (ratio.value, ratio.interval) == (expected.mean, expected.mean_interval)
    errors = [estimate.error for estimate in slope.sites.values()]
    pooled = pool_scores([s.value for s in slope.sites.values()], errors, level=0.95)
    assert slope.value == pooled.mean
    assert slope.intercept.sites[2] == slope.sites[2].intercept
    assert slope.intercept.pooled.n_sites == 5


def test_a_site_with_few_events_has_no_slope_and_is_left_out():
    y, p, site = made_rows(2)
    y[(site == 1) & (np.cumsum(y * (site == 1)) > 4)] = 0
    slope = calibration_slope(y, p, site)
    assert slope.sites[1].n_events == 4
    assert np.isnan(slope.sites[1].value)
    assert np.isfinite(slope.sites[1].intercept.value)
    assert (slope.pooled.n_sites, slope.pooled.n_left_out) == (4, 1)


def test_separated_classes_and_equal_probabilities_have_no_slope():
    y, p = np.arange(20) >= 10, np.linspace(0.01, 0.99, 20)
    assert np.isnan(calibration_slope(y, p).value)
    assert np.isnan(calibration_slope(y, np.full(20, 0.5)).value)
    assert np.isnan(observed_expected(y, np.zeros(20)).value)
    assert np.isfinite(calibration_slope(np.arange(20) % 2, p.round()).value)  # zeros and ones


def test_net_benefit_by_hand():
    y = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    p = [0.9, 0.5, 0.1, 0.8, 0.3, 0.2, 0.1, 0.1, 0.1, 0.05]
    benefit = net_benefit(y, p, 0.2)  # two true and three false positives
    assert benefit.value == pytest.approx(2 / 10 - 3 / 10 * 0.25)
    assert benefit.treat_all.value == pytest.approx(3 / 10 - 7 / 10 * 0.25)
    terms = np.array([1, 1, 0, -0.25, -0.25, -0.25, 0, 0, 0, 0])
    assert benefit.error == pytest.approx(terms.std(ddof=1) / np.sqrt(10))
    nobody = net_benefit(y, p, 0.95)
    assert nobody.value == 0
    assert nobody.error > 0
    site = [0] * 5 + [1] * 5
    by_site = net_benefit(y, p, 0.2, site)
    assert by_site.sites[0].value == pytest.approx(2 / 5 - 2 / 5 * 0.25)
    assert by_site.treat_all.sites[1].value == pytest.approx(-0.25)
    thresholds = np.array([0.1, 0.2, 0.5, 0.95])
    rows = SiteRows(np.array(y) == 1, np.array(p), np.array(site), ["a", "b"], np.ones(10))
    curves = decision_curves(rows, thresholds)
    for i, threshold in enumerate(thresholds):
        sites = net_benefit(y, p, threshold, site)
        assert curves.sites["a"][i] == pytest.approx(sites.sites[0].value)
        assert curves.treat_all["b"][i] == pytest.approx(sites.treat_all.sites[1].value)
    np.testing.assert_allclose(curves.mean, (curves.sites["a"] + curves.sites["b"]) / 2)


def test_bias_and_slope_of_numbers_agree_with_statsmodels():
    rng = np.random.default_rng(0)
    predictions = rng.normal(size=60)
    y = 0.3 + 0.8 * predictions + 0.5 * rng.normal(size=60)
    rows = SiteRows(y, predictions, np.zeros(60, dtype=int), ["a"], np.ones(60))
    estimates = {name: e.sites["a"] for name, e in rows.calibration().items()}
    fit = sm.OLS(y, sm.add_constant(predictions)).fit()
    assert estimates["slope"].value == pytest.approx(fit.params[1])
    assert estimates["slope"].error == pytest.approx(fit.bse[1])
    assert estimates["bias"].value == pytest.approx(np.mean(predictions - y))
    assert (estimates["bias"].n_rows, estimates["bias"].n_events) == (60, 0)


def test_integer_weights_equal_repeated_rows():
    y, p, site = made_rows(3)
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    copies = np.repeat(np.arange(len(y)), weights)
    repeated = y[copies], p[copies]
    for score in (observed_expected, calibration_slope):
        weighted = score(y, p, site, sample_weight=weights)
        assert_same(weighted, score(*repeated, site[copies]))
        assert_same(weighted.pooled, score(*repeated, site[copies]).pooled)
        assert_same(score(y, p, sample_weight=weights), score(*repeated))
    weighted = decision_scores(y, p, 0.3, site, sample_weight=weights)
    for name, scores in decision_scores(*repeated, 0.3, site[copies]).items():
        assert_same(weighted[name], scores)
    rows = SiteRows(y == 1, p, site, list(range(5)), weights)
    same_rows = SiteRows(
        y[copies] == 1, p[copies], site[copies], rows.domains, np.ones(len(copies))
    )
    curves, same_curves = (decision_curves(r, np.array([0.1, 0.4])) for r in (rows, same_rows))
    np.testing.assert_allclose(curves.mean, same_curves.mean, rtol=1e-12)
    numbers = 2.0 * p + np.random.default_rng(2).normal(size=len(p))
    weighted = SiteRows(numbers, *rows[1:]).calibration()
    same_numbers = SiteRows(numbers[copies], *same_rows[1:]).calibration()
    for name in ("bias", "slope"):
        assert_same(weighted[name], same_numbers[name])


def assert_same(result, expected):
    """Compare all numbers of two results."""
    for name, value in vars(expected).items():
        other = getattr(result, name)
        if isinstance(value, dict):
            for key, site in value.items():
                assert_same(other[key], site)
        elif hasattr(value, "__dict__"):
            assert_same(other, value)
        elif isinstance(value, (int, float, tuple)) and not isinstance(value, bool):
            np.testing.assert_allclose(other, value, rtol=1e-9, atol=1e-12)


def test_a_weighted_slope_agrees_with_statsmodels():
    y, p, _ = made_rows(5)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    slope = calibration_slope(y, p, sample_weight=weights)
    binomial = sm.families.Binomial()
    design = sm.add_constant(logit(p))
    fit = sm.GLM(y, design, family=binomial, freq_weights=weights).fit(tol=1e-12)
    assert slope.value == pytest.approx(fit.params[1], abs=1e-6)
    assert slope.error == pytest.approx(fit.bse[1], abs=1e-6)
    with pytest.raises(ValueError, match="negative, missing or infinite"):
        calibration_slope(y, p, sample_weight=-weights)


def test_events_are_named_by_pos_label_or_are_the_last_class():
    p = [0.2, 0.3, 0.9]
    ratio = observed_expected(["no", "no", "yes"], p)
    assert ratio.n_events == 1
    assert observed_expected(["no", "no", "yes"], p, pos_label="no").n_events == 2
    assert observed_expected([0, 0, 0], p).n_events == 0
    two_columns = np.column_stack([1 - np.array(p), p])
    assert observed_expected([False, False, True], two_columns).value == ratio.value
    for arguments, message in (
        ((["a", "b", "c"], p), "must contain two classes; got 3"),
        (([0, 1, 1], [0.2, 1.3, 0.1]), "between 0 and 1 for each row"),
        (([0, 1], p), "proba has 3 entries"),
    ):
        with pytest.raises(ValueError, match=message):
            observed_expected(*arguments)
    with pytest.raises(ValueError, match="threshold must be between 0 and 1"):
        net_benefit([0, 1], [0.2, 0.3], 1.0)


def test_a_decision_is_scored_as_by_hand():
    """Site a: 2 of 3 events and 2 of 5 others are treated; site b has no event."""
    y = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    p = [0.9, 0.2, 0.1, 0.8, 0.3, 0.19, 0.1, 0.0, 0.4, 0.1]
    site = ["a"] * 8 + ["b"] * 2
    scores = decision_scores(y, p, 0.2, site, level=0.9)
    by_hand = {
        "sensitivity": (2 / 3, np.nan),
        "specificity": (3 / 5, 1 / 2),
        "ppv": (2 / 4, 0.0),
        "npv": (3 / 4, 1.0),
        "net_benefit": (2 / 8 - 2 / 8 * 0.25, -1 / 2 * 0.25),
        "treat_all": (3 / 8 - 5 / 8 * 0.25, -0.25),
    }
    for name, (first, second) in by_hand.items():
        sites = scores[name].sites
        np.testing.assert_allclose([sites["a"].value, sites["b"].value], [first, second])
    exact = binomtest(2, 3).proportion_ci(0.9, method="exact")
    np.testing.assert_allclose(scores["sensitivity"].sites["a"].interval, (exact.low, exact.high))
    # Shares are pooled as logits; 0 of 1 and 1 of 1 are moved by half a row.
    errors = [np.sqrt(1 / 2 + 1 / 2), np.sqrt(1 / 0.5 + 1 / 0.5)]
    pooled = pool_transformed(logit(np.array([0.5, 0.5])), np.array(errors), "logit", 0.9)
    assert scores["ppv"].pooled.mean == pytest.approx(pooled.mean)
    assert scores["net_benefit"].pooled == net_benefit(y, p, 0.2, site, level=0.9).pooled
    together = decision_scores(y, p, 0.2)
    assert (together["ppv"].value, together["npv"].value) == (2 / 5, 4 / 5)
    with pytest.raises(ValueError, match="threshold must be between 0 and 1"):
        decision_scores(y, p, 1.5)
