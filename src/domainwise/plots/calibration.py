"""CalibrationByDomainDisplay: calibration of probabilities on each domain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from domainwise.arrays import Array, ArrayLike, Estimator, Label, MaybeArray
from domainwise.checks.arguments import COUNT, check_arguments
from domainwise.checks.inputs import checked_labels, same_length
from domainwise.plots import style
from domainwise.scoring.measures import positive_last
from domainwise.scoring.predictions import Predictions, codes_of

#: Of a bin; the share of fewer rows is chance.
LEAST_ROWS = 15


class Reliability(NamedTuple):
    """Rows in bins of their probability, and how far that is from the observed frequency."""

    predicted: Array  #: mean probability of each bin that has rows
    observed: Array  #: observed frequency in these rows
    rows: Array  #: their number
    error: float  #: distance of the two, averaged over rows: the expected calibration error


def reliability(probability: Array, hit: Array, n_bins: int = 10) -> Reliability:
    """Compare probabilities with observed frequencies, in bins of about the same number of rows.

    There are fewer bins where they would have less than 15 rows; equal probabilities share one.

    >>> p, hit = np.repeat([0.25, 0.75], 20), np.arange(40) % 2
    >>> reliability(p, hit).predicted, reliability(p, hit).error
    (array([0.25, 0.75]), 0.25)
    """
    n_bins = max(1, min(n_bins, len(probability) // LEAST_ROWS))
    edges = np.quantile(probability, np.arange(1, n_bins) / n_bins, method="higher")
    bins = np.searchsorted(np.unique(edges), probability, side="right")
    _, place, rows = np.unique(bins, return_inverse=True, return_counts=True)
    predicted, observed = (np.bincount(place, each) / rows for each in (probability, hit))
    error = float(rows @ np.abs(predicted - observed) / rows.sum())
    return Reliability(predicted, observed, rows, error)


class CalibrationByDomainDisplay(style.Display):
    """Reliability curve of each domain, with its error.

    Parameters
    ----------
    curves : dict of Reliability
        By domain: mean probability and observed share of each bin, its rows, and the error.
    about : str
        What the probabilities are of.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    Notes
    -----
    The error of a domain is the expected calibration error: the distance between probability and
    share in a bin, averaged over rows. With few rows it is large by chance.

    Examples
    --------
    >>> from domainwise.plots import CalibrationByDomainDisplay
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
        """Draw the calibration of a fitted classifier, best of all on unseen domains.

        Parameters
        ----------
        estimator : classifier
            Fitted; has ``predict_proba``. Rows are predicted one by one.
        X : array-like or data frame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_domain : array-like of shape (n_samples,)
        **options
            Of :meth:`from_predictions`.
        """
        model: Any = estimator
        if not hasattr(model, "predict_proba"):
            raise ValueError(f"estimator={type(model).__name__} has no predict_proba")
        check_is_fitted(model)
        classes = np.unique(np.concatenate([checked_labels(y, "y"), model.classes_]))
        predicted: Any = Predictions(model, X, classes).probabilities
        return cls.from_predictions(y, predicted, sample_domain, classes=classes, **options)

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
            Probability of the positive one of two classes, or of each class. For more than two it
            is judged how often the predicted class, the likeliest, is right.
        sample_domain : array-like of shape (n_samples,)
        classes : sequence, default=None
            What columns are about; None are the classes of ``y_true`` in order.
        pos_label : object, default=None
            The positive one of two classes; None is the last.
        n_bins : int, default=10
            Bins of about the same number of rows, at least 15, in each domain.
        **options
            Of :meth:`plot`.
        """
        check_arguments("from_predictions", {"n_bins": [COUNT]}, n_bins=n_bins)
        if np.asarray(y_prob).dtype.kind in "US":
            raise ValueError("y_prob must hold probabilities, from 0 to 1, not text")
        truth = checked_labels(y_true, "y_true")
        p = check_array(y_prob, ensure_2d=False, input_name="y_prob")
        same_length(p, "y_prob", truth, "y_true")
        codes, domains = style.by_domain(sample_domain, truth, "y_true")
        names = np.unique(truth) if classes is None else checked_labels(classes, "classes")
        if not np.all((p >= 0) & (p <= 1)):
            raise ValueError("y_prob must hold probabilities, from 0 to 1")
        codes_of(truth, names)  # refuses others
        if len(names) != (2 if p.ndim == 1 else p.shape[1]):
            columns = "one column" if p.ndim == 1 else f"{p.shape[1]} columns"
            raise ValueError(
                f"y_prob has {columns} for {len(names)} classes, {', '.join(map(str, names))}; "
                "name all in classes"
            )
        if len(names) == 2:
            positive = positive_last(names, pos_label)[-1]
            probability = p if p.ndim == 1 else p[:, names == positive][:, 0]
            hit, about = truth == positive, style.short(positive)
        else:
            probability, hit = p.max(axis=1), names[p.argmax(axis=1)] == truth
            about = "the predicted class"
        rows = {name: codes == code for code, name in enumerate(domains)}
        curves = {
            name: reliability(probability[some], hit[some], n_bins) for name, some in rows.items()
        }
        return cls(curves=curves, about=about).plot(**options)

    def plot(self, ax: style.MaybeAxes = None, *, max_domains: int = 5) -> Self:
        """Draw the curve of each domain, those with the largest errors in colour.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None makes a figure.
        max_domains : int, default=5
            Domains in colour, with their errors in the legend; the others are grey.
        """
        check_arguments("plot", {"max_domains": [COUNT]}, max_domains=max_domains)
        ax = style.axes_for(ax, 4.6, 4.8)
        ax.plot([0, 1], [0, 1], color=style.ink(), linewidth=0.8, linestyle=":")
        curves = sorted(self.curves.items(), key=lambda item: -item[1].error)
        max_domains += len(curves) == max_domains + 1  # a single grey curve is not useful
        for place, (name, (predicted, observed, rows, error)) in enumerate(curves[:max_domains]):
            look: dict[str, Any] = {"color": style.PALETTE[place % len(style.PALETTE)], "zorder": 3}
            ax.scatter(predicted, observed, 6 + 40 * rows / rows.max(), linewidths=0, **look)
            ax.plot(predicted, observed, label=f"{style.short(name)}: {error:.2f}", **look)
        for _, (predicted, observed, _, _) in curves[max_domains:]:
            ax.plot(predicted, observed, color=style.GREY, linewidth=0.8, alpha=0.5)
        if rest := [curve.error for _, curve in curves[max_domains:]]:
            ax.plot([], [], color=style.GREY, label=f"{len(rest)} others: up to {rest[0]:.2f}")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        ax.set_xlabel(f"probability of {self.about}")
        ax.set_ylabel("observed frequency")
        return self._finish(ax, title="calibration error", columns=2)
