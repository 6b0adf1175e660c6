"""Ensembles: weights from held-out domains, context, and irregular tables."""

import pickle
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from domainwise import DomainContext, DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.base.inputs import Labels
from domainwise.estimators.ensemble import members
from domainwise.estimators.ensemble.context import DomainStatistics
from domainwise.estimators.ensemble.held_out import HeldOutScore, member_weights
from domainwise.held_out.calibration.curves import equal_weights, fit_curve
from domainwise.held_out.search import grids
from domainwise.selection import LeaveDomainsOut

OWN = [("bayes", GaussianNB()), ("logistic", LogisticRegression(C=0.1))]


def table(n_domains=5, n_per_domain=24, n_classes=2, seed=0, moved=1.0):
    """Return classes whose means shift with their domain."""
    rng = np.random.default_rng(seed)
    domain = np.repeat([f"site {d}" for d in range(n_domains)], n_per_domain)
    y = rng.integers(n_classes, size=len(domain))
    shift = np.repeat(rng.standard_normal((n_domains, 3)), n_per_domain, axis=0)
    X = (
        rng.standard_normal((len(domain), 3))
        + moved * shift
        + 1.5 * np.column_stack([y, -y, 0 * y])
    )
    return X, np.array([f"class {k}" for k in y]), domain


def numbers(seed=0, **options):
    X, _, domain = table(seed=seed, **options)
    rng = np.random.default_rng(seed)
    return X, 50 + 3 * X[:, 0] - X[:, 1] ** 2 + rng.standard_normal(len(X)), domain


def standardised(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def test_an_ensemble_without_a_search_can_be_fitted_to_fewer_rows():
    X, y, domain = table()
    model = DomainEnsembleClassifier(["invariant_ridge"], context=False)
    model.fit(X, y, sample_domain=domain)
    settled = model.settled()
    few = np.arange(len(y)) % 3 == 0
    settled.fit(X[few], y[few], sample_domain=domain[few])
    assert np.mean(settled.predict(X) == y) > 0.75


@pytest.mark.parametrize("class_weight", [None, "balanced", {"class 0": 5.0}])
def test_weights_equal_those_of_loops_over_held_out_domains(class_weight):
    X, y, domain = table()
    y[(domain < "site 3") & (np.arange(len(y)) % 3 > 0)] = "class 0"
    model = DomainEnsembleClassifier(OWN, context=False, class_weight=class_weight)
    model.fit(X, y, sample_domain=domain)
    Z, codes = standardised(X), np.unique(y, return_inverse=True)[1]
    places = np.unique(domain, return_inverse=True)[1]
    by_code = {0: 5.0, 1: 1.0} if isinstance(class_weight, dict) else class_weight
    losses, probabilities = [], []
    for name, estimator in OWN:
        values = np.zeros((len(X), 2))
        for site in np.unique(domain):
            held = domain == site
            rows, weights = codes[~held], compute_sample_weight(by_code, codes[~held])
            fitted = clone(estimator).fit(Z[~held], rows, sample_weight=weights)
            if name == "logistic":
                half = fitted.decision_function(Z[held]) / 2
                values[held] = np.column_stack([-half, half])
            else:
                values[held] = np.log(np.maximum(fitted.predict_proba(Z[held]), 1e-3))
        # Whatever the class weights, probabilities have the frequencies of the source domains.
        curve, _ = fit_curve(values, codes, equal_weights(places))
        probabilities.append(curve.probabilities(values))
        row_losses = -np.log(probabilities[-1][np.arange(len(codes)), codes])
        losses.append([row_losses[domain == site].mean() for site in model.domains_])
        mean = np.mean([probabilities[-1][domain == s, 1].mean() for s in model.domains_])
        assert mean == pytest.approx(
            np.mean([codes[domain == s].mean() for s in model.domains_]), abs=0.01
        )
    expected = member_weights(np.array(losses))
    found = [model.weights_.get(name, 0.0) for name, _ in OWN]
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=1e-6)
    # Each domain's score uses weights computed on the other domains.
    shares = np.mean([np.bincount(codes[domain == s], minlength=2) / 24 for s in model.domains_], 0)
    np.testing.assert_allclose(model.decision_rule_.shares, shares)
    assert model.decision_threshold_ == pytest.approx(shares[1])
    for place, site in enumerate(model.domains_):
        others = member_weights(np.delete(losses, place, axis=1))
        mix = np.tensordot(others, probabilities, 1)[domain == site]
        score = balanced_accuracy_score(codes[domain == site], mix[:, 1] >= shares[1])
        assert model.domain_scores_[place] == pytest.approx(score, abs=0.05)
    mean, low, high = model.expected_score_
    assert mean == pytest.approx(model.domain_scores_.mean())
    assert low <= mean <= high


def test_parameters_are_chosen_by_the_smooth_score_unless_a_scoring_is_named():
    X, y, domain = table(n_per_domain=40)
    smooth = DomainEnsembleClassifier(["linear"], context=False).fit(X, y, sample_domain=domain)
    named = DomainEnsembleClassifier(["linear"], context=False, scoring="roc_auc")
    named.fit(X, y, sample_domain=domain)
    assert smooth.domain_scores_.shape == named.domain_scores_.shape == (5,)
    assert not np.allclose(smooth.domain_scores_, named.domain_scores_)
    losses = []
    Z, codes = standardised(X), np.unique(y, return_inverse=True)[1]
    places = np.unique(domain, return_inverse=True)[1]
    grid = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    for C in grid:
        values = np.zeros((len(X), 2))
        for train, held in LeaveDomainsOut().split(X, groups=domain):
            half = LogisticRegression(C=C).fit(Z[train], codes[train]).decision_function(Z[held])
            values[held] = np.column_stack([-half, half]) / 2
        losses.append(fit_curve(values, codes, equal_weights(places))[1])
    assert smooth.members_["linear"].parameters == [{"C": grid[int(np.argmin(losses))]}]


def test_predictions_are_the_weighted_average_of_members():
    X, y, domain = table()
    model = DomainEnsembleClassifier(OWN, decision="argmax").fit(X, y, sample_domain=domain)
    context = DomainContext().fit(X)
    Z, W = standardised(X), context.transform(X, sample_domain=domain)
    alone = sum(w * model.members_[n].predict(Z) for n, w in model.weights_.items())
    np.testing.assert_allclose(model.predict_proba(X), alone)
    together = sum(
        w * model.members_[n].predict(W if n.startswith("context_") else Z)
        for n, w in model.context_weights_.items()
    )
    np.testing.assert_allclose(model.predict_proba(X, sample_domain=domain), together)
    assert sum(model.weights_.values()) == pytest.approx(1.0)
    assert sum(model.context_weights_.values()) == pytest.approx(1.0)
    share = sum(w for n, w in model.context_weights_.items() if n.startswith("context_"))
    gain = model.context_expected_score_[0] - model.expected_score_[0]
    assert (share > 0.4) == (gain > 0)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    expected = model.classes_[model.predict_proba(X).argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X), expected)


def test_rows_without_domains_do_not_depend_on_each_other():
    X, y, domain = table()
    model = DomainEnsembleClassifier(OWN).fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(model.predict_proba(X[:1])[0], model.predict_proba(X)[0])
    one = model.predict_proba(X[:1], sample_domain=["new"])
    assert not np.allclose(one, model.predict_proba(X[:40], sample_domain=["new"] * 40)[:1])


def test_the_scale_of_features_and_targets_does_not_matter(few_trees):
    X, y, domain = numbers()
    scale = np.array([1e-6, 1.0, 1e6])
    plain = DomainEnsembleRegressor().fit(X, y, sample_domain=domain)
    scaled = DomainEnsembleRegressor().fit(X * scale + 3 * scale, 1e4 * y, sample_domain=domain)
    np.testing.assert_allclose(
        scaled.predict(X * scale + 3 * scale), 1e4 * plain.predict(X), rtol=1e-3
    )
    np.testing.assert_allclose(scaled.domain_scores_, 1e4 * plain.domain_scores_, rtol=1e-3)


@pytest.mark.parametrize("given", [False, True])
def test_a_linear_model_does_not_extrapolate_to_a_new_domain_in_another_unit(few_trees, given):
    X, _, domain = table(n_per_domain=40)
    y = X @ [3.0, -1.0, 0.3] + np.random.default_rng(0).standard_normal(len(X))
    new = domain == "site 4"
    model = DomainEnsembleRegressor(["linear", "extra_trees", "invariant_ridge"])
    model.fit(X[~new], y[~new], sample_domain=domain[~new])
    assert model.weights_["linear"] > 0.1
    domains = domain[new] if given else None
    error = {
        unit: np.sqrt(np.mean((model.predict(X[new] * [1, 1, unit], domains) - y[new]) ** 2))
        for unit in (1.0, 1e6)
    }
    assert error[1e6] < 3 * error[1.0]


def test_a_linear_model_extrapolates_as_far_as_the_outermost_source_is_beyond_the_others():
    rng = np.random.default_rng(0)
    domain = np.repeat([0, 1, 2, 3], 30)
    X = (domain + rng.random(len(domain)))[:, None]
    model = DomainEnsembleRegressor(["linear"], context=False)
    model.fit(X, 7 * X[:, 0], sample_domain=domain)
    lowest, highest = ([f(X[domain == d]) for d in range(4)] for f in (np.min, np.max))
    ends = [2 * lowest[0] - lowest[1], 2 * highest[3] - highest[2]]
    inside = np.linspace(*ends, 9)
    said = model.predict(inside[:, None])
    np.testing.assert_allclose(said, 7 * inside, atol=0.1)
    np.testing.assert_allclose(model.predict([[-1e9], [1e9]]), said[[0, -1]])


def test_a_regression_is_better_than_the_mean_and_scores_are_in_its_unit(few_trees):
    X, y, domain = numbers(n_per_domain=40)
    new = domain == "site 4"
    model = DomainEnsembleRegressor().fit(X[~new], y[~new], sample_domain=domain[~new])
    for given in (None, domain[new]):
        error = np.sqrt(np.mean((model.predict(X[new], sample_domain=given) - y[new]) ** 2))
        assert error < 0.7 * y[new].std()
    mean, low, high = model.expected_score_
    assert -y.std() < low <= mean <= high < 0


def test_context_helps_if_classes_shift_with_their_domain(few_trees):
    rng = np.random.default_rng(1)
    domain = np.repeat(np.arange(9), 40)
    y = rng.integers(2, size=len(domain))
    X = rng.standard_normal((len(domain), 2)) + 3 * y[:, None]
    X += np.repeat(10 * rng.standard_normal((9, 2)), 40, axis=0)
    new = domain == 8
    model = DomainEnsembleClassifier(["linear", "extra_trees", "invariant_ridge"])
    model.fit(X[~new], y[~new], sample_domain=domain[~new])
    together = balanced_accuracy_score(y[new], model.predict(X[new], sample_domain=domain[new]))
    assert together > 0.9
    assert model.context_expected_score_[0] > model.expected_score_[0] + 0.1


def test_there_is_no_context_if_domains_reveal_the_class():
    X, _, domain = table(n_domains=6)
    y = np.unique(domain, return_inverse=True)[1] % 2
    model = DomainEnsembleClassifier(OWN).fit(X, y, sample_domain=domain)
    assert not any(member.in_context for member in model.members_.values())
    assert model.context_weights_ == model.weights_
    np.testing.assert_array_equal(model.predict(X, sample_domain=domain), model.predict(X))
    with pytest.warns(
        UserWarning, match="context=True is ignored, because only 0 of 6 source domains"
    ):
        DomainEnsembleClassifier(OWN, context=True).fit(X, y, sample_domain=domain)


def test_a_domain_with_other_shares_of_classes_is_predicted_row_by_row():
    X, y, domain = table(n_per_domain=60, moved=0.1)
    model = DomainEnsembleClassifier(OWN).fit(X, y, sample_domain=domain)
    rows = np.argsort(X[:, 0] - X[:, 1])[-15:]
    with pytest.warns(UserWarning, match="not used for these domains: odd"):
        found = model.predict_proba(X[rows], sample_domain=["odd"] * len(rows))
    np.testing.assert_allclose(found, model.predict_proba(X[rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X, sample_domain=domain)


def test_without_domains_folds_of_rows_are_used_with_a_warning():
    X, y, _ = table()
    with pytest.warns(UserWarning, match="Rows are held out instead"):
        model = DomainEnsembleClassifier(OWN).fit(X, y)
    assert not any(member.in_context for member in model.members_.values())
    assert np.isnan(model.expected_score_[1:]).all()
    with pytest.raises(ValueError, match="context=True requires at least two domains"):
        DomainEnsembleClassifier(OWN, context=True).fit(X, y)


def test_members_omitted_because_of_a_time_budget_are_listed():
    X, y, domain = table()
    with pytest.warns(UserWarning, match="not fitted: logistic, context_bayes, context_logistic"):
        model = DomainEnsembleClassifier(OWN, time_budget=1e-9).fit(X, y, sample_domain=domain)
    assert model.dropped_ == ["logistic", "context_bayes", "context_logistic"]
    assert model.weights_ == {"bayes": 1.0}
    assert len(model.predict(X, sample_domain=domain)) == len(X)


def test_the_number_of_jobs_does_not_change_predictions_at_all():
    X, y, domain = table()
    one, two = (
        DomainEnsembleClassifier(["linear", "invariant_svm"], n_jobs=jobs, context=False)
        .fit(X, y, sample_domain=domain)
        .predict_proba(X)
        for jobs in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


class NeedsDomains(ClassifierMixin, BaseEstimator):
    """A classifier without probabilities whose fit requires domains."""

    def fit(self, X, y, sample_domain=None):
        assert sample_domain is not None
        assert len(sample_domain) == len(X)
        self.classes_ = np.unique(y)
        self.model_ = GaussianNB().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)


def test_a_users_estimators_get_domains_if_they_request_them():
    X, y, domain = table()
    model = DomainEnsembleClassifier([("own", NeedsDomains()), "linear"])
    model.fit(X, y, sample_domain=domain)
    assert {"own", "linear"} <= set(model.weights_) | set(model.dropped_)
    assert balanced_accuracy_score(y, model.predict(X)) > 0.7
    numeric = DomainEnsembleRegressor([("knn", KNeighborsRegressor()), ("ridge", Ridge())])
    numeric.fit(*numbers()[:2], sample_domain=domain)
    assert {"knn", "ridge"} <= set(numeric.weights_) | set(numeric.dropped_)


@pytest.mark.parametrize(
    ("types", "message"),
    [(["forest"], "'forest'. Choose from linear"), ([], "at least one"), (["linear"] * 2, "once")],
)
def test_unknown_and_duplicate_members_are_refused(types, message):
    X, y, domain = table()
    with pytest.raises(ValueError, match=message):
        DomainEnsembleClassifier(types).fit(X, y, sample_domain=domain)


class Strange(ClassifierMixin, BaseEstimator):
    """A classifier that returns invalid predictions."""

    def __init__(self, fault=""):
        self.fault = fault

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = np.full((len(X), 2), 0.5)
        if self.fault == "nan":
            p[::2] = np.nan
        return p[:-1] if self.fault == "short" else p


@pytest.mark.parametrize(
    ("model", "member", "message"),
    [
        ("classes", Ridge(), "members contains 'x', a Ridge, which is a regressor"),
        ("numbers", GaussianNB(), "which is a classifier. Pass a regressor to DomainEnsembleRegr"),
        ("classes", Strange("nan"), "member 'x' returned NaN or infinite values for 12 of 24 rows"),
        ("classes", Strange("short"), "member 'x' returned 23 predictions for 24 rows"),
    ],
)
def test_members_that_cannot_be_averaged_are_refused_by_name(model, member, message):
    X, y, domain = table() if model == "classes" else numbers()
    kind = DomainEnsembleClassifier if model == "classes" else DomainEnsembleRegressor
    with pytest.raises(ValueError, match=message):
        kind([("x", member)]).fit(X, y, sample_domain=domain)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"class 7": 2.0}, "class_weight contains 'class 7', which is not a class of y"),
        ({"class 0": 0.0, "class 1": 0.0}, "class_weight is 0 for class 'class 0'"),
    ],
)
def test_class_weights_that_do_not_fit_are_refused(weights, message):
    X, y, domain = table()
    with pytest.raises(ValueError, match=message):
        DomainEnsembleClassifier(OWN, class_weight=weights).fit(X, y, sample_domain=domain)


def test_the_order_of_rows_does_not_change_predictions_in_context(few_trees):
    X, y, domain = table(n_per_domain=40)
    X = np.round(X, 2)
    model = DomainEnsembleClassifier(["boosting", "extra_trees"]).fit(X, y, sample_domain=domain)
    expected = model.predict_proba(X, sample_domain=domain)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X))
        again = model.predict_proba(X[order], sample_domain=domain[order])
        np.testing.assert_allclose(again, expected[order], atol=1e-12)


def test_a_batch_of_one_class_is_predicted_row_by_row():
    X, y, domain = table(n_domains=8, n_per_domain=60, moved=0.3)
    model = DomainEnsembleClassifier(OWN, context=True).fit(X, y, sample_domain=domain)
    new, y_new, _ = table(n_domains=1, n_per_domain=200, seed=3, moved=0.3)
    mixed = model.predict_proba(new, sample_domain=["new"] * len(new))
    assert not np.allclose(mixed, model.predict_proba(new))
    for name in ("class 0", "class 1"):
        one = new[y_new == name]
        with pytest.warns(UserWarning, match="not used for these domains: new"):
            found = model.predict_proba(one, sample_domain=["new"] * len(one))
        np.testing.assert_array_equal(found, model.predict_proba(one))


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_a_global_setting_of_outputs_changes_nothing_inside(output):
    pytest.importorskip(output)
    X, y, domain = table()
    own = [("logistic", make_pipeline(StandardScaler(), LogisticRegression()))]
    plain = DomainEnsembleClassifier(own).fit(X, y, sample_domain=domain)
    with config_context(transform_output=output):
        model = DomainEnsembleClassifier(own).fit(X, y, sample_domain=domain)
        predicted = model.predict_proba(X, sample_domain=domain)
    np.testing.assert_allclose(predicted, plain.predict_proba(X, sample_domain=domain))


def ugly(name):
    """Return irregular tables."""
    X, y, domain = table(n_domains=4, n_per_domain=16, n_classes=3)
    if name == "a class is missing in some domains":
        y[domain != "site 1"] = np.where(
            y[domain != "site 1"] == "class 2", "class 0", y[domain != "site 1"]
        )
    elif name == "tiny domains":
        domain[:3] = ["one", "two", "three"]
    elif name == "constant, empty and duplicate columns":
        X = np.column_stack([X, np.full(len(X), 3.0), np.full(len(X), np.nan), X[:, 0]])
    elif name == "missing values":
        X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    elif name == "heavy tails":
        X = np.sinh(4 * X)
    elif name == "two domains":
        domain = np.where(np.isin(domain, ["site 0", "site 1"]), 0, 1)
    elif name == "many classes":
        y = np.random.default_rng(0).integers(20, size=len(X))
    elif name == "identical rows":
        X[:] = X[0]
    return X, y, domain


UGLY = [
    "a class is missing in some domains",
    "tiny domains",
    "constant, empty and duplicate columns",
    "missing values",
    "heavy tails",
    "two domains",
    "many classes",
    "identical rows",
]


@pytest.mark.parametrize("name", UGLY)
@pytest.mark.filterwarnings("ignore:Context was not used", "ignore:lbfgs failed")
def test_irregular_tables_are_fitted_and_predicted(name, few_trees):
    X, y, domain = ugly(name)
    model = DomainEnsembleClassifier(class_weight="balanced").fit(X, y, sample_domain=domain)
    for given in (None, domain):
        p = model.predict_proba(X, sample_domain=given)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
    target = np.unique(y, return_inverse=True)[1].astype(float)
    numeric = DomainEnsembleRegressor().fit(X, target, sample_domain=domain)
    assert np.isfinite(numeric.predict(X, sample_domain=domain)).all()


@pytest.mark.parametrize("classes", [True, False])
def test_scores_are_computed_from_the_held_out_predictions(classes):
    X, y, domain = table() if classes else numbers()
    model = DomainEnsembleClassifier(OWN) if classes else DomainEnsembleRegressor([("r", Ridge())])
    held_out = model.fit(X, y, sample_domain=domain).held_out_
    assert set(held_out.members) == set(model.members_)
    np.testing.assert_array_equal(model.domains_[held_out.domain], domain)
    np.testing.assert_array_equal(model.classes_[held_out.y] if classes else held_out.y, y)
    parts = zip(
        (held_out.plain, held_out.context),
        (model.domain_scores_, model.context_domain_scores_),
        strict=True,
    )
    for predicted, scores in parts:
        for d, score in enumerate(scores):
            rows = held_out.domain == d
            if classes:
                codes = model.decision_rule_.codes(predicted[rows])
                hits = balanced_accuracy_score(held_out.y[rows], codes)
                assert score == pytest.approx(hits)
            else:
                error = np.sqrt(np.mean((y[rows] - predicted[rows, 0]) ** 2))
                assert score == pytest.approx(-error)


def test_held_out_rows_are_limited(monkeypatch):
    monkeypatch.setattr("domainwise.held_out.scoring.predictions.MAX_HELD_OUT", 40)
    X, y, domain = table()
    held_out = DomainEnsembleClassifier(OWN).fit(X, y, sample_domain=domain).held_out_
    assert np.bincount(held_out.domain).tolist() == [8] * 5
    assert held_out.plain.shape == held_out.context.shape == (40, 2)
    assert held_out.plain.dtype == np.float32


def test_member_types_without_a_row_limit_are_finally_fitted_to_all_rows(monkeypatch):
    monkeypatch.setattr("domainwise.estimators.ensemble.fitting.MAX_ROWS", 100)
    sizes = replace(grids.ENSEMBLE[0], max_rows=np.inf, landmarks=(60, 60))
    monkeypatch.setattr(grids, "ENSEMBLE", (sizes,))
    X, _, domain = table(n_per_domain=40)
    target, codes = X[:, 0] + X[:, 1] ** 2, np.unique(domain, return_inverse=True)[1]
    fitted = {}
    for name in ("boosting", "invariant_ridge"):
        model = DomainEnsembleRegressor([name], context=False, random_state=0)
        fitted[name] = model.fit(X, target, sample_domain=domain).members_[name]
        assert len(model.held_out_.y) == 100
    Z, scaled = standardised(X), (target - target.mean()) / target.std()
    boosting, ridge = fitted.values()
    # Rows are fitted in an order that depends on their content, so sums differ in the last digits.
    again = clone(boosting.estimators[0]).fit(Z, scaled)
    assert len(again.features_) == len(boosting.estimators[0].features_)
    assert np.corrcoef(boosting.predict(Z)[:, 0], again.predict(Z))[0, 1] > 0.98
    assert np.corrcoef(boosting.predict(Z)[:, 0], target)[0, 1] > 0.9
    assert ridge.estimators[0].n_landmarks == 60
    levelled = ridge.clip * np.tanh(Z / ridge.clip)
    again = clone(ridge.estimators[0]).set_params(n_landmarks=200)
    again.fit_candidates(levelled, scaled, codes, candidates=ridge.parameters)
    assert np.corrcoef(ridge.predict(Z)[:, 0], again.predict(levelled))[0, 1] > 0.98


@pytest.fixture
def many_rows(monkeypatch):
    """Small tables are fitted like tables with many rows."""
    sizes = replace(grids.ensemble_sizes(20_000), max_rows=np.inf, landmarks=(30, 50))
    monkeypatch.setattr(grids, "ENSEMBLE", (sizes,))
    monkeypatch.setattr(members, "KERNEL_ROWS", 60)
    monkeypatch.setattr(members._Boosting, "max_rounds", 32)


def test_members_depend_on_the_number_of_rows():
    few, many = grids.ensemble_sizes(600), grids.ensemble_sizes(20_000)
    assert set(many.members) < set(few.members)
    assert all("max_depth" in shape for shape in few.boosting["classes"])
    assert all("max_leaf_nodes" in shape for shape in many.boosting["classes"])
    assert few.landmarks < many.landmarks < grids.ensemble_sizes(10**6).landmarks
    limits = [sizes.max_rows for sizes in grids.ENSEMBLE]
    assert limits == sorted(limits)
    assert limits[-1] == np.inf


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_with_many_rows_boosting_has_larger_trees_and_the_ridge_more_landmarks(
    n_classes, many_rows, tmp_path
):
    pytest.importorskip("skops")
    from domainwise import load, save

    X, y, domain = table(n_per_domain=40, n_classes=n_classes or 2)
    kind, options = DomainEnsembleClassifier, {"members": ["boosting", "invariant_ridge"]}
    if not n_classes:
        kind, y = DomainEnsembleRegressor, numbers(n_per_domain=40)[1]
    model = kind(**options).fit(X, y, sample_domain=domain)
    for name in ("boosting", "invariant_ridge"):
        alone = kind([name]).fit(X, y, sample_domain=domain)
        (plain,) = (m for m in alone.members_.values() if not m.in_context)
        if name == "boosting":
            (fitted,) = plain.estimators
            assert fitted.max_leaf_nodes in (8, 31)
            assert fitted.n_iter_ == plain.parameters[0]["max_iter"] <= 32
        else:
            assert plain.estimators[0].n_landmarks == 50
            assert len({(c["kernel"], c["gamma"]) for c in plain.parameters}) <= 2
        assert alone.expected_score_[0] > (0.5 if n_classes else -np.std(y))
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(X, domain), model.predict(X, domain))


def test_the_number_of_rounds_is_chosen_from_a_single_fit(many_rows):
    X, y, domain = numbers(n_per_domain=60)
    kind, codes = members._Boosting(), np.unique(domain, return_inverse=True)[1]
    data = members.MemberData(
        X,
        y,
        target=Labels(values=y[:, None]),
        domain=Labels(codes, np.unique(domain)),
        sizes=grids.ENSEMBLE[0],
    )
    train, test = np.flatnonzero(codes > 0), np.flatnonzero(codes == 0)
    batch = [c for c in kind.candidates(data) if c["max_leaf_nodes"] == 8]
    assert [c["max_iter"] for c in batch] == [4, 8, 16, 32]
    outputs = kind.outputs(data, train, test, batch, None)
    for candidate, values in zip(batch, outputs, strict=True):
        fitted = kind.fit_candidate(data, candidate, train)
        np.testing.assert_allclose(values[:, 0], fitted.predict(X[test]), rtol=1e-5)


class Constant(members.MemberType):
    """Candidates that predict a constant."""

    name, n_average, may_average_fewer = "constant", 2, True

    def candidates(self, data):
        return [{"value": 0.0}, {"value": 1.0}]

    def outputs(self, data, train, test, batch, score):
        return [np.full((len(test), 1), candidate["value"]) for candidate in batch]


@pytest.mark.parametrize(("target", "chosen"), [(0.4, [0.0, 1.0]), (0.1, [0.0]), (0.9, [1.0])])
def test_two_candidates_are_averaged_if_this_is_better_on_held_out_domains(target, chosen):
    codes = np.repeat(np.arange(4), 5)
    y = np.full(20, target)
    labels = {"target": Labels(values=y[:, None]), "domain": Labels(codes, np.arange(4))}
    data = members.MemberData(np.zeros((20, 1)), y, **labels)
    splits = [(np.flatnonzero(codes != code), np.flatnonzero(codes == code)) for code in range(4)]
    score = HeldOutScore(y, None, codes, 4, np.arange(20), None)
    options = {"in_context": False, "n_jobs": None}
    member, predictions = Constant().search(data, splits, score, "constant", **options)
    assert [candidate["value"] for candidate in member.parameters] == chosen
    within_targets = np.clip(np.mean(chosen), target, target)
    np.testing.assert_allclose(predictions[:, 0], within_targets)


def test_predictions_stay_within_what_held_out_domains_show_to_be_safe():
    X, _, domain = table(n_per_domain=40)
    X = np.column_stack([X, (np.arange(len(X)) == 7).astype(float)])  # a rare category
    y = np.clip(X[:, 0], -1.0, 1.0) + 0.1 * np.random.default_rng(0).standard_normal(len(X))
    model = DomainEnsembleRegressor(["linear"], context=False).fit(X, y, sample_domain=domain)
    (member,) = model.members_.values()
    low, high = member.bounds
    assert y.min() - np.ptp(y) < low * model._deviation + model._mean < y.min() + 1e-9
    extreme = np.tile([[30.0, -30.0, 30.0, 1.0]], (2, 1)) * [[1], [-1]]
    predicted = model.predict(extreme)
    assert (predicted <= model._mean + model._deviation * high + 1e-9).all()
    assert np.ptp(predicted) < 2 * np.ptp(y)
    adapted = model.adapt(X[:5], y[:5] + 100.0)  # bounds apply before the correction
    assert adapted.predict(X).mean() > model._mean + model._deviation * high + 10


def test_neither_names_of_domains_nor_the_order_of_rows_change_a_model(few_trees):
    for X, y, domain in (table(n_domains=12), numbers(n_domains=12)):
        kind = DomainEnsembleClassifier if y.dtype.kind == "U" else DomainEnsembleRegressor
        model = kind().fit(X, y, sample_domain=domain)
        order = np.random.default_rng(0).permutation(len(X))
        names = np.unique(domain)
        renamed = np.random.default_rng(1).permutation(names)[np.searchsorted(names, domain)]
        other = kind().fit(X[order], y[order], sample_domain=renamed[order])
        probabilities = "predict_proba" if kind is DomainEnsembleClassifier else "predict"
        for known, given in ((None, None), (domain, renamed)):
            expected = getattr(model, probabilities)(X, sample_domain=known)
            found = getattr(other, probabilities)(X, sample_domain=given)
            np.testing.assert_array_equal(found, expected)
        new_names = renamed[[int(np.flatnonzero(domain == name)[0]) for name in model.domains_]]
        expected = dict(zip(new_names, model.domain_scores_, strict=True))
        assert dict(zip(other.domains_, other.domain_scores_, strict=True)) == expected
        np.testing.assert_array_equal(other.held_out_.plain, model.held_out_.plain[order])
        assert other.expected_score_ == model.expected_score_
        assert other.expected_range_ == pytest.approx(model.expected_range_)


def test_an_absurd_target_does_not_ruin_the_predictions(few_trees):
    X, y, domain = numbers(n_per_domain=60)
    deviation = y.std()
    absurd = y.copy()
    absurd[17] += 1000 * deviation
    clean = DomainEnsembleRegressor().fit(X, y, sample_domain=domain)
    with pytest.warns(UserWarning, match="1 of 300 targets are much farther"):
        model = DomainEnsembleRegressor().fit(X, absurd, sample_domain=domain)
    rows = np.arange(len(y)) != 17
    errors = [np.sqrt(np.mean((m.predict(X[rows]) - y[rows]) ** 2)) for m in (clean, model)]
    assert errors[1] < 1.1 * errors[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DomainEnsembleRegressor(["linear"]).fit(X, np.exp(y / deviation), sample_domain=domain)
        y[domain == "site 1"] *= 10  # a whole domain is not absurd
        DomainEnsembleRegressor(["linear"]).fit(X, y, sample_domain=domain)


def test_statistics_of_domains_are_an_argument_of_a_copy():
    X, y, domain = table()
    model = DomainEnsembleClassifier(OWN).fit(X, y, sample_domain=domain)
    moments = model.domain_context_.domain_moments(X, domain)
    some = np.arange(0, len(X), 3)
    before = model.predict_proba(X[some], sample_domain=domain[some])
    copy = model.with_statistics(DomainStatistics(moments, frozenset()))
    whole = model.with_statistics(DomainStatistics(moments, frozenset({"site 1"})))
    np.testing.assert_allclose(
        copy.predict_proba(X[some], sample_domain=domain[some]),
        copy.predict_proba(X, sample_domain=domain)[some],
    )
    with pytest.warns(UserWarning, match="not used for these domains: site 1"):
        alone = whole.predict_proba(X, sample_domain=domain)[domain == "site 1"]
    np.testing.assert_allclose(alone, model.predict_proba(X[domain == "site 1"]))
    np.testing.assert_array_equal(model.predict_proba(X[some], sample_domain=domain[some]), before)


@pytest.mark.parametrize("classes", [True, False])
def test_a_saved_ensemble_predicts_the_same(classes, few_trees, tmp_path):
    pytest.importorskip("skops")
    from domainwise import load, save

    X, y, domain = table() if classes else numbers()
    model = DomainEnsembleClassifier() if classes else DomainEnsembleRegressor()
    model.fit(X, y, sample_domain=domain)
    assert set(model.members_) == set(model.weights_) | set(model.context_weights_)
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.held_out_.context, model.held_out_.context)
    for given in (None, domain):
        expected = model.predict(X, sample_domain=given)
        np.testing.assert_array_equal(again.predict(X, sample_domain=given), expected)


@pytest.mark.parametrize("name", ["lightgbm", "catboost"])
@pytest.mark.parametrize("classes", [True, False])
def test_boosting_from_other_packages_is_a_member_by_name(classes, name, tmp_path):
    pytest.importorskip(name, reason="the extra boosting is not installed")
    X, y, domain = table(n_classes=3) if classes else numbers()
    ensemble = DomainEnsembleClassifier if classes else DomainEnsembleRegressor
    model = ensemble([name], context=False).fit(X, y, sample_domain=domain)
    assert model.expected_score_[0] > (0.5 if classes else -np.std(y))
    # The stage that was chosen on held-out domains equals a model with this number of rounds.
    kind = members.MEMBER_TYPES[name]()
    (chosen,) = model.members_[name].parameters
    (fitted,) = model.members_[name].estimators
    assert fitted.get_params()[kind.path] == chosen[kind.path]
    Z = standardised(X)
    target = np.unique(y, return_inverse=True)[1] if classes else standardised(y)
    longer = clone(fitted).set_params(**{kind.path: 2 * chosen[kind.path]}).fit(Z, target)
    # CatBoost depends on the order of rows, which the ensemble sorts.
    same = clone(fitted).fit(Z, target)
    stop = {kind.rounds_argument: chosen[kind.path]}
    method = "predict_proba" if classes else "predict"
    np.testing.assert_allclose(
        getattr(longer, method)(Z, **stop), getattr(same, method)(Z), rtol=1e-6
    )
    again = ensemble([name], context=False, n_jobs=2).fit(X, y, sample_domain=domain)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    pytest.importorskip("skops")
    from domainwise import save

    with pytest.raises(ValueError, match="cannot be part of model files"):
        save(model, tmp_path / "model.skops")


def test_a_member_of_a_missing_package_names_the_extra(monkeypatch):
    X, y, domain = table()
    monkeypatch.setitem(sys.modules, "catboost", None)
    with pytest.raises(ImportError, match=r"'catboost'.*domainwise\[boosting\]"):
        DomainEnsembleClassifier(["linear", "catboost"]).fit(X, y, sample_domain=domain)
    assert not any({"lightgbm", "catboost"} & set(sizes.members) for sizes in grids.ENSEMBLE)


@pytest.mark.parametrize("in_context", [False, True])
def test_prediction_sets_use_predictions_for_held_out_domains(in_context, few_trees):
    X, y, domain = table(n_domains=9)
    model = DomainEnsembleClassifier(["extra_trees"], context=in_context)
    model.fit(X, y, sample_domain=domain)
    given = {"sample_domain": domain} if in_context else {}
    p = model.predict_proba(X, **given)
    sets = {c: model.predict_set(X, **given, coverage=c) for c in (0.5, 0.8, 0.9)}
    assert model.promise_ == "approximate"
    assert len(model.calibration_domains_) == 9
    for coverage, found in sets.items():
        kind = "context" if in_context else "plain"
        threshold = model._quantiles[kind].threshold(coverage)
        np.testing.assert_array_equal(found, 1 - p <= threshold)
    assert not np.any(sets[0.5] & ~sets[0.8])
    assert not np.any(sets[0.8] & ~sets[0.9])
    inside = sets[0.9][np.arange(len(y)), (y == "class 1").astype(int)]
    assert inside.mean() > 0.85


def test_calibration_domains_are_not_used_for_anything_else(few_trees):
    X, y, domain = numbers(n_domains=8)
    model = DomainEnsembleRegressor(["linear", "extra_trees"], calibration="split")
    model.fit(X, y, sample_domain=domain)
    held = np.isin(domain, model.calibration_domains_)
    assert held.sum() == len(X) // 2
    assert not set(model.domains_) & set(model.calibration_domains_)
    alone = DomainEnsembleRegressor(["linear", "extra_trees"])
    alone.fit(X[~held], y[~held], sample_domain=domain[~held])
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    for given in (None, domain[held]):
        errors = np.sort(np.abs(y[held] - alone.predict(X[held], given)))
        # Four domains of the same size weigh 4/5 together: at 60 % three quarters of the errors.
        ends = model.predict_interval(X[held], given, coverage=0.6)
        reach = errors[int(0.75 * len(errors)) - 1]
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 2 * reach)
    assert model.promise_ == "guaranteed"
    with pytest.warns(UserWarning, match="needs at least 9 calibration domains, but there are 4"):
        assert np.isinf(model.predict_interval(X)).all()


def test_a_class_that_only_calibration_domains_contain_is_never_covered(monkeypatch):
    def in_the_order_of_names(X, y, codes):
        return np.arange(codes.max() + 1)

    # Otherwise, y decides which domains are kept aside.
    monkeypatch.setattr("domainwise.held_out.folds.content_order", in_the_order_of_names)
    X, y, domain = table(n_domains=8)
    parts = DomainEnsembleClassifier(["linear"], context=False, calibration="split")
    held = np.isin(domain, parts.fit(X, y, sample_domain=domain).calibration_domains_)
    model = parts.fit(X, np.where(held, "new", y), sample_domain=domain)
    assert model.classes_.tolist() == ["class 0", "class 1"]
    assert model._quantiles["plain"].threshold(0.1) == 1.0


def test_domains_are_routed_through_cross_validation():
    X, y, domain = table()
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            DomainEnsembleClassifier(["linear"]),
            X,
            y,
            cv=LeaveDomainsOut(),
            params={"sample_domain": domain},
            return_estimator=True,
        )
    assert len(found["test_score"]) == 5
    assert all(len(model.domains_) == 4 for model in found["estimator"])
