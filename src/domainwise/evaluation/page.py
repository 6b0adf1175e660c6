"""The page of an evaluation: verdict, tables, pictures. One file, no network."""

from __future__ import annotations

import warnings
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from domainwise.calibration.quantiles import calibrated, sets_in_words
from domainwise.evaluation import verdict
from domainwise.evaluation.failures import failure_sections
from domainwise.evaluation.results import MethodResult, Results
from domainwise.plots import DomainScoresDisplay, ShiftDisplay
from domainwise.plots.style import PALETTE
from domainwise.report.page import INK, Picture, Templates, drawing, to_svg
from domainwise.scoring.statistics import p_text


def render(evaluation: Results, *, title: str | None = None) -> str:
    """Make the report of an evaluation, a complete HTML document."""
    differences = evaluation.differences
    main = [result for result in evaluation.main if result.importance]
    records = evaluation.records.get(evaluation.best.key)
    sets = (
        evaluation.calibration
        if records is None
        else calibrated(records, evaluation.facts["classes"])
    )

    def importance(lost: float | None) -> str:
        if lost is None:
            return "–"
        # No finer than the third digit of a score: the rest is chance.
        unit = min(10.0 ** (np.floor(np.log10(abs(evaluation.best.mean) or 1.0)) - 2), 0.001)
        return evaluation.show(evaluation.measure.sign * unit * np.round(lost / unit))

    return Templates("domainwise.evaluation").render(
        "evaluate.html.j2",
        styles=["style.css", "evaluate.css"],
        title=title or "Which method is best on an unseen domain?",
        evaluation=evaluation,
        show=evaluation.show,
        interval=partial(verdict.interval, evaluation),
        p_text=p_text,
        order=evaluation.hardest_first,
        top={
            d: np.nanmax([r.scores[d] for r in evaluation.results]) for d in evaluation.best.known
        },
        safest=max(result.worst for result in evaluation.results),
        verdict=verdict.make_verdict(evaluation),
        faults=differences.get("faults", [])[:5],
        uncertainty=verdict.uncertainty_sentences(evaluation),
        uncertainty_table=verdict.uncertainty_table(evaluation)
        if differences.get("domains")
        else None,
        differing=verdict.difference_sentences(evaluation) if differences.get("columns") else [],
        differences=differences,
        shift=shift_picture(evaluation, "shift") if differences.get("columns") else None,
        names=[domain["name"] for domain in differences.get("domains", ())],
        importance_for=[f"importance for {result.label}" for result in main],
        importance=lambda name: [importance(result.importance.get(name)) for result in main],
        notes=evaluation.notes,
        methods_picture=methods_picture(evaluation, "methods"),
        domains_picture=domains_picture(evaluation, "domains"),
        worst=str(evaluation.worst_domain),
        best=evaluation.best.label,
        failures=failure_sections(evaluation),
        label_sentence=verdict.label_sentence(evaluation),
        labels_picture=labels_picture(evaluation, "labels") if evaluation.label_gain else None,
        chosen=_chosen,
        warnings=[
            (result.label, text) for result in evaluation.results for text in result.warnings
        ],
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


def scores_figure(evaluation: Results) -> Any:
    """Return a matplotlib figure of every method's score on every domain."""
    with drawing(7.2, _height(evaluation)) as figure:
        _draw_scores(evaluation, figure.subplots())
        return figure


def domains_picture(evaluation: Results, name: str) -> Picture:
    """Scores of the methods on each domain, the worst domain singled out."""
    worst, best, measure = evaluation.worst_domain, evaluation.best, evaluation.measure
    alt = (
        f"{measure.label} of every method on each of {len(evaluation.domains)} held-out domains. "
        f"The worst domain of {best.label} is {worst!s}: {measure.format(best.scores[worst])}"
    )
    caption = (
        f"Each row is a held-out domain, the hardest for {best.label} at the top (shaded). Lines: "
        f"95 % intervals. Bars: {best.label} in random folds, with training rows of the "
        f"domain. {measure.direction.capitalize()}"
    )
    with drawing(9.0, _height(evaluation)) as figure:
        _draw_scores(evaluation, figure.subplots())
        return Picture(to_svg(figure, name, alt), alt, caption, wide=True)


def methods_picture(evaluation: Results, name: str) -> Picture:
    """Mean of each method with its worst and best domain."""
    results = evaluation.results
    shown = evaluation.measure.shown
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
        axes.set_xlabel(f"{evaluation.measure.label} ({evaluation.measure.direction})")
        axes.grid(axis="x")
        listed = "; ".join(
            f"{result.label} {evaluation.measure.format(result.mean)}, worst "
            f"{evaluation.measure.format(result.worst)}"
            for result in results
        )
        alt = f"Mean and worst {evaluation.measure.label} over held-out domains: {listed}"
        return Picture(to_svg(figure, name, alt), alt, "Dot: mean; cross: worst domain")


def labels_picture(evaluation: Results, name: str) -> Picture:
    """Expected score of the best method by the number of labels, with its interval."""
    gains, measure, best = evaluation.label_gain, evaluation.measure, evaluation.best
    columns = ("n_labels", "score", "low", "high", "domains")
    counts, scores, low, high, domains = ([gain[key] for gain in gains] for key in columns)
    with drawing(4.3, 3.0) as figure:
        axes = figure.subplots()
        colour = colour_of(best)
        axes.fill_between(counts, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(counts, scores, "o-", color=colour, markersize=5)
        axes.axhline(scores[0], color=INK, linewidth=0.8, linestyle=":")
        axes.set_xticks(counts)
        axes.set_xlabel("labels from the new site")
        axes.set_ylabel(f"{measure.label} ({measure.direction})")
        axes.grid(axis="y")
        sign = measure.sign
        listed = "; ".join(
            f"{n} labels {evaluation.show(sign * score)}"
            for n, score in zip(counts, scores, strict=True)
        )
        alt = f"Expected {measure.label} of {best.label} by labels from the new site: {listed}"
        few = min(domains) < domains[0]
        caption = (
            f"{best.label}: expected {measure.label} by the number of labels; dotted: without "
            "labels; shaded: 95 % interval of the mean over new domains"
            + f"; {domains[-1]} of {len(best.known)} domains have rows enough for {counts[-1]} "
            "labels" * few
        )
        return Picture(to_svg(figure, name, alt), alt, caption)


def shift_picture(evaluation: Results, name: str) -> Picture | None:
    """Where numbers lie in each domain, the worst domain in colour; None where there are none."""
    differences, worst = evaluation.differences, str(evaluation.worst_domain)
    columns = [column for column in differences["columns"] if column["kind"] == "number"]
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
        domains=[domain["name"] for domain in differences["domains"]],
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


def _draw_scores(evaluation: Results, axes: Any) -> None:
    shown = evaluation.measure.shown
    DomainScoresDisplay(
        scores={r.label: {d: shown(s) for d, s in r.scores.items()} for r in evaluation.results},
        intervals={
            r.label: {d: evaluation.ends(r, d) for d in r.scores} for r in evaluation.results
        },
        reference={domain: shown(score) for domain, score in evaluation.best.seen.items()},
        label=evaluation.measure.label,
        greater_is_better=evaluation.measure.sign > 0,
    ).plot(
        axes,
        highlight=[r.label for r in evaluation.main],
        styles={
            r.label: {"color": colour_of(r), "marker": "o" if r.kind == "baseline" else "D"}
            for r in evaluation.results
        },
    )


def _height(evaluation: Results) -> float:
    n = len(evaluation.domains)
    return 1.3 + min(0.34 * n, 3.0 + 0.19 * n)
