"""Displays of differences between domains: in each feature, and in two components."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from domainwise.base.arguments import COUNT, StrOptions, check_arguments
from domainwise.base.arrays import Array, ArrayLike, Estimator, Label, MaybeArray
from domainwise.base.inputs import check_same_length, checked_labels, is_quantity, label_array
from domainwise.base.process import filtered_warnings
from domainwise.evaluation.plots import style
from domainwise.evaluation.plots.columns import NORMAL_IQR, quantiles_by_domain
from domainwise.tables.shift.check import statistics_of_rows

#: Quantiles at the lower end, middle and upper end of each line.
QUARTILES = (0.25, 0.5, 0.75)
#: If a difference is larger than this, in standard deviations, the axis is logarithmic.
MAX_LINEAR = 8.0


class ShiftDisplay(style.Display):
    """Medians and quartiles of standardized features by domain, for source and new domains.

    Parameters
    ----------
    features, domains : sequence of str
        Names of features and domains.
    ends : ndarray of shape (3, n_domains, n_features)
        Lower quartile, median and upper quartile (or the values that ``what`` names) of each
        feature in each domain, in standard deviations; NaN if a domain has no values.
    new : sequence, default=()
        Domains that are not source domains.
    what : str, default="median and quartiles"
        Description of ``ends`` for the label of the axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    domainwise.check_shift : Describe in words how new rows differ from the source domains.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.plots import ShiftDisplay
    >>> X, site = np.random.default_rng(0).normal(size=(90, 3)), np.repeat(["A", "B", "C"], 30)
    >>> X[60:, 2] += 9
    >>> display = ShiftDisplay.from_features(X, site, new=["C"])
    >>> [label.get_text() for label in display.ax_.get_yticklabels()][0]
    'x2'
    """

    def __init__(
        self,
        *,
        features: Sequence[str],
        domains: Sequence[Label],
        ends: Array,
        new: Sequence[Label] = (),
        what: str = "median and quartiles",
    ) -> None:
        self.features, self.domains, self.new = list(features), list(domains), list(new)
        self.ends, self.what = ends, what

    @classmethod
    def from_features(
        cls, X: ArrayLike, sample_domain: ArrayLike, *, new: Sequence[Label] = (), **options: Any
    ) -> Self:
        """Draw medians and quartiles of numeric columns.

        Columns are centred at the median of the source domains' medians and scaled by the median
        of their interquartile ranges, so a source domain with another unit has little influence.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or dict of columns by name
            Columns of a data frame that are not numeric are ignored.
        sample_domain : array-like of shape (n_samples,)
            The domain of each row.
        new : sequence, default=()
            Domains that are not source domains. Their rows are not used to standardize the columns.
        **options
            Passed to :meth:`plot`.
        """
        frame: Any = X.to_pandas() if hasattr(X, "to_pandas") else X
        if hasattr(frame, "columns"):
            frame = frame.select_dtypes(["number", "bool"]).astype(np.float64)
        column_names = frame if isinstance(frame, dict) else getattr(frame, "columns", ())
        rows = np.column_stack([*frame.values()]) if isinstance(frame, dict) else np.asarray(frame)
        are_numbers = rows.ndim == 2 and rows.size and rows.dtype.kind in "biuf"
        style.require(are_numbers, "numbers", shape=rows.shape, dtype=rows.dtype)
        features = [str(name) for name in column_names] or [f"x{i}" for i in range(rows.shape[1])]
        codes, domains = style.domain_codes(sample_domain, rows, "X")
        style.check_known(new, domains, "new")
        source_codes = [code for code, name in enumerate(domains) if name not in new]
        style.require(source_codes, "only new domains", new=new)
        rows = np.where(np.isfinite(rows), rows, np.nan).astype(np.float64)
        low, middle, high = ends = quantiles_by_domain(rows, codes, len(domains), QUARTILES)
        with filtered_warnings():
            warnings.simplefilter("ignore")  # about columns without values
            source_iqrs = np.where(high > low, high - low, np.nan)[source_codes]
            scale = np.nanmedian(source_iqrs, axis=0) / NORMAL_IQR
            source_rows = rows[np.isin(codes, source_codes)]
            center = np.nanmedian(middle[source_codes], axis=0)
            scale = np.where(scale > 0, scale, np.nanstd(source_rows, axis=0))
            ends = (ends - center) / np.where(scale > 0, scale, 1.0)
        return cls(features=features, domains=domains, ends=ends, new=new).plot(**options)

    @classmethod
    def from_predictions(
        cls, y_pred: ArrayLike | dict[str, ArrayLike], sample_domain: ArrayLike, **options: Any
    ) -> Self:
        """Draw medians and quartiles of predictions, which shift if important features shift.

        Parameters
        ----------
        y_pred : array-like of shape (n_samples,), or dict of such arrays by name
            Predicted numbers, decision values, or probabilities of a class.
        sample_domain : array-like of shape (n_samples,)
            The domain of each row.
        **options
            Passed to :meth:`from_features` and :meth:`plot`.
        """
        predictions = y_pred if isinstance(y_pred, dict) else {"prediction": y_pred}
        columns: Any = {name: checked_labels(p, "y_pred") for name, p in predictions.items()}
        for values in columns.values():
            style.domain_codes(sample_domain, values, "y_pred")
            is_number = values.dtype.kind in "biuf"
            style.require(is_number, "number predictions", dtype=values.dtype)
        return cls.from_features(columns, sample_domain, **options)

    @classmethod
    def from_estimator(
        cls, estimator: object, X: ArrayLike, sample_domain: MaybeArray = None, **options: Any
    ) -> Self:
        """Draw means and standard deviations of new rows and of a model's source domains.

        Parameters
        ----------
        estimator : Pipeline, TableModel or ShiftWatch
            A fitted model; see :func:`~domainwise.check_shift`. Values are standardized with the
            means and standard deviations over all its source domains.
        X : array-like or data frame of shape (n_samples, n_features)
            New rows, in the form that the model expects.
        sample_domain : array-like of shape (n_samples,), default=None
            The domain of each new row; None means that all rows are from one domain.
        **options
            Passed to :meth:`plot`.
        """
        watch, statistics_by_domain = statistics_of_rows(estimator, X, sample_domain)
        names = ("new rows" if name is None else str(name) for name in statistics_by_domain)
        new = [f"{name} (new)" if name in watch.sources_ else name for name in names]
        new_totals = [statistics.totals for statistics in statistics_by_domain.values()]
        moments = watch.moments(np.vstack([watch.totals_, *new_totals]))
        mean = np.where(moments.count > 0, moments.mean, np.nan)
        deviation = np.sqrt(moments.variance)
        return cls(
            features=[watch.columns_[i] for i in watch.numeric_],
            domains=[*watch.sources_, *new],
            ends=np.stack([mean - deviation, mean, mean + deviation]),
            new=new,
            what="mean and standard deviation",
        ).plot(**options)

    def plot(
        self,
        ax: style.MaybeAxes = None,
        *,
        max_features: int = 20,
        highlight: Sequence[Label] | None = None,
    ) -> Self:
        """Draw a row for each feature; the features that differ most are at the top.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.
        max_features : int, default=20
            Maximum number of features to draw; if there are more, the title says so.
        highlight : sequence, default=None
            Domains to draw in color. None selects the new domains. If there are no new domains, it
            selects all domains, or no domain if there are more than eight.

        Returns
        -------
        display : ShiftDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        check_arguments("plot", {"max_features": [COUNT]}, max_features=max_features)
        n_domains, n_shown = len(self.domains), min(max_features, len(self.features))
        if highlight is None:
            highlight = self.new or (self.domains if n_domains <= len(style.PALETTE) else ())
        style.check_known(highlight, self.domains, "highlight")
        colors = dict(zip(highlight, style.PALETTE * n_domains, strict=False))
        n_gray = sum(name not in colors for name in self.domains)
        low, middle, high = self.ends
        is_compared = [name in self.new or not self.new for name in self.domains]
        max_shifts = np.nan_to_num(np.abs(middle), nan=-1.0)[is_compared].max(axis=0)
        feature_order = np.argsort(-max_shifts, kind="stable")[:n_shown]
        heights = -np.arange(n_shown, dtype=np.float64)
        ax = style.axes_for(ax, 7.2, 1.2 + 0.36 * n_shown)
        for height in heights[1::2]:
            ax.axhspan(height - 0.5, height + 0.5, color=style.GRAY, alpha=0.1, linewidth=0)
        for i, name in enumerate(self.domains):
            y = heights + style.offsets(n_domains, 0.3)[i]
            zorder, alpha = (3, 0.6) if name in colors else (2, min(0.6, 6 / n_domains))
            options: Any = {"color": colors.get(name, style.GRAY), "zorder": zorder}
            ax.hlines(y, low[i, feature_order], high[i, feature_order], alpha=alpha, **options)
            ax.plot(middle[i, feature_order], y, "o", markersize=3.5, **options)
        for name, color in colors.items():
            ax.plot([], [], "o", color=color, label=style.short(name))
        if n_gray:
            noun = "source domains" if self.new else "other domains"
            ax.plot([], [], "o", color=style.GRAY, label=f"{n_gray} {noun}")
        ax.axvline(0.0, color=style.text_color(), linewidth=0.6, alpha=0.5)
        if np.nanmax(np.abs(middle[:, feature_order]), initial=0.0) > MAX_LINEAR:
            ax.set_xscale("symlog", linthresh=MAX_LINEAR / 2)
            ax.xaxis.set_major_formatter("{x:g}")
        ax.set_yticks(heights, [style.short(self.features[i]) for i in feature_order])
        ax.set_ylim(0.5 - n_shown, 0.5)
        ax.set_xlabel(f"{self.what}, in standard deviations")
        if n_shown < len(self.features):
            ax.set_title(f"the {n_shown} features (of {len(self.features)}) that differ most")
        return self._finish(ax, n_columns=5)


#: Share of rows cut off at each end of an axis, so that outliers do not compress the plot.
CUT_SHARE = 0.005
#: Options for scatter plots. Points are rasterized, because there may be many.
POINT_STYLE: Any = {"s": 12, "alpha": 0.65, "linewidths": 0, "rasterized": True}


class DomainMapDisplay(style.Display):
    """Scatter plot of two components; domains overlap if the components are invariant.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, 2)
        Two components of each row.
    domain : ndarray of shape (n_samples,)
        The domain of each row.
    target : ndarray of shape (n_samples,), default=None
        Class or target value of each row.
    names : sequence of str, default=("component 1", "component 2")
        Labels of the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

    See Also
    --------
    ShiftDisplay : Differences between domains in each feature.

    Examples
    --------
    >>> from domainwise import KPCA
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.plots import DomainMapDisplay
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> model = KPCA(2).fit(data.data)
    >>> display = DomainMapDisplay.from_estimator(model, data.data, data.sample_domain)
    >>> display.Z.shape == (len(data.data), 2)
    True
    """

    def __init__(
        self,
        *,
        Z: Array,
        domain: Array,
        target: Array | None = None,
        names: Sequence[str] = ("component 1", "component 2"),
    ) -> None:
        self.Z, self.domain, self.target, self.names = Z, domain, target, tuple(names)

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: ArrayLike,
        sample_domain: ArrayLike,
        *,
        y: MaybeArray = None,
        **options: Any,
    ) -> Self:
        """Draw the first two components of a fitted projection.

        Parameters
        ----------
        estimator : estimator
            A fitted estimator with ``transform``, such as DCM or a pipeline that ends with PCA.
        X : array-like or data frame of shape (n_samples, n_features)
            Rows, in the form that the estimator expects.
        sample_domain, y, **options
            As in :meth:`from_predictions`.
        """
        model: Any = estimator
        style.require(hasattr(model, "transform"), "no transform", name=type(model).__name__)
        return cls.from_predictions(model.transform(X), sample_domain, y=y, **options)

    @classmethod
    def from_predictions(
        cls, Z: ArrayLike, sample_domain: ArrayLike, *, y: MaybeArray = None, **options: Any
    ) -> Self:
        """Draw the first two components of projected rows.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            Projected rows. Only the first two components are drawn. A single component is drawn
            on a line.
        sample_domain : array-like of shape (n_samples,)
            The domain of each row.
        y : array-like of shape (n_samples,), default=None
            Class or target value of each row.
        **options
            Passed to :meth:`plot`.
        """
        rows = check_array(Z, input_name="Z")
        rows = np.column_stack([rows, np.zeros(len(rows))])[:, :2]
        codes, domains = style.domain_codes(sample_domain, rows, "Z")
        target = None if y is None else label_array(y, "y")
        if target is not None:
            check_same_length(target, "y", rows, "Z")
        return cls(Z=rows, domain=np.array(domains)[codes], target=target).plot(**options)

    def plot(
        self,
        ax: style.MaybeAxes = None,
        *,
        color_by: str = "domain",
        highlight: Sequence[Label] = (),
    ) -> Self:
        """Draw a point for each row.

        Parameters
        ----------
        ax : matplotlib axes, default=None
            None creates a figure.
        color_by : {"domain", "target"}, default="domain"
            With "domain", classes have different markers. If there are more than eight domains, all
            except ``highlight`` are gray.
        highlight : sequence, default=()
            Domains whose points are circled, such as unseen domains.

        Returns
        -------
        display : DomainMapDisplay
            The same object, with ``ax_`` and ``figure_``.
        """
        rules = {"color_by": [StrOptions({"domain", "target"})]}
        check_arguments("plot", rules, color_by=color_by)
        target = np.zeros(len(self.Z)) if self.target is None else self.target
        style.require(color_by == "domain" or self.target is not None, "no target")
        ax = style.axes_for(ax, 5.0, 4.4)
        is_continuous = target.dtype.kind in "iuf" and is_quantity(target)
        if color_by == "target" and is_continuous:
            points = ax.scatter(self.Z[:, 0], self.Z[:, 1], c=target, cmap="viridis", **POINT_STYLE)
            ax.figure.colorbar(points, ax=ax, shrink=0.8, label="target")
        elif color_by == "target":
            self._draw_points(ax, target, None, np.unique(target).tolist())
        else:
            names = np.unique(self.domain).tolist()
            colored_names = names if len(names) <= len(style.PALETTE) else list(highlight)
            self._draw_points(ax, self.domain, None if is_continuous else target, colored_names)
        x, y = self.Z[[name in highlight for name in self.domain]].T
        # Circles are not rasterized, so that a report can change their color.
        ax.scatter(x, y, s=22, facecolors="none", edgecolors=style.text_color(), linewidths=0.5)
        ax.set_xlabel(self.names[0])
        ax.set_ylabel(self.names[1])
        ax.set_title(f"colored by {color_by}")
        for set_limits, values in zip((ax.set_xlim, ax.set_ylim), self.Z.T, strict=True):
            low, high = np.nanquantile(values, (CUT_SHARE, 1 - CUT_SHARE))
            if high > low:
                set_limits(low - 0.06 * (high - low), high + 0.06 * (high - low))
        return self._finish(ax)

    def _draw_points(self, ax: Any, labels: Array, classes: Any, colored_names: list[Any]) -> None:
        """Draw points with a color for each of ``colored_names``, and a marker for each class."""
        n_colors, names = len(style.PALETTE), np.unique(labels).tolist()
        class_labels = [] if classes is None else np.unique(classes).tolist()
        markers = {}
        if 1 < len(class_labels) <= len(style.MARKERS):
            markers = dict(zip(class_labels, style.MARKERS, strict=False))
        styles = {
            name: (style.PALETTE[i % n_colors], style.MARKERS[i // n_colors % n_colors])
            for i, name in enumerate(colored_names)
        }
        for name in sorted(names, key=lambda name: name in styles):  # gray points are drawn first
            color, marker = styles.get(name, (style.GRAY, "o"))
            for class_label, class_marker in markers.items() or [(None, marker)]:
                is_drawn = (labels == name) & (class_label is None or classes == class_label)
                ax.scatter(*self.Z[is_drawn].T, color=color, marker=class_marker, **POINT_STYLE)
        legend = {style.short(name): styles[name] for name in styles if len(styles) < 25}
        if len(names) > len(styles):
            legend[f"{len(names) - len(styles)} other domains"] = (style.GRAY, "o")
        text_color = style.text_color()
        legend |= {f"class {style.short(c)}": (text_color, marker) for c, marker in markers.items()}
        for text, (color, marker) in legend.items():
            ax.scatter([], [], s=20, color=color, marker=marker, linewidths=0, label=text)
