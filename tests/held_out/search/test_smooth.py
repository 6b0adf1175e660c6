"""The smooth score of searches equals values from loops and generic minimizers."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from domainwise import DCMCV, InvariantSVC
from domainwise.held_out.calibration.curves import BIAS_PENALTY_ROWS, PENALTY_ROWS
from domainwise.held_out.search.scores import SmoothScore, outputs
from domainwise.models import tuning as models_search
from domainwise.models.tuning import MethodSearch
from domainwise.selection import InvariantSearchCV, LeaveDomainsOut


def problem(n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [30, 12, 20, 25]
    domain = np.repeat(np.arange(4), sizes)
    X = rng.normal(size=(len(domain), 3)) + 0.5 * rng.normal(size=(4, 3))[domain]
    value = X[:, 0] - 0.5 * X[:, 1] + 0.7 * rng.normal(size=len(X))
    cuts = np.quantile(value, np.arange(1, n_classes) / n_classes)
    return X, value, np.array(["low", "mid", "top"])[np.searchsorted(cuts, value)], domain


def splits_of(X, domain):
    return list(LeaveDomainsOut().split(X, groups=domain))


def loss_by_hand(values, codes, domain):
    """Return the log loss of the best curve, with equal weights for domains but not classes."""
    _, indices, sizes = np.unique(domain, return_inverse=True, return_counts=True)
    weight = 1 / sizes[indices] / len(sizes)
    values = values - values.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.mean(values**2))

    def loss(parameters):
        logs = log_softmax(parameters[0] / scale * values + parameters[1:], axis=1)
        return -weight @ logs[np.arange(len(codes)), codes]

    start = np.r_[1.0, np.zeros(values.shape[1])]
    penalties = np.r_[PENALTY_ROWS, np.full(values.shape[1], BIAS_PENALTY_ROWS)] / len(codes)
    shrunk = minimize(lambda p: loss(p) + penalties @ (p - start) ** 2 / 2, start)
    return loss(shrunk.x)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_score_of_classes_is_the_log_loss_of_one_curve_for_all_splits(n_classes):
    X, _, y, domain = problem(n_classes)
    splits, classes = splits_of(X, domain), np.unique(y)
    score = SmoothScore(y, domain, classes)
    values = [score.outputs(SVC(C=1.0).fit(X[train], y[train]), X[test]) for train, test in splits]
    (scores,) = score.table([values], [test for _, test in splits])
    rows = np.concatenate([test for _, test in splits])
    codes = np.searchsorted(classes, y[rows])
    expected = loss_by_hand(np.concatenate(values), codes, domain[rows])
    assert scores.shape == (4,)
    assert scores.mean() == pytest.approx(-expected, abs=1e-5)


def test_the_score_of_numbers_is_the_mean_over_domains_of_the_squared_error():
    X, y, _, domain = problem()
    splits = splits_of(X, domain)
    score = SmoothScore(y, domain, None)
    values = [score.outputs(Ridge().fit(X[train], y[train]), X[test]) for train, test in splits]
    (scores,) = score.table([values], [test for _, test in splits])
    errors = [
        np.mean((y[test] - v[:, 0]) ** 2) for (_, test), v in zip(splits, values, strict=True)
    ]
    np.testing.assert_allclose(scores, -np.array(errors))
    assert score(Ridge().fit(X, y), X, y) == pytest.approx(
        -np.mean((y - Ridge().fit(X, y).predict(X)) ** 2)
    )


def test_a_search_and_a_loop_with_the_smooth_score_choose_the_same_candidate():
    X, _, y, domain = problem(3)
    costs, splits = [0.01, 0.1, 1.0, 10.0], splits_of(X, domain)
    score = SmoothScore(y, domain, np.unique(y))
    expected = []
    for C in costs:
        models = [SVC(C=C, gamma=0.3).fit(X[train], y[train]) for train, _ in splits]
        values = [score.outputs(m, X[test]) for m, (_, test) in zip(models, splits, strict=True)]
        expected.append(score.table([values], [test for _, test in splits]).mean())
    search = MethodSearch(SVC(gamma=0.3), {"C": costs}).fit(X, y, sample_domain=domain)
    assert search.best_params_["C"] == costs[int(np.argmax(expected))]
    invariant = InvariantSearchCV(
        InvariantSVC(domain_weight=0.0, gamma=0.3), {"C": costs}, scoring=score
    )
    invariant.fit(X, y, sample_domain=domain)
    np.testing.assert_allclose(invariant.cv_results_["mean_test_score"], expected, rtol=1e-5)


def test_a_specified_score_replaces_the_smooth_score():
    X, _, y, domain = problem()
    costs = [1e-4, 1.0]

    def scorer(model, X, y):
        return -getattr(model, "C", 0.0)  # a constant prediction is scored as well

    for scoring, best in ((scorer, 1e-4), (None, 1.0)):
        search = MethodSearch(LogisticRegression(), {"C": costs}, scoring=scoring)
        assert search.fit(X, y, sample_domain=domain).best_params_ == {"C": best}


def test_projections_are_chosen_by_outputs_of_their_heads():
    X, _, y, domain = problem()
    score = SmoothScore(y, domain, np.unique(y))
    model = DCMCV(gammas=[0.3], ridges=[1e-2, np.inf], domain_weights=[0.0, 1.0])
    model.fit(X, y, sample_domain=domain)  # the smooth score is the default for classes
    best = model.cv_results_["mean_test_score"].max()
    assert model.best_score_ == best < 0
    expected = []
    for train, test in splits_of(X, domain):
        projection = (
            model.unfitted().set_params(**model.best_params_).fit(X[train], y[train], domain[train])
        )
        head = LinearDiscriminantAnalysis().fit(projection.transform(X[train]), y[train])
        expected.append(score.outputs(head, projection.transform(X[test])))
    tests = [test for _, test in splits_of(X, domain)]
    assert score.table([expected], tests).mean() == pytest.approx(best, rel=1e-3)


def test_a_class_that_a_model_has_not_seen_is_the_least_likely_one():
    X, _, y, _ = problem(3)
    codes = np.unique(y, return_inverse=True)[1]
    known = codes != 1
    for model in (SVC(), RandomForestClassifier(5, random_state=0)):
        values = outputs(model.fit(X[known], codes[known]), X, 3)
        assert (values[:, 1] <= values.min(axis=1)).all()
        score = SmoothScore(y, None, np.unique(y))
        named = model.fit(X[known], y[known])
        np.testing.assert_allclose(score.outputs(named, X), values)


def test_candidates_on_large_tables_are_compared_on_a_sample_of_rows(monkeypatch):
    X, _, y, domain = problem()
    sizes = []

    class Counted(LogisticRegression):
        def fit(self, X, y):
            sizes.append(len(X))
            return super().fit(X, y)

    monkeypatch.setattr(models_search, "SEARCH_ROWS", 40)
    search = MethodSearch(Counted(), {"C": [0.9, 1.0]}).fit(X, y, sample_domain=domain)
    assert len(sizes) == 2 * 4 + 1
    assert max(sizes[:-1]) < 40
    assert sizes[-1] == len(X)
    units = {"alpha": "rows"}
    ridge = MethodSearch(Ridge(), {"alpha": [0.5]}, units).fit(X, y == "low", sample_domain=domain)
    assert ridge.best_params_["alpha"] == pytest.approx(0.5 * len(X))
    assert search.score(X, y) > 0.5
