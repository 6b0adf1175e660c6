"""Decision rules: shares, thresholds, and which rule fits which metric."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import FixedThresholdClassifier

from domainwise.held_out.calibration.decisions import (
    DecisionRule,
    check_decision,
    choose_rule,
    rule_for,
    source_shares,
    threshold_rule,
    without_class_weights,
)
from domainwise.held_out.scoring.measures import counts_by_domain
from domainwise.held_out.scoring.predictions import HeldOut

RARE = np.array([[90.0, 10.0], [40.0, 10.0]])  # shares .1 and .2
EVEN = np.array([[50.0, 50.0], [60.0, 40.0]])


def test_shares_are_means_over_domains_and_not_over_rows():
    np.testing.assert_allclose(source_shares(RARE), [0.85, 0.15])


def test_empty_domains_do_not_change_shares():
    np.testing.assert_allclose(source_shares(np.vstack([RARE, [0.0, 0.0]])), [0.85, 0.15])


@pytest.mark.parametrize(
    ("scoring", "counts", "kind"),
    [
        (None, RARE, "balanced"),
        (None, EVEN, "argmax"),
        ("balanced_accuracy", EVEN, "balanced"),
        ("f1_macro", EVEN, "balanced"),
        ("accuracy", RARE, "argmax"),
        ("f1_micro", RARE, "argmax"),
        ("roc_auc", RARE, "balanced"),
        ("roc_auc", EVEN, "argmax"),
        ("neg_log_loss", RARE, "balanced"),
        ("neg_brier_score", EVEN, "argmax"),
        (lambda model, X, y: 0.0, RARE, "balanced"),
    ],
)
def test_the_automatic_rule_follows_the_metric(scoring, counts, kind):
    assert rule_for("auto", counts, scoring).kind == kind


def test_a_balanced_rule_predicts_the_class_with_the_largest_ratio():
    p = np.array([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.9, 0.05, 0.05]])
    rule = rule_for("balanced", np.array([[7.0, 2.0, 1.0]]))
    # Ratios: 1, 1, 1 (the first wins); .71, 1.5, 2; 1.29, .25, .5.
    assert rule.codes(p).tolist() == [0, 2, 0]
    assert rule.threshold is None


def test_a_balanced_rule_for_two_classes_is_a_threshold_at_the_share():
    rule = rule_for("balanced", RARE)
    assert rule.threshold == pytest.approx(0.15)
    p1 = np.array([0.14, 0.151, 0.6])
    assert rule.codes(np.column_stack([1 - p1, p1])).tolist() == [0, 1, 1]


def test_a_threshold_decides_like_scikit_learns_classifier_with_a_fixed_threshold():
    X, y = make_classification(400, weights=[0.8], random_state=0)
    model = FixedThresholdClassifier(LogisticRegression(), threshold=0.2).fit(X, y)
    assert (threshold_rule(0.2).codes(model.predict_proba(X)) == model.predict(X)).all()


def test_a_threshold_can_belong_to_the_first_class():
    p = np.array([[0.3, 0.7], [0.1, 0.9]])
    assert threshold_rule(0.25, positive=0).codes(p).tolist() == [0, 1]


def tuned(decision, y, domains, probabilities, *options):
    counts = counts_by_domain(y, domains, 2)
    return choose_rule(decision, counts, HeldOut(y, domains, probabilities), *options)


def test_a_threshold_of_the_user_is_never_changed():
    rule = tuned(0.3, np.array([0, 1] * 20), np.arange(40) % 5, np.full((40, 2), 0.5))
    assert rule.kind == "threshold"
    assert rule.threshold == 0.3


def simulated(n_domains, flip, seed=0):
    """Probabilities whose log-odds are too large by ``flip``, and outcomes, by domain."""
    rng = np.random.default_rng(seed)
    domains = np.repeat(np.arange(n_domains), 300)
    logits = rng.normal(-1.0, 1.5, len(domains))
    y = (rng.random(len(domains)) < 1 / (1 + np.exp(-logits))).astype(int)
    p1 = 1 / (1 + np.exp(-(logits + flip)))
    return y, domains, np.column_stack([1 - p1, p1])


def test_the_known_threshold_of_a_metric_is_not_tuned():
    y, domains, p = simulated(8, 1.5)
    assert tuned("auto", y, domains, p, "accuracy").kind == "argmax"
    assert tuned("auto", y, domains, p, "balanced_accuracy").kind == "balanced"


def test_a_threshold_is_tuned_only_with_enough_domains():
    y, domains, p = simulated(8, 1.5)
    rule = tuned("auto", y, domains, p, "f1")
    assert rule.kind == "tuned"
    base = rule_for("auto", np.array([[1.0, 1.0]]), "accuracy")
    assert f1_score(y, rule.codes(p)) > f1_score(y, base.codes(p)) + 0.01
    assert tuned("auto", *simulated(3, 1.5), "f1").kind == "argmax"


def test_the_order_of_rows_is_scored_without_tuning():
    y, domains, p = simulated(8, 1.5)
    assert tuned("auto", y, domains, p, "roc_auc").kind == "argmax"


def test_f1_of_the_positive_class_may_move_the_threshold():
    y, domains, p = simulated(8, -1.0)
    for positive in (1, 0):
        outputs = p if positive else p[:, ::-1]
        targets = y if positive else 1 - y
        rule = tuned("auto", targets, domains, outputs, "f1", positive)
        assert rule.kind == "tuned"
        assert rule.threshold < 0.4


def test_probabilities_are_divided_by_class_weights():
    shares, weights = np.array([0.9, 0.1]), np.array([1.0, 9.0])
    weighted = shares * weights / (shares * weights).sum()
    np.testing.assert_allclose(without_class_weights(weighted[None], weights)[0], shares)


@pytest.mark.parametrize("decision", ["best", 0, 1.0, -0.2, True, None, np.nan])
def test_other_decisions_are_rejected(decision):
    with pytest.raises(ValueError, match="decision must be 'auto', 'argmax', 'balanced', or a"):
        check_decision(decision, 2)


def test_a_threshold_for_several_classes_is_rejected():
    with pytest.raises(ValueError, match="there are 3 classes. Use decision='argmax'"):
        rule_for(0.3, np.ones((2, 3)))


def test_a_rule_says_what_it_predicts():
    assert DecisionRule("argmax", np.array([0.5, 0.5])).describe("ab") == "the most probable class"
    text = "b if its probability is at least 0.3 (set by the user)"
    assert threshold_rule(0.3).describe("ab") == text
    text = "the class with the largest ratio of probability and frequency"
    assert rule_for("balanced", np.ones((1, 3))).describe("abc") == text
