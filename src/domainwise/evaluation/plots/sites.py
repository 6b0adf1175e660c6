"""Displays for one method and several sites: forest plot, calibration and decision curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from domainwise.base import inputs
from domainwise.base.arguments import COUNT, check_arguments
from domainwise.base.arrays import Array, ArrayLike, Estimator, Label, MaybeArray
from domainwise.evaluation.plots import style
from domainwise.held_out.scoring.measures import positive_last
from domainwise.held_out.scoring.pooling import SCALES, Ends, PooledScores, pool_scores
from domainwise.held_out.scoring.predictions import Predictions, codes_of
from domainwise.held_out.scoring.site_calibration import (
    DecisionCurves,
    SiteEstimates,
    SiteRows,
    decision_curves,
    events_of,
)

#: Minimum number of rows in a bin; a frequency in fewer rows is mostly noise.
MIN_BIN_ROWS = 15
PREDICTED_CLASS = "the predicted class"


class Reliability(NamedTuple):
    """Predicted probabilities and observed frequencies in bins, and the calibration error."""

    predicted: Array  #: mean probability in each bin
    observed: Array  #: observed frequency in each bin
    rows: Array  #: number of rows in each bin
    error: float  #: expected calibration error: absolute difference, averaged over rows


def reliability(
    probabilities: Array, outcomes: Array, n_bins: int = 10, weights: Array | None = None
) -> Reliability:
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
    bin_codes = np.unique(bin_codes, return_inverse=True)[1]
    weights = np.ones(len(bin_codes)) if weights is None else weights
    counts = np.bincount(bin_codes, weights)
    predicted = np.bincount(bin_codes, weights * probabilities) / counts
    observed = np.bincount(bin_codes, weights * outcomes) / counts
    error = float(counts @ np.abs(predicted - observed) / counts.sum())
    return Reliability(predicted, observed, counts, error)


#: With more sites, only the one with the largest calibration error has its own color.
MAX_NAMED = 5


class CalibrationDisplay(style.Display):
    """Calibration curve of each site, and of all sites together.

    Parameters
    ----------
    curves : dict of Reliability
        For each site, the mean probability, observed frequency and number of rows in each bin, and
        the calibration error.
    about : str
        Name of the class whose probabilities are shown, or "the predicted class".
    pooled : Reliability, default=None
        The curve of all rows.
    ratio, slope : SiteEstimates, default=None
        Observed divided by expected events, and calibration slopes, for the legend.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    domainwise.metrics.observed_expected, domainwise.metrics.calibration_slope

    Notes
    -----
    The error of a curve is the expected calibration error: the absolute difference between the
    probability and the frequency in a bin, averaged over rows. With few rows, it is often large.

    Examples
    --------
    >>> from domainwise.plots import CalibrationDisplay
    >>> p, site = [0.1, 0.1, 0.9, 0.9], ["A", "A", "B", "B"]
    >>> display = CalibrationDisplay.from_predictions([0, 0, 0, 1], p, site)
    >>> {name: round(curve.error, 3) for name, curve in display.curves.items()}
    {'A': 0.1, 'B': 0.4}
    """

    def __init__(
        self,
        *,
        curves: Mapping[Any, Reliability],
        about: str,
        pooled: Reliability | None = None,
        ratio: SiteEstimates | None = None,
        slope: SiteEstimates | None = None,
    ) -> None:
        self.curves, self.about, self.pooled = dict(curves), about, pooled
        self.ratio, self.slope = ratio, slope

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
        style.require(
            hasattr(model, "predict_proba"), "no predict_proba", name=type(model).__name__
        )
        check_is_fitted(model)
        classes = np.unique(np.concatenate([inputs.checked_labels(y, "y"), model.classes_]))
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
        sample_weight: MaybeArray = None,
        **options: Any,
    ) -> Self:
        """Draw the calibration of probabilities, with O/E and slope in the legend.

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
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.
        **options
            Passed to :meth:`plot`.
        """
        check_arguments("from_predictions", {"n_bins": [COUNT]}, n_bins=n_bins)
        style.require(np.asarray(y_prob).dtype.kind not in "US", "text probabilities")
        targets = inputs.checked_labels(y_true, "y_true")
        p = check_array(inputs.real_numbers(y_prob, "y_prob"), ensure_2d=False, input_name="y_prob")
        inputs.check_same_length(p, "y_prob", targets, "y_true")
        codes, domains = style.domain_codes(sample_domain, targets, "y_true")
        class_names = (
            np.unique(targets) if classes is None else inputs.checked_labels(classes, "classes")
        )
        low, high = p.min(), p.max()
        style.require(low >= 0 and high <= 1, "probabilities", low=low, high=high)
        codes_of(targets, class_names)  # raises an error for unknown classes
        n, n_columns = len(class_names), 2 if p.ndim == 1 else p.shape[1]
        shape_text = "is 1-D" if p.ndim == 1 else f"has {n_columns} columns"
        values = {"shape": shape_text, "n": n, "names": ", ".join(map(str, class_names))}
        style.require(n == n_columns, "columns of classes", **values)
        if len(class_names) == 2:
            positive_class = positive_last(class_names, pos_label)[-1]
            probabilities = p if p.ndim == 1 else p[:, class_names == positive_class][:, 0]
            is_hit, about = targets == positive_class, style.short(positive_class)
        else:
            probabilities, is_hit = p.max(axis=1), class_names[p.argmax(axis=1)] == targets
            about = PREDICTED_CLASS
        weights = inputs.check_sample_weight(sample_weight, len(targets))
        weights = np.ones(len(targets)) if weights is None else weights

        def curve(rows: Any) -> Reliability:
            return reliability(probabilities[rows], is_hit[rows], n_bins, weights[rows])

        curves = {name: curve(codes == code) for code, name in enumerate(domains)}
        rows = SiteRows(is_hit, probabilities, codes, domains, weights, pooled_level=0.9)
        estimates = rows.calibration()
        return cls(
            curves=curves,
            about=about,
            pooled=curve(slice(None)),
            ratio=estimates["oe"],
            slope=estimates["slope"],
        ).plot(**options)

    def plot(self, ax: style.MaybeAxes = None) -> Self:
        """Draw a thin line for each site, and a thick line for all sites together.

        With more than five sites, only the one with the largest calibration error is in color.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.

        Returns
        -------
        display : CalibrationDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        ax = style.axes_for(ax, 4.6, 4.8)
        ink = style.text_color()
        ax.plot([0, 1], [0, 1], color=ink, linewidth=0.8, linestyle=":")
        names = sorted(self.curves, key=lambda name: -self.curves[name].error)
        named = names if len(names) <= MAX_NAMED else names[:1]
        for i, name in enumerate(names):
            predicted, observed, _, error = self.curves[name]
            options: dict[str, Any] = {"color": style.GRAY, "linewidth": 0.9, "alpha": 0.6}
            if name in named:
                label = f"{style.short(name)}: {self._numbers(name) or f'error {error:.2f}'}"
                options = dict(color=style.PALETTE[1 + i], linewidth=1.2, label=label, zorder=3)
            elif i == 1:
                n_others = len(names) - 1
                options["label"] = f"{n_others} other site{'s' * (n_others > 1)}"
            ax.plot(predicted, observed, marker=".", **options)
        if self.pooled is not None and len(self.curves) > 1:
            label = f"all sites: {self._numbers(None) or f'error {self.pooled.error:.2f}'}"
            ax.plot(*self.pooled[:2], color=ink, linewidth=2.2, marker="o", label=label, zorder=4)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
        class_text = self.about if self.about == PREDICTED_CLASS else f"class {self.about}"
        ax.set_xlabel(f"probability of {class_text}")
        ax.set_ylabel("observed frequency")
        return self._finish(ax, n_columns=1)

    def _numbers(self, site: Any) -> str:
        """O/E and slope of a site, or pooled if it is None."""
        texts = []
        for name, estimates in (("O/E", self.ratio), ("slope", self.slope)):
            if estimates is not None:
                value = estimates.value if site is None else estimates.sites[site].value
                texts += [f"{name} {value:.2f}"] * bool(np.isfinite(value))
        return ", ".join(texts)


class DecisionCurveDisplay(style.Display):
    """Net benefit by threshold: a thin line for each site, and the mean over sites.

    Parameters
    ----------
    curves : DecisionCurves
        Net benefits; see :meth:`domainwise.Evaluation.decision_curve`.
    threshold : float, default=None
        A threshold that is marked.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    domainwise.metrics.net_benefit : The net benefit for one threshold, with its interval.

    Examples
    --------
    >>> from domainwise.plots import DecisionCurveDisplay
    >>> p, site = [0.1, 0.6, 0.4, 0.9], ["A", "A", "B", "B"]
    >>> display = DecisionCurveDisplay.from_predictions([0, 1, 0, 1], p, site, thresholds=[0.5])
    >>> display.curves.mean, display.curves.mean_treat_all
    (array([0.5]), array([0.]))
    """

    def __init__(self, curves: DecisionCurves, *, threshold: float | None = None) -> None:
        self.curves, self.threshold = curves, threshold

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_prob: ArrayLike,
        sample_domain: ArrayLike,
        *,
        thresholds: MaybeArray = None,
        threshold: float | None = None,
        pos_label: Label | None = None,
        sample_weight: MaybeArray = None,
        **options: Any,
    ) -> Self:
        """Draw the decision curves of probabilities.

        Parameters
        ----------
        y_true, sample_domain : array-like of shape (n_samples,)
            One of two classes, and the site of each row.
        y_prob : array-like of shape (n_samples,)
            Probability of the event.
        thresholds : array-like, default=None
            Thresholds between 0 and 1; None means 0.01 to 0.99.
        threshold : float, default=None
            A threshold that is marked.
        pos_label : object, default=None
            The class that is the event; None means 1, or the last of two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.
        **options
            Passed to :meth:`plot`.
        """
        targets = inputs.checked_labels(y_true, "y_true")
        p = check_array(inputs.real_numbers(y_prob, "y_prob"), ensure_2d=False, input_name="y_prob")
        inputs.check_same_length(p, "y_prob", targets, "y_true")
        codes, domains = style.domain_codes(sample_domain, targets, "y_true")
        grid = np.arange(1, 100) / 100 if thresholds is None else np.asarray(thresholds, float)
        is_event = events_of(targets, pos_label)
        weights = inputs.check_sample_weight(sample_weight, len(p))
        weights = np.ones(len(p)) if weights is None else weights
        rows = SiteRows(is_event, p, codes, domains, weights)
        curves = decision_curves(rows, np.atleast_1d(grid))
        return cls(curves, threshold=threshold).plot(**options)

    def plot(self, ax: style.MaybeAxes = None) -> Self:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.

        Returns
        -------
        display : DecisionCurveDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        ax = style.axes_for(ax, 5.2, 3.8)
        curves, ink = self.curves, style.text_color()
        thresholds, mean, treat_all = curves.thresholds, curves.mean, curves.mean_treat_all
        for i, benefits in enumerate(curves.sites.values()):
            label = "one site" if i == 0 and len(curves.sites) > 1 else None
            ax.plot(thresholds, benefits, color=style.GRAY, lw=0.8, alpha=0.6, label=label)
        ax.plot(thresholds, treat_all, color=style.PALETTE[1], ls="--", lw=1.2, label="treat all")
        ax.axhline(0.0, color=ink, linewidth=0.8, linestyle=":", label="treat nobody")
        ax.plot(thresholds, mean, color=ink, linewidth=2.0, label="model, mean over sites")
        if self.threshold is not None:
            label = f"threshold {self.threshold:g}"
            ax.axvline(self.threshold, color=style.PALETTE[2], lw=1.0, label=label)
        highest = max(float(np.max(mean)), float(np.max(treat_all)), 0.01)
        is_useful = np.flatnonzero(mean > 0.02 * highest)  # the rest of the axis would be empty
        right = thresholds[is_useful[-1]] * 1.1 if len(is_useful) else 1.0
        right = max(right, 1.1 * (self.threshold or 0.0))
        ax.set(xlim=(0.0, min(right, 1.0)), ylim=(-0.25 * highest, 1.3 * highest))
        ax.set_xlabel("threshold: treat if the probability is at least")
        ax.set_ylabel("net benefit")
        return self._finish(ax)


#: With more sites, only this many of the worst and of the best have their own row.
MAX_SITES, N_EXTREME = 20, 10


class ForestDisplay(style.Display):
    """Forest plot: the score of each site with its interval, and what they have in common.

    Parameters
    ----------
    scores : dict
        Score of each site; NaN if it is not defined.
    intervals : dict of tuple, default=None
        95 % interval of each score.
    pooled : PooledScores, default=None
        The pooled scores, whose mean is drawn as a diamond; see
        :func:`domainwise.metrics.pool_scores`.
    ranges : dict of tuple, default=None
        Ranges for a new site by name, drawn as bars. None draws the range of the true score.
    notes : dict of str, default=None
        A text for each site, such as its number of rows and events.
    notes_label : str, default=""
        The heading of the notes.
    chance : float, default=None
        Score of a constant prediction, drawn as a dashed line.
    label : str, default="score"
        Name of the score.
    greater_is_better : bool, default=True
        Whether larger scores are better.

    Attributes
    ----------
    order_ : list
        Sites from top to bottom, the worst one first.
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    DomainScoresDisplay : Scores of several methods on each domain.

    Examples
    --------
    >>> from domainwise.plots import ForestDisplay
    >>> auc = {"A": 0.81, "B": 0.74, "C": 0.88, "D": 0.79}
    >>> error = {"A": 0.02, "B": 0.03, "C": 0.02, "D": 0.04}
    >>> display = ForestDisplay.from_scores(auc, error, scale="logit", label="AUC")
    >>> display.order_, round(display.pooled.mean, 2)
    (['B', 'D', 'A', 'C'], 0.81)
    """

    def __init__(
        self,
        *,
        scores: Mapping[Any, float],
        intervals: Mapping[Any, Ends] | None = None,
        pooled: PooledScores | None = None,
        ranges: Mapping[str, Ends] | None = None,
        notes: Mapping[Any, str] | None = None,
        notes_label: str = "",
        chance: float | None = None,
        label: str = "score",
        greater_is_better: bool = True,
    ) -> None:
        self.scores, self.intervals, self.pooled = dict(scores), intervals or {}, pooled
        self.notes, self.chance, self.label = notes or {}, chance, label
        self.greater_is_better, self.notes_label = greater_is_better, notes_label
        if ranges is None and pooled is not None and pooled.true_range is not None:
            ranges = {f"new site ({100 * pooled.level:g} %)": pooled.true_range}
        self.ranges = dict(ranges or {})

    @classmethod
    def from_scores(
        cls,
        scores: Mapping[Any, float],
        errors: Mapping[Any, float],
        *,
        scale: str = "identity",
        ax: style.MaybeAxes = None,
        **options: Any,
    ) -> Self:
        """Pool scores and draw them.

        Parameters
        ----------
        scores, errors : dict
            Score of each site, and its standard error.
        scale : {"identity", "logit", "log"}, default="identity"
            The scale of :func:`domainwise.metrics.pool_scores`.
        ax : matplotlib axes, default=None
            None creates a figure.
        **options
            Arguments of the class, such as ``label``, ``notes`` and ``chance``.
        """
        style.check_known(list(errors), scores, "errors")
        values = np.array(list(scores.values()), dtype=np.float64)
        standard_errors = np.array([errors.get(name, np.nan) for name in scores])
        pooled = pool_scores(values, standard_errors, scale=scale)
        pairs = zip(scores, zip(values, standard_errors, strict=True), strict=True)
        intervals = {name: SCALES[scale].confidence(*pair) for name, pair in pairs}
        return cls(scores=scores, intervals=intervals, pooled=pooled, **options).plot(ax)

    def plot(self, ax: style.MaybeAxes = None) -> Self:
        """Draw a row for each site; with more than 20, the ten worst and ten best, and a strip.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.

        Returns
        -------
        display : ForestDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        self._format = style.number_format(self.scores.values(), self.intervals.values())
        self.order_ = self._order(self.scores, self.greater_is_better)
        rows: list[Sequence[Any]] = [[name] for name in self.order_]
        if len(rows) > MAX_SITES:
            middle = self.order_[N_EXTREME:-N_EXTREME]
            rows = [*rows[:N_EXTREME], middle, *rows[-N_EXTREME:]]
        ax = style.axes_for(ax, 6.4, forest_height(len(self.scores), len(self.ranges)))
        ink, labels, texts = style.text_color(), [], []
        if self.chance is not None:
            ax.axvline(self.chance, color=style.GRAY, linestyle="--", linewidth=1.0)
        for i, names in enumerate(rows):
            color = style.ACCENT if i == 0 and len(rows) > 1 else style.PALETTE[1]
            scores = [self.scores[name] for name in names]
            if len(names) > 1:
                ax.plot(scores, [-i] * len(names), "|", color=color, markersize=9)
                labels.append(f"{len(names)} other sites")
                texts.append(" to ".join(map(self._format, (min(scores), max(scores)))))
                continue
            ends = self.intervals.get(names[0], (np.nan, np.nan))
            ax.hlines(-i, *ends, color=color, linewidth=1.6)
            ax.plot(scores, [-i], "s", color=color, markersize=5)
            labels.append(style.short(names[0]))
            texts.append(self._text(scores[0], ends, self.notes.get(names[0], "")))
        heights = [-float(i) for i in range(len(rows))]
        y = -len(rows) - 0.3
        if self.pooled is not None:
            mean = self.pooled.mean
            low, high = ends = self.pooled.mean_interval or (mean, mean)
            ax.fill([low, mean, high, mean], [y, y + 0.3, y, y - 0.3], color=ink, linewidth=0)
            labels.append("pooled mean")
            texts.append(self._text(mean, ends, f"{100 * self.pooled.level:g} %"))
            heights.append(y)
            y -= 1
        for name, (low, high) in self.ranges.items():
            ax.barh(y, high - low, left=low, height=0.36, color=style.GRAY, alpha=0.8)
            labels.append(name)
            texts.append(f"{self._format(low)} to {self._format(high)}")
            heights.append(y)
            y -= 1
        ax.set_yticks(heights, labels)
        ax.set_ylim(y + 0.4, 1.4)
        self._label_scores(ax, self.label, self.greater_is_better, len(rows))
        right = ax.secondary_yaxis("right")
        heading = " · ".join(filter(None, ("score (95 %)", self.notes_label)))
        right.set_yticks([1.0, *heights], [heading, *texts])
        right.tick_params(length=0, labelsize=8)
        right.spines["right"].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.spines[["left", "top", "right"]].set_visible(False)
        return self._finish(ax)

    def _text(self, score: float, ends: Ends | None, note: str) -> str:
        """A score with its interval, and a note."""
        if not np.isfinite(score):
            return "no score"
        low, high = ends or (np.nan, np.nan)
        interval_text = f" ({self._format(low)} to {self._format(high)})" * bool(low < high)
        return f"{self._format(score)}{interval_text}" + f" · {note}" * bool(note)


def forest_height(n_sites: int, n_ranges: int) -> float:
    """Height in inches of a forest plot with this number of sites and ranges."""
    n_rows = n_sites if n_sites <= MAX_SITES else 2 * N_EXTREME + 1
    return 0.9 + 0.19 * (n_rows + n_ranges + 2)
