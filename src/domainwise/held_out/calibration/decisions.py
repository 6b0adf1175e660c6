"""Decision rules, which turn the probabilities of classes into predicted classes (theory 16.5).

Probabilities have the class frequencies of the source domains. The best decision depends on the
metric: if all classes count the same, a row belongs to the class that is most probable *relative to
its frequency*; for the accuracy, to the most probable class. A decision rule therefore divides
probabilities by the *shares* of the classes, and predicts the class with the largest ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from domainwise.base.arrays import Array, Decision, Scoring
from domainwise.held_out.scoring import measures
from domainwise.held_out.scoring.measures import Measure
from domainwise.held_out.scoring.predictions import HeldOut, Outputs
from domainwise.held_out.scoring.statistics import defined_score

#: Accepted values of ``decision``, besides a threshold.
DECISIONS = ("auto", "argmax", "balanced")
#: Scorers of probabilities or of the order of rows, which do not depend on decisions.
PROBABILITY_METRICS = ("roc_auc", "average_precision", "log_loss", "brier", "top_k", "d2_")
#: Scorers whose best threshold for calibrated probabilities is that of the rule. Tuned thresholds
#: are worse for them at new sites, even if they are better on held-out domains (GROWTH.md).
KNOWN_THRESHOLDS = ("accuracy", "balanced_accuracy", "recall_macro")
#: Steps in log-odds by which a tuned threshold may differ from that of the rule for the metric, the
#: smallest first.
STEPS = np.array([sign * step for step in np.arange(0.25, 3.01, 0.25) for sign in (-1, 1)])
#: A threshold is tuned with at least this many domains: fewer give no standard error.
MIN_DOMAINS = 4
#: Smallest share by which probabilities are divided.
MIN_SHARE = 1e-6


@dataclass(frozen=True)
class DecisionRule:
    """A rule that predicts the class with the largest ratio of probability and share.

    For two classes, this is a threshold: the positive class is predicted if its probability is at
    least its share.
    """

    kind: str  #: "argmax" (equal shares), "balanced", "tuned", or "threshold" (set by the user)
    shares: Array  #: positive, with sum 1, in the order of the classes
    positive: int = 1  #: code of the positive class if there are two classes
    #: Whether a tuned threshold was tuned for a metric in which classes count the same.
    is_relative: bool = False

    @property
    def threshold(self) -> float | None:
        """Smallest probability for which the positive class is predicted; None unless binary."""
        return float(self.shares[self.positive]) if len(self.shares) == 2 else None

    @property
    def positive_last(self) -> list[int]:
        """Codes of the classes, in order, but with the positive one of two classes last."""
        n_classes = len(self.shares)
        is_reversed = n_classes == 2 and self.positive == 0
        return [1, 0] if is_reversed else list(range(n_classes))

    @property
    def divides_by_shares(self) -> bool:
        """Whether the rule depends on class shares, so that it would change at another site."""
        return self.kind == "balanced" or self.is_relative

    def at_site(self, ratios: Array) -> DecisionRule:
        """Return the rule for a site, given ratios of its class shares and those of the sources."""
        if not self.divides_by_shares:
            return self
        return replace(self, shares=positive_shares(self.shares * ratios))

    def codes(self, probabilities: Array) -> Array:
        """Return the class code of each row."""
        if self.kind == "argmax":
            return np.asarray(probabilities.argmax(axis=1))
        if self.threshold is not None:
            is_positive = probabilities[:, self.positive] >= self.threshold
            return np.where(is_positive, self.positive, 1 - self.positive)
        return np.asarray((probabilities / self.shares).argmax(axis=1))

    def describe(self, classes: Any) -> str:
        """Describe the rule in one line.

        >>> DecisionRule("balanced", np.array([0.9, 0.1])).describe(["alive", "dead"])
        'dead if its probability is at least 0.1 (class frequency)'
        """
        if self.kind == "argmax":
            return "the most probable class"
        if self.threshold is None:
            return "the class with the largest ratio of probability and frequency"
        reasons = {"balanced": "class frequency", "tuned": "chosen on held-out domains"}
        reason = reasons.get(self.kind, "set by the user")
        name, threshold = classes[self.positive], self.threshold
        return f"{name} if its probability is at least {threshold:.3g} ({reason})"


def check_decision(decision: Any, n_classes: int | None) -> None:
    """Check that a decision is one of ``DECISIONS``, or a threshold for one of two classes.

    ``n_classes`` is None if the target is continuous.
    """
    if n_classes is None and decision != "auto":
        raise ValueError(
            f"decision={decision!r} needs classes, but the target is continuous. Use "
            "decision='auto'."
        )
    if isinstance(decision, str) and decision in DECISIONS:
        return
    is_number = isinstance(decision, Real) and not isinstance(decision, bool | np.bool_)
    if not (is_number and 0.0 < decision < 1.0):
        raise ValueError(
            f"decision must be 'auto', 'argmax', 'balanced', or a threshold between 0 and 1; got "
            f"{decision!r}."
        )
    if n_classes != 2:
        raise ValueError(
            f"decision={decision!r} is a threshold for the positive one of two classes, but there "
            f"are {n_classes} classes. Use decision='argmax' or decision='balanced'."
        )


def threshold_rule(threshold: float, positive: int = 1, n_classes: int = 2) -> DecisionRule:
    """Return the rule with this threshold for the positive one of two classes."""
    check_decision(float(threshold), n_classes)
    shares = np.full(2, 1.0 - threshold)
    shares[positive] = threshold
    return DecisionRule("threshold", shares, positive)


def positive_shares(shares: Array) -> Array:
    """Return shares that are all positive and sum to 1."""
    shares = np.maximum(np.asarray(shares, dtype=np.float64), MIN_SHARE)
    return shares / shares.sum()


def source_shares(counts: Array) -> Array:
    """Return each class's share, averaged over domains; ``counts`` is (n_domains, n_classes)."""
    sizes = counts.sum(axis=1, keepdims=True)
    is_present = sizes[:, 0] > 0
    return positive_shares((counts[is_present] / sizes[is_present]).mean(axis=0))


def rule_for(decision: Any, counts: Array, scoring: Any = None, positive: int = 1) -> DecisionRule:
    """Return the rule for a decision; "auto" depends on the metric (a scorer, or its name).

    ``counts`` are numbers of rows by domain and class, or sums of their weights. "balanced" divides
    by the mean shares of classes over domains. "auto" is "balanced" for metrics in which classes
    count the same and "argmax" for other metrics of decisions; for metrics of probabilities and for
    functions, it is "balanced" if a class is rare. ``scoring=None`` is the default metric.
    """
    n_classes = counts.shape[1]
    check_decision(decision, n_classes)
    if not isinstance(decision, str):
        return threshold_rule(decision, positive)
    shares = source_shares(counts)
    if decision == "auto":
        measure = _measure_for(scoring, counts)
        is_balanced = measure.balanced
        if measure.is_custom or not uses_decisions(measure.name):
            is_balanced = measures.has_rare_class(shares)
        decision = "balanced" if is_balanced else "argmax"
    if decision == "argmax":
        shares = np.full(n_classes, 1.0 / n_classes)
    return DecisionRule(decision, shares, positive)


def _measure_for(scoring: Any, counts: Array, pos_label: int | None = None) -> Measure:
    """Return the metric of class codes for a scorer or its name; None means the default."""
    scoring = measures.default_class_metric(counts) if scoring is None else scoring
    scoring = getattr(scoring, "name", "") or scoring  # of a NamedScorer or Measure
    return measures.choose_measure(scoring, np.arange(counts.shape[1]), True, pos_label)


def uses_decisions(metric: str) -> bool:
    """Return whether a scorer depends on predicted classes, not only on probabilities."""
    return not any(name in metric for name in PROBABILITY_METRICS)


def tunes_threshold(measure: Measure) -> bool:
    """Return whether the threshold for a metric of two classes is tuned on held-out domains."""
    is_known = measure.is_custom or measure.name in KNOWN_THRESHOLDS
    return not is_known and uses_decisions(measure.name)


def choose_rule(
    decision: str | float,
    counts: Array,
    held_out: HeldOut | None = None,
    scoring: Any = None,
    positive: int = 1,
) -> DecisionRule:
    """Return the rule for a decision, given probabilities for rows from held-out domains, if any.

    See :func:`rule_for`. With ``decision="auto"`` and two classes, the threshold is tuned for
    metrics such as F1. It is used if it is better than that of the rule by more than one standard
    error over domains. Each domain is scored with the threshold that is best for the others.
    """
    rule = rule_for(decision, counts, scoring, positive)
    if held_out is None or decision != "auto" or counts.shape[1] != 2:
        return rule
    measure = _measure_for(scoring, counts, None if positive == 1 else positive)
    if not tunes_threshold(measure):
        return rule
    base_odds = np.log(rule.shares[positive] / rule.shares[1 - positive])
    thresholds = 1.0 / (1.0 + np.exp(-(base_odds + STEPS)))
    options: Any = {"kind": "tuned", "is_relative": rule.divides_by_shares}
    tuned_rules = [replace(threshold_rule(t, positive), **options) for t in thresholds.tolist()]
    classes = np.array(rule.positive_last)
    domains, probabilities = held_out.domain, held_out.plain.astype(np.float64)
    rows_by_domain = [np.flatnonzero(domains == code) for code in np.unique(domains)]

    def score_domains(candidate: DecisionRule) -> list[float]:
        outputs = Outputs(held_out.y, candidate.codes(probabilities), weight=held_out.weights)
        score = partial(measure.score_outputs, classes, outputs)
        return [defined_score(score, rows) for rows in rows_by_domain]

    scores = np.array([score_domains(candidate) for candidate in [rule, *tuned_rules]])
    scores = scores[:, np.isfinite(scores).all(axis=0)]
    n_domains = scores.shape[1]
    if n_domains < MIN_DOMAINS:
        return rule
    sums = scores.sum(axis=1, keepdims=True)
    choices = (sums - scores).argmax(axis=0)  # for each domain, the best rule on the others
    gains = scores[choices, np.arange(n_domains)] - scores[0]
    if gains.mean() <= gains.std(ddof=1) / np.sqrt(n_domains):
        return rule
    return [rule, *tuned_rules][int(sums.argmax())]


class Decisions:
    """Mixin for classifiers that predict classes by a rule for their probabilities."""

    #: The rule; None before ``fit``.
    decision_rule_: DecisionRule | None = None
    #: Numbers of source rows by domain and class, which :meth:`decide` needs; set by ``fit``.
    _class_counts: Array

    def decide(self, decision: Decision, scoring: Scoring = None, positive: int = 1) -> None:
        """Set the rule of a fitted classifier, with a threshold tuned on held-out rows if any."""
        held_out = getattr(self, "held_out_", None)
        self.decision_rule_ = choose_rule(decision, self._class_counts, held_out, scoring, positive)

    @property
    def applied_rule(self) -> DecisionRule | None:
        """The rule by which ``predict`` decides; None if a subclass elsewhere overrides it."""
        is_own = type(self).predict.__module__.startswith("domainwise.")  # type: ignore[attr-defined]
        return self.decision_rule_ if is_own else None

    @property
    def decision_threshold_(self) -> float:
        """Smallest probability for which the positive one of two classes is predicted."""
        threshold = None if self.decision_rule_ is None else self.decision_rule_.threshold
        if threshold is None:
            raise AttributeError("decision_threshold_ is only available for two classes, after fit")
        return threshold


def without_class_weights(probabilities: Array, weights: Any) -> Array:
    """Return probabilities for unweighted rows, given those of a model with class weights."""
    products = probabilities / weights
    return np.asarray(products / products.sum(axis=1, keepdims=True))
