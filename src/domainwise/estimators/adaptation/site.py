"""A site's labels: the correction that follows from them, thresholds, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.base.arrays import Array, evenly_spaced
from domainwise.base.inputs import take_rows
from domainwise.estimators.adaptation.corrections import (
    LABEL_COUNTS,
    ClassPrior,
    Prior,
    SourceOutputs,
    leave_one_out_priors,
    nonconformity,
)
from domainwise.held_out.calibration.curves import class_columns
from domainwise.held_out.calibration.decisions import DecisionRule
from domainwise.held_out.calibration.quantiles import (
    TOLERANCE,
    DomainQuantiles,
    Thresholds,
    needed_domains,
)
from domainwise.held_out.scoring.measures import Measure, choose_measure
from domainwise.held_out.scoring.predictions import (
    Outputs,
    Predictions,
    balanced_accuracy,
    codes_of,
)
from domainwise.held_out.scoring.statistics import defined_score, expected_range
from domainwise.held_out.search.scores import log_probabilities

#: Number of draws of labels from each source domain: for expected scores, and for intervals.
DRAWS, CALIBRATION_DRAWS = 20, 10
#: Numbers of labels of models of a site's own rows, and of domains, draws and scored rows.
OWN_COUNTS, OWN_DOMAINS, OWN_DRAWS, OWN_ROWS = (20, 50, 100, 200, 500), 10, 3, 500
#: The first rows are mentioned if at least this share of the gain is lost with their labels.
MIN_LOST_SHARE = 0.1
#: Labels help if they reduce the error by more than this share.
MIN_GAIN = 0.01
#: Smallest error with labels, divided by the error without labels.
SMALLEST_SHARE = 0.05
#: Smallest probability in log losses.
MIN_PROBABILITY = 1e-15

GAIN_DTYPE = np.dtype(
    [("n_labels", np.int64), ("score", np.float64), ("low", np.float64), ("high", np.float64)]
)

#: Function of outputs, targets and (possibly) weights and a decision rule that returns a score;
#: larger is better.
Score = Callable[..., float]


@dataclass(frozen=True)
class SiteLabels:
    """Outputs and targets for the labelled rows from a site, in sorted order.

    Outputs are rounded to float32, so that a row has the same outputs in every batch.
    """

    outputs: Array
    y: Array

    @classmethod
    def from_rows(cls, outputs: Array, y: Array) -> Self:
        """Create labels from rows in any order."""
        outputs = outputs.astype(np.float32)
        order = np.lexsort((*outputs.T[::-1], y))
        return cls(outputs[order], y[order])

    def join(self, other: SiteLabels) -> SiteLabels:
        """Return these labels together with further labels from the same site."""
        outputs = np.concatenate([self.outputs, other.outputs])
        return SiteLabels.from_rows(outputs, np.concatenate([self.y, other.y]))

    def __len__(self) -> int:
        return len(self.y)

    def correction(self, prior: Prior) -> Array:
        """Return the correction for outputs at this site."""
        return prior.corrections(self.outputs[None].astype(np.float64), self.y[None])[0]


@dataclass(frozen=True)
class SiteQuantiles(Thresholds):
    """Thresholds for prediction sets and intervals at a site with labels.

    Each source domain is treated as a new site: some of its rows, as many as there are labels, are
    used to correct the outputs, and the rest of its rows are scored. If there are too few domains
    for a coverage but enough labels, the site's labelled rows are scored instead, after each is
    corrected with labels of other rows. This depends only on the numbers of domains and labels.
    """

    domains: DomainQuantiles
    labels: Array  #: nonconformity scores of the labelled rows, ascending

    @classmethod
    def from_labels(
        cls, held_out: SourceOutputs, prior: Prior, labels: SiteLabels
    ) -> SiteQuantiles:
        """Compute the scores for a site with these labels."""
        rows_by_domain = held_out.rows_by_domain()
        priors = leave_one_out_priors(held_out, list(rows_by_domain))
        rng = np.random.default_rng(0)
        scores, codes = [], []
        for (code, rows), domain_prior in zip(rows_by_domain.items(), priors, strict=True):
            outputs, y = held_out.outputs[rows], held_out.y[rows]
            n_drawn = min(len(labels), len(y) // 2)
            for _ in range(CALIBRATION_DRAWS):
                order = rng.permutation(len(y))
                drawn_rows, scored_rows = order[:n_drawn], order[n_drawn:]
                scores.append(_corrected_scores(domain_prior, outputs, y, drawn_rows, scored_rows))
                codes.append(np.full(len(scored_rows), code))
        # Labelled rows form at most 50 groups; each is corrected with labels of the other groups.
        outputs, n_labels = labels.outputs.astype(np.float64), len(labels)
        group_codes = np.arange(n_labels) % 50
        label_scores = np.zeros(n_labels)
        for group_code in np.unique(group_codes):
            is_scored = group_codes == group_code
            group_scores = _corrected_scores(prior, outputs, labels.y, ~is_scored, is_scored)
            label_scores[is_scored] = group_scores
        pairs, are_probabilities = map(np.concatenate, (scores, codes)), held_out.has_classes
        quantiles = DomainQuantiles.approximately(*pairs, are_probabilities=are_probabilities)
        return cls(quantiles, np.sort(label_scores))

    def threshold(self, coverage: float, *, warn: bool = False) -> float:
        """Return the threshold for a coverage from domains or, if there are too few, labels."""
        n_labels, n_needed = len(self.labels), needed_domains(coverage)
        if self.domains.n_domains >= n_needed or n_labels < n_needed:
            return self.domains.threshold(coverage, warn=warn)
        # Each label is treated as a domain, so the rank is ceil((n_labels + 1) coverage).
        levels = np.arange(1, n_labels + 1) / (n_labels + 1.0) + TOLERANCE / 2
        return DomainQuantiles(self.labels, levels, n_labels).threshold(coverage, warn=warn)


def _corrected_scores(
    prior: Prior, outputs: Array, y: Array, labelled_rows: Array, scored_rows: Array
) -> Array:
    """Return nonconformity scores of ``scored_rows`` after correction with ``labelled_rows``."""
    correction = prior.corrections(outputs[labelled_rows][None], y[labelled_rows][None])[0]
    return nonconformity(prior.apply(outputs[scored_rows], correction), y[scored_rows])


@dataclass(frozen=True)
class SiteScores:
    """Scores of source domains that are treated as new sites, by number of labels.

    Arrays have shape (numbers of labels, domains). Domains with too few rows for a number of labels
    have the mean gain of the others.
    """

    scores: Array  #: with labels of random rows
    first_scores: Array  #: with labels of the first rows of the domain, in table order
    first_errors: Array  #: standard error of the mean difference of the two, by number of labels
    n_domains: Array  #: number of domains with enough rows, by number of labels
    scoring: Any

    def table(self, n_sites: int = 1, *, first_rows: bool = False) -> Array:
        """Return rows of a number of labels, the mean score, and a 90 % prediction interval.

        The interval is for the mean score of ``n_sites`` new sites.
        """
        table = np.full((len(LABEL_COUNTS), 4), np.nan)
        table[:, 0] = LABEL_COUNTS
        for row, scores in zip(
            table, self.first_scores if first_rows else self.scores, strict=True
        ):
            if np.isfinite(scores).any():
                ends = expected_range(scores, self.scoring, n_sites)
                row[1:] = np.nanmean(scores), *((np.nan, np.nan) if ends is None else ends)
        return table

    def structured(self, n_sites: int, first_rows: bool) -> Array:
        """Return the table as a structured array."""
        rows = self.table(n_sites, first_rows=first_rows)
        return np.array([tuple(row) for row in rows], dtype=GAIN_DTYPE)

    @property
    def misleading(self) -> int | None:
        """Smallest number of labels for which the first rows gain clearly less than random rows."""
        for j, n_labels in enumerate(LABEL_COUNTS):
            differences = self.scores[j] - self.first_scores[j]
            gains = self.scores[j] - self.scores[0]
            is_known = np.isfinite(differences) & np.isfinite(gains)
            if n_labels and is_known.any():
                least = MIN_LOST_SHARE * np.abs(gains[is_known].mean())
                if differences[is_known].mean() > max(self.first_errors[j], least):
                    return n_labels
        return None


def label_gains(
    held_out: SourceOutputs, score: tuple[Score, Array, Any], rule: DecisionRule | None = None
) -> dict[str, SiteScores]:
    """Return the gain from labels for a "score" and for the "loss".

    ``score`` contains a function, each domain's score without labels, and the scorer or its name.
    Labels are drawn at random or, because this is common in practice, from the first rows of a
    domain. A gain compares scores with and without labels on the same rows.
    """
    losses = domain_scores(held_out, loss_score, len(score[1]))
    scores = {"score": score, "loss": (loss_score, losses, None)}
    codes, rows_by_domain = held_out.sites(), held_out.rows_by_domain()
    shape = len(scores), 2, len(LABEL_COUNTS), len(codes)
    gains, functions = np.full(shape, np.nan), [score[0], loss_score]
    for i, prior in enumerate(leave_one_out_priors(held_out, codes)):
        site = held_out.take(rows_by_domain[codes[i]])
        counts = [k for k in LABEL_COUNTS if 2 * k <= len(site.y)]
        rng, by_content = np.random.default_rng(0), np.lexsort([*site.outputs.T, site.y])
        random_orders = np.array([rng.permutation(by_content) for _ in range(DRAWS)])
        for scheme, orders in enumerate((random_orders, np.arange(len(site.y))[None])):
            site_gains = _mean_gains(prior, site, orders, counts, functions, rule)
            gains[:, scheme, : len(counts), i] = site_gains
    return {name: _label_gain(gains[i], codes, *scores[name][1:]) for i, name in enumerate(scores)}


def _label_gain(gains: Array, codes: list[int], scores: Array, scoring: Any) -> SiteScores:
    """Add gains, of shape (2, numbers of labels, domains), to the scores without labels."""
    n_domains = np.isfinite(gains[0]).sum(axis=1)
    totals = np.full((2, len(LABEL_COUNTS), len(scores)), np.nan)
    errors = np.full(len(LABEL_COUNTS), np.inf)
    for j in np.flatnonzero(n_domains):
        for scheme in range(2):
            mean_gain = float(np.nanmean(gains[scheme, j]))
            site_gains = np.full(len(scores), mean_gain)
            is_missing = np.isnan(gains[scheme, j])
            site_gains[codes] = np.where(is_missing, mean_gain, gains[scheme, j])
            totals[scheme, j] = scores + site_gains
            if np.nanmax(scores) <= 0.0:  # negative errors remain negative
                totals[scheme, j] = np.minimum(totals[scheme, j], SMALLEST_SHARE * scores)
        if n_domains[j] > 1:
            errors[j] = np.nanstd(gains[0, j] - gains[1, j], ddof=1) / np.sqrt(n_domains[j])
    return SiteScores(totals[0], totals[1], errors, n_domains, scoring)


def _mean_gains(
    prior: Prior,
    site: SourceOutputs,
    orders: Array,
    label_counts: list[int],
    scores: list[Score],
    rule: DecisionRule | None,
) -> Array:
    """Return mean gains by score and number of labels; larger draws contain the smaller ones."""
    gains = np.zeros((len(scores), len(label_counts), len(orders)))
    for i, order in enumerate(orders):
        scored = site.take(order[max(label_counts) :])
        labels = scored.y, scored.weights, rule
        before = [defined_score(score, scored.outputs, *labels) for score in scores]
        for j, n_labels in enumerate(label_counts[1:], 1):
            rows = order[:n_labels]
            outputs, y = site.outputs[rows], site.y[rows]
            correction = prior.corrections(outputs[None], y[None])[0]
            corrected = prior.apply(scored.outputs, correction)
            labels = scored.y, scored.weights, site_rule(rule, prior, outputs, correction)
            after = [defined_score(score, corrected, *labels) for score in scores]
            gains[:, j, i] = np.subtract(after, before)
    is_defined = np.isfinite(gains)
    n_defined = is_defined.sum(axis=2)
    sums = np.where(is_defined, gains, 0.0).sum(axis=2)
    return np.asarray(np.where(n_defined > 0, sums / np.maximum(n_defined, 1), np.nan))


def site_rule(
    rule: DecisionRule | None, prior: Prior, outputs: Array, correction: Array
) -> DecisionRule | None:
    """Return the rule for a site: one that divides by class shares uses those of the site."""
    if rule is None or not isinstance(prior, ClassPrior) or not np.any(correction):
        return rule
    shares = prior.site_shares(prior.apply(outputs.astype(np.float64), correction))
    return rule.at_site(shares / prior.shares)


def own_site_scores(X: Any, y: Array, domain_codes: Array) -> Array:
    """Return scores of linear models that are fitted to a few rows of the domain that they predict.

    The result has shape (numbers of labels in ``OWN_COUNTS``, domains), with the score of
    :func:`loss_score`. It is NaN for a domain with less than twice as many rows as labels. At most
    ten domains are scored.
    """
    has_classes = y.dtype.kind in "iu"
    n_outputs = int(y.max()) + 1 if has_classes else 1
    sizes = np.bincount(domain_codes)
    scores, rng = np.full((len(OWN_COUNTS), len(sizes)), np.nan), np.random.default_rng(0)
    large = np.flatnonzero(sizes >= 2 * OWN_COUNTS[0])
    for code in large[evenly_spaced(len(large), OWN_DOMAINS)]:
        rows = np.flatnonzero(domain_codes == code)
        for i, n_labels in enumerate(OWN_COUNTS):
            draws = []
            for _ in range(OWN_DRAWS if 2 * n_labels <= len(rows) else 0):
                order = rng.permutation(rows)
                train, test = order[:n_labels], order[n_labels : n_labels + OWN_ROWS]
                outputs = np.full((len(test), n_outputs), 1e-3)
                if has_classes and len(np.unique(y[train])) < 2:
                    outputs[:, y[train[0]]] = 1.0
                else:
                    last = LogisticRegression() if has_classes else Ridge()
                    model = make_pipeline(SimpleImputer(), StandardScaler(), last)
                    model.fit(take_rows(X, train), y[train])
                    X_test = take_rows(X, test)
                    if has_classes:
                        outputs[:, model.classes_] = model.predict_proba(X_test)
                    else:
                        outputs[:, 0] = model.predict(X_test)
                draws.append(loss_score(outputs, y[test]))
            scores[i, code] = np.mean(draws) if draws else np.nan
    return scores


def describe(gain: SiteScores, name: str, own_scores: Array | None = None) -> str:
    """Say what labels of random rows are worth; ``gain`` is that of negative errors.

    ``own_scores`` are those of :func:`own_site_scores`.

    >>> losses = np.array([-4.0, -3.0, -2.5, -2.2, np.nan])[:, None] - np.linspace(0, 0.1, 9)
    >>> n_domains = np.array([9, 9, 9, 9, 0])
    >>> gain = SiteScores(losses, losses, np.zeros(5), n_domains, None)
    >>> print(describe(gain, "RMSE"))  # doctest: +NORMALIZE_WHITESPACE
    With 20 labels from a new site, the expected RMSE is 2.25 instead of 4.05. With 5, half of this
    gain is reached.
    """
    known = np.flatnonzero(gain.n_domains)
    if len(known) < 2:
        return f"The gain from labels is unknown: no domain has {2 * LABEL_COUNTS[1]} rows."
    means = -np.nanmean(gain.scores[known], axis=1)
    counts = [LABEL_COUNTS[j] for j in known]
    differences = gain.scores[known] - gain.scores[0]
    errors = np.nanstd(differences, axis=1) / np.sqrt(np.isfinite(differences).sum(axis=1))
    best = int(means.argmin())
    if means[0] - means[best] <= max(errors[best], MIN_GAIN * means[0]):
        is_worse = means[-1] - means[0] > max(errors[-1], MIN_GAIN * means[0])
        verb = "might make predictions worse" if is_worse else "would hardly help"
        text = f"Labels from a new site {verb}: the expected {name} is {means[0]:.3g} without "
        text += f"labels, and {means[-1]:.3g} with {counts[-1]}."
    else:
        text = f"With {counts[best]} labels from a new site, the expected {name} is "
        text += f"{means[best]:.3g} instead of {means[0]:.3g}."
        is_half = means[0] - means >= 0.5 * (means[0] - means[best])
        if (half := int(is_half.argmax())) != best:
            text += f" With {counts[half]}, half of this gain is reached."
    if own_scores is not None and own_scores.shape[1] == gain.scores.shape[1]:
        text += _compare_own(gain, own_scores)
    if (n_labels := gain.misleading) is not None:
        text += f" The first {n_labels} rows of a site may mislead: label random ones."
    return text


def _compare_own(gain: SiteScores, own_scores: Array) -> str:
    """Say from how many labels on a model of the site's own rows is as good as the adapted one."""
    n_compared = 0
    for n_labels, scores in zip(OWN_COUNTS, own_scores, strict=True):
        index = int(np.flatnonzero(np.array(LABEL_COUNTS) <= n_labels)[-1])
        differences = scores - gain.scores[min(index, int(np.flatnonzero(gain.n_domains)[-1]))]
        differences = differences[np.isfinite(differences)]
        if len(differences) > 1:
            n_compared = n_labels
            if differences.mean() >= 0.0:
                return f" From about {n_labels} labels on, a linear model of only these is as good."
    if not n_compared:
        return ""
    return f" A linear model of only the site's own rows is worse, with up to {n_compared} labels."


def outputs_score(scoring: Any, classes: Array | None, rule: DecisionRule | None = None) -> Score:
    """Return a function that scores outputs, given targets or class codes; larger is better.

    ``scoring`` is a measure, a scorer or its name; None means balanced accuracy, or the negative
    root mean squared error. ``rule`` predicts classes; None predicts the most probable class.
    """
    name = scoring.name if isinstance(scoring, Measure) else scoring
    if classes is None and name in (None, "neg_root_mean_squared_error"):
        return loss_score
    if classes is not None and name in (None, "balanced_accuracy"):  # computed many times
        return lambda outputs, codes, weights=None, site_rule=rule: balanced_accuracy(
            codes, _decided(outputs, site_rule) == codes, weights
        )
    measure = scoring
    if not isinstance(measure, Measure):
        measure = choose_measure(scoring, classes, classes is not None)

    def score(outputs: Any, y: Any, weights: Any = None, site_rule: Any = rule) -> float:
        scored = scored_outputs(outputs, y, classes, site_rule, weights)
        return float(measure.score_outputs(classes, scored))

    return score


def scored_outputs(
    outputs: Array,
    y: Array,
    classes: Array | None,
    rule: DecisionRule | None,
    weights: Array | None = None,
) -> Outputs:
    """Return outputs and targets (or class codes) in the form that scorers accept."""
    if classes is None:
        return Outputs(y, outputs[:, 0], weight=weights)
    return Outputs(classes[y], classes[_decided(outputs, rule)], outputs, weight=weights)


def _decided(probabilities: Array, rule: DecisionRule | None) -> Array:
    """Return the codes of predicted classes."""
    return probabilities.argmax(axis=1) if rule is None else rule.codes(probabilities)


def loss_score(outputs: Array, y: Array, weights: Any = None, site_rule: Any = None) -> float:
    """Return the negative log loss of probabilities, or the negative RMSE of other outputs."""
    if y.dtype.kind in "iu":
        p = np.maximum(outputs[np.arange(len(y)), y], MIN_PROBABILITY)
        return float(np.average(np.log(p), weights=weights))
    return -float(np.sqrt(np.average((outputs[:, 0] - y) ** 2, weights=weights)))


def domain_scores(held_out: SourceOutputs, score: Score, n_domains: int) -> Array:
    """Return the score of each domain's held-out outputs; NaN if it is not defined."""
    scores = np.full(n_domains, np.nan)
    for code, rows in held_out.rows_by_domain().items():
        site = held_out.take(rows)
        scores[code] = defined_score(score, site.outputs, site.y, site.weights)
    return scores


def model_outputs(predictions: Predictions) -> Array:
    """Return predicted values; for classes, probabilities, else decision values or indicators.

    Indicators are on the scale of logarithms of probabilities.
    """
    if predictions.classes is None:
        return np.asarray(predictions.labels, dtype=np.float64)[:, None]
    if predictions.probabilities is not None:
        return np.asarray(predictions.probabilities, dtype=np.float64)
    if predictions.decisions is not None:
        return class_columns(np.asarray(predictions.decisions, dtype=np.float64))
    class_codes = codes_of(predictions.labels, predictions.classes)
    return log_probabilities(np.eye(len(predictions.classes))[class_codes])
