"""The pictures of an evaluation. Each takes an Found and returns a Picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize

from domainwise.evaluation.found import Found, MethodResult
from domainwise.evaluation.projection import DomainProjection
from domainwise.report.svg import INK, Picture, drawing, to_svg

#: One colour per method, readable on white and on black; those of ``reproduce`` where it has them.
COLOURS = {
    "constant": "#8b95a1",
    "svm": "#5b8def",
    "linear": "#3fa7c4",
    "boosting": "#7a9a3a",
    "kpca": "#a678de",
    "coir": "#2a9d8f",
    "dica": "#d9902f",
    "dcm": "#b06a50",
    "fastdcm": "#f09a8a",
    "dcmcv": "#e0533d",
    "invariant": "#d6498f",
    "invariantridge": "#8e5bd0",
    "ensemble": "#c2a000",
    "ensemble+context": "#e08a00",
}
#: Classes and domains, told apart by colour and, beyond six, by marker as well.
PALETTE = ("#5b8def", "#e0533d", "#2a9d8f", "#d9902f", "#a678de", "#8b95a1")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
WORST = "#e0533d"
#: Domains with a line of their own in a legend.
MAX_LEGEND = 12


def colour_of(result: MethodResult) -> str:
    """Colour of a method; one that is not listed, a caller's own, takes one by its name."""
    other = PALETTE[sum(result.key.encode()) % len(PALETTE)]
    return COLOURS.get(result.key, other)


def scores_figure(found: Found) -> Any:
    """Return a matplotlib figure of every method's score on every domain."""
    with drawing(7.2, _height(found)) as figure:
        _draw_domains(found, figure.subplots())
        return figure


def domains_picture(found: Found, name: str) -> Picture:
    """Scores of the methods on each domain, the worst domain singled out."""
    with drawing(9.0, _height(found)) as figure:
        _draw_domains(found, figure.subplots())
        worst, best = found.worst_domain, found.best
        alt = (
            f"{found.measure.label} of every method on each of {len(found.domains)} left-out "
            f"domains. {best.label} does worst on {worst!s}, with "
            f"{found.measure.format(best.scores[worst])}"
        )
        caption = (
            f"Each row is a domain that was left out, the hardest for {best.label} at the top; "
            f"shaded: the worst. Bars: what folds inside the domain give {best.label}, that is, "
            f"with labels from there. {found.measure.direction.capitalize()}"
        )
        return Picture(to_svg(figure, name, alt), alt, caption, wide=True)


def methods_picture(found: Found, name: str) -> Picture:
    """Mean of each method with its worst and best domain."""
    results = found.results
    shown = found.measure.shown
    with drawing(4.3, 0.6 + 0.3 * len(results)) as figure:
        axes = figure.subplots()
        for height, result in zip(range(len(results))[::-1], results, strict=True):
            colour = colour_of(result)
            values = [shown(score) for score in result.known.values()]
            axes.plot([min(values), max(values)], [height] * 2, color=colour, alpha=0.45, lw=4)
            axes.plot(values, [height] * len(values), "|", color=colour, markersize=6)
            axes.plot(shown(result.mean), height, "o", color=colour, markersize=7)
            axes.plot(shown(result.worst), height, "x", color=INK, markersize=5)
        axes.set_yticks(range(len(results))[::-1], [result.label for result in results])
        axes.set_ylim(-0.6, len(results) - 0.4)
        axes.set_xlabel(f"{found.measure.label} ({found.measure.direction})")
        axes.grid(axis="x")
        listed = "; ".join(
            f"{result.label} {found.measure.format(result.mean)}, worst "
            f"{found.measure.format(result.worst)}"
            for result in results
        )
        alt = f"Mean and worst {found.measure.label} over left-out domains: {listed}"
        return Picture(to_svg(figure, name, alt), alt, "Dot: mean; cross: worst domain")


def projection_picture(projection: DomainProjection, name: str, *, by: str) -> Picture:
    """Two components, coloured by "domain" or by "target"; the unseen worst domain is ringed."""
    x, y = projection.Z.T
    values = projection.domain if by == "domain" else projection.target
    unseen = projection.domain == projection.worst
    with drawing(4.3, 3.7) as figure:
        axes = figure.subplots()
        if by == "target" and values.dtype.kind == "f":
            points = axes.scatter(
                x, y, c=values, s=7, cmap="viridis", alpha=0.7, linewidths=0, rasterized=True
            )
            figure.colorbar(points, ax=axes, shrink=0.8, label="target")
        else:
            style: dict[str, Any] = {"s": 8, "alpha": 0.6, "linewidths": 0, "rasterized": True}
            for number, value in enumerate(np.unique(values)):
                rows = values == value
                style["color"] = PALETTE[number % len(PALETTE)]
                style["marker"] = MARKERS[number // len(PALETTE) % len(MARKERS)]
                axes.scatter(x[rows], y[rows], label=_short(value), **style)
        # Drawn as lines, not pixels, so that they take the page's ink.
        label = f"{_short(projection.worst)}, unseen" if by == "domain" else None
        ring: dict[str, Any] = {"s": 20, "facecolors": "none", "edgecolors": INK, "linewidths": 0.5}
        axes.scatter(x[unseen], y[unseen], label=label, **ring)
        handles, labels = axes.get_legend_handles_labels()
        if 0 < len(labels) <= MAX_LEGEND:
            small: dict[str, Any] = {"ncols": 3, "fontsize": 7, "markerscale": 1.6}
            figure.legend(handles, labels, loc="outside lower center", **small)
        axes.set_xlabel("component 1")
        extra = "" if projection.informative > 1 else " (not determined by the target)"
        axes.set_ylabel(f"component 2{extra}")
        axes.set_title(f"coloured by {by}")
        _zoom(axes, projection.Z)
        alt = (
            f"Projection of {projection.label} on two components, points coloured by {by}; rows "
            f"of {projection.worst!s}, which was not seen, are ringed"
        )
        caption = f"{projection.label}; ringed: {projection.worst!s}, left out of the fit"
        return Picture(to_svg(figure, name, alt), alt, caption)


def distances_picture(projection: DomainProjection, name: str) -> Picture:
    """Distances between domains, of the features and of the projection, on one scale."""
    n = len(projection.domains)
    before, after = projection.before, projection.after
    top = max(float(before.max()), float(after.max()), 1e-12)
    # From the page's own background, so that "no distance" looks like nothing, to the accent.
    scale = Normalize(0.0, top)
    colours = LinearSegmentedColormap.from_list("distance", ["#e0533d00", "#e0533dff"])
    labels = [_short(value) for value in projection.domains]
    with drawing(9.0, 4.6) as figure:
        panels = figure.subplots(1, 2)
        for axes, matrix, title in zip(
            panels, (before, after), ("features as given", projection.label), strict=True
        ):
            axes.pcolormesh(matrix, cmap=colours, norm=scale, rasterized=True)
            axes.invert_yaxis()
            axes.set_aspect("equal")
            axes.set_xticks(np.arange(n) + 0.5, labels, rotation=90, fontsize=7)
            axes.set_yticks(np.arange(n) + 0.5, labels, fontsize=7)
            for tick in (axes.get_xticklabels()[-1], axes.get_yticklabels()[-1]):
                tick.set(fontweight="bold", color=WORST)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(f"{title}: mean {_mean_apart(matrix):.2f}")
            if n <= 12:
                _write_numbers(axes, matrix)
        figure.colorbar(ScalarMappable(scale, colours), ax=panels, shrink=0.7, label="MMD")
        alt = (
            f"Maximum mean discrepancy between {n} domains: mean {_mean_apart(before):.3f} before "
            f"and {_mean_apart(after):.3f} after projecting; {projection.worst!s} lies "
            f"{before[-1, :-1].mean():.3f} and {after[-1, :-1].mean():.3f} from the others"
        )
        far = [f"{matrix[-1, :-1].mean():.2f}" for matrix in (before, after)]
        caption = (
            "Distance between each pair of domains (MMD, median rule), before and after "
            f"projecting; the last row is {projection.worst!s}, which the projection has not seen: "
            f"{far[0]} from the others before, {far[1]} after"
        )
        return Picture(to_svg(figure, name, alt), alt, caption, wide=True)


def _draw_domains(found: Found, axes: Any) -> None:
    shown, best = found.measure.shown, found.best
    order = sorted(best.known, key=lambda domain: best.known[domain])
    order += [domain for domain in found.domains if domain not in best.known]
    heights = {domain: -place for place, domain in enumerate(order)}
    axes.axhspan(heights[found.worst_domain] - 0.5, 0.5, color=WORST, alpha=0.12, linewidth=0)
    for domain, height in heights.items():
        reference = shown(best.within[domain])
        axes.plot([reference] * 2, [height - 0.32, height + 0.32], color=INK, linewidth=1.6)
    for result in reversed(found.results):
        main = result in (best, found.baseline)
        values = [shown(result.scores[domain]) for domain in order]
        axes.plot(
            values,
            [heights[domain] + _offset(found, result) for domain in order],
            marker="o" if result.kind == "baseline" else "D",
            linestyle="none",
            color=colour_of(result),
            alpha=1.0 if main else 0.5,
            markersize=7 if main else 4,
            label=result.label,
        )
    names = [_short(domain) for domain in order]
    axes.set_yticks([heights[domain] for domain in order], names)
    tick = axes.get_yticklabels()[order.index(found.worst_domain)]
    tick.set(fontweight="bold", color=WORST)
    axes.set_ylim(-len(order) + 0.4, 0.6)
    axes.set_xlabel(f"{found.measure.label} ({found.measure.direction})")
    axes.grid(axis="x")
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=6, fontsize=8)


def _offset(found: Found, result: MethodResult) -> float:
    """Spread the methods of one row a little, in a fixed order, so that none hides another."""
    place = found.results.index(result)
    return 0.22 * (1 - 2 * place / max(len(found.results) - 1, 1))


def _height(found: Found) -> float:
    return 1.3 + 0.34 * len(found.domains)


def _zoom(axes: Any, Z: Any) -> None:
    """Leave out the last percent on each side, where a few rows would shrink all others."""
    for limits, values in ((axes.set_xlim, Z[:, 0]), (axes.set_ylim, Z[:, 1])):
        low, high = np.quantile(values, (0.005, 0.995))
        if high > low:
            limits(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _write_numbers(axes: Any, matrix: Any) -> None:
    for (row, column), value in np.ndenumerate(matrix):
        if row != column:
            axes.text(
                column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=6.5
            )


def _mean_apart(matrix: Any) -> float:
    n = len(matrix)
    return float(matrix.sum() / (n * (n - 1)))


def _short(value: Any) -> str:
    """A name that fits a plot, by its middle left out: names often begin alike, or end so."""
    name = str(value)
    return name if len(name) <= 20 else f"{name[:9]}…{name[-10:]}"
