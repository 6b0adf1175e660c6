"""Functions that draw the figures in the report, as :class:`Picture` objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from domainwise.evaluation.html import FAINT, INK, Picture, drawing, to_svg
from reproduction.methods import METHODS
from reproduction.sentences import PARAMETER_TEXTS
from reproduction.summary import MIN_REPEATS, CaseView, MethodView, RunSummary, TableView

GRAY = "#848e9a"
#: Colors of methods, readable on white and on black.
COLORS = {
    "svm": "#5b8def",
    "kpca": "#a678de",
    "coir": "#2a9d8f",
    "dica": "#c17a1a",
    "dcm": "#e0533d",
    "invariant": "#d6498f",
}
LABEL_STYLE: Any = {"textcoords": "offset points", "xytext": (5, 4), "fontsize": 7, "color": INK}


def ranking_plots(run: RunSummary) -> Iterator[Picture]:
    """Draw average ranks and the critical difference over data sets; none for a quick run."""
    for setting, ranking in run.rankings.items():
        if run.quick or ranking.n_datasets < 2:
            continue
        order = np.argsort(ranking.average_ranks)
        ranks = ranking.average_ranks[order]
        labels = [ranking.methods[i] for i in order]
        with drawing(6.6, 0.9 + 0.28 * len(labels)) as figure:
            axes = figure.subplots()
            heights = np.arange(len(labels))[::-1]
            band_end = ranks[0] + ranking.critical_difference
            axes.axvspan(ranks[0], band_end, color=COLORS["dcm"], alpha=0.12, linewidth=0)
            axes.plot(ranks, heights, "o", color=COLORS["dcm"], markersize=7)
            style: Any = {"textcoords": "offset points", "xytext": (8, -3), "fontsize": 8}
            for rank, height in zip(ranks, heights, strict=True):
                axes.annotate(f"{rank:.2f}", (rank, height), **style)
            axes.set_yticks(heights, labels)
            axes.set_xlim(0.8, max(len(labels), band_end) + 0.4)
            axes.set_ylim(-0.6, len(labels) - 0.4)
            axes.set_xlabel("average rank (1 is best)")
            axes.grid(axis="x")
            rank_list = ", ".join(map("{} {:.2f}".format, labels, ranks))
            scope = f"{ranking.n_datasets} data sets with {PARAMETER_TEXTS[setting]}"
            alt = f"Average ranks over {scope}: {rank_list}"
            caption = (
                f"{scope}. Methods inside the band are not significantly different from the best"
                " one (Nemenyi test, 5 %)"
            )
            yield Picture(to_svg(figure, f"rank-{setting}", alt), alt, caption, wide=True)


def projection_plots(run: RunSummary) -> Iterator[Picture]:
    """Draw the paper's figure: for each method, the source domains and three unseen domains."""
    panels_by_method = {row["method"]: row["panels"] for row in run.projections}
    for key, panels in ((key, panels_by_method[key]) for key in METHODS if key in panels_by_method):
        method_label = METHODS[key].label
        with drawing(9.2, 2.5) as figure:
            all_axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
            for axes, panel in zip(all_axes, panels, strict=True):
                x, y, targets = (np.array(panel[name]) for name in ("x", "y", "target"))
                for class_label, color in ((-1, "#5b8def"), (1, "#e0533d")):
                    points = x[targets == class_label], y[targets == class_label]
                    axes.scatter(*points, 5, color, alpha=0.55, linewidths=0, rasterized=True)
                axes.set_title(f"{panel['title']} ({panel['n_rows']:,} rows)", fontweight="normal")
                axes.set_xlabel("component 1")
            all_axes[0].set_ylabel(f"{method_label}\ncomponent 2")
            alt = (
                f"Projection onto two components of {method_label}: source domains and three unseen"
                " domains, with points colored by class"
            )
            yield Picture(to_svg(figure, f"projection-{key}", alt), alt, method_label, wide=True)


def time_plots(table: TableView) -> Iterator[Picture]:
    """Draw the scores of methods against their times; hollow markers show the paper's results."""
    for case in table.cases_in("paper"):
        metric = case.primary_metric
        timed_methods = [(view, view.seconds) for view in case.methods if view.seconds is not None]
        if len(timed_methods) < 2:
            continue
        with drawing(4.3, 2.9) as figure:
            axes = figure.subplots()
            labelled_points = []
            for view, seconds in timed_methods:
                color = _color(view)
                marker = {"fast": "^", "reference": "s"}.get(METHODS[view.key].kind, "o")
                cell = view.cells[metric.key]
                mean = cell.our_summary.mean
                axes.plot(seconds, mean, marker, color=color, markersize=6, alpha=0.9)
                labelled_points.append((view.label, np.log10(seconds), mean))
                if view.paper_seconds and cell.paper_mean_sd and not case.stand_in:
                    style: Any = {"markerfacecolor": "none", "markeredgecolor": color}
                    paper_point = view.paper_seconds, cell.paper_mean_sd[0]
                    axes.plot(*paper_point, marker, markersize=6, **style)
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.margins(x=0.16, y=0.12)
            for text, (x, y) in merge_labels(labelled_points):
                axes.annotate(text, (10**x, y), **LABEL_STYLE)
            if not metric.greater_is_better:
                axes.invert_yaxis()
            axes.set(xlabel="seconds, one core", ylabel=metric.label)
            axes.grid()
            texts = (f"{view.label} {seconds:.3g} s" for view, seconds in timed_methods)
            alt = f"{metric.label} against time, {case.case.title}: {'; '.join(texts)}"
            marker_note = "" if case.stand_in else ". Hollow markers show the paper's results"
            caption = f"{case.case.title}. Up and to the left is better{marker_note}"
            yield Picture(to_svg(figure, _id("time", case), alt), alt, caption)


def invariance_plots(table: TableView) -> Iterator[Picture]:
    """Draw how much the features depend on domain and target, before and after projections."""
    for case in table.cases_in("paper"):
        dependences = [
            (view, view.invariance["domain_dependence"], view.invariance["target_dependence"])
            for view in case.methods
            if view.invariance and METHODS[view.key].competes
        ]
        input_point = next(((x, y) for view, x, y in dependences if view.key == "svm"), None)
        if input_point is None or len(dependences) < 2:
            continue
        with drawing(4.3, 2.9) as figure:
            axes = figure.subplots()
            labelled_points = []
            for view, x, y in dependences:
                color, label = _color(view), view.label
                if view.key == "svm":
                    color, label = INK, "input features"
                line = zip(input_point, (x, y), strict=True)
                axes.plot(*line, color=color, linewidth=0.7, alpha=0.5)
                marker = "^" if METHODS[view.key].kind == "fast" else "o"
                axes.plot(x, y, marker, color=color, markersize=6, alpha=0.9)
                labelled_points.append((label, x, y))
            for text, position in merge_labels(labelled_points):
                axes.annotate(text, position, **LABEL_STYLE)
            axes.set(
                xlabel="dependence on the domain (HSIC, 0–1)", ylabel="dependence on the target"
            )
            axes.margins(x=0.18, y=0.14)
            axes.grid()
            texts = (f"{view.label} domain {x:.3f}, target {y:.3f}" for view, x, y in dependences)
            alt = f"Invariance on unseen domains, {case.case.title}: {'; '.join(texts)}"
            caption = f"{case.case.title}. Up and to the left is better"
            yield Picture(to_svg(figure, _id("inv", case), alt), alt, caption)


def box_plot(case: CaseView) -> Picture | None:
    """Draw box plots of the competing methods' scores, with the paper's mean ± sd."""
    views = [view for view in case.methods if METHODS[view.key].competes and view.scores]
    if not views or case.n_repeats < MIN_REPEATS:
        return None
    with drawing(4.3, 0.55 + 0.3 * len(views)) as figure:
        axes = figure.subplots()
        positions = np.arange(len(views))[::-1]
        artists = axes.boxplot(
            [list(view.scores.values()) for view in views],
            positions=positions,
            orientation="horizontal",
            widths=0.62,
            patch_artist=True,
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": FAINT},
            medianprops={"color": INK, "linewidth": 1.2},
            whiskerprops={"color": FAINT},
            capprops={"color": FAINT},
        )
        for box, view in zip(artists["boxes"], views, strict=True):
            color = _color(view)
            box.set(facecolor=color, alpha=0.75, edgecolor=color)
        metric = case.primary_metric
        cells = [view.cells[metric.key] for view in views]
        for position, cell in zip(positions, cells, strict=True):
            if cell.paper_mean_sd is not None:
                paper_mean, paper_sd = cell.paper_mean_sd
                style: Any = {"markersize": 3.5, "color": INK, "elinewidth": 0.9, "capsize": 2}
                axes.errorbar(paper_mean, position, xerr=paper_sd, fmt="D", **style)
        axes.set_yticks(positions, [view.label for view in views])
        axes.set_xlabel(metric.label)
        axes.grid(axis="x")
        title, winner = case.case.title, case.best_method()
        summaries = [(view.label, view.cells[metric.key].our_summary) for view in views]
        texts = (f"{label} {metric.format(s.mean, s.deviation)}" for label, s in summaries)
        alt = (
            f"Box plots of {metric.label} over {case.n_repeats} repeats, {title}"
            f" ({PARAMETER_TEXTS[case.setting]}). Best mean: {winner.label if winner else 'none'}. "
            f"{'; '.join(texts)}"
        )
        caption = f"{title}: {case.n_repeats} repeats"
        if any(cell.paper_mean_sd for cell in cells):
            data_note = " on its own data" if case.stand_in else ""
            caption += f". Diamonds show the paper's mean ± sd{data_note}"
        return Picture(to_svg(figure, _id("box", case), alt), alt, caption)


def spectrum_plot(row: dict[str, Any]) -> Picture:
    """Draw all eigenvalues of Algorithm 1; most of them equal 1."""
    eigenvalues = np.array(row["eigenvalues"])
    signs = np.sign(np.where(np.abs(eigenvalues - 1) <= 1e-6, 0.0, eigenvalues - 1))
    n_above, n_equal, n_below = (int(np.sum(signs == sign)) for sign in (1, 0, -1))
    with drawing(6.6, 2.6) as figure:
        axes = figure.subplots()
        indices = np.arange(1, len(eigenvalues) + 1)
        for sign, color, label in (
            (1, COLORS["dcm"], f"above 1 (separate classes): {n_above}"),
            (0, GRAY, f"equal to 1: {n_equal}"),
            (-1, COLORS["svm"], f"below 1 (separate domains): {n_below}"),
        ):
            points = indices[signs == sign], eigenvalues[signs == sign]
            axes.plot(*points, ".", color=color, markersize=5, label=label)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(axis="y", which="minor", labelsize=7)
        axes.set_xlabel("eigenvector")
        axes.set_ylabel("eigenvalue")
        axes.grid()
        axes.legend(fontsize=8)
        counts_text = f"{n_above} above 1, {n_below} below 1, {n_equal} equal to 1"
        alt = f"Eigenvalues of Algorithm 1 on synthetic data: {counts_text}"
        caption = (
            f"All eigenvalues of Algorithm 1 on one draw of the synthetic data ({row['n_classes']}"
            f" classes, {row['n_domains']} source domains). Directions with eigenvalue 1 are"
            " arbitrary, as is the second component for a binary target in the paper's formulation"
        )
        return Picture(to_svg(figure, "spectrum", alt), alt, caption, wide=True)


def merge_labels(
    labelled_points: Sequence[tuple[str, float, float]],
) -> list[tuple[str, tuple[float, float]]]:
    """Merge the labels of points that nearly coincide, because they would overlap.

    >>> merge_labels([("a", 0.0, 0.0), ("b", 0.001, 0.0), ("c", 1.0, 1.0)])
    [('a, b', (0.0, 0.0)), ('c', (1.0, 1.0))]
    """
    positions = np.array([[x, y] for _, x, y in labelled_points], dtype=np.float64)
    extent = np.ptp(positions, axis=0)
    # A label is about a fifth of the picture wide and a twentieth high.
    tolerance = np.where(extent > 0, extent, 1.0) * np.array([0.2, 0.055])
    labels_by_index: dict[int, list[str]] = {}  # by the index of the first point of a group
    for index, position in enumerate(positions):
        is_close = np.all(np.abs(positions - position) < tolerance, axis=1)
        first_index = next((i for i in labels_by_index if is_close[i]), index)
        labels_by_index.setdefault(first_index, []).append(labelled_points[index][0])
    return [(", ".join(labels), labelled_points[i][1:]) for i, labels in labels_by_index.items()]


def _color(view: MethodView) -> str:
    return COLORS.get(view.key.removeprefix("fast"), GRAY)


def _id(prefix: str, case: CaseView) -> str:
    return re.sub(r"\W|_", "-", f"{prefix}-{case.case.key}-{case.setting}")
