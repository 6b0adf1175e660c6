"""Errors of the recommended method on held-out domains: sentences, numbers by domain, and plots.

They are computed from the predictions in a folder; no row of the table is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    roc_auc_score,
)

from domainwise.arrays import Array
from domainwise.calibration.quantiles import DomainQuantiles, class_nonconformity, usual_coverage
from domainwise.evaluation.results import Results, Row, grouped, joined, percent
from domainwise.plots import CalibrationByDomainDisplay
from domainwise.plots.style import ACCENT, GREY, short
from domainwise.report.page import INK, Picture, TextCell, TextTable, drawing, to_svg
from domainwise.scoring.predictions import codes_of

#: Domains in colour, or with a panel of their own; and rows of a picture with one for each domain.
FEW, MOST_ROWS = 5, 15
#: Rows without which a share is not worth a sentence.
LEAST = 5
DomainPredictions = Mapping[
    Any, Row
]  #: what a method said about rows of domains that it had not seen


@dataclass
class Section:
    """One question: an answer in sentences, plots, and columns of the table by domain."""

    title: str
    words: list[str]
    pictures: list[Picture]
    columns: dict[str, dict[Any, str]] = field(default_factory=dict)


def failure_sections(evaluation: Results) -> dict[str, Any] | None:
    """The sections of the page about errors; None if predictions are not available."""
    own, names = evaluation.recommended, evaluation.facts["classes"]
    if own.key not in evaluation.records:
        return None
    mine = by_domain(evaluation.records[own.key], evaluation.hardest_first)
    classes = None if names is None else np.asarray(names)
    made = [residuals] if classes is None else [confusion, ranking, calibration]
    answers = [make(own.label, mine, classes) for make in (*made, coverage)]
    parts = [part for part in answers if part is not None]
    columns = {"rows": {domain: f"{len(rows['target']):,}" for domain, rows in mine.items()}}
    for part in parts:
        columns |= part.columns
    cells = {d: [c.get(d, "–") for c in columns.values()] for d in mine}
    rows = [[TextCell(text) for text in (str(d), *texts)] for d, texts in cells.items()]
    kinds = ["worst" if domain == evaluation.worst_domain else "" for domain in mine]
    table = TextTable(["domain", *columns], rows, kinds).without_empty_columns()
    return {"parts": parts, "columns": columns, "table": table}


def by_domain(records: Sequence[Row], order: Sequence[Any]) -> DomainPredictions:
    """All rows of each domain, in an order of the domains."""
    parts = grouped(records)
    return {domain: joined(parts[domain]) for domain in order if domain in parts}


def confusion(label: str, mine: DomainPredictions, classes: Any) -> Section:
    """Which classes are taken for which, and where."""
    names = [str(name) for name in classes]
    tables = {
        domain: confusion_matrix(rows["target"], rows["prediction"], labels=classes)
        for domain, rows in mine.items()
    }
    total = np.sum(list(tables.values()), axis=0)
    a, b = _commonest(total)
    words = f"{label} predicts every row of the held-out domains correctly."
    if a != b:
        words = (
            f"The most frequent error of {label} is to predict {names[b]} for {names[a]}: "
            f"{total[a, b]:,} of {total[a].sum():,} rows of class {names[a]}"
        )
        shares = {d: t[a, b] / t[a].sum() for d, t in tables.items() if t[a].sum() >= LEAST}
        where = max(shares, key=lambda d: shares[d], default=None)
        words += (
            f"; the largest share, {percent(shares[where])}, is on {where!s}." if shares else "."
        )
    columns = {"correct": {d: percent(np.trace(t) / t.sum()) for d, t in tables.items()}}
    columns["most frequent error"] = {
        d: "none" if a == b else f"{names[b]} for {names[a]}: {t[a, b]} of {t[a].sum()}"
        for d, t in tables.items()
        for a, b in [_commonest(t)]
    }
    picture = _confusion_picture(label, tables, names)
    return Section("Confused classes", [words], [picture], columns)


def _commonest(table: Array) -> tuple[int, int]:
    """True and predicted class of the most frequent error; the same class twice without one."""
    wrong = table * (1 - np.eye(len(table), dtype=int))
    a, b = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return (int(a), int(b)) if wrong.any() else (0, 0)


def _confusion_picture(label: str, tables: Mapping[Any, Array], names: Sequence[str]) -> Picture:
    panels = [(short(domain), table) for domain, table in tables.items()]
    n = len(panels)
    few = f"Each of the {FEW} worst of {n} domains" if n > FEW + 1 else "Each domain"
    if len(rest := panels[FEW:]) > 1:  # that of a single other is its own
        together = np.sum([table for _, table in rest], axis=0)
        panels = [*panels[:FEW], (f"the other {len(rest)}", together)]
    n, columns = len(names), min(3, len(panels))
    lines, ticks = -(-len(panels) // columns), np.arange(n) + 0.5
    with drawing(3.0 * columns, 0.6 + (1.4 + 0.16 * n) * lines) as figure:
        grid = figure.subplots(lines, columns, squeeze=False).ravel()
        for axes, (domain, table) in zip(grid, panels, strict=False):
            shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
            for (a, b), share in np.ndenumerate(shares):
                corner = ([b, b + 1, b + 1, b], [a, a, a + 1, a + 1])
                colour = GREY if a == b else ACCENT
                axes.fill(*corner, color=colour, alpha=0.85 * share, linewidth=0)
                if n <= 5 and table[a].any():
                    text = percent(share) if n > 3 else f"{percent(share)}\n{table[a, b]}"
                    axes.text(b + 0.5, a + 0.5, text, ha="center", va="center", fontsize=7)
            axes.set(xlim=(0, n), ylim=(n, 0), title=f"{domain} ({table.sum()})")
            turned = 90 if n > 3 else 0
            axes.set_xticks(ticks, [short(name) for name in names], fontsize=7, rotation=turned)
            axes.set_yticks(ticks, [short(name) for name in names], fontsize=7)
            axes.tick_params(length=0)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel("predicted", fontsize=9)
        figure.supylabel("true", fontsize=9)
        right = "; ".join(f"{name} {np.trace(t)} of {t.sum()} correct" for name, t in panels)
        alt = f"Predicted classes by true class on held-out domains, {label}: {right}"
        caption = (
            f"{label}: predicted classes of the rows of each true class; errors are red, and "
            f"numbers of rows are in brackets. {few} has a panel"
        )
        return Picture(to_svg(figure, "confusion", alt), alt, caption, wide=True)


def ranking(label: str, mine: DomainPredictions, classes: Any) -> Section | None:
    """Areas under the ROC and precision-recall curves."""
    ranked = {domain: pair for domain, rows in mine.items() if (pair := _ranked(rows, classes))}
    best = {domain: roc_auc_score(*pair) for domain, pair in ranked.items()}
    if not best:
        return None
    order = sorted(best, key=lambda d: best[d])
    precisions = {domain: average_precision_score(*ranked[domain]) for domain in order}
    pooled = "" if len(classes) == 2 else ", each class against the rest,"
    words = [
        f"The AUC of {label}{pooled} is {_mean(best):.2f} on average over held-out domains; the "
        f"lowest is {best[order[0]]:.2f}, on {order[0]!s}."
    ]
    if without := [str(domain) for domain in mine if domain not in best]:
        words.append(f"No AUC, because there is one class only: {', '.join(without)}.")
    columns = {"AUC": best, "average precision": precisions}
    shown = {name: {d: f"{v:.2f}" for d, v in values.items()} for name, values in columns.items()}
    return Section("Ranking of rows", words, [], shown)


def _ranked(rows: Row, classes: Array) -> tuple[Array, Array] | None:
    """Whether something is so, and its score: of the last of two classes, or of each class."""
    values = rows["decisions"] if rows["probabilities"] is None else rows["probabilities"]
    hits = np.eye(len(classes))[codes_of(rows["target"], classes)]
    if values is None or (len(classes) == 2 and not 0 < hits[:, 1].sum() < len(hits)):
        return None
    if len(classes) == 2:
        return hits[:, 1], values[:, 1] if values.ndim == 2 else values
    return hits.ravel(), values.ravel()


def calibration(label: str, mine: DomainPredictions, classes: Any) -> Section:
    """Calibration of the probabilities."""
    if any(rows["probabilities"] is None for rows in mine.values()):
        return Section("Calibration", [f"{label} gives no probabilities."], [])
    with drawing(4.3, 4.6) as figure:
        domains = [np.full(len(rows["target"]), domain) for domain, rows in mine.items()]
        target, p = ([r[n] for r in mine.values()] for n in ("target", "probabilities"))
        display = CalibrationByDomainDisplay.from_predictions(
            *(np.concatenate(parts) for parts in (target, p, domains)),
            classes=classes,
            ax=figure.subplots(),
            max_domains=FEW,
        )
        errors = {domain: curve.error for domain, curve in display.curves.items()}
        alt = (
            f"Probabilities of {label} against observed frequencies on {len(errors)} held-out "
            f"domains, calibration errors up to {max(errors.values()):.2f}"
        )
        caption = f"{label}: on the dotted line, probabilities equal observed frequencies"
        picture = Picture(to_svg(figure, "reliable", alt), alt, caption)
    worst = max(errors, key=lambda d: errors[d])
    predicted, observed, rows, _ = display.curves[worst]
    words = (
        f"The calibration error of {label} is {_mean(errors):.2f} on average over domains; the "
        f"largest is {errors[worst]:.2f}, on {worst!s}: the mean probability of "
        f"{display.about} is {percent(rows @ predicted / rows.sum())} there, and the observed "
        f"frequency {percent(rows @ observed / rows.sum())}."
    )
    columns = {"calibration error": {d: f"{e:.2f}" for d, e in errors.items()}}
    return Section("Calibration", [words], [picture], columns)


def residuals(label: str, mine: DomainPredictions, classes: Any = None) -> Section:
    """Residuals, and the bias of each domain."""
    away = {d: rows["prediction"] - np.asarray(rows["target"], float) for d, rows in mine.items()}
    bias = {domain: float(errors.mean()) for domain, errors in away.items()}
    square = {domain: float(np.mean(errors**2)) for domain, errors in away.items()}
    share = {d: bias[d] ** 2 / square[d] if square[d] else 0.0 for d in away}
    worst = max(bias, key=lambda d: abs(bias[d]))
    words = (
        f"The largest bias of {label} is on {worst!s}: predictions are {abs(bias[worst]):.3g} too "
        f"{'high' if bias[worst] > 0 else 'low'} on average, {percent(share[worst])} of the "
        f"squared error there. On average over domains, bias is {percent(_mean(share))} of it."
    )
    order = sorted(away, key=lambda d: -square[d])
    shown = order[:MOST_ROWS]
    with drawing(4.3, 1.2 + 0.26 * len(shown)) as figure:
        axes = figure.subplots()
        for place, domain in enumerate(shown):
            ends = np.quantile(away[domain], [0.05, 0.25, 0.5, 0.75, 0.95])
            colour = ACCENT if place == 0 else GREY
            axes.hlines(-place, ends[0], ends[4], color=colour)
            axes.hlines(-place, ends[1], ends[3], color=colour, linewidth=5, alpha=0.6)
            axes.plot(ends[2], -place, "o", color=INK, markersize=3.5)
        axes.axvline(0.0, color=INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(-np.arange(len(shown)), [short(domain) for domain in shown])
        axes.set_xlabel("predicted − observed")
        medians = "; ".join(f"{domain} {np.median(away[domain]):.3g}" for domain in shown)
        alt = f"Residuals of {label} on held-out domains, their medians: {medians}"
        caption = f"{label}: median, middle half and middle 90 % of residuals"
        caption += f"; the {len(shown)} worst of {len(order)} domains" * (len(shown) < len(order))
        picture = Picture(to_svg(figure, "residuals", alt), alt, caption)
    columns = {"bias": _alike(bias, "+")}
    columns["bias in squared error"] = {d: percent(s) for d, s in share.items()}
    return Section("Residuals", [words], [picture], columns)


def coverage(label: str, mine: DomainPredictions, classes: Any) -> Section | None:
    """Share of rows in their prediction set or interval, calibrated on the other domains."""
    asked = usual_coverage(len(mine) - 1)
    if asked is None:
        return None
    of_domain = covered(mine, classes, asked)
    shares = {domain: share for domain, (share, _) in of_domain.items()}
    lowest = min(shares, key=lambda d: shares[d])
    what, size = ("sets", "classes in a set") if classes is not None else ("intervals", "width")
    words = (
        f"Prediction {what} of {label} with a nominal coverage of {percent(asked)} covered "
        f"{percent(_mean(shares))} of the rows on average over held-out domains, and "
        f"{percent(shares[lowest])} on {lowest!s}, the lowest coverage. Thresholds come from the "
        "other domains; this is approximate, because their models were trained on the domain."
    )
    columns = {f"covered ({percent(asked)})": {d: percent(s) for d, s in shares.items()}}
    columns[size] = _alike({d: many for d, (_, many) in of_domain.items()})
    return Section(f"Coverage of prediction {what}", [words], [], columns)


def covered(
    predictions: DomainPredictions, classes: Array | None, asked: float
) -> dict[Any, tuple[float, float]]:
    """Of each domain the share of rows covered, and the mean size.

    The threshold of a domain comes from the scores of all others.
    """
    every = {
        domain: np.abs(np.asarray(rows["target"], float) - rows["prediction"])[:, None]
        if classes is None
        else class_nonconformity(rows, classes)[1]
        for domain, rows in predictions.items()
    }
    codes = {
        d: 0 if classes is None else codes_of(predictions[d]["target"], classes) for d in every
    }
    mine = {
        domain: scores[np.arange(len(scores)), codes[domain]] for domain, scores in every.items()
    }
    domain_of = np.repeat(np.arange(len(mine)), [len(scores) for scores in mine.values()])
    together, coverage_of = np.concatenate(list(mine.values())), {}
    for place, (domain, scores) in enumerate(mine.items()):
        other = domain_of != place
        reach = DomainQuantiles.of(together[other], domain_of[other]).threshold(asked)
        size = 2 * reach if classes is None else (every[domain] <= reach).sum(axis=1).mean()
        coverage_of[domain] = (float((scores <= reach).mean()), float(size))
    return coverage_of


def _alike(values: Mapping[Any, float], sign: str = "") -> dict[Any, str]:
    """Numbers of a column with as many decimals each, three digits of the largest."""
    most = max(map(abs, values.values()))
    decimals = max(0, 2 - int(np.floor(np.log10(most)))) if 0 < most < np.inf else 0
    return {domain: f"{value:{sign}.{decimals}f}" for domain, value in values.items()}


def _mean(values: Mapping[Any, float]) -> float:
    return float(np.mean(list(values.values())))
