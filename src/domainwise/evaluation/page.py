"""The page of an evaluation: the answer on the first screen, then sections with details."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from domainwise.calibration.quantiles import calibrate_sets, describe_sets
from domainwise.evaluation import verdict
from domainwise.evaluation.failures import failure_sections
from domainwise.evaluation.results import MethodResult, Results
from domainwise.models.registry import TRIVIAL
from domainwise.plots import DomainScoresDisplay, ShiftDisplay
from domainwise.plots.style import ACCENT, PALETTE, short
from domainwise.report.page import (
    FAINT,
    INK,
    Picture,
    TextCell,
    TextTable,
    drawing,
    render_page,
    to_svg,
)
from domainwise.scoring.statistics import p_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of methods in a legend, and in the table of all domains.
MAX_METHODS = 8


def render(evaluation: Results, *, title: str | None = None) -> str:
    """Return the page of an evaluation, a complete HTML document."""
    differences, method = evaluation.differences, evaluation.recommended
    sets, answer = evaluation.calibration, verdict.make_answer(evaluation)
    if (records := evaluation.records.get(method.key)) is not None:
        sets = calibrate_sets(records, evaluation.facts["classes"])
    faults = map(verdict.fault_in_words, differences.get("faults", ()))
    columns = sorted(
        differences.get("columns", ()),
        key=lambda column: -method.importance.get(column["name"], -np.inf),
    )
    return render_page(
        "domainwise.evaluation",
        "evaluate.html.j2",
        styles=["style.css", "evaluate.css"],
        title=title or "Which method is best on an unseen domain?",
        evaluation=evaluation,
        answer=answer,
        no_fault=verdict.NO_FAULT,
        expect_picture=expect_picture(evaluation),
        other_faults=[fault for fault in faults if fault not in answer.faults],
        show=evaluation.show,
        interval=partial(verdict.interval, evaluation),
        methods_table=methods_table(evaluation),
        methods_picture=methods_picture(evaluation),
        shown=shown_methods(evaluation),
        top={d: np.nanmax([r.scores[d] for r in evaluation.results]) for d in method.known},
        domains_picture=domains_picture(evaluation),
        domains_table=verdict.domains_table(evaluation).without_empty_columns(),
        worst=str(evaluation.worst_domain),
        recommended=method.label,
        failures=failure_sections(evaluation),
        difference_sentence=verdict.difference_sentence(evaluation) if columns else "",
        importance_sentences=verdict.importance_sentences(evaluation) if columns else [],
        differences={**differences, "columns": columns},
        shift=shift_picture(evaluation) if columns else None,
        names=[domain["name"] for domain in differences.get("domains", ())],
        importance=partial(_importance, evaluation),
        selected=_selected_parameters,
        warnings=[
            (result.label, text) for result in evaluation.results for text in result.warnings
        ],
        sets=describe_sets(sets),
    )


def _importance(evaluation: Results, name: str) -> str:
    """Importance of a column as text, without digits that are only noise."""
    method, sign = evaluation.recommended, evaluation.measure.sign
    unit = min(10.0 ** (np.floor(np.log10(abs(method.mean) or 1.0)) - 2), 0.001)
    loss = method.importance.get(name, np.nan)
    return evaluation.show(sign * unit * np.round(loss / unit))


def shown_methods(evaluation: Results) -> list[MethodResult]:
    """Methods in a legend: the main ones, a constant, and the best of the others."""
    main = [result.key for result in evaluation.main]
    order = [*main, TRIVIAL, *(result.key for result in evaluation.results)]
    keys = [key for key in dict.fromkeys(order) if evaluation.find(key)][:MAX_METHODS]
    return [result for result in evaluation.results if result.key in keys]


def methods_table(evaluation: Results) -> TextTable:
    """Scores of all methods over held-out domains."""
    show, sign = evaluation.show, evaluation.measure.sign
    columns = ["method", "mean", "new site (90 %)", "worst", "worst domain", "spread", "seen"]
    columns += ["gap", "p", "adjusted p", "seconds"]
    best_worst = max(result.worst for result in evaluation.results)
    rows = []
    for r in evaluation.results:
        label = r.label + " ●" * (r is evaluation.baseline) + " ✓" * (r is evaluation.recommended)
        ends = [sign * end for end in evaluation.range_of(r) or ()]
        texts = [label, show(r.mean), verdict.interval(evaluation, ends)]
        texts += [show(r.worst), str(r.worst_domain), show(sign * r.spread), show(r.seen_mean)]
        texts += [show(sign * r.generalization_gap), p_text(r.p_value), p_text(r.p_adjusted)]
        bold = {1: r is evaluation.best, 3: r.worst == best_worst}
        cells = [TextCell(text, bold.get(i, False)) for i, text in enumerate(texts)]
        rows.append([*cells, TextCell(f"{r.seconds:.1f}")])
    kinds = [result.kind for result in evaluation.results]
    return TextTable(columns, rows, kinds).without_empty_columns()


def expect_picture(evaluation: Results) -> Picture:
    """Plot the scores of held-out domains, and the 90 % range for a new domain, on a line."""
    method, measure, show = evaluation.recommended, evaluation.measure, evaluation.show
    ends, constant = evaluation.next_site, evaluation.find(TRIVIAL)
    values = {domain: measure.shown(score) for domain, score in method.known.items()}
    worst, mean = evaluation.worst_domain, measure.shown(method.mean)
    low, high = (f([*values.values(), *(ends or ())]) for f in (min, max))
    left, right, max_distance = low, high, 4 * (high - low)
    level = None if constant is None or method.trivial else measure.shown(constant.mean)
    is_far = level is not None and not low - max_distance <= level <= high + max_distance
    if level is not None and not is_far:
        left, right = min(low, level), max(high, level)
    pad = 0.04 * (right - left) or 0.01
    left, right = left - pad, right + pad

    with drawing(4.2, 1.3) as figure:
        axes = figure.subplots()

        def write(x: float, y: float, text: str, colour: str) -> None:
            """Write text, aligned so that it does not exceed the axis."""
            share = (x - left) / (right - left)
            side = "left" if share < 0.3 else "right" if share > 0.7 else "center"
            axes.text(x, y, text, ha=side, va="center", color=colour, fontsize=9)

        if ends is not None:
            axes.fill_between(ends, -0.62, 0.62, color=PALETTE[1], alpha=0.25, linewidth=0)
        axes.plot([mean, mean], [-0.62, 0.62], color=INK, linewidth=1.6)
        heights = _heights(list(values.values()), (right - left) / 45)
        for (domain, value), height in zip(values.items(), heights, strict=True):
            colour = ACCENT if domain == worst else PALETTE[1]
            axes.plot(value, height, "o", color=colour, markersize=5.5, zorder=3)
        write(values[worst], -1.0, f"worst: {short(worst)}, {show(method.worst)}", ACCENT)
        constant_x = np.nan if level is None else float(np.clip(level, left, right))
        if level is not None:
            label = f"constant: {show(measure.sign * level)}"
            if is_far:
                label = f"← {label}" if level < low else f"{label} →"
            else:
                axes.plot([level, level], [-0.62, 0.75], color=FAINT, linewidth=1.2, ls="--")
            write(constant_x, 1.0, label, FAINT)
        if not abs(constant_x - mean) <= 0.35 * (right - left):
            write(mean, 1.0, f"mean: {show(method.mean)}", INK)
        axes.set(ylim=(-1.25, 1.25), xlim=(left, right), yticks=[])
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.set_xlabel(f"{measure.label} ({measure.direction})")
        caption = "Dots: held-out domains; line: their mean"
        caption += "; shaded: 90 % range for the next site" if ends is not None else ""
        scores = [f"{name} {show(method.scores[name])}" for name in evaluation.hardest_first[:12]]
        others = "; and others" if len(values) > 12 else ""
        alt = f"{method.label}. {caption}. {'; '.join(scores)}{others}"
        return Picture(to_svg(figure, "expect", alt), alt, caption)


def _heights(values: list[float], min_distance: float) -> list[float]:
    """Heights at which dots do not overlap."""
    levels = (0.0, 0.3, -0.3, 0.5, -0.5)
    last: dict[float, float] = {}
    heights = [0.0] * len(values)
    for i in np.argsort(values):
        free_levels = (h for h in levels if values[i] - last.get(h, -np.inf) >= min_distance)
        heights[i] = next(free_levels, 0.0)
        last[heights[i]] = values[i]
    return heights


def _selected_parameters(result: MethodResult) -> str:
    """Each parameter with its most frequent value and how often it was selected, or its range."""
    texts = []
    for name in result.parameters[0] if result.parameters else ():
        values = [selected[name] for selected in result.parameters if name in selected]
        if name.startswith(("gamma", "weight of ")):
            texts.append(f"{name} {min(map(float, values)):.3g} to {max(map(float, values)):.3g}")
            continue
        value, count = Counter(values).most_common(1)[0]
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        texts.append(f"{name} {shown} ({count} of {len(values)})")
    return ", ".join(texts) or "–"


#: Maximum number of columns in the plot of shifts.
MAX_FEATURES = 12
#: Colours of methods, readable on white and on black, and the same in ``reproduce``.
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


def colour_of(result: MethodResult) -> str:
    """Colour of a method; for a custom method, it depends on the name."""
    return COLOURS.get(result.key, PALETTE[sum(result.key.encode()) % len(PALETTE)])


def scores_figure(evaluation: Results) -> Figure:
    """Return a matplotlib figure of every method's score on every domain."""
    with _drawn_scores(evaluation, 7.2) as figure:
        return figure


def domains_picture(evaluation: Results) -> Picture:
    """Scores of the methods on each domain, with the worst domain highlighted."""
    worst, best, measure = evaluation.worst_domain, evaluation.recommended, evaluation.measure
    alt = (
        f"{measure.label} of methods on each of {len(evaluation.domains)} held-out domains. "
        f"The worst domain of {best.label} is {worst!s}: {measure.format(best.scores[worst])}"
    )
    caption = (
        f"Each row is a held-out domain; the worst domain of {best.label} is at the top (shaded). "
        f"Horizontal lines: 95 % intervals. Vertical bars: scores of {best.label} if rows are held "
        "out at random, so that it was trained on other rows of the domain. "
        f"{measure.direction.capitalize()}"
    )
    with _drawn_scores(evaluation, 9.0) as figure:
        return Picture(to_svg(figure, "domains", alt), alt, caption, wide=True)


def methods_picture(evaluation: Results) -> Picture:
    """Mean of each method with its worst and best domain."""
    results, measure = shown_methods(evaluation), evaluation.measure
    heights = range(len(results))[::-1]
    with drawing(4.3, 0.6 + 0.3 * len(results)) as figure:
        axes = figure.subplots()
        for height, result in zip(heights, results, strict=True):
            colour = colour_of(result)
            values = [measure.shown(score) for score in result.known.values()]
            axes.plot([min(values), max(values)], [height] * 2, color=colour, alpha=0.45, lw=4)
            axes.plot(values, [height] * len(values), "|", color=colour, markersize=6)
            axes.plot(measure.shown(result.mean), height, "o", color=colour, markersize=7)
            axes.plot(measure.shown(result.worst), height, "x", color=INK, markersize=5)
        axes.set_yticks(heights, [result.label for result in results])
        axes.set_ylim(-0.6, len(results) - 0.4)
        axes.set_xlabel(f"{measure.label} ({measure.direction})")
        axes.grid(axis="x")
        listed = "; ".join(
            f"{result.label} {measure.format(result.mean)}, worst {measure.format(result.worst)}"
            for result in results
        )
        alt = f"Mean and worst {measure.label} over held-out domains: {listed}"
        caption = "Dots: mean scores; crosses: worst domains; ticks: the other held-out domains"
        return Picture(to_svg(figure, "methods", alt), alt, caption)


def shift_picture(evaluation: Results) -> Picture | None:
    """Plot numeric columns by domain, the worst domain in colour; None if there are none."""
    differences, worst = evaluation.differences, str(evaluation.worst_domain)
    columns = [column for column in differences["columns"] if column["kind"] == "number"]
    if not columns:
        return None
    empty = [np.nan] * 5
    levels = np.array([[q or empty for q in c["quantiles"]] for c in columns], dtype=np.float64)
    deviations = np.array([column["deviation"] for column in columns])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without values
        levels = levels.T - np.nanmedian(levels[:, :, 2], axis=1)
    display = ShiftDisplay(
        features=[column["name"] for column in columns],
        domains=[domain["name"] for domain in differences["domains"]],
        ends=levels[1:4] / deviations,
    )
    n_shown = min(MAX_FEATURES, len(columns))
    with drawing(9.0, 1.2 + 0.36 * n_shown) as figure:
        display.plot(figure.subplots(), max_features=n_shown, highlight=[worst])
        alt = f"Standardized medians and quartiles of {n_shown} columns by domain"
        caption = (
            f"Median and quartiles of each domain, with {worst} (the worst domain) in colour. "
            "Values are differences from the median of all domain medians, in within-domain "
            "standard deviations. Columns that differ most are at the top"
        )
        return Picture(to_svg(figure, "shift", alt), alt, caption, wide=True)


@contextmanager
def _drawn_scores(evaluation: Results, width: float) -> Iterator[Figure]:
    """A figure of the scores of the shown methods on each domain."""
    shown, n = evaluation.measure.shown, len(evaluation.domains)
    results = shown_methods(evaluation)
    display = DomainScoresDisplay(
        scores={r.label: {d: shown(s) for d, s in r.scores.items()} for r in results},
        intervals={r.label: {d: evaluation.ends(r, d) for d in r.scores} for r in results},
        reference={domain: shown(score) for domain, score in evaluation.recommended.seen.items()},
        label=evaluation.measure.label,
        greater_is_better=evaluation.measure.sign > 0,
    )
    styles = {
        r.label: {"color": colour_of(r), "marker": "o" if r.kind == "baseline" else "D"}
        for r in results
    }
    main = [result.label for result in evaluation.main]
    with drawing(width, 1.3 + min(0.34 * n, 3.0 + 0.19 * n)) as figure:
        display.plot(figure.subplots(), highlight=main, styles=styles)
        yield figure
