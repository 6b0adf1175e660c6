"""DomainMapDisplay: rows on two components, coloured by domain or by target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from domainwise.arrays import Array, ArrayLike, Estimator, Label, MaybeArray
from domainwise.checks.arguments import StrOptions, check_arguments
from domainwise.checks.inputs import is_quantity, label_array, same_length
from domainwise.plots import style

#: Share of rows on each side that the axes leave out: a few would shrink all others.
OUTER = 0.005


class DomainMapDisplay(style.Display):
    """Rows on two components: invariant features do not separate the domains.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, 2)
        Two components of each row.
    domain : ndarray of shape (n_samples,)
        The domain of each row.
    target : ndarray of shape (n_samples,), default=None
        Class or value of each row.
    names : sequence of str, default=("component 1", "component 2")
        What the axes are called.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure

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
            Fitted; has ``transform``, such as DCM or a pipeline that ends in PCA.
        X : array-like or data frame of shape (n_samples, n_features)
            Rows, as it takes them.
        sample_domain, y, **options
            As in :meth:`from_predictions`.
        """
        if not hasattr(estimator, "transform"):
            raise ValueError(f"estimator={type(estimator).__name__} has no transform")
        return cls.from_predictions(estimator.transform(X), sample_domain, y=y, **options)

    @classmethod
    def from_predictions(
        cls, Z: ArrayLike, sample_domain: ArrayLike, *, y: MaybeArray = None, **options: Any
    ) -> Self:
        """Draw rows that have been projected.

        Parameters
        ----------
        Z : array-like of shape (n_samples, n_components)
            The first two components are drawn; a single one lies on a line.
        sample_domain : array-like of shape (n_samples,)
        y : array-like of shape (n_samples,), default=None
            Classes or values.
        **options
            Of :meth:`plot`.
        """
        rows = check_array(Z, input_name="Z")
        rows = np.column_stack([rows, np.zeros(len(rows))])[:, :2]
        codes, domains = style.by_domain(sample_domain, rows, "Z")
        target = None if y is None else label_array(y, "y")
        if target is not None:
            same_length(target, "y", rows, "Z")
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
            None makes a figure.
        color_by : {"domain", "target"}, default="domain"
            By domain, classes differ in their markers, and more domains than eight are grey but
            for ``highlight``.
        highlight : sequence, default=()
            Domains whose points are ringed, such as those that a model has not seen.
        """
        rules = {"color_by": [StrOptions({"domain", "target"})]}
        check_arguments("plot", rules, color_by=color_by)
        target = np.zeros(len(self.Z)) if self.target is None else self.target
        if color_by == "target" and self.target is None:
            raise ValueError("color_by='target' needs y: the class or value of each row")
        ax = style.axes_for(ax, 5.0, 4.4)
        look: dict[str, Any] = {"s": 12, "alpha": 0.65, "linewidths": 0, "rasterized": True}
        numbers = target.dtype.kind in "iuf" and is_quantity(target)
        if color_by == "target" and numbers:
            points = ax.scatter(self.Z[:, 0], self.Z[:, 1], c=target, cmap="viridis", **look)
            ax.figure.colorbar(points, ax=ax, shrink=0.8, label="target")
        elif color_by == "target":
            self._draw(ax, target, None, np.unique(target).tolist(), look)
        else:
            names = np.unique(self.domain).tolist()
            chosen = names if len(names) <= len(style.PALETTE) else list(highlight)
            self._draw(ax, self.domain, None if numbers else target, chosen, look)
        x, y = self.Z[[name in highlight for name in self.domain]].T
        # Lines, not pixels, so that they take the ink of a page.
        ax.scatter(x, y, s=22, facecolors="none", edgecolors=style.ink(), linewidths=0.5)
        ax.set_xlabel(self.names[0])
        ax.set_ylabel(self.names[1])
        ax.set_title(f"coloured by {color_by}")
        for limits, along in zip((ax.set_xlim, ax.set_ylim), self.Z.T, strict=True):
            low, high = np.nanquantile(along, (OUTER, 1 - OUTER))
            if high > low:
                limits(low - 0.06 * (high - low), high + 0.06 * (high - low))
        return self._finish(ax)

    def _draw(
        self, ax: Any, group: Array, marked: Array | None, chosen: Sequence[Any], look: Any
    ) -> None:
        """Draw points, coloured by group where it is chosen, in the marker of their class."""
        n, names = len(style.PALETTE), np.unique(group).tolist()
        classes = [] if marked is None else np.unique(marked).tolist()
        few = 1 < len(classes) <= len(style.MARKERS)
        marks = dict(zip(classes, style.MARKERS, strict=False)) if few else {}
        looks = {
            name: (style.PALETTE[i % n], style.MARKERS[i // n % n]) for i, name in enumerate(chosen)
        }
        for name in sorted(names, key=lambda name: name in looks):  # grey ones below
            colour, mark = looks.get(name, (style.GREY, "o"))
            for value, own in marks.items() or [(None, mark)]:
                rows = (group == name) & (True if value is None else marked == value)
                ax.scatter(*self.Z[rows].T, color=colour, marker=own, **look)
        keys = {style.short(name): each for name, each in looks.items()} if len(looks) < 25 else {}
        if len(names) > len(looks):
            keys[f"{len(names) - len(looks)} other domains"] = (style.GREY, "o")
        keys |= {f"class {style.short(value)}": (style.ink(), m) for value, m in marks.items()}
        for label, (colour, mark) in keys.items():
            ax.scatter([], [], s=20, color=colour, marker=mark, linewidths=0, label=label)
