"""A display of the scores of one or more methods on each domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.utils.validation import check_is_fitted

from domainwise.base.arguments import check_arguments
from domainwise.base.arrays import Array, ArrayLike, Estimator, Scoring
from domainwise.base.inputs import check_same_length, checked_labels, is_quantity
from domainwise.evaluation.plots import style
from domainwise.held_out.scoring.measures import choose_measure, default_scoring
from domainwise.held_out.scoring.predictions import Predictions
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
    ForestDisplay : Scores of one method, with their pooled mean.

    Examples
    --------
    >>> from domainwise.plots import DomainScoresDisplay
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
        is_one_kind = classifier_flags in ({True}, {False})
        style.require(is_one_kind, "mixed estimators", estimator=estimator)
        is_classification = classifier_flags == {True}
        if is_classification:
            for model in models:
                check_is_fitted(model)
            classes = np.unique(np.concatenate([targets, *(model.classes_ for model in models)]))
        scoring = scoring or default_scoring(targets, is_classification, sample_domain)
        labels = targets if classes is None else classes
        measure = choose_measure(scoring, labels, is_classification)
        predictions = {name: Predictions(m, X, classes) for name, m in estimators.items()}
        check_same_length(next(iter(predictions.values())).labels, "X", targets, "y")
        outputs = {name: predicted.outputs(targets) for name, predicted in predictions.items()}

        def score(name: str, rows: Array) -> float:
            return measure.shown(measure.score_outputs(classes, outputs[name], rows))

        arguments = _scores_and_intervals(score, list(outputs), targets, sample_domain)
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
        style.require(predictions, "no predictions")
        for name, values in predictions.items():
            check_same_length(values, "y_pred", targets, "y_true")
            has_nan = values.dtype.kind == "f" and np.isnan(values).any()
            style.require(not has_nan, "NaN predictions", name=name)

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
        first_scores = self.scores[highlighted_names[0]]
        self.order_ = self._order(first_scores, self.greater_is_better)
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
        ax.set_ylim(0.4 - n_domains, 0.6)
        self._label_scores(ax, self.label, self.greater_is_better, n_domains)
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
