"""The page of an evaluation: verdict, tables, pictures. One file, no network."""

from __future__ import annotations

import warnings
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize

from domainwise.calibration.quantiles import calibrated, sets_in_words
from domainwise.evaluation import verdict
from domainwise.evaluation.differences import DomainProjection
from domainwise.evaluation.failures import failure_sections
from domainwise.evaluation.results import Found, MethodResult
from domainwise.plots import DomainMapDisplay, DomainScoresDisplay, ShiftDisplay
from domainwise.plots.style import ACCENT, PALETTE, short
from domainwise.report.page import INK, Picture, Templates, drawing, to_svg
from domainwise.scoring.statistics import p_text


def render(found: Found, *, title: str | None = None) -> str:
    """Make the report of an evaluation, a complete HTML document."""
    projection: Any = found.projection
    told = found.differences
    main = [result for result in found.main if result.worth]
    records = found.records.get(found.best.key)
    sets = found.calibration if records is None else calibrated(records, found.facts["classes"])

    def worth(lost: float | None) -> str:
        if lost is None:
            return "–"
        # No finer than the third digit of a score: the rest is chance.
        unit = 10.0 ** (np.floor(np.log10(abs(found.best.mean) or 1.0)) - 2)
        return found.show(found.measure.sign * min(unit, 0.001) * round(lost / min(unit, 0.001)))

    return Templates("domainwise.evaluation").render(
        "evaluate.html.j2",
        styles=["style.css", "evaluate.css"],
        title=title or "Which method holds up on an unseen domain?",
        found=found,
        show=found.show,
        interval=partial(verdict.interval, found),
        p_text=p_text,
        order=verdict.hardest_first(found),
        top={d: np.nanmax([r.scores[d] for r in found.results]) for d in found.best.known},
        safest=max(result.worst for result in found.results),
        verdict=verdict.make_verdict(found),
        faults=[fault["words"] for fault in told.get("faults", ())],
        sure=verdict.sure_sentences(found),
        sure_table=verdict.sure_table(found) if told.get("domains") else None,
        why=verdict.why_sentences(found) if told.get("columns") else [],
        differences=told,
        shift=shift_picture(found, "shift") if told.get("columns") else None,
        names=[domain["name"] for domain in told.get("domains", ())],
        worth_to=[f"worth to {result.label}" for result in main],
        worth=lambda name: [worth(result.worth.get(name)) for result in main],
        notes=found.notes,
        methods_picture=methods_picture(found, "methods"),
        domains_picture=domains_picture(found, "domains"),
        worst=str(found.worst_domain),
        best=found.best.label,
        projection=projection,
        projections=partial(projection_picture, projection),
        distances=partial(distances_picture, projection, "distances"),
        failures=failure_sections(found),
        chosen=_chosen,
        warnings=[(result.label, text) for result in found.results for text in result.warnings],
        sets=sets_in_words(sets),
    )


def _chosen(result: MethodResult) -> str:
    """Every parameter with its most frequent value, and how often that was chosen."""
    parts = []
    for name in result.parameters[0] if result.parameters else ():
        values = [chosen[name] for chosen in result.parameters if name in chosen]
        if name.startswith(("gamma", "weight of ")):
            numbers = sorted(float(value) for value in values)
            parts.append(f"{name} {numbers[0]:.3g} to {numbers[-1]:.3g}")
            continue
        value, times = Counter(values).most_common(1)[0]
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        parts.append(f"{name} {shown} ({times} of {len(values)})")
    return ", ".join(parts) or "–"


#: Columns in a picture of where they lie.
MAX_FEATURES = 12
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


def colour_of(result: MethodResult) -> str:
    """Colour of a method; one that is not listed, a caller's own, takes one by its name."""
    other = PALETTE[sum(result.key.encode()) % len(PALETTE)]
    return COLOURS.get(result.key, other)


def scores_figure(found: Found) -> Any:
    """Return a matplotlib figure of every method's score on every domain."""
    with drawing(7.2, _height(found)) as figure:
        _draw_scores(found, figure.subplots())
        return figure


def domains_picture(found: Found, name: str) -> Picture:
    """Scores of the methods on each domain, the worst domain singled out."""
    worst, best, measure = found.worst_domain, found.best, found.measure
    alt = (
        f"{measure.label} of every method on each of {len(found.domains)} left-out domains. "
        f"{best.label} does worst on {worst!s}, with {measure.format(best.scores[worst])}"
    )
    caption = (
        f"Each row is a domain that was left out, the hardest for {best.label} at the top; "
        f"shaded: the worst. Lines: 95 % intervals. Bars: {best.label} where other rows of the "
        f"domain were seen, in random folds. {measure.direction.capitalize()}"
    )
    with drawing(9.0, _height(found)) as figure:
        _draw_scores(found, figure.subplots())
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


def shift_picture(found: Found, name: str) -> Picture | None:
    """Where numbers lie in each domain, the worst domain in colour; None where there are none."""
    told, worst = found.differences, str(found.worst_domain)
    columns = [column for column in told["columns"] if column["kind"] == "number"]
    if not columns:
        return None
    empty = [np.nan] * 5
    levels = np.array([[q or empty for q in c["quantiles"]] for c in columns], dtype=np.float64)
    deviations = np.array([column["deviation"] for column in columns])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns without a value
        levels = levels.T - np.nanmedian(levels[:, :, 2], axis=1)
    display = ShiftDisplay(
        features=[column["name"] for column in columns],
        domains=[domain["name"] for domain in told["domains"]],
        ends=levels[1:4] / deviations,
    )
    most = min(MAX_FEATURES, len(columns))
    with drawing(9.0, 1.2 + 0.36 * most) as figure:
        display.plot(figure.subplots(), max_features=most, highlight=[worst])
        alt = f"Standardised medians and quartiles of {most} columns by domain"
        caption = (
            f"Median and quartiles of each domain, those of {worst} in colour: from the middle of "
            "the domains' medians, in deviations inside domains. What differs most is at the top"
        )
        return Picture(to_svg(figure, name, alt), alt, caption, wide=True)


def projection_picture(projection: DomainProjection, name: str, *, by: str) -> Picture:
    """Two components, coloured by "domain" or by "target"; the unseen worst domain is ringed."""
    extra = "" if projection.informative > 1 else "\n(not determined by the target)"
    display = DomainMapDisplay(
        Z=projection.Z,
        domain=projection.domain,
        target=projection.target,
        names=("component 1", f"component 2{extra}"),
    )
    alt = (
        f"Projection of {projection.label} on two components, points coloured by {by}; rows of "
        f"{projection.worst!s}, which was not seen, are ringed"
    )
    caption = f"{projection.label}; ringed: {projection.worst!s}, left out of the fit"
    with drawing(4.3, 3.9) as figure:
        display.plot(figure.subplots(), color_by=by, highlight=[projection.worst])
        return Picture(to_svg(figure, name, alt), alt, caption)


def distances_picture(projection: DomainProjection, name: str) -> Picture:
    """Distances between domains, of the features and of the projection, on one scale."""
    n = len(projection.domains)
    before, after = projection.before, projection.after
    top = max(float(before.max()), float(after.max()), 1e-12)
    # From the page's own background, so that "no distance" looks like nothing, to the accent.
    scale = Normalize(0.0, top)
    colours = LinearSegmentedColormap.from_list("distance", ["#e0533d00", "#e0533dff"])
    labels = [short(value) for value in projection.domains]
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
                tick.set(fontweight="bold", color=ACCENT)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(f"{title}: mean {_mean_apart(matrix):.2f}")
            for (row, column), value in np.ndenumerate(matrix) if n <= 12 else ():
                place = {"ha": "center", "va": "center", "fontsize": 6.5}
                if row != column:
                    axes.text(column + 0.5, row + 0.5, f"{value:.2f}", **place)
        figure.colorbar(ScalarMappable(scale, colours), ax=panels, shrink=0.7, label="MMD")
        alt = (
            f"Maximum mean discrepancy between {n} domains: mean {_mean_apart(before):.3f} before "
            f"and {_mean_apart(after):.3f} after projecting; {projection.worst!s} lies "
            f"{before[-1, :-1].mean():.3f} and {after[-1, :-1].mean():.3f} from the others"
        )
        far = [f"{matrix[-1, :-1].mean():.2f}" for matrix in (before, after)]
        some = len(np.unique(projection.domain))
        pairs = f"{n} of {some} domains" if n < some else "each pair of domains"
        caption = (
            f"Distance between {pairs} (maximum mean discrepancy, MMD; 0 is none), before and "
            f"after projecting; the last row is {projection.worst!s}, which the projection has not "
            f"seen: {far[0]} from the others before, {far[1]} after"
        )
        return Picture(to_svg(figure, name, alt), alt, caption, wide=True)


def _draw_scores(found: Found, axes: Any) -> None:
    shown = found.measure.shown
    DomainScoresDisplay(
        scores={r.label: {d: shown(s) for d, s in r.scores.items()} for r in found.results},
        intervals={r.label: {d: found.ends(r, d) for d in r.scores} for r in found.results},
        reference={domain: shown(score) for domain, score in found.best.seen.items()},
        label=found.measure.label,
        greater_is_better=found.measure.sign > 0,
    ).plot(
        axes,
        highlight=[r.label for r in found.main],
        styles={
            r.label: {"color": colour_of(r), "marker": "o" if r.kind == "baseline" else "D"}
            for r in found.results
        },
    )


def _height(found: Found) -> float:
    n = len(found.domains)
    return 1.3 + min(0.34 * n, 3.0 + 0.19 * n)


def _mean_apart(matrix: Any) -> float:
    n = len(matrix)
    return float(matrix.sum() / (n * (n - 1)))
