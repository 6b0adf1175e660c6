"""Expected gain by labels of a new site, with each source domain in its place (theory 17)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainwise.adaptation.corrections import Prior, SiteLabels, SourceOutputs, priors_without_each
from domainwise.arrays import Array
from domainwise.calibration.quantiles import TOLERANCE, DomainQuantiles, needed_domains
from domainwise.scoring.measures import choose_measure
from domainwise.scoring.predictions import Predictions
from domainwise.scoring.statistics import expected_score

#: Numbers of labels for which the expected score is given.
LABEL_COUNTS = (0, 5, 10, 20, 50)
#: Random draws of labels from each source domain, and of those that calibrate intervals.
DRAWS, CALIBRATION_DRAWS = 20, 10
#: Largest number of source domains that stand in for the site.
MAX_DOMAINS = 40

GAIN_DTYPE = np.dtype(
    [("n_labels", np.int64), ("score", np.float64), ("low", np.float64), ("high", np.float64)]
)

#: Score of corrected outputs for targets; larger is better.
Score = Callable[[Array, Array], float]


def label_gain(
    held_out: SourceOutputs,
    scores: Array,
    score: Score,
    *,
    classes: bool,
    seed: int = 0,
    **options: Any,
) -> tuple[Array, Array]:
    """Expected scores with 0, 5, 10, 20 and 50 labels, and the number of domains behind each.

    A row is the number of labels, the score, and the ends of an interval (``GAIN_DTYPE``).
    ``scores`` are those without labels, by domain. Labels are drawn at random and, as they often
    come, from the first rows in table order; the smaller of the two gains is used. Gains are
    paired: each is the mean over domains with at least twice as many rows as labels, scored on
    the same rows with and without labels.
    """
    codes = [code for code, _ in held_out.domains(2 * LABEL_COUNTS[1])]
    if len(codes) > MAX_DOMAINS:
        codes = [codes[i] for i in np.linspace(0, len(codes) - 1, MAX_DOMAINS).astype(int)]
    priors = priors_without_each(held_out, codes, classes=classes, seed=seed, **options)
    rng = np.random.default_rng(seed)
    gains = np.full((2, len(LABEL_COUNTS), len(codes)), np.nan)
    for i, code in enumerate(codes):
        site = held_out.take(np.flatnonzero(held_out.domain == code))
        n = len(site.y)
        counts = [k for k in LABEL_COUNTS if 2 * k <= n]
        orders = [rng.permutation(n) for _ in range(DRAWS)]
        gains[0, : len(counts), i] = _gains(priors[code], site, orders, counts, score)
        gains[1, : len(counts), i] = _gains(priors[code], site, [np.arange(n)], counts, score)
    defined = np.isfinite(gains[0])
    table = np.full((len(LABEL_COUNTS), 4), np.nan)
    table[:, 0] = LABEL_COUNTS
    for j in range(len(LABEL_COUNTS)):
        if not defined[j].any() or not np.isfinite(scores).any():
            continue
        kind = int(np.nanmean(gains[:, j], axis=1).argmin())
        mean = float(np.nanmean(gains[kind, j]))
        # A domain with too few rows for this number of labels gets the mean gain of the others.
        by_domain = {code: g for code, g in zip(codes, gains[kind, j], strict=True) if g == g}
        adapted = [s + by_domain.get(code, mean) for code, s in enumerate(scores) if np.isfinite(s)]
        table[j, 1:] = expected_score(adapted, seed)
    return table, defined.sum(axis=1)


def _gains(
    prior: Prior, site: SourceOutputs, orders: list[Array], counts: list[int], score: Score
) -> list[float]:
    """Mean gain over draws for each number of labels; draws are nested."""
    most = max(counts)
    order = np.array(orders)
    labelled, rest = order[:, :most], order[:, most:]
    before = [_defined(score, site.outputs[rows], site.y[rows]) for rows in rest]
    gains = []
    for k in counts:
        rows = labelled[:, :k]
        corrections = prior.corrections(site.outputs[rows], site.y[rows])
        after = [
            _defined(score, prior.apply(site.outputs[tested], correction), site.y[tested])
            for tested, correction in zip(rest, corrections, strict=True)
        ]
        differences = np.subtract(after, before) if k else np.zeros(len(before))
        defined = differences[np.isfinite(differences)]
        gains.append(float(defined.mean()) if len(defined) else np.nan)
    return gains


def outputs_score(scoring: Any, y: Array, classes: Array | None) -> Score:
    """Return the score of outputs for targets, codes where there are classes; larger is better.

    ``y`` are the targets of fit, with classes by name. None is balanced accuracy, or
    the negative root mean squared error.
    """
    if scoring is None and classes is None:
        return lambda outputs, values: -float(np.sqrt(np.mean((outputs[:, 0] - values) ** 2)))
    if scoring is None:
        return _balanced_accuracy
    scorer = choose_measure(scoring, y, classes is not None).scorer

    def score(outputs: Array, targets: Array) -> float:
        if classes is None:
            return float(
                scorer(Predictions.of_values(None, outputs[:, 0], None, None), None, targets)
            )
        labels = classes[outputs.argmax(axis=1)]
        predictions = Predictions.of_values(classes, labels, outputs, None)
        return float(scorer(predictions, None, classes[targets]))

    return score


def _balanced_accuracy(outputs: Array, codes: Array) -> float:
    counts = np.bincount(codes)
    right = np.bincount(codes, outputs.argmax(axis=1) == codes)
    return float((right[counts > 0] / counts[counts > 0]).mean())


def domain_scores(held_out: SourceOutputs, score: Score, n_domains: int) -> Array:
    """Score of each domain's held-out outputs; NaN where it is not defined."""
    scores = np.full(n_domains, np.nan)
    for code, rows in held_out.domains():
        scores[code] = _defined(score, held_out.outputs[rows], held_out.y[rows])
    return scores


def _defined(score: Score, outputs: Array, y: Array) -> float:
    """A score, or NaN where it is not defined, such as AUC with one class."""
    try:
        return float(score(outputs, y))
    except (ValueError, AttributeError):
        return float("nan")


@dataclass(frozen=True)
class SiteQuantiles:
    """Thresholds of sets and intervals at a site with labels.

    Each source domain stands in for the site: as many of its rows as there are labels correct the
    outputs, and the others give scores. Where there are too few domains for a coverage but enough
    labels, the labels themselves are used, each for a model corrected by the others. Which of the
    two applies depends on the numbers of domains and labels alone.
    """

    domains: DomainQuantiles
    labels: Array  #: scores of the labels, ascending

    @classmethod
    def of(
        cls,
        held_out: SourceOutputs,
        prior: Prior,
        labels: SiteLabels,
        *,
        classes: bool,
        **options: Any,
    ) -> SiteQuantiles:
        """For a site with these labels."""
        codes = [code for code, _ in held_out.domains()]
        priors = priors_without_each(held_out, codes, classes=classes, **options)
        rng = np.random.default_rng(options.get("seed", 0))
        scores, domains = [], []
        for code in codes:
            site = held_out.take(np.flatnonzero(held_out.domain == code))
            n = len(site.y)
            k = min(len(labels), n // 2)
            for _ in range(CALIBRATION_DRAWS):
                order = rng.permutation(n)
                rows, rest = order[None, :k], order[k:]
                correction = priors[code].corrections(site.outputs[rows], site.y[rows])[0]
                corrected = priors[code].apply(site.outputs[rest], correction)
                scores.append(priors[code].strangeness(corrected, site.y[rest]))
                domains.append(np.full(len(rest), code))
        return cls(
            DomainQuantiles.of(np.concatenate(scores), np.concatenate(domains)),
            np.sort(labels.left_out_scores(prior)),
        )

    def _quantiles(self, coverage: float) -> DomainQuantiles:
        if self.domains.n_domains >= needed_domains(coverage):
            return self.domains
        n = len(self.labels)
        if n < needed_domains(coverage):
            return self.domains
        # One domain per label gives the rank ceil((n + 1) coverage).
        levels = np.arange(1, n + 1) / (n + 1.0) + TOLERANCE / 2
        return DomainQuantiles(self.labels, levels, n)

    def sets(self, scores: Array, coverage: float) -> Array:
        """Which classes have scores up to the threshold."""
        return self._quantiles(coverage).sets(scores, coverage)

    def intervals(self, predicted: Array, coverage: float) -> Array:
        """Lower and upper ends, of shape (n, 2), around predicted values."""
        return self._quantiles(coverage).intervals(predicted, coverage)
