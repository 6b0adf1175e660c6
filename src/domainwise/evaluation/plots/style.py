"""Code that all displays share: axes, colors, legends, names and a base class."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from domainwise.base.arrays import Array
from domainwise.base.inputs import check_same_length, check_sample_domain, label_array
from domainwise.base.messages import Checks, needs_extra

if TYPE_CHECKING:
    from matplotlib import axes, figure

#: Raises errors with the messages in ``errors.toml``.
require = Checks("domainwise.evaluation.plots")

MaybeAxes: TypeAlias = "axes.Axes | None"
Ends: TypeAlias = tuple[float, float]  #: lower and upper end of an interval

#: Colors that are readable on white and on black.
PALETTE = ("#e0533d", "#5b8def", "#2a9d8f", "#c17a1a", "#a678de", "#7a9a3a", "#d6498f", "#2f96b4")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
#: Colors of highlighted values, and of values for comparison.
ACCENT, GRAY = "#e0533d", "#848e9a"


def domain_codes(sample_domain: Any, rows: Array, name: str) -> tuple[Array, list[Any]]:
    """Return each row's domain code, and all domains; messages refer to ``rows`` as ``name``."""
    require(sample_domain is not None, "no sample_domain")
    check_same_length(label_array(sample_domain, "sample_domain"), "sample_domain", rows, name)
    labels = check_sample_domain(sample_domain, len(rows), "delta")
    return labels.codes, labels.names.tolist()


def check_known(values: Sequence[Any], allowed: Collection[Any], name: str) -> None:
    """Raise an error if the argument ``name`` contains values that are not allowed."""
    if unknowns := [value for value in values if value not in allowed]:
        choices = ", ".join(map(str, allowed))
        raise ValueError(f"{name} contains {unknowns[0]!r}, which is unknown. Use only: {choices}.")


def axes_for(ax: MaybeAxes, width: float, height: float) -> Any:
    """Return ``ax``, or the axes of a new figure of this size in inches."""
    if ax is not None:
        require(hasattr(ax, "transData"), "axes", ax=ax)
        return ax
    with needs_extra("plotting", "report"):
        from matplotlib import pyplot
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def offsets(n: int, largest: float) -> Array:
    """Return n vertical offsets from ``largest`` to ``-largest``, for items in a row of a plot."""
    return np.linspace(largest, -largest, n) if n > 1 else np.zeros(n)


def text_color() -> str:
    """Return the text color of the current matplotlib style."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


class Display:
    """Base class of displays: ``plot`` stores the axes and the figure."""

    ax_: axes.Axes
    figure_: figure.Figure

    def _order(self, scores: Mapping[Any, float], greater_is_better: bool) -> list[Any]:
        """Names from the worst to the best score; those without a score are last."""
        sign = 1 if greater_is_better else -1
        keys = {name: np.nan_to_num(sign * s, nan=np.inf) for name, s in scores.items()}
        return sorted(keys, key=lambda name: keys[name])

    def _label_scores(self, ax: Any, label: str, greater_is_better: bool, n_names: int) -> None:
        """Label the axis of scores, and mark the worst of several names, which is the first."""
        direction = "larger" if greater_is_better else "smaller"
        ax.set_xlabel(f"{label} ({direction} is better)")
        if n_names > 1:
            ax.get_yticklabels()[0].set(color=ACCENT, fontweight="bold")

    def _finish(self, ax: Any, *, n_columns: int = 3, reverse: bool = False) -> Self:
        """Add a legend, and draw names as text.

        The legend is below the axes if the figure has a layout engine and no other axes. Entries
        are in drawing order, or in the opposite order if ``reverse`` is True.
        """
        step = -1 if reverse else 1
        handles, labels = (entries[::step] for entries in ax.get_legend_handles_labels())
        if labels and len(ax.figure.axes) == 1 and ax.figure.get_layout_engine() is not None:
            parent, legend_options = ax.figure, {"loc": "outside lower center", "ncols": n_columns}
        else:
            parent, legend_options = ax, {"loc": "best"}
        if labels:
            legend = parent.legend(handles, labels, fontsize=8, **legend_options)
            draw_names_as_text(legend)
        ax.grid(visible=True, axis="x", alpha=0.3)
        draw_names_as_text(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def draw_names_as_text(artist: Any) -> None:
    """Draw names such as "$5 to $6" as text, not as formulas; ``artist`` is a figure or part of it.

    Only the tick labels of logarithmic axes may be formulas.
    """
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    for text in artist.findobj(Text):
        text.set_parse_math(False)
    for axis in artist.findobj(Axis):
        for label in axis.get_ticklabels(which="both"):
            label.set_parse_math(axis.get_scale() == "log")


def short(value: Any) -> str:
    r"""Shorten a name in the middle, because names often differ at the beginning or the end.

    >>> print(short("the hospital of Saint Mary"), short("a\x1b[2J"))
    the hospi…Saint Mary a\x1b[2J
    """
    name = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
    return name if len(name) <= 20 else f"{name[:9]}…{name[-10:]}"


def number_format(values: Iterable[float], intervals: Iterable[Ends]) -> Callable[[float], str]:
    """Return a function that formats numbers with the digits that their intervals support.

    Numbers have at least two significant digits, and more if the median interval is narrower.

    >>> [number_format([0.7334], [(0.70, 0.70 + width)])(0.7334) for width in (0.3, 0.008)]
    ['0.73', '0.733']
    >>> number_format([212_712.0, np.nan], [(200_100.0, 231_000.0)])(212_712.0)
    '210,000'
    """
    widths = [(low, high) for low, high in intervals if high > low]
    numbers = np.abs([*values, *np.ravel(widths)])
    sizes = [
        np.median(sizes)
        for sizes in (numbers[np.isfinite(numbers) & (numbers > 0)], np.diff(widths))
        if len(sizes)
    ]
    exponents = [int(np.floor(np.log10(size))) for size in sizes if 0 < size < np.inf]
    decimals = [1 - exponents[0], *(-exponent for exponent in exponents[1:])] if exponents else [2]
    return partial(_rounded, decimals=max(decimals))


def _rounded(value: float, decimals: int) -> str:
    """Format a number with this many decimals; with fewer than 0, tens and so on are rounded."""
    if not np.isfinite(value):
        return "–"
    rounded = round(value, decimals) + 0.0  # not -0.0
    return f"{value:.2g}" if decimals > 5 else f"{rounded:,.{max(decimals, 0)}f}"
