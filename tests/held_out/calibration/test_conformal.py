"""Prediction sets and intervals on new domains."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import KFold, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import SiteAdapter
from domainwise.datasets import make_synthetic
from domainwise.held_out.calibration.quantiles import (
    DomainQuantiles,
    approximate_thresholds,
    needed_domains,
    reported_coverage,
    scores_by_class,
)
from domainwise.held_out.scoring.predictions import Outputs
from domainwise.selection import DomainConformal, LeaveDomainsOut

DATA = make_synthetic(n_domains=10, n_per_domain=30, random_state=0)
X, Y, D = DATA.data, DATA.target, DATA.sample_domain


def brute_threshold(scores, domains, coverage):
    """The smallest score whose cumulative weight is large enough, computed with integers."""
    names = sorted(set(domains))
    for candidate in sorted(set(scores)):
        shares = [
            np.mean([s <= candidate for s, d in zip(scores, domains, strict=True) if d == name])
            for name in names
        ]
        if sum(shares) >= coverage * (len(names) + 1) - 1e-7:
            return candidate
    return np.inf


# ---- thresholds ------------------------------------------------------------------------------


def test_thresholds_computed_by_hand():
    # Both rows of a have weight 1/6, the row of b has weight 1/3, and infinity has weight 1/3.
    quantiles = DomainQuantiles.from_scores(np.array([3.0, 1.0, 2.0]), np.array(["a", "a", "b"]))
    np.testing.assert_allclose(quantiles.levels, [1 / 6, 1 / 2, 2 / 3])
    assert quantiles.threshold(1 / 6) == 1.0
    assert quantiles.threshold(0.17) == 2.0
    assert quantiles.threshold(0.5) == 2.0
    assert quantiles.threshold(0.51) == 3.0
    assert quantiles.threshold(2 / 3) == 3.0
    assert quantiles.threshold(0.67) == np.inf


def test_ties_share_one_threshold():
    scores, domains = np.array([1.0, 1.0, 1.0, 0.0, 5.0, 5.0]), np.array([0, 0, 1, 1, 2, 2])
    quantiles = DomainQuantiles.from_scores(scores, domains)
    # Weights: 1/8 at score 0, 1/8 + 1/4 at score 1, 1/4 at score 5, and 1/4 at infinity.
    thresholds = [quantiles.threshold(c) for c in (0.125, 0.126, 0.5, 0.501, 0.75, 0.76)]
    assert thresholds == [0.0, 1.0, 1.0, 5.0, 5.0, np.inf]


def test_infinite_and_missing_scores_are_larger_than_all_others():
    quantiles = DomainQuantiles.from_scores(
        np.array([np.nan, 1.0, np.inf, 2.0]), np.array([0, 0, 1, 1])
    )
    assert quantiles.threshold(1 / 3) == 2.0
    assert quantiles.threshold(0.34) == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_equal_those_computed_by_counting(seed):
    rng = np.random.default_rng(seed)
    domains = rng.integers(4, size=40)
    scores = rng.integers(8, size=40) / 4.0
    quantiles = DomainQuantiles.from_scores(scores, domains)
    for coverage in (0.05, 0.2, 0.4, 0.5, 0.6, 0.75, 0.79, 0.8, 0.81, 0.95):
        assert quantiles.threshold(coverage) == brute_threshold(scores, domains, coverage)


@pytest.mark.parametrize("n_domains", [1, 2, 3, 4, 6, 8, 9, 12, 19, 24, 49, 99, 199, 999])
def test_a_threshold_is_infinite_exactly_where_domains_are_too_few(n_domains):
    quantiles = DomainQuantiles.from_scores(np.zeros(n_domains), np.arange(n_domains))
    limit = n_domains / (n_domains + 1)
    assert needed_domains(limit) == n_domains
    assert quantiles.threshold(limit) == 0.0
    assert quantiles.threshold(round(limit, 3) + 0.0011) == np.inf if limit < 0.99 else True


def test_nine_domains_are_enough_for_ninety_per_cent_and_eight_are_not():
    assert [needed_domains(c) for c in (0.5, 0.8, 0.9, 0.95, 0.99)] == [1, 4, 9, 19, 99]
    assert [reported_coverage(k) for k in (0, 2, 3, 9, 50)] == [None, None, 0.9, 0.9, 0.9]


@pytest.mark.parametrize("coverage", [0, 1, 1.5, -0.1, np.nan, True])
def test_an_invalid_coverage_is_an_error(coverage):
    with pytest.raises(ValueError, match="coverage must be between 0 and 1"):
        needed_domains(coverage)


def test_decision_values_are_scored_by_their_distance_from_the_largest():
    outputs, scores = scores_by_class(Outputs(decisions=np.array([[1.0, 3.0, 2.0]])), np.arange(3))
    assert outputs == "decisions"
    np.testing.assert_array_equal(scores, [[2.0, 0.0, 1.0]])
    _, scores = scores_by_class(Outputs(decisions=np.array([0.5])), np.arange(2))
    np.testing.assert_array_equal(scores, [[1.0, 0.0]])


# ---- few domains -----------------------------------------------------------------------------


def test_thresholds_from_a_few_domains_computed_by_hand():
    scores, domains = np.array([1.0, 2, 1, 4, 2, 8]), np.array(["a", "a", "b", "b", "c", "c"])
    quantiles = DomainQuantiles.approximately(scores, domains, are_probabilities=False)
    # Coverage 0.9: all quantiles are the largest scores, 8 of all and (8, 8, 4) of the others. The
    # factor 1 covers (1, 1, 0.5), which is 5/6 on average; the factor 2 covers everything.
    assert quantiles.threshold(0.9) == 16.0
    # Coverage 0.8: the quantiles are 4 of all, (8, 8, 4) of the others. The standard error of
    # (1, 1, 0.5) is 1/6, and 5/6 - 1/12 is too small: the factor is 2 again.
    assert quantiles.threshold(0.8) == 8.0
    # Coverage 0.74: the same shares are enough, and the quantiles are 4 of all, (4, 2, 2).
    # The factor 1 covers (1, 0.5, 0.5), and the factor 2 covers (1, 1, 0.5).
    assert quantiles.threshold(0.74) == 8.0
    # Smaller coverages use the quantile that takes the unseen domain into account if it is smaller:
    # the scores 1, 1 have weights of 1/8.
    assert quantiles.threshold(0.25) == 1.0
    guaranteed = DomainQuantiles.from_scores(scores, domains)
    assert guaranteed.threshold(0.25) == 1.0
    assert guaranteed.threshold(0.9) == np.inf


def test_probabilities_are_scaled_as_logarithms():
    scores, domains = np.array([1.0, 2, 1, 4, 2, 8]), np.array([0, 0, 1, 1, 2, 2])
    of_logs = DomainQuantiles.approximately(scores, domains, are_probabilities=False)
    of_p = DomainQuantiles.approximately(1 - np.exp(-scores), domains, are_probabilities=True)
    expected = [1 - np.exp(-of_logs.threshold(c)) for c in (0.5, 0.8, 0.9)]
    np.testing.assert_allclose([of_p.threshold(c) for c in (0.5, 0.8, 0.9)], expected)
    certain = DomainQuantiles.approximately(np.ones(6), domains, are_probabilities=True)
    assert certain.threshold(0.9) == 1.0  # the true class had probability 0


@pytest.mark.parametrize("n_domains", [3, 5, 8, 9, 12])
@pytest.mark.parametrize("seed", range(3))
def test_approximate_thresholds_are_finite_and_nested(n_domains, seed):
    rng = np.random.default_rng(seed)
    domains = np.repeat(np.arange(n_domains), rng.integers(2, 30, n_domains))
    scores = np.abs(rng.normal(size=len(domains))) * np.exp(rng.normal(size=n_domains))[domains]
    quantiles = DomainQuantiles.approximately(scores, domains, are_probabilities=False)
    thresholds = [quantiles.threshold(c) for c in np.linspace(0.005, 0.999, 300)]
    assert np.isfinite(thresholds).all()
    assert (np.diff(thresholds) >= 0).all()
    # Without a guarantee, thresholds are never larger than with it.
    for coverage in (0.5, 0.8, 0.9, 0.92):
        assert quantiles.threshold(coverage) <= brute_threshold(scores, domains, coverage)


def test_standard_errors_of_shares_are_those_over_domains():
    """The threshold, computed for each candidate factor from the shares of all domains."""
    rng = np.random.default_rng(3)
    domains = np.repeat(np.arange(11), rng.integers(2, 30, 11))
    scores = np.abs(rng.normal(size=len(domains))) * np.exp(rng.normal(size=11))[domains]
    groups = [np.sort(scores[domains == code]) for code in range(11)]

    def quantile(kept):
        values, weights = (
            np.concatenate(kept),
            np.concatenate([[1 / len(g)] * len(g) for g in kept]),
        )
        order = np.argsort(values)
        return values[order][np.searchsorted(np.cumsum(weights[order]), 0.9 * len(kept) - 1e-9)]

    others = [quantile(groups[:code] + groups[code + 1 :]) for code in range(11)]
    pairs = [*zip(groups, others, strict=True)]
    candidates = {max(g / q, 1.0) for group, q in pairs for g in group}
    for factor in sorted(candidates):
        shares = [np.mean(g <= factor * q * (1 + 1e-12)) for g, q in pairs]
        if np.mean(shares) - 0.5 * np.std(shares, ddof=1) / np.sqrt(11) >= 0.9 - 1e-9:
            break
    (threshold,) = approximate_thresholds([(g, np.ones(len(g))) for g in groups], np.array([0.9]))
    assert threshold == pytest.approx(factor * quantile(groups))


def test_a_perfect_model_has_a_small_threshold():
    domains = np.repeat([0, 1, 2], 20)
    assert np.isfinite(
        DomainQuantiles.approximately(np.zeros(60), domains, are_probabilities=False).threshold(0.9)
    )
    scores = np.zeros(60)
    scores[:2] = 0.5, 3.0
    quantiles = DomainQuantiles.approximately(scores, domains, are_probabilities=False)
    assert quantiles.threshold(0.9) == 0.5  # the smallest positive score


@pytest.mark.parametrize(
    ("n_domains", "spread"), [(3, 0.3), (4, 0.0), (6, 0.5), (8, 0.2), (9, 0.2), (20, 0.3)]
)
def test_approximate_coverage_with_few_domains(n_domains, spread):
    """Residuals with a domain effect and a domain scale; 90 % of a new domain's are covered."""
    rng = np.random.default_rng(5)
    covered, widening = [], []
    for _ in range(150):
        level, scale = spread * rng.normal(size=(2, n_domains + 1))
        errors = np.abs(
            level[:, None] + np.exp(scale)[:, None] * rng.normal(size=(n_domains + 1, 60))
        )
        domains = np.repeat(np.arange(n_domains), 60)
        known = errors[:-1].ravel()
        threshold = DomainQuantiles.approximately(
            known, domains, are_probabilities=False
        ).threshold(0.9)
        covered.append(np.mean(errors[-1] <= threshold))
        widening.append(threshold / np.quantile(known, 0.9))
    assert 0.87 <= np.mean(covered) <= 0.95
    assert np.mean(widening) < 1.5


# ---- the wrapper -----------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["cv", "split"])
def test_intervals_are_as_wide_as_errors_on_held_out_domains(calibration):
    y = X[:, 0] + 0.3 * D
    model = DomainConformal(Ridge(), calibration=calibration).fit(X, y, sample_domain=D)
    if calibration == "cv":
        folds = list(LeaveOneGroupOut().split(X, y, D))
    else:
        held = np.isin(D, model.calibration_domains_)
        assert len(model.calibration_domains_) == 5
        folds = [(np.flatnonzero(~held), np.flatnonzero(held))]
        expected = Ridge().fit(X[~held], y[~held]).predict(X)
        np.testing.assert_allclose(model.predict(X), expected)
    scores = [abs(y[test] - Ridge().fit(X[i], y[i]).predict(X[test])) for i, test in folds]
    domains = np.concatenate([D[test] for _, test in folds])
    reach = brute_threshold(np.concatenate(scores).tolist(), domains.tolist(), 0.8)
    ends = model.predict_interval(X[:7], coverage=0.8)
    middle = model.predict(X[:7])
    np.testing.assert_allclose(ends, np.column_stack([middle - reach, middle + reach]))


@pytest.mark.parametrize("estimator", [LogisticRegression(), SVC(), "labels"])
def test_sets_grow_with_coverage_for_all_kinds_of_outputs(estimator):
    estimator = OnlyLabels() if estimator == "labels" else estimator
    model = DomainConformal(estimator).fit(X, Y, sample_domain=D)
    sets = [model.predict_set(X, coverage=c) for c in (0.3, 0.5, 0.7, 0.8, 0.9)]
    assert sets[0].dtype == bool
    assert sets[0].shape == (len(X), 2)
    for smaller, larger in pairwise(sets):
        assert not np.any(smaller & ~larger)
    held_in = sets[-1][np.arange(len(X)), (model.classes_[1] == Y).astype(int)]
    assert held_in.mean() > 0.85


class OnlyLabels(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities or decision values."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)


def test_with_too_few_domains_guaranteed_sets_contain_all_classes_with_a_warning():
    rows = np.isin(D, np.arange(6))
    model = DomainConformal(LogisticRegression(), calibration="split")
    model.fit(X[rows], Y[rows], sample_domain=D[rows])
    assert model.promise_ == "guaranteed"
    with pytest.warns(
        UserWarning, match=r"coverage=0.9 needs at least 9 calibration domains, but there"
    ):
        assert model.predict_set(X[:5]).all()
    numbers = DomainConformal(Ridge(), calibration="split")
    numbers.fit(X[rows], X[rows, 0], sample_domain=D[rows])
    with pytest.warns(UserWarning, match="Sets contain all classes and intervals are infinite"):
        assert np.isinf(numbers.predict_interval(X[:5])).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(numbers.predict_interval(X[:5], coverage=0.5)).all()


@pytest.mark.parametrize("wrapper", [DomainConformal, SiteAdapter])
def test_approximate_sets_are_finite_from_three_domains_on(wrapper):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = np.isin(D, [0, 1, 2, 3])
        model = wrapper(LogisticRegression()).fit(X[rows], Y[rows], sample_domain=D[rows])
        sets = model.predict_set(X[~rows])
        assert not sets.all()
        covered = sets[np.arange(len(sets)), np.searchsorted(model.classes_, Y[~rows])]
        assert covered.mean() >= 0.85
        numbers = wrapper(Ridge()).fit(X[rows], Y[rows] + X[rows, 0], sample_domain=D[rows])
        assert np.isfinite(numbers.predict_interval(X[:5])).all()
    if wrapper is DomainConformal:
        assert model.promise_ == "approximate, few sites"
    rows = np.isin(D, [0, 1])
    model = wrapper(LogisticRegression()).fit(X[rows], Y[rows], sample_domain=D[rows])
    with pytest.warns(UserWarning, match="needs at least 9 calibration domains, but there are 2"):
        assert model.predict_set(X[:5]).all()


def test_a_class_that_occurs_in_one_domain_only_is_not_omitted_from_sets():
    y = Y.astype(object)
    y[D == 4] = "rare"
    y = np.array([str(label) for label in y])
    model = DomainConformal(LogisticRegression()).fit(X, y, sample_domain=D)
    assert model.classes_.tolist() == ["-1", "1", "rare"]
    # Rows of the rare class, in a tenth of all domains, have the worst possible score, 1.
    assert model.predict_set(X, coverage=0.9).all()


def test_a_frozen_estimator_is_calibrated_on_all_domains():
    train = D < 5
    known = LinearRegression().fit(X[train], X[train, 0] ** 2)
    model = DomainConformal(FrozenEstimator(known), calibration="split")
    model.fit(X[~train], X[~train, 0] ** 2, sample_domain=D[~train])
    np.testing.assert_array_equal(model.predict(X), known.predict(X))
    scores = abs(X[~train, 0] ** 2 - known.predict(X[~train]))
    reach = brute_threshold(scores.tolist(), D[~train].tolist(), 0.8)
    np.testing.assert_allclose(np.ptp(model.predict_interval(X[:2], coverage=0.8)[0]), 2 * reach)
    with pytest.raises(ValueError, match="calibration='split'"):
        DomainConformal(FrozenEstimator(known)).fit(X, X[:, 0], sample_domain=D)


def test_pipelines_take_domains_by_routing():
    with config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), DomainConformal(LogisticRegression()))
        model.fit(X, Y, sample_domain=D)
    assert len(model[-1].calibration_domains_) == 10
    assert repr(clone(model[-1])) == "DomainConformal(estimator=LogisticRegression())"


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (DomainConformal(Ridge(), calibration="loo"), (X, X[:, 0], D), "'calibration' .* 'loo'"),
        (DomainConformal(StandardScaler()), (X, Y, D), "must be a classifier or a regressor"),
        (DomainConformal(Ridge()), (X, X[:, :2], D), "y must have one column; got 2"),
        (
            DomainConformal(Ridge(), calibration="split"),
            (X, X[:, 0], None),
            "needs at least 2 domains",
        ),
        (
            DomainConformal(Ridge(), calibration="split", cv=KFold(3, shuffle=True)),
            (X, X[:, 0], D),
            "rows of \\d+ of \\d+ domains between training and calibration",
        ),
    ],
)
def test_invalid_estimators_and_labels_are_errors(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.fit(arguments[0], arguments[1], sample_domain=arguments[2])


@pytest.mark.parametrize("wrapper", [DomainConformal, SiteAdapter])
def test_a_regressor_after_a_classifier_has_no_classes(wrapper):
    model = wrapper(LogisticRegression()).fit(X, Y, sample_domain=D)
    assert model.predict_set(X[:2], coverage=0.5).shape == (2, 2)
    model.set_params(estimator=Ridge()).fit(X, X[:, 0], sample_domain=D)
    assert not hasattr(model, "classes_")
    low, high = model.predict_interval(X, coverage=0.8).T
    assert ((low <= X[:, 0]) & (X[:, 0] <= high)).mean() >= 0.7


def test_cv_determines_the_calibration_domains():
    cv = LeaveDomainsOut(3, random_state=1)
    model = DomainConformal(Ridge(), cv=cv, calibration="split").fit(X, X[:, 0], sample_domain=D)
    _, held = next(cv.split(X, X[:, 0], D))
    assert model.calibration_domains_.tolist() == sorted(set(D[held].tolist()))


# ---- coverage by simulation --------------------------------------------------------------------


def made_domains(rng, n_domains):
    """Domains that differ in size, mean and variance."""
    sizes = rng.integers(3, 40, size=n_domains)
    domains = np.repeat(np.arange(n_domains), sizes)
    x = rng.normal(size=(len(domains), 1)) + rng.normal(size=n_domains)[domains, None]
    shift, spread = rng.normal(size=n_domains), np.exp(rng.normal(size=n_domains))
    noise = rng.normal(size=len(domains)) * spread[domains] * (0.5 + np.abs(x[:, 0]))
    return x, x[:, 0] + shift[domains] + noise, domains


@pytest.mark.parametrize(("n_domains", "coverage"), [(18, 0.9), (18, 0.8), (8, 0.8), (30, 0.5)])
def test_coverage_on_new_domains_is_as_promised(n_domains, coverage):
    rng = np.random.default_rng(17)
    covered = []
    for _ in range(250):
        x, y, domains = made_domains(rng, n_domains + 1)
        new = domains == n_domains
        model = DomainConformal(LinearRegression(), calibration="split")
        model.fit(x[~new], y[~new], sample_domain=domains[~new])
        ends = model.predict_interval(x[new], coverage=coverage)
        covered.append(np.mean((ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1])))
    error = np.std(covered) / np.sqrt(len(covered))
    assert np.mean(covered) >= coverage - 2 * error
    assert np.mean(covered) <= coverage + 1 / (n_domains // 2 + 1) + 2 * error


@pytest.mark.parametrize("estimator", [None, LogisticRegression, 3])
def test_only_an_estimator_can_be_calibrated(estimator):
    X, domain = np.zeros((8, 2)), np.arange(8) % 4
    for wrapper in (DomainConformal, SiteAdapter):
        with pytest.raises(ValueError, match="estimator must be a classifier or a regressor; got"):
            wrapper(estimator).fit(X, domain % 2, sample_domain=domain)
