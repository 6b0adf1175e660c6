"""Displays of model performance by domain: scores with intervals, and calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.utils.validation import check_array, check_is_fitted

from domainwise.base.arguments import COUNT, check_arguments
from domainwise.base.arrays import Array, ArrayLike, Estimator, Label, MaybeArray, Scoring
from domainwise.base.inputs import check_same_length, checked_labels, is_quantity
from domainwise.evaluation.plots import style
from domainwise.held_out.scoring.measures import choose_measure, default_scoring, positive_last
from domainwise.held_out.scoring.predictions import Predictions, codes_of
from domainwise.held_out.scoring.statistics import defined_score, row_interval


class DomainScoresDisplay(style.Display):
    """Scores of one or more methods on each domain.

    Parameters
    ----------
    scores : dict of dict
        Scores by method name, then by domain; NaN if a score is not defined.
    intervals : dict of dict of tuple, default=None
        Lower and upper ends of a confidence interval for each score.
    reference : dict, default=None
        A reference value for each domain, drawn as a vertical bar.
    label : str, default="score"
        Name of the score.
    greater_is_better : bool, default=True
        Whether larger scores are better.

    Attributes
    ----------
    order_ : list
        Domains from top to bottom; the worst domain of the first method is at the top.
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    CalibrationByDomainDisplay : Calibration of probabilities by domain.

    Examples
    --------
    >>> from domainwise.evaluation.plots import DomainScoresDisplay
    >>> site = ["A", "A", "A", "B", "B", "B"]
    >>> predicted = {"one": [0, 1, 1, 0, 0, 0], "two": [0, 1, 0, 0, 1, 0]}
    >>> display = DomainScoresDisplay.from_predictions([0, 1, 1, 0, 1, 1], predicted, site)
    >>> display.scores["one"]["A"], display.order_
    (1.0, ['B', 'A'])
    """

    def __init__(
        self,
        *,
        scores: Mapping[str, Mapping[Any, float]],
        intervals: Mapping[str, Mapping[Any, tuple[float, float]]] | None = None,
        reference: Mapping[Any, float] | None = None,
        label: str = "score",
        greater_is_better: bool = True,
    ) -> None:
        self.scores, self.intervals, self.reference = scores, intervals or {}, reference or {}
        self.label, self.greater_is_better = label, greater_is_better

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator | dict[str, Estimator],
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: ArrayLike,
        *,
        scoring: Scoring = None,
        **options: Any,
    ) -> Self:
        """Draw scores of fitted estimators, with 95 % intervals from 200 bootstrap samples.

        Parameters
        ----------
        estimator : estimator, or dict of estimators by name
            Fitted classifiers or regressors; ``predict`` is called without ``sample_domain``.
        X : array-like or data frame of shape (n_samples, n_features)
            Rows, preferably from domains that the estimators have not seen.
        y, sample_domain : array-like of shape (n_samples,)
            Target and domain of each row.
        scoring : str, default=None
            A scikit-learn scorer; None chooses one as in :func:`domainwise.evaluate`.
        **options
            Passed to :meth:`plot`.
        """
        estimators: Any = (
            estimator if isinstance(estimator, dict) else {type(estimator).__name__: estimator}
        )
        targets, classes, models = checked_labels(y, "y"), None, list(estimators.values())
        classifier_flags = {is_classifier(m) if hasattr(m, "predict") else None for m in models}
        if classifier_flags not in ({True}, {False}):
            raise ValueError(
                "estimator must be one or more classifiers, or one or more regressors; got "
                f"{estimator!r}. Pass only classifiers, or only regressors."
            )
        is_classification = classifier_flags == {True}
        if is_classification:
            for model in models:
                check_is_fitted(model)
            classes = np.unique(np.concatenate([targets, *(model.classes_ for model in models)]))
        scoring = scoring or default_scoring(targets, is_classification, sample_domain)
        labels = targets if classes is None else classes
        measure = choose_measure(scoring, labels, is_classification)
        records = {
            name: {**Predictions(model, X, classes).outputs(), "target": targets}
            for name, model in estimators.items()
        }
        check_same_length(next(iter(records.values()))["prediction"], "X", targets, "y")

        def score(name: str, rows: Array) -> float:
            return measure.shown(measure.score_record(classes, records[name], rows))

        arguments = _scores_and_intervals(score, list(records), targets, sample_domain)
        display = cls(**arguments, label=measure.label, greater_is_better=measure.sign > 0)
        return display.plot(**options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike | dict[str, ArrayLike],
        sample_domain: ArrayLike,
        *,
        metric: Callable[[Array, Array], float] | None = None,
        greater_is_better: bool = True,
        **options: Any,
    ) -> Self:
        """Draw scores of predictions, with intervals as in :meth:`from_estimator`.

        Parameters
        ----------
        y_true, sample_domain : array-like of shape (n_samples,)
            Target and domain of each row.
        y_pred : array-like, or dict of array-likes by name
            Predictions, or other values that ``metric`` accepts.
        metric : callable, default=None
            A function of ``y_true`` and ``y_pred``; None means accuracy for classes, else RMSE.
        greater_is_better : bool, default=True
            Whether larger values of ``metric`` are better.
        **options
            Passed to :meth:`plot`.
        """
        targets = checked_labels(y_true, "y_true")
        if metric is None:
            greater_is_better = not (targets.dtype.kind in "iuf" and is_quantity(targets))
            metric = accuracy_score if greater_is_better else root_mean_squared_error
        check_arguments("from_predictions", metric=metric, greater_is_better=greater_is_better)
        raw_predictions = y_pred if isinstance(y_pred, dict) else {"predictions": y_pred}
        predictions = {name: np.asarray(values) for name, values in raw_predictions.items()}
        if not predictions:
            raise ValueError("y_pred is empty. Pass the predictions of at least one method.")
        for name, values in predictions.items():
            check_same_length(values, "y_pred", targets, "y_true")
            if values.dtype.kind == "f" and np.isnan(values).any():
                raise ValueError(
                    f"y_pred of {name!r} contains NaN. Remove the rows with NaN from y_true, "
                    "y_pred and sample_domain."
                )

        def score(name: str, rows: Array) -> float:
            return float(metric(targets[rows], predictions[name][rows]))

        arguments = _scores_and_intervals(score, list(predictions), targets, sample_domain)
        label = getattr(metric, "__name__", "score").removesuffix("_score").replace("_", " ")
        return cls(**arguments, label=label, greater_is_better=greater_is_better).plot(**options)

    def plot(
        self,
        ax: style.MaybeAxes = None,
        *,
        highlight: Sequence[str] | None = None,
        styles: Mapping[str, dict[str, Any]] | None = None,
    ) -> Self:
        """Draw a row for each domain.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.
        highlight : sequence of str, default=None
            Methods that are drawn large and with intervals; None selects all. Domains are sorted
            by the scores of the first of these methods.
        styles : dict of dict, default=None
            Additional arguments for ``ax.plot``, by method name.

        Returns
        -------
        display : DomainScoresDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        highlighted_names = list(highlight or self.scores)
        style.check_known(highlighted_names, self.scores, "highlight")
        first_scores, sign = self.scores[highlighted_names[0]], 1 if self.greater_is_better else -1
        sort_keys = {d: np.nan_to_num(sign * s, nan=np.inf) for d, s in first_scores.items()}
        self.order_ = sorted(sort_keys, key=lambda domain: sort_keys[domain])
        n_domains = len(self.order_)
        heights = -np.arange(n_domains, dtype=np.float64)
        ax = style.axes_for(ax, 7.2, 1.3 + 0.34 * n_domains)
        references = [self.reference.get(domain, np.nan) for domain in self.order_]
        ax.vlines(references, heights - 0.32, heights + 0.32, color=style.text_color(), lw=1.6)
        offsets = style.offsets(len(self.scores), 0.22)
        for i, name in reversed([*enumerate(self.scores)]):
            color = style.PALETTE[i % len(style.PALETTE)]
            options: dict[str, Any] = {"color": color, "label": style.short(name), "marker": "o"}
            options |= (styles or {}).get(name, {})
            marker_size, alpha = (6.5, 1.0) if name in highlighted_names else (4.0, 0.5)
            y, scores = heights + offsets[i], [self.scores[name][d] for d in self.order_]
            if name in highlighted_names and name in self.intervals:
                interval_ends = np.array([self.intervals[name][domain] for domain in self.order_])
                ax.hlines(y, *interval_ends.T, color=options["color"], alpha=0.45, linewidth=2.2)
            ax.plot(scores, y, linestyle="", markersize=marker_size, alpha=alpha, **options)
        suffixes = {d: "" if np.isfinite(first_scores[d]) else " (no score)" for d in self.order_}
        ax.set_yticks(heights, [style.short(domain) + suffixes[domain] for domain in self.order_])
        if n_domains > 1:
            ax.axhspan(-0.5, 0.5, color=style.ACCENT, alpha=0.12, linewidth=0)
            ax.get_yticklabels()[0].set(fontweight="bold", color=style.ACCENT)
        ax.set_ylim(0.4 - n_domains, 0.6)
        direction = "larger" if self.greater_is_better else "smaller"
        ax.set_xlabel(f"{self.label} ({direction} is better)")
        return self._finish(ax, n_columns=6, reverse=True)


def _scores_and_intervals(
    score: Callable[[str, Array], float], names: Sequence[str], y: Array, sample_domain: Any
) -> dict[str, Any]:
    """Return the arguments ``scores`` and ``intervals``, by method and domain."""
    domain_codes, domains = style.domain_codes(sample_domain, y, "y")
    rows_by_domain = {d: np.flatnonzero(domain_codes == code) for code, d in enumerate(domains)}
    return {
        argument: {
            name: {d: compute(partial(score, name), rows) for d, rows in rows_by_domain.items()}
            for name in names
        }
        for argument, compute in (("scores", defined_score), ("intervals", row_interval))
    }


#: Minimum number of rows in a bin; a frequency in fewer rows is mostly noise.
MIN_BIN_ROWS = 15
PREDICTED_CLASS = "the predicted class"


class Reliability(NamedTuple):
    """Predicted probabilities and observed frequencies in bins, and the calibration error."""

    predicted: Array  #: mean probability in each bin
    observed: Array  #: observed frequency in each bin
    rows: Array  #: number of rows in each bin
    error: float  #: expected calibration error: absolute difference, averaged over rows


def reliability(probabilities: Array, outcomes: Array, n_bins: int = 10) -> Reliability:
    """Compare probabilities with observed frequencies in bins with about equal row counts.

    ``outcomes`` is 1 where the event occurred, else 0. Each bin has at least 15 rows, so there may
    be fewer bins than ``n_bins``. Equal probabilities are in the same bin.

    >>> p, outcomes = np.repeat([0.25, 0.75], 20), np.arange(40) % 2
    >>> reliability(p, outcomes).predicted, reliability(p, outcomes).error
    (array([0.25, 0.75]), 0.25)
    """
    n_bins = max(1, min(n_bins, len(probabilities) // MIN_BIN_ROWS))
    edges = np.quantile(probabilities, np.arange(1, n_bins) / n_bins, method="higher")
    bin_codes = np.searchsorted(np.unique(edges), probabilities, side="right")
    _, bin_codes, counts = np.unique(bin_codes, return_inverse=True, return_counts=True)
    predicted = np.bincount(bin_codes, probabilities) / counts
    observed = np.bincount(bin_codes, outcomes) / counts
    error = float(counts @ np.abs(predicted - observed) / counts.sum())
    return Reliability(predicted, observed, counts, error)


class CalibrationByDomainDisplay(style.Display):
    """Reliability curve and calibration error of each domain.

    Parameters
    ----------
    curves : dict of Reliability
        For each domain, the mean probability, observed frequency and number of rows in each bin,
        and the calibration error.
    about : str
        Name of the class whose probabilities are shown, or "the predicted class".

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    DomainScoresDisplay : Scores by domain.

    Notes
    -----
    The error of a domain is the expected calibration error: the absolute difference between the
    probability and the frequency in a bin, averaged over rows. With few rows, it is often large.

    Examples
    --------
    >>> from domainwise.evaluation.plots import CalibrationByDomainDisplay
    >>> p, site = [0.1, 0.1, 0.9, 0.9], ["A", "A", "B", "B"]
    >>> display = CalibrationByDomainDisplay.from_predictions([0, 0, 0, 1], p, site)
    >>> {name: round(curve.error, 3) for name, curve in display.curves.items()}
    {'A': 0.1, 'B': 0.4}
    """

    def __init__(self, *, curves: Mapping[Any, Reliability], about: str) -> None:
        self.curves, self.about = dict(curves), about

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: ArrayLike,
        y: ArrayLike,
        sample_domain: ArrayLike,
        **options: Any,
    ) -> Self:
        """Draw the calibration of a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            A fitted classifier with ``predict_proba``, which is called without ``sample_domain``.
        X : array-like or data frame of shape (n_samples, n_features)
            Rows, preferably from unseen domains.
        y, sample_domain : array-like of shape (n_samples,)
            Class and domain of each row.
        **options
            Passed to :meth:`from_predictions`.
        """
        model: Any = estimator
        if not hasattr(model, "predict_proba"):
            raise ValueError(
                f"{type(model).__name__} has no predict_proba method. Pass a classifier that has "
                "one, or use from_predictions."
            )
        check_is_fitted(model)
        classes = np.unique(np.concatenate([checked_labels(y, "y"), model.classes_]))
        probabilities: Any = Predictions(model, X, classes).probabilities
        return cls.from_predictions(y, probabilities, sample_domain, classes=classes, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        sample_domain: ArrayLike,
        *,
        classes: MaybeArray = None,
        pos_label: Label | None = None,
        n_bins: int = 10,
        **options: Any,
    ) -> Self:
        """Draw the calibration of probabilities.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Classes.
        y_prob : array-like of shape (n_samples,) or (n_samples, n_classes)
            Probability of the positive class, or of each class. With more than two classes, the
            curve shows how often the most probable class is correct.
        sample_domain : array-like of shape (n_samples,)
            The domain of each row.
        classes : sequence, default=None
            The class of each column of ``y_prob``; None means the sorted classes in ``y_true``.
        pos_label : object, default=None
            The positive class, if there are two classes; None means the last one.
        n_bins : int, default=10
            Maximum number of bins in each domain. Each bin has about the same number of rows, and
            at least 15.
        **options
            Passed to :meth:`plot`.
        """
        check_arguments("from_predictions", {"n_bins": [COUNT]}, n_bins=n_bins)
        if np.asarray(y_prob).dtype.kind in "US":
            raise ValueError(
                "y_prob must contain numbers between 0 and 1; got text. Pass predict_proba(X)."
            )
        targets = checked_labels(y_true, "y_true")
        p = check_array(y_prob, ensure_2d=False, input_name="y_prob")
        check_same_length(p, "y_prob", targets, "y_true")
        codes, domains = style.domain_codes(sample_domain, targets, "y_true")
        class_names = np.unique(targets) if classes is None else checked_labels(classes, "classes")
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError(
                f"y_prob must contain probabilities between 0 and 1; got values from {p.min():g} "
                f"to {p.max():g}. Pass predict_proba(X)."
            )
        codes_of(targets, class_names)  # raises an error for unknown classes
        if len(class_names) != (2 if p.ndim == 1 else p.shape[1]):
            shape_text = "is 1-D" if p.ndim == 1 else f"has {p.shape[1]} columns"
            raise ValueError(
                f"y_prob {shape_text}, but there are {len(class_names)} classes: "
                f"{', '.join(map(str, class_names))}. Pass one column per class, and list the "
                "classes in the order of the columns with classes=."
            )
        if len(class_names) == 2:
            positive_class = positive_last(class_names, pos_label)[-1]
            probabilities = p if p.ndim == 1 else p[:, class_names == positive_class][:, 0]
            is_hit, about = targets == positive_class, style.short(positive_class)
        else:
            probabilities, is_hit = p.max(axis=1), class_names[p.argmax(axis=1)] == targets
            about = PREDICTED_CLASS
        curves = {
            name: reliability(probabilities[codes == code], is_hit[codes == code], n_bins)
            for code, name in enumerate(domains)
        }
        return cls(curves=curves, about=about).plot(**options)

    def plot(self, ax: style.MaybeAxes = None, *, max_domains: int = 5) -> Self:
        """Draw a curve for each domain; domains with the largest errors are in color.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.
        max_domains : int, default=5
            Maximum number of domains in color, with errors in the legend; the others are gray.

        Returns
        -------
        display : CalibrationByDomainDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        check_arguments("plot", {"max_domains": [COUNT]}, max_domains=max_domains)
        ax = style.axes_for(ax, 4.6, 4.8)
        ax.plot([0, 1], [0, 1], color=style.text_color(), linewidth=0.8, linestyle=":")
        curves = sorted(self.curves.items(), key=lambda item: -item[1].error)
        max_domains += len(curves) == max_domains + 1  # do not draw only one curve in gray
        for i, (name, (predicted, observed, counts, error)) in enumerate(curves[:max_domains]):
            options: dict[str, Any] = {"color": style.PALETTE[i % len(style.PALETTE)], "zorder": 3}
            ax.scatter(predicted, observed, 6 + 40 * counts / counts.max(), linewidths=0, **options)
            ax.plot(predicted, observed, label=f"{style.short(name)}: {error:.2f}", **options)
        for _, (predicted, observed, _, _) in curves[max_domains:]:
            ax.plot(predicted, observed, color=style.GRAY, linewidth=0.8, alpha=0.5)
        if errors := [curve.error for _, curve in curves[max_domains:]]:
            ax.plot([], [], color=style.GRAY, label=f"{len(errors)} others: up to {errors[0]:.2f}")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        class_text = self.about if self.about == PREDICTED_CLASS else f"class {self.about}"
        ax.set_xlabel(f"probability of {class_text}")
        ax.set_ylabel("observed frequency")
        return self._finish(ax, title="calibration error", n_columns=2)
