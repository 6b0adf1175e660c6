"""Metrics for evaluations, and scores on held-out domains."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import check_scoring, get_scorer, get_scorer_names
from sklearn.model_selection import cross_validate

from domainwise.base.arguments import check_arguments
from domainwise.base.arrays import Array, ArrayLike, CrossValidator, Estimator, Label, Scoring
from domainwise.base.inputs import check_is_table, check_sample_domain, count_rows, take_rows
from domainwise.base.messages import warn_caller
from domainwise.base.process import filtered_warnings
from domainwise.held_out.folds import LeaveDomainsOut
from domainwise.held_out.scoring.predictions import NamedScorer, Outputs, Predictions

#: Classes are balanced if the rarest has at least ``MIN_RELATIVE_SHARE * n_rows / n_classes`` rows,
#: and no class share differs by more than ``MAX_SHARE_RANGE`` between domains.
MIN_RELATIVE_SHARE, MAX_SHARE_RANGE = 0.5, 0.2
_LABELS = {
    "balanced_accuracy": "balanced accuracy",
    "roc_auc": "AUC",
    "r2": "R²",
    "f1": "F1",
    "neg_root_mean_squared_error": "RMSE",
    "neg_mean_absolute_error": "mean absolute error",
}
#: Scorers that give all classes equal weight.
_CLASS_AVERAGED_SCORERS = (
    "balanced_accuracy",
    "f1_macro",
    "recall_macro",
    "precision_macro",
    "jaccard_macro",
)
#: Scorers that depend on the choice of a positive class.
_POSITIVE_CLASS_SCORERS = ("average_precision", "f1", "jaccard", "precision", "recall")


@dataclass(frozen=True)
class Measure:
    """A metric for evaluations: a scorer, its name, and how scores are displayed.

    ``scorer(estimator, X, y)`` accepts estimators and
    :class:`~domainwise.held_out.scoring.predictions.Predictions`; custom scorers accept only
    estimators.
    """

    name: str  #: name of the scorer
    label: str  #: displayed name of the metric
    scorer: Any  #: larger is better
    sign: int = 1  #: -1 for the negative of an error; values are then displayed as errors
    is_custom: bool = False  #: whether the user defined the scorer

    @property
    def balanced(self) -> bool:
        """Whether all classes have equal weight, regardless of how frequent they are."""
        return self.name in _CLASS_AVERAGED_SCORERS

    @property
    def uses_positive_class(self) -> bool:
        """Whether the score depends on the choice of a positive class."""
        return self.name in _POSITIVE_CLASS_SCORERS

    @property
    def scoring(self) -> Any:
        """The argument ``scoring`` for this metric: a name, or the user's scorer."""
        return self.scorer if self.is_custom else self.name

    @property
    def direction(self) -> str:
        """Whether larger or smaller values are better, in words."""
        return "larger is better" if self.sign > 0 else "smaller is better"

    def shown(self, score: float) -> float:
        """Return a score as it is displayed, with a positive sign for errors."""
        return self.sign * score

    def format(self, score: float | None, digits: int = 3, scale: float | None = None) -> str:
        """Format a score for display, with enough decimals for scores as large as ``scale``."""
        if score is None or not np.isfinite(score):
            return "–"
        value, magnitude = self.shown(score), abs(score if scale is None else scale)
        if self.sign < 0 and 0 < magnitude < 0.01:  # an error, in the unit of the target
            return f"{value:.{digits}g}"
        decimals = max(0, digits + 1 - len(f"{magnitude:.0f}")) if magnitude >= 100 else digits
        return f"{value:.{decimals}f}" if abs(value) < 100 else f"{value:.{digits + 1}g}"

    def score_outputs(
        self, classes: Array | None, outputs: Outputs, rows: Any = slice(None)
    ) -> float:
        """Score a model's outputs for some rows."""
        selected = outputs.take(rows)
        predictions = Predictions.from_outputs(classes, selected)
        options = {} if selected.weight is None else {"sample_weight": selected.weight}
        return float(self.scorer(predictions, None, selected.target, **options))

    def is_defined(self, y_train: Array, y_test: Array, classification: bool) -> bool:
        """Return whether the score is defined for these targets (AUC needs two classes)."""
        return not self.undefined_reason(y_train, y_test, classification)

    def undefined_reason(self, y_train: Array, y_test: Array, classification: bool) -> str:
        """Return the reason if the score of a constant prediction is undefined, otherwise ""."""
        dummy = DummyClassifier() if classification else DummyRegressor()
        with filtered_warnings():
            warnings.simplefilter("ignore")
            try:
                dummy.fit(np.zeros((len(y_train), 1)), y_train)
                score = self.scorer(dummy, np.zeros((len(y_test), 1)), y_test)
                return "" if np.isfinite(score) else f"the score is {score}"
            except (ValueError, AttributeError, TypeError) as error:
                return str(error).split("\n")[0]


def choose_measure(
    scoring: Any,
    y: Any,
    classification: bool,
    pos_label: Any = None,
    sample_domain: Any = None,
    *,
    argument: str = "scoring",
    sample_weight: Array | None = None,
) -> Measure:
    """Return the metric for a scorer or its name.

    None means RMSE for a continuous target and balanced accuracy for classes, or accuracy if
    classes have similar sizes and no class share varies by more than 0.2 between domains.
    ``pos_label`` is the positive class for scores such as F1; None means the second of two classes.
    ``argument`` is the name of the argument in error messages.
    """
    if scoring is None:
        scoring = default_scoring(y, classification, sample_domain, sample_weight)
    if callable(scoring):
        name = getattr(scoring, "__name__", "score")
        return Measure(name, name.replace("_", " "), scoring, is_custom=True)
    scorer_names = get_scorer_names()
    # Accept abbreviations, and errors without the prefix "neg_".
    abbreviations = {"rmse": "root_mean_squared_error", "mae": "mean_absolute_error"}
    negated_name = f"neg_{abbreviations.get(str(scoring).lower(), scoring)}"
    if scoring not in scorer_names and negated_name in scorer_names:
        scoring = negated_name
    elif scoring not in scorer_names:
        close_names = get_close_matches(str(scoring), scorer_names, n=1)
        choices = ", ".join(scorer_names)
        hint = f"; did you mean {close_names[0]!r}?" if close_names else f". Use one of {choices}."
        raise ValueError(f"{argument}={scoring!r} is not a scikit-learn scorer{hint}")
    check_task(scoring, classification, argument)
    sign = -1 if scoring.startswith("neg_") else 1
    label = _LABELS.get(scoring, scoring.removeprefix("neg_").replace("_", " "))
    scorer = get_scorer(scoring)
    if classification:
        scorer = NamedScorer(scorer, positive_last(np.unique(y), pos_label), scoring)
    return Measure(scoring, label, scorer, sign)


def check_task(scoring: Any, classification: bool, argument: str = "scoring") -> None:
    """Raise an error if a scikit-learn scorer is for another kind of target."""
    if not isinstance(scoring, str) or scoring not in get_scorer_names():
        return
    suffixes = ("r2", "explained_variance", "_error", "_error_score", "_deviance")
    if classification and scoring.endswith(suffixes):
        raise ValueError(
            f"{argument}={scoring!r} is for a continuous target, but the target has classes. "
            "Choose a classification scorer, such as 'balanced_accuracy', or use a regression "
            "method (task='regression' in evaluate)."
        )
    if not classification and not scoring.endswith(suffixes):
        raise ValueError(
            f"{argument}={scoring!r} is not for a continuous target. Choose a regression scorer, "
            "such as 'neg_root_mean_squared_error', or pass classes as targets."
        )


def positive_last(classes: Array, pos_label: Any) -> Array:
    """Return the classes, with the positive class last if ``pos_label`` is not None.

    >>> positive_last(np.array(["case", "control"]), "case").tolist()
    ['control', 'case']
    """
    if pos_label is None:
        return classes
    class_names = [str(name) for name in classes.tolist()]
    if len(class_names) != 2 or str(pos_label) not in class_names:
        raise ValueError(
            f"pos_label={pos_label!r} must be one of the two classes of a binary target, but the "
            f"target has the classes {', '.join(class_names)}. Correct or omit pos_label."
        )
    return classes[[1, 0]] if class_names[0] == str(pos_label) else classes


def default_scoring(
    y: Array, classification: bool, sample_domain: Any = None, sample_weight: Array | None = None
) -> str:
    """Return the name of the default scorer for a target.

    >>> default_scoring(np.array([0, 0, 0, 1, 0, 1, 1, 1]), True, [1, 1, 1, 1, 2, 2, 2, 2])
    'balanced_accuracy'
    """
    if not classification:
        return "neg_root_mean_squared_error"
    class_codes = np.unique(y, return_inverse=True)[1]
    domain_codes = check_sample_domain(sample_domain, len(y), "delta").codes
    return default_class_metric(counts_by_domain(class_codes, domain_codes, None, sample_weight))


def counts_by_domain(
    class_codes: Array,
    domain_codes: Array,
    n_classes: int | None = None,
    sample_weight: Array | None = None,
) -> Array:
    """Return numbers of rows, or sums of their weights, of shape (n_domains, n_classes)."""
    domain_codes = np.unique(domain_codes, return_inverse=True)[1]
    counts = np.zeros((domain_codes.max() + 1, n_classes or int(class_codes.max()) + 1))
    np.add.at(counts, (domain_codes, class_codes), 1.0 if sample_weight is None else sample_weight)
    return counts


def has_rare_class(sizes: Array) -> bool:
    """Return whether a class is rare, given the numbers of rows, or the shares, of the classes."""
    return bool(sizes.min() < MIN_RELATIVE_SHARE * sizes.sum() / len(sizes))


def default_class_metric(counts: Array) -> str:
    """Return the name of the default scorer for classes, given :func:`counts_by_domain`."""
    is_balanced = not has_rare_class(counts.sum(axis=0))
    if len(counts) > 1:
        counts = counts[counts.any(axis=1)]
        shares = counts / counts.sum(axis=1, keepdims=True)
        # If class shares vary, accuracy rewards guessing the most frequent class of a domain.
        is_balanced = is_balanced and bool(np.ptp(shares, axis=0).max() <= MAX_SHARE_RANGE + 1e-9)
    return "accuracy" if is_balanced else "balanced_accuracy"


@dataclass(frozen=True)
class DomainScores:
    """Scores of an estimator on held-out domains; larger is better.

    Attributes
    ----------
    domains : ndarray of shape (n_domains,)
        Domains that were tested, sorted.
    scores : ndarray of shape (n_domains,)
        Score on each domain: the mean over the splits that hold it out, or NaN if the score is not
        defined. The mean and the worst score ignore NaN.
    fit_times : ndarray of shape (n_splits,)
        Duration of each fit in seconds.
    """

    domains: Array
    scores: Array
    fit_times: Array

    @property
    def mean(self) -> float:
        """Mean over domains, with equal weights."""
        return float(np.nanmean(self.scores))

    @property
    def std(self) -> float:
        """Standard deviation over domains."""
        defined_scores = self.scores[~np.isnan(self.scores)]
        return float(np.std(defined_scores, ddof=1)) if len(defined_scores) > 1 else 0.0

    @property
    def worst(self) -> float:
        """Score on the worst domain."""
        return float(np.nanmin(self.scores))

    @property
    def worst_domain(self) -> Label:
        """The domain with the worst score."""
        return self.domains[int(np.nanargmin(self.scores))]

    def per_domain(self) -> dict[Label, float]:
        """Return the score of each domain.

        Returns
        -------
        scores : dict
            Scores by domain.
        """
        return dict(zip(self.domains.tolist(), self.scores.tolist(), strict=True))

    def __repr__(self) -> str:
        return (
            f"DomainScores(mean={self.mean:.3f}, worst={self.worst:.3f} on "
            f"{self.worst_domain!s}, std={self.std:.3f}, n_domains={len(self.domains)})"
        )


def domain_cross_validate(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_domain: ArrayLike,
    *,
    cv: CrossValidator = None,
    scoring: Scoring = None,
    n_jobs: int | None = None,
) -> DomainScores:
    """Score an estimator on each domain, with this domain held out of the fit.

    This works for any estimator. ``sample_domain`` is passed to estimators that request it, even
    inside pipelines and searches.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sample_domain : array-like of shape (n_samples,)
        The domain of each row.
    cv : splitter, default=None
        None holds out one domain at a time. scikit-learn splitters that use groups need
        ``set_split_request(groups="sample_domain")``.
    scoring : str or callable, default=None
        A scikit-learn scorer; None means the estimator's own ``score`` method.
    n_jobs : int, default=None
        Number of splits fitted in parallel.

    Returns
    -------
    DomainScores

    See Also
    --------
    LeaveDomainsOut : The default splitter.
    domainwise.evaluate : Compares many methods, and writes a report.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> from domainwise import DCM
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import domain_cross_validate
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> result = domain_cross_validate(
    ...     make_pipeline(DCM(), SVC()), data.data, data.target, data.sample_domain
    ... )
    >>> result.domains
    array([0, 1, 2, 3])
    """
    check_arguments("domain_cross_validate", n_jobs=n_jobs)
    check_task(scoring, is_classifier(estimator))
    check_is_table(X)
    domain_labels = check_sample_domain(sample_domain, count_rows(X), "delta")
    with config_context(enable_metadata_routing=True):
        results = cross_validate(
            estimator,
            X,
            y,
            cv=LeaveDomainsOut() if cv is None else cv,
            scoring=scoring,
            n_jobs=n_jobs,
            params={"sample_domain": sample_domain},
            return_estimator=True,
            return_indices=True,
            error_score="raise",
        )
        scorer = check_scoring(estimator, scoring=scoring)
        scores_by_code: dict[int, list[float]] = {}
        for model, test_rows in zip(results["estimator"], results["indices"]["test"], strict=True):
            for code in np.unique(domain_labels.codes[test_rows]):
                rows = test_rows[domain_labels.codes[test_rows] == code]
                score = scorer(model, take_rows(X, rows), take_rows(y, rows))
                scores_by_code.setdefault(int(code), []).append(float(score))
    domains = domain_labels.names[sorted(scores_by_code)]
    scores = np.array([np.mean(scores_by_code[code]) for code in sorted(scores_by_code)])
    undefined_names = [str(name) for name in domains[np.isnan(scores)]]
    if len(undefined_names) == len(domains):
        raise ValueError(
            "The score is not defined on any domain. Perhaps each domain contains only one class. "
            "Choose another scorer (scoring)."
        )
    if undefined_names:
        warn_caller(
            f"The score is not defined on these domains: {', '.join(undefined_names)}. Perhaps "
            "each of them contains only one class. The mean and the worst score ignore them."
        )
    return DomainScores(domains, scores, results["fit_time"])
