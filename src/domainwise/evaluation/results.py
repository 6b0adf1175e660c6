"""Scores by method and domain, their confidence intervals, and the recommended method."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self, TypedDict

import numpy as np

from domainwise.base.arrays import Array, CrossValidator, Label
from domainwise.base.files import Plain, stored
from domainwise.estimators.adaptation.corrections import LABEL_COUNTS, SourceOutputs
from domainwise.estimators.adaptation.site import domain_scores, label_gains, outputs_score
from domainwise.evaluation.problem import Problem
from domainwise.held_out.calibration.curves import SMALLEST
from domainwise.held_out.calibration.decisions import rule_for
from domainwise.held_out.scoring.measures import Measure, counts_by_domain
from domainwise.held_out.scoring.pooling import SCALES, Ends, inside, scale_of
from domainwise.held_out.scoring.predictions import Outputs, codes_of, roc_auc
from domainwise.held_out.scoring.statistics import defined_score, expected_range, expected_score
from domainwise.models.registry import METHODS, TRIVIAL, Method

UNKNOWN: Ends = (float("nan"), float("nan"))


class Kind(StrEnum):
    """Which rows of a domain were predicted, and what the model was fitted to."""

    HELD_OUT = "held-out"  #: rows of other domains
    HALVES = "halves"  #: the same; each half of the domain, in table order, is its own context
    TENTHS = "tenths"  #: the same, for random tenths of the domain
    SEEN = "seen"  #: other rows of all domains


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction(Outputs):
    """What a model predicts for some rows of a domain.

    ``domain`` is its code in jobs, and its name in results.
    """

    row: Array  #: indices of the rows in the user's table
    kind: Kind = Kind.HELD_OUT
    score: float = float("nan")  #: score by a custom scorer, which needs the model

    def take(self, rows: Any) -> Self:
        """Select rows."""
        return replace(super().take(rows), row=self.row[rows])


@dataclass(frozen=True)
class MethodResult:
    """Scores of a method (larger is better), and how it was fitted."""

    key: str
    label: str  #: name in tables
    #: See :class:`~domainwise.models.registry.Method`.
    kind: Annotated[str, re.compile("baseline|projection|machine|own")]
    about: str  #: one-line description
    #: Score on each domain when it is held out; NaN if the measure is not defined there.
    scores: Mapping[Any, float] = stored(None, default_factory=dict)
    #: Selected values for each split.
    parameters: Sequence[Mapping[str, Any]] = stored(
        "parameters", list[dict[str, Plain]], default=()
    )
    candidates: int = 1  #: number of candidates in the search
    seconds: float = 0.0  #: total time for all splits
    warnings: Sequence[str] = ()  #: warnings from the fits
    #: p-value of Wilcoxon's signed-rank test over domains against the best baseline; None for
    #: baselines, and if there are too few domains.
    p_value: float | None = None
    p_adjusted: float | None = None  #: adjusted for the number of methods (Holm)
    context: bool = False  #: whether the method predicts all rows of a domain together
    #: Mean scores with and without context, on whole domains and on parts of them.
    batches: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: Score on each domain in random folds of all rows, where all domains have training rows.
    seen: Mapping[Any, float] = stored(None, default_factory=dict)
    #: Standard error of the score on each domain, as displayed; NaN if it is unknown.
    errors: Mapping[Any, float] = stored(None, default_factory=dict)
    #: Drop in the score on held-out domains when a column is shuffled, by column.
    importance: Mapping[str, float] = stored("worth", default_factory=dict)
    #: Means over domains of :func:`probability_scores`; empty unless there are two classes.
    probability_scores: Mapping[str, float] = field(default_factory=dict)
    n_rows: int = 0  #: number of rows on which the method is compared: its training and test rows

    @property
    def trivial(self) -> bool:
        """Whether the method is the constant prediction."""
        return self.key == TRIVIAL

    @property
    def cost(self) -> float:
        """Approximate relative cost; it is not measured, because times vary between runs."""
        return METHODS[self.key].cost if self.key in METHODS else Method.cost

    @cached_property
    def known(self) -> dict[Any, float]:
        """Scores on the domains where the measure is defined."""
        return {name: score for name, score in self.scores.items() if np.isfinite(score)}

    @property
    def mean(self) -> float:
        """Mean score over domains, with equal weights."""
        return finite_mean(self.known.values())

    @property
    def worst(self) -> float:
        """Score on the worst domain."""
        return min(self.known.values())

    @property
    def worst_domain(self) -> Label:
        """The worst domain."""
        return min(self.known, key=lambda name: self.known[name])

    @property
    def spread(self) -> float:
        """Standard deviation of the scores over domains."""
        scores = list(self.known.values())
        return float(np.std(scores, ddof=1)) if len(scores) > 1 else float("nan")

    @property
    def seen_mean(self) -> float:
        """Mean score on seen domains, over the domains that also have a score when held out."""
        return finite_mean(self.seen.get(name, float("nan")) for name in self.known)

    @property
    def holds_up(self) -> bool:
        """Whether context improves scores on whole domains, and does not lower them on parts.

        A decrease of the mean by at most one standard error is ignored.
        """
        gains = {kind: means["context"] - means["plain"] for kind, means in self.batches.items()}
        has_gain = gains.get("whole", 0.0) > 0.0
        return has_gain and all(g >= -self.batches[kind]["error"] for kind, g in gains.items())

    @property
    def generalization_gap(self) -> float:
        """Mean score on seen domains minus mean score on held-out domains."""
        return self.seen_mean - self.mean


@dataclass(frozen=True)
class DomainScore:
    """Scores of a method on a domain, as displayed (errors are positive)."""

    domain: Label
    score: float
    low: float  #: ends of the 95 % interval
    high: float
    seen: float
    error: float  #: standard error


class LabelGain(TypedDict):
    """Expected score, as displayed, with some labels from a new domain."""

    n_labels: int
    score: float
    low: float | None  #: ends of a 90 % range for one new domain; None with fewer than four
    high: float | None
    domains: int  #: number of domains that are large enough
    loss: float  #: expected log loss or RMSE
    #: Expected score with labels of the first rows, if these gain clearly less than random rows.
    first_rows: float | None


#: Columns that describe domains are safer at a new site if they improve the mean score by more than
#: this number of standard errors.
MIN_ERRORS = 2.0


@dataclass(frozen=True)
class SiteColumns:
    """The recommended method with and without columns that are constant within every domain.

    K domains have only K values of such a column, so a model can mistake it for the domain's name.
    Scores are means over ``n_domains``, as displayed.
    """

    columns: list[str]
    method: str  #: its key
    score_with: float
    score_without: float
    gain: float  #: mean improvement by these columns, paired by domain; negative if they hurt
    error: float | None  #: standard error of ``gain``; None for a single domain
    n_domains: int

    @property
    def safer_with(self) -> bool:
        """Whether a new site should be predicted with these columns: they must clearly help."""
        return self.error is not None and self.gain > MIN_ERRORS * self.error

    @property
    def hurt(self) -> bool:
        """Whether predictions at a new site are clearly better without these columns."""
        return self.error is not None and self.gain < -MIN_ERRORS * self.error


@dataclass(repr=False)
class Results:
    """Scores of methods on held-out domains; :class:`Evaluation` documents the attributes."""

    results: list[MethodResult]
    domains: list[Label]
    measure: Measure
    left_out: dict[str, str]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    records: dict[str, list[Prediction]] = field(default_factory=dict)
    methods: list[Method] = field(default_factory=list)
    source: Problem | None = None
    inner_cv: CrossValidator = None
    next_step: str = ""
    others: list[Self] = field(default_factory=list)
    chosen_for: Measure | None = None
    set_calibration: dict[str, Any] = field(default_factory=dict)
    differences: dict[str, Any] = field(default_factory=dict)
    site_columns: SiteColumns | None = None
    lacking: str = ""
    weights: dict[Label, float] = field(default_factory=dict)
    row_counts: dict[Label, int] = field(default_factory=dict)
    plan: object = None

    @property
    def classes(self) -> Array | None:
        """Names of the classes; None for a continuous target."""
        class_names = self.facts["classes"]
        return None if class_names is None else np.asarray(class_names)

    @property
    def threshold(self) -> float | None:
        """Probability from which the positive class is predicted, if one was passed."""
        decision = self.facts.get("decision")
        return decision if isinstance(decision, float) and self.classes is not None else None

    @property
    def best(self) -> MethodResult:
        """The method with the best mean score."""
        return self.results[0]

    @property
    def best_(self) -> str:
        """Key of the method with the best mean score, which can be passed to :meth:`fit`."""
        return self.best.key

    @property
    def baseline(self) -> MethodResult | None:
        """The baseline with the best mean score."""
        return next((result for result in self.results if result.kind == "baseline"), None)

    @property
    def worst_domain(self) -> Label:
        """The domain on which the recommended method has its worst score."""
        return self.recommended.worst_domain

    @property
    def recommended(self) -> MethodResult:
        """The recommended method; see :meth:`choose`."""
        return self.choose()

    @property
    def recommended_(self) -> str:
        """Key of the recommended method, which can be passed to :meth:`fit`."""
        return self.recommended.key

    @property
    def compared(self) -> list[MethodResult]:
        """Results on the largest number of rows; others are shown, but not recommended."""
        return [result for result in self.results if result.n_rows == self.best.n_rows]

    @property
    def row_by_row(self) -> list[MethodResult]:
        """Compared methods that predict each row without context; all of them if there are none."""
        return [result for result in self.compared if not result.context] or self.compared

    def weighted_mean(self, result: MethodResult, excluded: Label | None = None) -> float:
        """Mean score over all domains except ``excluded``, weighted by :func:`domain_weights`."""
        weights = {name: self.weights.get(name, 1.0) for name in result.known if name != excluded}
        weighted_sum = sum(weight * result.known[name] for name, weight in weights.items())
        return weighted_sum / sum(weights.values()) if weights else -np.inf

    def leader(self, excluded: Label | None = None) -> MethodResult:
        """The method with the best weighted mean among those without context."""
        return max(self.row_by_row, key=lambda result: self.weighted_mean(result, excluded))

    def choose(self, excluded: Label | None = None) -> MethodResult:
        """Choose the cheapest method without context that is about as good as the leader.

        Its weighted mean is lower than the leader's by less than :attr:`margin`, and its worst
        score by less than three times the margin. Scores on the domain ``excluded`` are ignored.
        """
        leader, margin = self.leader(excluded), self.margin
        leader_mean = self.weighted_mean(leader, excluded)
        leader_scores = (score for name, score in leader.known.items() if name != excluded)
        leader_worst = min(leader_scores, default=-np.inf)
        eligible_results = [
            result
            for result in self.row_by_row
            if leader_mean - self.weighted_mean(result, excluded) < margin
            and all(s > leader_worst - 3 * margin for d, s in result.known.items() if d != excluded)
        ]
        return min(eligible_results or [leader], key=lambda result: result.cost)

    @property
    def next_site(self) -> Ends | None:
        """90 % range for the recommended method's score on one new domain; see :meth:`range_of`."""
        return self.range_of(self.recommended)

    def range_of(self, result: MethodResult) -> Ends | None:
        """90 % range for a method's score on a new domain; None for fewer than four domains."""
        ends = expected_range(list(result.known.values()), self.measure.scoring)
        return ends and self._shown(ends)

    @property
    def choice_cost(self) -> float:
        """Decrease of the mean score if the method is chosen without the domain that is scored."""
        scores = self.recommended.known if len(self.recommended.known) > 3 else {}
        costs = [score - self.choose(name).known.get(name, score) for name, score in scores.items()]
        return float(np.nan_to_num(max(finite_mean(costs), 0.0)))

    def records_of(self, method: MethodResult) -> dict[Label, Prediction]:
        """A method's predictions for held-out rows by domain, if they are available."""
        return {record.domain: record for record in self.records.get(method.key, ())}

    def _shown(self, ends: Iterable[float]) -> Ends:
        """Two scores as displayed (errors are positive), the smaller one first."""
        low, high = sorted(map(self.measure.shown, ends))
        return low, high

    @property
    def scores(self) -> dict[str, dict[Label, float]]:
        """Scores by method and domain; larger is better."""
        return {result.key: dict(result.scores) for result in self.results}

    @property
    def n_scored(self) -> int:
        """Number of rows of the domains on which the recommended method has a score."""
        return sum(self.row_counts.get(name, 0) for name in self.recommended.known)

    @property
    def main(self) -> list[MethodResult]:
        """The recommended method, and the method that it is compared with."""
        return [result for result in (self.recommended, self.rival) if result is not None]

    @property
    def rival(self) -> MethodResult | None:
        """The method without context that the recommended one is compared with.

        It is the leader if a simpler method is recommended, otherwise the next best one. The
        constant prediction is used only if there is no other method.
        """
        recommended = self.recommended
        others = [result for result in self.row_by_row if result is not recommended]
        return max(others, key=lambda r: (not r.trivial, self.weighted_mean(r)), default=None)

    @property
    def described(self) -> list[MethodResult]:
        """The methods that the report describes: those in :attr:`main`, and the best one.

        The constant prediction is included only if there is no other method.
        """
        results = {result.key: result for result in (*self.main, self.best) if not result.trivial}
        return list(results.values()) or [self.best]

    @property
    def hardest_first(self) -> list[Label]:
        """Domains by the recommended method's score, worst first; unscored domains are last."""
        scores = self.recommended.scores
        return sorted(scores, key=lambda name: np.nan_to_num(scores[name], nan=np.inf))

    @property
    def margin(self) -> float:
        """Smallest difference between means that matters: 0.01, or 2 % of the mean error."""
        if self.measure.sign > 0:
            return 0.01
        return 0.02 * abs((self.baseline or self.best).mean)

    @cached_property
    def label_gain(self) -> list[LabelGain]:
        """Expected score of the recommended method with 0 to 50 labels from a new domain.

        Each held-out domain is treated as the new one in turn. ``low`` and ``high`` are ends of a
        90 % range for one new domain (None with fewer than four), and ``domains`` counts those with
        enough rows. The list is empty for a custom scorer, if outputs are missing, and if all
        domains have fewer than 10 rows.
        """
        measure, classes, method = self.measure, self.classes, self.recommended
        records = self.records_of(method)
        outputs = held_out_outputs(records, method.scores, classes)
        if measure.is_custom or outputs is None or not outputs.rows_by_domain(2 * LABEL_COUNTS[1]):
            return []
        rule = None
        if classes is not None:
            codes = outputs.y, outputs.domain_codes
            counts = counts_by_domain(*codes, len(classes), outputs.weights)
            rule = rule_for(self.facts.get("decision", "auto"), counts, measure.name)
        scorer = outputs_score(measure, classes, rule)
        # If the method itself decides by another rule, its scores are shifted by the difference.
        scores = np.array(list(method.scores.values()))
        scores += domain_scores(outputs, scorer, len(scores))
        scores -= [
            record_score(measure, classes, records[d]) if d in records else np.nan
            for d in method.scores
        ]
        gains = label_gains(outputs, (scorer, scores, measure.scoring), rule)
        gain, losses, first = gains["score"], gains["loss"].table()[:, 1], gains["score"].misleading
        first_scores, entries = gain.table(first_rows=True)[:, 1], []
        for i, (n_labels, mean, *ends) in enumerate(gain.table().tolist()):
            if gain.n_domains[i] and np.isfinite(mean):
                low, high = self._shown(ends) if np.isfinite(ends).all() else (None, None)
                is_misleading = first is not None and n_labels >= first
                entry: Any = {"n_labels": int(n_labels), "score": measure.shown(mean)}
                entry |= {"low": low, "high": high, "domains": int(gain.n_domains[i])}
                first_score = measure.shown(first_scores[i]) if is_misleading else None
                entry |= {"loss": -float(losses[i]), "first_rows": first_score}
                entries.append(entry)
        return entries if len(entries) > 1 else []

    def show(self, score: float | None) -> str:
        """Format a score with the digits of the best mean, so that methods can be compared."""
        return self.measure.format(score, scale=self.best.mean)

    def expect(self, result: MethodResult) -> tuple[float, float, float]:
        """Mean score over domains, as displayed, with a 95 % bootstrap interval over domains."""
        mean, *ends = expected_score(list(result.known.values()), 0, self.measure.scoring)
        return self.measure.shown(mean), *self._shown(ends)

    def ends(self, result: MethodResult, domain: Label) -> Ends:
        """Ends of the 95 % confidence interval for the score on a domain, as displayed."""
        n_rows, error = self.row_counts.get(domain, 0), result.errors.get(domain, np.nan)
        score = self.measure.shown(result.scores[domain])
        if not n_rows or not error > 0:
            return UNKNOWN
        scale = scale_of(self.measure)
        low, high = SCALES[scale].confidence(float(inside(score, n_rows, scale)), error)
        return min(low, score), max(high, score)  # perfect scores were moved inside

    def domain_scores(self, result: MethodResult) -> list[DomainScore]:
        """Scores of a method on each domain."""
        rows, shown, nan = [], self.measure.shown, float("nan")
        for domain, score in result.scores.items():
            seen = shown(result.seen.get(domain, nan))
            (low, high), error = self.ends(result, domain), result.errors.get(domain, nan)
            rows.append(DomainScore(domain, shown(score), low, high, seen, error))
        return rows

    def find(self, name: str) -> MethodResult | None:
        """Find a method by its key or its label; None if it was not evaluated."""
        lower_name = name.lower()
        matches = (r for r in self.results if lower_name in (r.key.lower(), r.label.lower()))
        return next(matches, None)


#: Minimum number of rows in a domain from which the variance per row is estimated.
MIN_ROWS = 10


def domain_weights(
    results: Sequence[MethodResult], row_counts: Mapping[Any, int]
) -> dict[Any, float]:
    """Weight of each domain in the mean by which a method is recommended; the largest is 1.

    The variance of a domain's score is the variance between domains plus the variance per row
    divided by the number of rows. A weight is the inverse of this sum, as in a random-effects
    meta-analysis. Both variances are pooled over methods and domains, so all methods have the
    same weights, and a domain with only three rows, all correct, does not get a large weight.

    >>> errors = {"a": 0.05, "b": 0.05}
    >>> result = MethodResult("linear", "", "", "", {"a": 0.7, "b": 0.8}, {}, errors=errors)
    >>> weights = domain_weights([result], {"a": 3, "b": 99})
    >>> {name: round(weight, 2) for name, weight in weights.items()}
    {'a': 0.14, 'b': 1.0}
    """
    results = [result for result in results if not result.trivial]
    counts_and_variances = [  # number of rows in a domain, variance per row
        (row_counts[name], row_counts[name] * error**2)
        for result in results
        for name, error in result.errors.items()
        if error > 0 and name in row_counts
    ]
    if not counts_and_variances:
        return {}
    reliable_variances = [variance for n, variance in counts_and_variances if n >= MIN_ROWS]
    variance_per_row = float(np.median(reliable_variances or [v for _, v in counts_and_variances]))
    within_variances = variance_per_row / np.array(list(row_counts.values()))
    between_variances: list[float] = []
    for result in results:
        scores = {name: score for name, score in result.known.items() if name in row_counts}
        if len(scores) > 1:
            total_variance = np.var(list(scores.values()), ddof=1)
            mean_within_variance = np.mean([variance_per_row / row_counts[name] for name in scores])
            between_variances.append(float(total_variance - mean_within_variance))
    # A small variance between domains is assumed even if their scores seem to be equal.
    between_variance = max(np.mean(between_variances or [0.0]), 0.25 * np.median(within_variances))
    weights = 1 / (between_variance + within_variances)
    return dict(zip(row_counts, (weights / weights.max()).tolist(), strict=True))


#: Scorers of probabilities of two classes, with their names in tables.
PROBABILITY_SCORES = {"roc_auc": "AUC", "log_loss": "log loss", "brier_score": "Brier score"}


def probability_scores(records: Sequence[Prediction], classes: Array | None) -> dict[str, float]:
    """Return means over domains of AUC, log loss and Brier score, for two classes.

    The result is empty without probabilities. The AUC ignores domains with one class.
    """
    if classes is None or len(classes) != 2 or any(r.probabilities is None for r in records):
        return {}
    scores: dict[str, list[float]] = {name: [] for name in PROBABILITY_SCORES}
    for record in records:
        is_positive = codes_of(record.target, classes) == 1
        p = np.asarray(record.probabilities[:, 1], dtype=np.float64)
        true_class_p = np.where(is_positive, p, 1.0 - p)
        losses = -np.log(np.maximum(true_class_p, SMALLEST)), (1.0 - true_class_p) ** 2
        for name, row_losses in zip(("log_loss", "brier_score"), losses, strict=True):
            scores[name].append(float(np.average(row_losses, weights=record.weight)))
        scores["roc_auc"].append(roc_auc(is_positive, p, record.weight))
    return {name: finite_mean(values) for name, values in scores.items()}


def finite_mean(values: Iterable[float]) -> float:
    """Mean of the finite values; NaN if there are none."""
    finite_values = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite_values)) if finite_values else float("nan")


def percent(share: float) -> str:
    """Format a share as a percentage without decimals."""
    return f"{100 * share:.0f} %"


def merge_by_domain(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Merge the predictions of several models for a domain to one record, in table order."""
    groups: dict[Any, list[Prediction]] = {}
    for prediction in predictions:
        groups.setdefault(prediction.domain, []).append(prediction)
    return [_merged(group) for group in groups.values()]


def _merged(predictions: Sequence[Prediction]) -> Prediction:
    order = np.argsort(np.concatenate([p.row for p in predictions]), kind="stable")
    arrays_by_name: dict[str, Any] = {}
    for name in ("row", "target", "prediction", "probabilities", "decisions", "weight"):
        arrays = [getattr(prediction, name) for prediction in predictions]
        is_missing = any(array is None for array in arrays)
        arrays_by_name[name] = None if is_missing else np.concatenate(arrays)[order]
    scores, weights = zip(*((p.score, p.row_weights.sum()) for p in predictions), strict=True)
    score = float(np.average(scores, weights=weights))
    return replace(predictions[0], **arrays_by_name, score=score)


def record_score(measure: Measure, classes: Array | None, record: Prediction) -> float:
    """Score of all rows of a domain together, even if several models predicted them."""
    if measure.is_custom:
        return record.score
    return defined_score(measure.score_outputs, classes, record)


def held_out_outputs(
    records: Mapping[Any, Prediction], domains: Iterable[Any], classes: Array | None
) -> SourceOutputs | None:
    """Outputs for held-out rows of ``domains``, in table order; None if they are not available.

    If a row was held out more than once, its first prediction is used.
    """
    name = "prediction" if classes is None else "probabilities"
    records_by_code = {i: records[d] for i, d in enumerate(domains) if d in records}
    if not records_by_code or any(getattr(r, name) is None for r in records_by_code.values()):
        return None
    rows = [r.take(np.unique(r.row, return_index=True)[1]) for r in records_by_code.values()]
    y, outputs, weights = (
        np.concatenate([getattr(record, key) for record in rows])
        for key in ("target", name, "row_weights")
    )
    return SourceOutputs(
        y.astype(np.float64) if classes is None else codes_of(y, classes),
        np.repeat([*records_by_code], [len(record.row) for record in rows]),
        outputs.astype(np.float64).reshape(len(outputs), -1),
        weights=None if all(record.weight is None for record in rows) else weights,
    )
