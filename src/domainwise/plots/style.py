"""Shared parts of the displays: axes, colours, and names as plain text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.inputs import check_sample_domain, label_array, same_length

if TYPE_CHECKING:
    from matplotlib import axes, figure

MaybeAxes: TypeAlias = "axes.Axes | None"

#: Readable on white and on black.
PALETTE = ("#e0533d", "#5b8def", "#2a9d8f", "#d9902f", "#a678de", "#7a9a3a", "#d6498f", "#3fa7c4")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
#: Colour of what is highlighted, and of what is there for comparison.
ACCENT, GREY = "#e0533d", "#8b95a1"


def by_domain(sample_domain: Any, rows: Array, name: str) -> tuple[Array, list[Any]]:
    """Domain code of each row, and the domains; ``name`` is the argument that has the rows."""
    if sample_domain is None:
        raise ValueError("sample_domain is required: pass the domain of each row")
    same_length(label_array(sample_domain, "sample_domain"), "sample_domain", rows, name)
    labels = check_sample_domain(sample_domain, len(rows), "delta")
    return labels.codes, labels.names.tolist()


def check_known(values: Sequence[Any], allowed: Collection[Any], name: str) -> None:
    """Refuse values of the argument ``name`` that are not allowed."""
    if unknown := [value for value in values if value not in allowed]:
        raise ValueError(f"{name}={unknown[0]!r} is not one of {', '.join(map(str, allowed))}")


def axes_for(ax: MaybeAxes, width: float, height: float) -> Any:
    """Return ``ax``, or the axes of a new figure of this size in inches."""
    if ax is not None:
        if not hasattr(ax, "transData"):
            raise ValueError(f"ax={ax!r} must be matplotlib axes, or None")
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "domainwise[report]"') from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def offsets(n: int, reach: float) -> Array:
    """Vertical offsets of n items in a row of a plot, from ``reach`` to ``-reach``."""
    return np.linspace(reach, -reach, n) if n > 1 else np.zeros(n)


def ink() -> str:
    """Text colour of the current matplotlib style."""
    from matplotlib import rcParams

    return str(rcParams["text.color"])


class Display:
    """A plot, and the axes on which it was drawn."""

    ax_: axes.Axes
    figure_: figure.Figure

    def _finish(
        self, ax: Any, *, columns: int = 3, title: str | None = None, turn: bool = False
    ) -> Self:
        """Add a legend, below the axes if they are alone and have a layout; draw names as text.

        The legend is in the order of drawing, or reversed if ``turn`` is True.
        """
        handles, labels = (part[:: -1 if turn else 1] for part in ax.get_legend_handles_labels())
        alone = len(ax.figure.axes) == 1 and ax.figure.get_layout_engine() is not None
        if labels:
            place = {"loc": "outside lower center", "ncols": columns} if alone else {"loc": "best"}
            owner = ax.figure if alone else ax
            legend = owner.legend(handles, labels, fontsize=8, title=title, **place)
            draw_names_as_text(legend)
        ax.grid(visible=True, axis="x", alpha=0.3)
        draw_names_as_text(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def draw_names_as_text(part: Any) -> None:
    """Draw a name such as "$5 to $6" as text, not as a formula, except for ticks of log axes.

    ``part`` is a figure, axes, or a legend.
    """
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    for text in part.findobj(Text):
        text.set_parse_math(False)
    for axis in part.findobj(Axis):
        for label in axis.get_ticklabels(which="both"):
            label.set_parse_math(axis.get_scale() == "log")


def short(value: Any) -> str:
    r"""Shorten a name for a plot in its middle: names often differ at the beginning or end.

    >>> print(short("the hospital of Saint Mary"), short("a\x1b[2J"))
    the hospi…Saint Mary a\x1b[2J
    """
    marks = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    name = "".join(marks)
    return name if len(name) <= 20 else f"{name[:9]}…{name[-10:]}"
