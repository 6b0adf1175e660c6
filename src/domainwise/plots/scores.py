"""DomainScoresDisplay: scores of methods, domain by domain, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.utils.validation import check_is_fitted

from domainwise.arrays import Array, ArrayLike, Estimator, Scoring
from domainwise.checks.arguments import check_arguments
from domainwise.checks.inputs import checked_labels, is_quantity, same_length
from domainwise.plots import style
from domainwise.scoring.measures import choose_measure, default_scoring
from domainwise.scoring.predictions import Predictions
from domainwise.scoring.statistics import defined_score, row_interval


class DomainScoresDisplay(style.Display):
    """Scores of one or several methods on each domain.

    Parameters
    ----------
    scores : dict of dict
        By name of the method, then by domain; NaN where a score is not defined.
    intervals : dict of dict of tuple, default=None
        Lower and upper end of each.
    reference : dict, default=None
        One more number by domain, drawn as a bar.
    label : str, default="score"
        What was measured.
    greater_is_better : bool, default=True

    Attributes
    ----------
    order_ : list
        Domains from top to bottom, the worst one for the first method on top.
    ax_, figure_ : matplotlib axes and figure

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
        """Draw scores of fitted estimators, with 95 % intervals from 200 draws of a domain's rows.

        Parameters
        ----------
        estimator : estimator, or dict of them by name
            Fitted classifiers or regressors; rows are predicted one by one.
        X : array-like or data frame of shape (n_samples, n_features)
            Best of all rows of domains that were not seen.
        y, sample_domain : array-like of shape (n_samples,)
        scoring : str, default=None
            A scorer of scikit-learn; None is chosen as in :func:`domainwise.evaluate`.
        **options
            Of :meth:`plot`.
        """
        given: Any = estimator
        models = given if isinstance(given, dict) else {type(given).__name__: given}
        truth, classes, every = checked_labels(y, "y"), None, list(models.values())
        kinds = {is_classifier(model) if hasattr(model, "predict") else None for model in every}
        if kinds not in ({True}, {False}):
            raise ValueError(f"estimator={given!r} must be classifiers, or regressors")
        if kinds == {True}:
            for model in every:
                check_is_fitted(model)
            classes = np.unique(np.concatenate([truth, *(model.classes_ for model in every)]))
        scoring = scoring or default_scoring(truth, classes is not None, sample_domain)
        known = truth if classes is None else classes
        measure = choose_measure(scoring, known, classes is not None)
        predictions = {name: Predictions(model, X, classes) for name, model in models.items()}
        same_length(next(iter(predictions.values())).labels, "X", truth, "y")

        def score(name: str, rows: Array) -> float:
            model = predictions[name]
            values = (model.labels, model.probabilities, model.decisions)
            some: list[Any] = [None if each is None else each[rows] for each in values]
            drawn = Predictions.kept(classes, *some)
            return measure.shown(measure.scorer(drawn, None, truth[rows]))

        scored = _scores(score, list(models), truth, sample_domain)
        made = cls(**scored, label=measure.label, greater_is_better=measure.sign > 0)
        return made.plot(**options)

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
        y_pred : array-like, or dict of them by name
            Predictions, or what else ``metric`` takes.
        metric : callable, default=None
            ``metric(y_true, y_pred)``; None is accuracy, or RMSE for numbers.
        greater_is_better : bool, default=True
            Of ``metric``.
        **options
            Of :meth:`plot`.
        """
        truth = checked_labels(y_true, "y_true")
        if metric is None:
            greater_is_better = not (truth.dtype.kind in "iuf" and is_quantity(truth))
            metric = accuracy_score if greater_is_better else root_mean_squared_error
        check_arguments("from_predictions", metric=metric, greater_is_better=greater_is_better)
        given = y_pred if isinstance(y_pred, dict) else {"predictions": y_pred}
        predictions = {name: np.asarray(values) for name, values in given.items()}
        if not predictions:
            raise ValueError("y_pred is empty: at least one method is needed")
        for name, values in predictions.items():
            same_length(values, "y_pred", truth, "y_true")
            if values.dtype.kind == "f" and np.isnan(values).any():
                raise ValueError(f"y_pred has missing values (NaN), those of {name!r}")

        def score(name: str, rows: Array) -> float:
            return float(metric(truth[rows], predictions[name][rows]))

        scored = _scores(score, list(predictions), truth, sample_domain)
        label = getattr(metric, "__name__", "score").removesuffix("_score").replace("_", " ")
        return cls(**scored, label=label, greater_is_better=greater_is_better).plot(**options)

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
            None makes a figure.
        highlight : sequence of str, default=None
            Methods that are drawn large and with intervals, the first of which the domains are
            sorted by; None are all.
        styles : dict of dict, default=None
            By name of the method, further arguments of ``ax.plot``.
        """
        main = list(highlight or self.scores)
        style.check_known(main, self.scores, "highlight")
        first, sign = self.scores[main[0]], 1 if self.greater_is_better else -1
        self.order_ = sorted(first, key=lambda d: np.nan_to_num(sign * first[d], nan=np.inf))
        n = len(self.order_)
        heights = -np.arange(n, dtype=np.float64)
        ax = style.axes_for(ax, 7.2, 1.3 + 0.34 * n)
        bars = [self.reference.get(domain, np.nan) for domain in self.order_]
        ax.vlines(bars, heights - 0.32, heights + 0.32, color=style.ink(), linewidth=1.6)
        offsets = style.offsets(len(self.scores), 0.22)
        for place, name in reversed([*enumerate(self.scores)]):
            colour = style.PALETTE[place % len(style.PALETTE)]
            look: dict[str, Any] = {"color": colour, "label": style.short(name), "marker": "o"}
            look |= (styles or {}).get(name, {})
            size, alpha = (6.5, 1.0) if name in main else (4.0, 0.5)
            at, shown = heights + offsets[place], [self.scores[name][d] for d in self.order_]
            if name in main and name in self.intervals:
                ends = np.array([self.intervals[name][domain] for domain in self.order_])
                ax.hlines(at, *ends.T, color=look["color"], alpha=0.45, linewidth=2.2)
            ax.plot(shown, at, linestyle="", markersize=size, alpha=alpha, **look)
        lacking = {d: "" if np.isfinite(first[d]) else " (no score)" for d in self.order_}
        ax.set_yticks(heights, [style.short(domain) + lacking[domain] for domain in self.order_])
        if n > 1:
            ax.axhspan(-0.5, 0.5, color=style.ACCENT, alpha=0.12, linewidth=0)
            ax.get_yticklabels()[0].set(fontweight="bold", color=style.ACCENT)
        ax.set_ylim(0.4 - n, 0.6)
        better = "larger" if self.greater_is_better else "smaller"
        ax.set_xlabel(f"{self.label} ({better} is better)")
        return self._finish(ax, columns=6, turn=True)


def _scores(
    score: Callable[[str, Array], float], names: Sequence[str], y: Array, sample_domain: Any
) -> dict[str, Any]:
    """Scores and intervals by method and domain."""
    codes, domains = style.by_domain(sample_domain, y, "y")
    rows = {domain: np.flatnonzero(codes == code) for code, domain in enumerate(domains)}
    scorers = {name: partial(score, name) for name in names}
    return {
        kind: {
            n: {d: of(scorer, mine) for d, mine in rows.items()} for n, scorer in scorers.items()
        }
        for kind, of in (("scores", defined_score), ("intervals", row_interval))
    }
