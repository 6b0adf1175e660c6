"""Random-effects meta-analysis, compared with dense matrices and with published figures."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

from domainwise.metrics import pool_scores

#: Tuberculosis with and without the BCG vaccine in 13 trials (dat.bcg in metafor).
VACCINATED = "4/119 6/300 3/228 62/13536 33/5036 180/1361 8/2537 505/87886 29/7470 17/1699 "
VACCINATED += "186/50448 5/2493 27/16886"
CONTROLS = "11/128 29/274 11/209 248/12619 47/5761 372/1079 10/619 499/87892 45/7232 65/1600 "
CONTROLS += "141/27197 3/2338 29/17825"
#: Effects of teachers' expectations in 19 studies, and their variances (dat.raudenbush1985).
EFFECTS = "0.03 0.12 -0.14 1.18 0.26 -0.06 -0.02 -0.32 0.27 0.80 0.54 0.18 -0.02 0.23 -0.18 -0.06 "
EFFECTS += "0.30 0.07 -0.07"
VARIANCES = "0.0156 0.0216 0.0279 0.1391 0.1362 0.0106 0.0106 0.0484 0.0269 0.0630 0.0912 0.0497 "
VARIANCES += "0.0835 0.0841 0.0253 0.0279 0.0193 0.0088 0.0303"


def dense_reml(y, errors):
    """τ² at the maximum of the restricted likelihood, from n x n matrices."""
    n, ones = len(y), np.ones((len(y), 1))

    def projection(tau2):
        inverse = np.linalg.inv(np.diag(errors**2) + tau2 * np.eye(n))
        information = ones.T @ inverse @ ones
        return inverse - inverse @ ones @ ones.T @ inverse / information, inverse, information

    def log_likelihood(tau2):
        p, inverse, information = projection(tau2)
        log_determinants = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(information)[1]
        return 0.5 * (log_determinants - y @ p @ y)

    def derivative(tau2):
        p = projection(tau2)[0]
        return y @ p @ p @ y - np.trace(p)

    grid = np.append(0.0, np.geomspace(1e-7, 1e3, 2000))
    slopes = np.array([derivative(tau2) for tau2 in grid])
    roots = [
        brentq(derivative, grid[i], grid[i + 1], xtol=1e-15)
        for i in np.flatnonzero((slopes[:-1] > 0) & (slopes[1:] <= 0))
    ]
    return max([0.0, *roots], key=log_likelihood)


@pytest.mark.parametrize("seed", range(10))
def test_pooled_scores_agree_with_a_dense_restricted_likelihood(seed):
    rng = np.random.default_rng(seed)
    n, tau = [(2, 1.0), (3, 0.0), (4, 0.3), (5, 2.0), (8, 0.0)][seed % 5]
    n += seed
    errors = rng.uniform(0.1, 1.0, n)
    y = rng.normal(0.3, np.hypot(tau, errors))
    if seed == 1:  # less variable than chance alone would make them
        y = 0.1 * y
    pooled = pool_scores(y, errors, level=0.95)
    tau2 = dense_reml(y, errors)
    assert pooled.tau**2 == pytest.approx(tau2, abs=1e-6)
    assert (tau2 == 0) == (pooled.tau == 0)
    # The mean and its interval, from generalized least squares.
    covariance = np.diag(errors**2 + tau2)
    inverse, ones = np.linalg.inv(covariance), np.ones(n)
    mean = ones @ inverse @ y / (ones @ inverse @ ones)
    q = (y - mean) @ inverse @ (y - mean)
    error = np.sqrt(q / (n - 1) / (ones @ inverse @ ones))
    assert pooled.mean == pytest.approx(mean, abs=1e-6)
    radius = stats.t.ppf(0.975, n - 1) * error
    np.testing.assert_allclose(pooled.mean_interval, [mean - radius, mean + radius], atol=1e-6)
    # At the ends of the interval for τ, Q is a quantile of its distribution.
    for end, probability in zip(pooled.tau_interval, (0.975, 0.025), strict=True):
        weights = 1 / (errors**2 + end**2)
        q = weights @ (y - weights @ y / weights.sum()) ** 2
        quantile = stats.chi2.ppf(probability, n - 1)
        assert q == pytest.approx(quantile, abs=1e-6) if end else q <= quantile
    if n >= 4:
        radius = stats.t.ppf(0.975, n - 2) * np.sqrt(tau2 + error**2)
        np.testing.assert_allclose(pooled.plug_in_range, [mean - radius, mean + radius], atol=1e-6)
        measured = np.sqrt(radius**2 + (stats.norm.ppf(0.975) * 0.2) ** 2)
        expected = [mean - measured, mean + measured]
        np.testing.assert_allclose(pooled.measured_range(0.2), expected, atol=1e-6)


def test_pooled_scores_agree_with_published_figures_of_metafor():
    risks, variance = [], 0.0
    for group in (VACCINATED, CONTROLS):
        ill, healthy = np.array([pair.split("/") for pair in group.split()], dtype=float).T
        risks.append(ill / (ill + healthy))
        variance = variance + 1 / ill - 1 / (ill + healthy)
    # Risk ratios on the logarithmic scale; the delta method gives the error of a ratio.
    ratios = risks[0] / risks[1]
    pooled = pool_scores(ratios, ratios * np.sqrt(variance), scale="log", level=0.95)
    assert pooled.tau**2 == pytest.approx(0.3132, abs=1e-4)
    assert np.log(pooled.mean) == pytest.approx(-0.7145, abs=1e-4)
    assert pooled.i2 == pytest.approx(0.9222, abs=1e-4)
    np.testing.assert_allclose(np.square(pooled.tau_interval), [0.1197, 1.1115], atol=2e-4)
    pooled = pool_scores(
        np.array(EFFECTS.split(), dtype=float),
        np.sqrt(np.array(VARIANCES.split(), dtype=float)),
        level=0.95,
    )
    assert pooled.tau**2 == pytest.approx(0.0188, abs=1e-4)
    assert pooled.mean == pytest.approx(0.0837, abs=1e-4)
    assert pooled.i2 == pytest.approx(0.4186, abs=3e-4)
    assert pooled.n_sites == 19


def test_scores_are_pooled_on_the_given_scale_and_transformed_back():
    auc, errors = np.array([0.81, 0.74, 0.88, 0.79]), np.array([0.02, 0.03, 0.02, 0.04])
    natural = pool_scores(auc, errors, scale="logit")
    transformed = pool_scores(logit(auc), errors / (auc * (1 - auc)))
    assert natural.mean == pytest.approx(expit(transformed.mean))
    assert natural.tau == pytest.approx(transformed.tau)
    np.testing.assert_allclose(natural.true_range, expit(transformed.true_range))
    error = 0.05 / (natural.mean * (1 - natural.mean))
    np.testing.assert_allclose(
        natural.measured_range(0.05), expit(transformed.measured_range(error))
    )
    rmse = np.array([3.0, 4.0, 5.0, 4.5])
    ratio = pool_scores(rmse, 0.1 * rmse, scale="log")
    assert ratio.mean == pytest.approx(np.exp(pool_scores(np.log(rmse), [0.1] * 4).mean))
    assert ratio.i2 == pytest.approx(pool_scores(10 * rmse, rmse, scale="log").i2)


def test_sites_without_a_score_or_an_error_are_left_out_and_counted():
    scores, errors = [0.8, 0.7, 1.0, np.nan, 0.9, 0.75], [0.05, 0.04, 0.0, 0.1, np.nan, 0.03]
    pooled = pool_scores(scores, errors, scale="logit")
    assert (pooled.n_sites, pooled.n_left_out) == (3, 3)
    assert pooled.mean == pool_scores([0.8, 0.7, 0.75], [0.05, 0.04, 0.03], scale="logit").mean


def test_few_sites_have_no_range_for_a_new_site():
    three = pool_scores([0.8, 0.7, 0.75], [0.05, 0.04, 0.03])
    assert three.tau_interval is not None
    assert (three.true_range, three.plug_in_range, three.measured_range(0.1)) == (None,) * 3
    one = pool_scores([0.8], [0.05], scale="logit")
    assert one.mean == pytest.approx(0.8)
    assert (one.mean_interval, one.tau, one.tau_interval, one.i2, one.differ) == (None,) * 5


def test_equal_scores_leave_the_uncertainty_of_their_mean():
    pooled = pool_scores([0.5] * 4, [0.1] * 4)
    assert (pooled.tau, pooled.i2, pooled.differ) == (0, 0, False)
    low, high = pooled.true_range
    # The standard error of the mean is 0.1 / √4, and t has three degrees of freedom.
    assert (low, high) == pytest.approx((0.5 - 0.05 * 2.353, 0.5 + 0.05 * 2.353), abs=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5], [0.1, 0.2]), "errors has 2 entries"),
        (([0.5, 0.6], [0.1, -0.2]), "must not be negative"),
        (([np.nan], [0.1]), "no site has both"),
        (([[0.5]], [[0.1]]), "one dimension"),
    ],
)
def test_wrong_arguments_are_explained(arguments, message):
    with pytest.raises(ValueError, match=message):
        pool_scores(*arguments)
    with pytest.raises(ValueError, match="between 0 and 1 for scale='logit'"):
        pool_scores([1.2, 0.5], [0.1, 0.1], scale="logit")
    with pytest.raises(ValueError, match="scale must be"):
        pool_scores([0.5], [0.1], scale="probit")


def test_one_population_dealt_out_to_sites_rarely_seems_to_differ():
    """AUC of 300 rows per site; the score is that of the whole population."""
    rng = np.random.default_rng(0)
    for n_sites in (5, 12):
        n_different = 0
        for _ in range(40):
            aucs, errors = [], []
            for _ in range(n_sites):
                y = np.arange(300) < 75
                scores = rng.normal(size=300) + 1.2 * y
                aucs.append(roc_auc_score(y, scores))
                # Hanley and McNeil's standard error.
                a, q1, q2 = aucs[-1], aucs[-1] / (2 - aucs[-1]), 2 * aucs[-1] ** 2 / (1 + aucs[-1])
                variance = a * (1 - a) + 74 * (q1 - a**2) + 224 * (q2 - a**2)
                errors.append(np.sqrt(variance / (75 * 225)))
            n_different += pool_scores(aucs, errors, scale="logit").differ
        assert n_different <= 0.1 * 40


@pytest.mark.parametrize("n_sites", [5, 12, 48])
@pytest.mark.parametrize("tau", [0.0, 0.1, 0.2, 0.5])
def test_true_ranges_cover_new_sites(n_sites, tau):
    rng, coverage, n_different = np.random.default_rng(n_sites), [], 0
    for _ in range(60):
        errors = 0.3 * rng.uniform(0.5, 1.5, n_sites)
        pooled = pool_scores(rng.normal(0, np.hypot(tau, errors)), errors)
        low, high = pooled.true_range
        n_different += pooled.differ
        coverage.append(np.diff(stats.norm.cdf([low, high], 0, tau)) if tau else low <= 0 <= high)
    assert np.mean(coverage) >= 0.85
    if tau == 0.5 and n_sites > 5:
        assert n_different >= 0.8 * 60
