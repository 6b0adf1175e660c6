"""Probabilities of methods have the frequencies of classes, and decisions follow the metric."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.svm import SVC

from domainwise import InvariantSVC, evaluate
from domainwise.held_out.calibration.curves import Curve, equal_weights, fit_curve, improves
from domainwise.models.registry import METHODS, Setting
from domainwise.models.table_model import fit_table
from domainwise.models.tuning import MethodSearch
from domainwise.selection import InvariantRidgeClassifierCV, LeaveDomainsOut
from domainwise.tables.schema import check_table

METHOD_KEYS = ("linear", "svm", "boosting", "dcmcv", "invariantridge", "kpca")


def rare_events(n_domains=14, size=150, share=0.05, seed=0):
    """Rows of sites with about 5 % events, whose log-odds vary between sites."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), size)
    X = rng.normal(size=(len(domain), 4)) + 0.2 * rng.normal(size=(n_domains, 4))[domain]
    logits = X[:, 0] + 0.8 * X[:, 1] + 0.2 * rng.normal(size=n_domains)[domain]
    offset = np.quantile(logits + rng.logistic(size=len(X)), 1 - share)
    return X, (logits + rng.logistic(size=len(X)) > offset).astype(int), domain


def fitted(key, rows, **options):
    X, y, domain = rows
    search = METHODS[key].make(Setting(True, len(y), metric="balanced_accuracy", **options))
    return search.fit(X, y, sample_domain=domain)


@pytest.fixture(scope="module")
def rows():
    """Training rows from eight sites and rows from the other six."""
    X, y, domain = rare_events()
    known = domain < 8
    return (X[known], y[known], domain[known]), (X[~known], y[~known], domain[~known])


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("key", METHOD_KEYS)
def test_mean_probabilities_at_new_sites_are_the_frequency_of_events(rows, key, class_weight):
    train, (X, y, domain) = rows
    model = fitted(key, train, class_weight=class_weight)
    p = model.predict_proba(X)[:, 1]
    sites = [domain == d for d in np.unique(domain)]
    ratio = np.mean([p[s].mean() for s in sites]) / np.mean([y[s].mean() for s in sites])
    assert 0.75 < ratio < 1.33
    shares = [train[1][train[2] == d].mean() for d in np.unique(train[2])]
    assert log_loss(y, p) < log_loss(y, np.full(len(y), np.mean(shares)))
    # Balanced accuracy would be .5 if the most probable class were predicted.
    assert balanced_accuracy_score(y, model.predict(X)) > 0.65
    rule = model.applied_rule
    if rule.kind == "balanced":
        assert rule.threshold == pytest.approx(np.mean(shares))
    assert (model.predict(X) == (p >= rule.threshold)).all()


def test_probabilities_of_svms_come_from_values_on_held_out_domains(rows):
    X, y, domain = rows[0]
    search = MethodSearch(SVC(class_weight="balanced", gamma=0.2), {"C": [1.0]})
    search.fit(X, y, sample_domain=domain)
    values = np.zeros((len(y), 2))
    for train, test in LeaveDomainsOut(max_splits=5).split(X, y, domain):
        svm = SVC(class_weight="balanced", gamma=0.2, C=1.0).fit(X[train], y[train])
        values[test, 1] = svm.decision_function(X[test])
    values[:, 0] = -values[:, 1]
    curve, _ = fit_curve(values, y, equal_weights(domain))
    svm = SVC(class_weight="balanced", gamma=0.2, C=1.0).fit(X, y)
    decisions = svm.decision_function(X)
    expected = curve.probabilities(np.column_stack([-decisions, decisions]))
    np.testing.assert_allclose(search.predict_proba(X), expected, atol=1e-8)


def test_curves_replace_probabilities_only_if_they_are_better_on_other_domains():
    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(6), 200)
    v = rng.normal(size=len(domain))
    y = (rng.random(len(v)) < 1 / (1 + np.exp(-v))).astype(int)
    identity = Curve(0.5, np.zeros(2))
    right, steep = np.column_stack([-v, v]), 4.0 * np.column_stack([-v, v])
    assert improves(steep, y, domain, identity)
    assert not improves(steep, y, domain * 0, identity)
    curve, _ = fit_curve(right, y, np.ones(len(y)))
    assert not improves(right, y, domain, curve)


def test_a_threshold_of_the_user_wins_for_every_method(rows):
    train, (X, _, _) = rows
    for key in ("linear", "invariantridge", "svm"):
        model = fitted(key, train, decision=0.2)
        p = model.predict_proba(X)[:, 1]
        assert (model.predict(X) == (p >= 0.2)).all()
        moved = model.with_threshold(0.4)
        assert (moved.predict(X) == (p >= 0.4)).all()
        assert (model.predict(X) == (p >= 0.2)).all()
        with pytest.raises(ValueError, match="between 0 and 1; got 1.5"):
            model.with_threshold(1.5)


def test_a_threshold_belongs_to_the_positive_class(rows):
    train, (X, _, _) = rows
    model = fitted("linear", train, decision=0.9, pos_label=0)
    p = model.predict_proba(X)
    assert (model.predict(X) == np.where(p[:, 0] >= 0.9, 0, 1)).all()


def test_own_estimators_keep_their_probabilities_and_get_decisions_for_the_metric(rows):
    train, (X, _, _) = rows
    own, options = LogisticRegression(), dict(own=True, metric="balanced_accuracy")
    search = MethodSearch(own, **options).fit(train[0], train[1], sample_domain=train[2])
    plain = LogisticRegression().fit(*train[:2])
    np.testing.assert_array_equal(search.predict_proba(X), plain.predict_proba(X))
    threshold = np.mean([train[1][train[2] == d].mean() for d in range(8)])
    assert (search.predict(X) == (plain.predict_proba(X)[:, 1] >= threshold)).all()
    search = MethodSearch(own, own=True, metric="accuracy").fit(train[0], train[1], train[2])
    assert (search.predict(X) == plain.predict(X)).all()
    fixed = FixedThresholdClassifier(LogisticRegression(), threshold=0.3)
    search = MethodSearch(fixed, **options).fit(train[0], train[1], sample_domain=train[2])
    assert (search.predict(X) == (plain.predict_proba(X)[:, 1] >= 0.3)).all()
    weighted = MethodSearch(LogisticRegression(class_weight="balanced"), **options)
    weighted.fit(train[0], train[1], sample_domain=train[2])
    assert weighted.predict_proba(X)[:, 1].mean() == pytest.approx(train[1].mean(), rel=0.25)


def test_scorers_of_decisions_choose_among_svms_by_calibrated_probabilities(rows):
    X, y, domain = rows[0]
    costs = [1e-4, 1.0]
    search = MethodSearch(SVC(gamma=0.2), {"C": costs}, scoring="balanced_accuracy")
    search.fit(X, y, sample_domain=domain)
    # The sign of an unweighted SVM is the same in all rows, so all candidates would score .5.
    assert (SVC(gamma=0.2, C=1.0).fit(X, y).predict(X) == 0).mean() > 0.97
    assert balanced_accuracy_score(y, search.predict(X)) > 0.6


def test_the_invariant_svm_decides_by_its_calibrated_probabilities(rows):
    train, (X, y, _) = rows
    model = InvariantSVC(probability=True, class_weight="balanced", gamma=0.2)
    model.fit(*train[:2], sample_domain=train[2])
    p = model.predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(y.mean(), rel=0.4)
    assert (model.predict(X) == (p >= model.decision_threshold_)).all()
    for decision, threshold in ((0.2, 0.2), ("argmax", 0.5)):
        other = clone(model).set_params(decision=decision).fit(*train[:2], sample_domain=train[2])
        np.testing.assert_array_equal(other.predict_proba(X)[:, 1], p)
        assert (other.predict(X) == (p >= threshold)).all()
    with pytest.raises(ValueError, match=r"decision=0.2 needs probabilities"):
        InvariantSVC(decision=0.2).fit(*train[:2], sample_domain=train[2])
    plain = InvariantSVC().fit(*train[:2], sample_domain=train[2])
    assert plain.decision_rule_ is None


def test_a_ridge_fitted_in_batches_decides_like_one_with_the_same_estimates(rows):
    X, y, domain = rows[0]
    grid = dict(kernels=["rbf"], gammas=[0.2], alphas=[1.0], domain_weights=[0.0], landmarks=X[::9])
    for class_weight in (None, "balanced"):
        model = InvariantRidgeClassifierCV(class_weight=class_weight, **grid)
        for d in range(8):
            model.partial_fit(X[domain == d], y[domain == d], sample_domain=domain[domain == d])
        estimates = np.clip((1 + model.decision_function(X)) / 2, 1e-6, None)
        if class_weight:  # the odds are too large by the ratio of the weights
            odds = estimates / np.clip(1 - estimates, 1e-6, None) * y.mean() / (1 - y.mean())
            estimates = odds / (1 + odds)
        threshold = np.mean([y[domain == d].mean() for d in range(8)])
        assert model.decision_threshold_ == pytest.approx(threshold)
        agrees = model.predict(X) == (estimates >= threshold)
        assert agrees[np.abs(estimates - threshold) > 1e-9].all()
        assert not hasattr(model, "predict_proba")


def test_evaluate_reports_probabilities_beside_decisions(rows):
    X, y, domain = rows[0]
    options = dict(methods=["constant", "linear"], progress=False)
    evaluation = evaluate(X, y, domain, **options)
    assert evaluation.measure.name == "balanced_accuracy"
    assert any("ratio of probability and frequency." in note for note in evaluation.notes)
    assert any("chosen by AUC were not clearly better" in note for note in evaluation.notes)
    assert not any("same weight in training" in note for note in evaluation.notes)
    records = evaluation.records["linear"]
    scores = json.loads(evaluation.to_json())["methods"][0]["probability_scores"]
    briers = [np.mean((r.probabilities[:, 1] - r.target) ** 2) for r in records]
    losses = [log_loss(r.target, r.probabilities) for r in records]
    assert scores["brier_score"] == pytest.approx(np.mean(briers))
    assert scores["log_loss"] == pytest.approx(np.mean(losses))
    assert 0.7 < scores["roc_auc"] < 0.9
    moved = evaluate(X, y, domain, threshold=0.3, **options)
    for record in moved.records["linear"]:
        assert (record.prediction == (record.probabilities[:, 1] >= 0.3)).all()
    assert moved.to_dict()["recipe"]["decision"] == 0.3
    assert any("at least 0.3 (set by the user)" in note for note in moved.notes)
    with pytest.raises(ValueError, match="decision must be"):
        evaluate(X, y, domain, threshold=2.0, **options)
    with pytest.raises(ValueError, match="the target is continuous"):
        evaluate(X, X[:, 0], domain, threshold=0.5, **options)


def test_probabilities_of_death_agree_with_deaths_in_held_out_trials(data_dir):
    pandas = pytest.importorskip("pandas")
    if not (data_dir / "impact_trials.csv.gz").exists():
        pytest.skip("impact_trials.csv.gz is not among the data files")
    frame = pandas.read_csv(data_dir / "impact_trials.csv.gz")
    is_dead = (frame["dead"] == "dead").to_numpy()
    share = 0.07 / 0.93 * (~is_dead).sum() / is_dead.sum()
    frame = frame[~is_dead | (np.random.default_rng(0).random(len(frame)) < share)]  # 7 % deaths
    trials = np.array(sorted(frame["domain"].unique()))
    expected, observed, accuracies = [], [], []
    for group in range(3):
        held_out = trials[group::3]
        is_new = frame["domain"].isin(held_out)
        source = frame[~is_new].sample(1500, random_state=0).reset_index(drop=True)
        table = check_table(source, target="dead", domain="domain")
        model = fit_table(table, "linear")
        new = frame[is_new].reset_index(drop=True)
        output = model.predictions(model.schema.prepare(new))
        for trial in held_out:
            rows = (new["domain"] == trial).to_numpy()
            y = (new["dead"] == "dead")[rows]
            expected.append(output["probability_dead"][rows].mean())
            observed.append(y.mean())
            predicted = output["prediction"][rows] == "dead"
            accuracies.append(balanced_accuracy_score(y, predicted))
    assert 0.85 < np.mean(expected) / np.mean(observed) < 1.18
    assert np.mean(accuracies) > 0.65
