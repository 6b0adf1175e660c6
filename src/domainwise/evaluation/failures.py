"""Errors of the recommended method on held-out domains, computed from stored predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score

from domainwise.arrays import Array
from domainwise.calibration.quantiles import DomainQuantiles, record_scores, reported_coverage
from domainwise.evaluation.results import Record, Results, grouped, joined, percent
from domainwise.evaluation.verdict import names_of
from domainwise.plots import CalibrationByDomainDisplay
from domainwise.plots.style import ACCENT, GREY, short
from domainwise.report.page import INK, Picture, TextCell, TextTable, drawing, to_svg
from domainwise.scoring.predictions import codes_of

#: Maximum number of domains that have a separate panel or colour, and of domains in a plot.
MAX_PANELS, MAX_DOMAINS = 5, 15
#: Minimum number of rows of a class in a domain for which an error rate is reported.
MIN_CLASS_ROWS = 5
DomainPredictions = Mapping[Any, Record]  #: predictions of a method on held-out domains


@dataclass
class Section:
    """A subsection of the page: sentences, plots, and columns for the table by domain."""

    title: str
    sentences: list[str]
    pictures: list[Picture]
    columns: dict[str, dict[Any, str]] = field(default_factory=dict)


def failure_sections(evaluation: Results) -> dict[str, Any] | None:
    """The subsections of the page about errors; None if predictions are not available."""
    method, names = evaluation.recommended, evaluation.facts["classes"]
    if method.key not in evaluation.records:
        return None
    predictions = predictions_by_domain(evaluation.records[method.key], evaluation.hardest_first)
    classes = None if names is None else np.asarray(names)
    makers = (residuals, coverage) if names is None else (confusion, ranking, calibration, coverage)
    all_sections = (make_section(method.label, predictions, classes) for make_section in makers)
    sections = [section for section in all_sections if section is not None]
    columns = {"rows": {domain: f"{len(rows['target']):,}" for domain, rows in predictions.items()}}
    for section in sections:
        columns |= section.columns
    rows = [
        [TextCell(text) for text in (str(d), *(column.get(d, "–") for column in columns.values()))]
        for d in predictions
    ]
    kinds = ["worst" if domain == evaluation.worst_domain else "" for domain in predictions]
    table = TextTable(["domain", *columns], rows, kinds).without_empty_columns()
    return {"sections": sections, "columns": columns, "table": table}


def predictions_by_domain(records: Sequence[Record], order: Sequence[Any]) -> DomainPredictions:
    """Predictions for all rows of each domain, with the domains in the given order."""
    groups = grouped(records)
    return {domain: joined(groups[domain]) for domain in order if domain in groups}


def confusion(label: str, predictions: DomainPredictions, classes: Any) -> Section:
    """Shares of correct predictions, and the most frequent errors."""
    names = [str(name) for name in classes]
    tables = {
        domain: confusion_matrix(rows["target"], rows["prediction"], labels=classes)
        for domain, rows in predictions.items()
    }
    total = np.sum(list(tables.values()), axis=0)
    sentence = f"{label} predicts every row of the held-out domains correctly."
    if error := _most_frequent_error(total):
        a, b = error
        sentence = (
            f"The most frequent error of {label} is to predict class {names[b]} instead of class "
            f"{names[a]}, in {total[a, b]:,} of {total[a].sum():,} rows of class {names[a]}"
        )
        counts = {d: table[a].sum() for d, table in tables.items()}
        shares = {d: tables[d][a, b] / n for d, n in counts.items() if n >= MIN_CLASS_ROWS}
        if shares:
            worst = max(shares, key=lambda d: shares[d])
            sentence += f". This share is largest on {names_of(worst)}: {percent(shares[worst])}"
        sentence += "."
    error_texts = dict.fromkeys(tables, "none")
    for d, table in tables.items():
        if error := _most_frequent_error(table):
            a, b = error
            error_texts[d] = f"{names[b]} instead of {names[a]}: {table[a, b]} of {table[a].sum()}"
    correct = {d: percent(np.trace(t) / t.sum()) for d, t in tables.items()}
    columns = {"correct": correct, "most frequent error": error_texts}
    picture = _confusion_picture(label, tables, names)
    return Section("Classification errors", [sentence], [picture], columns)


def _most_frequent_error(table: Array) -> tuple[int, int] | None:
    """True and predicted class of the most frequent error; None if there is no error."""
    error_counts = table * (1 - np.eye(len(table), dtype=int))
    a, b = divmod(int(np.argmax(error_counts)), len(table))
    return (a, b) if error_counts.any() else None


def _confusion_picture(label: str, tables: Mapping[Any, Array], names: Sequence[str]) -> Picture:
    """Plot a confusion matrix for each domain, or for the worst domains and for all others."""
    panels, subject = [(short(domain), table) for domain, table in tables.items()], "Each domain"
    if len(others := panels[MAX_PANELS:]) > 1:  # a single other domain has its own panel
        subject = f"Each of the {MAX_PANELS} worst of {len(panels)} domains"
        total = np.sum([table for _, table in others], axis=0)
        panels = [*panels[:MAX_PANELS], (f"the other {len(others)}", total)]
    n, n_columns = len(names), min(3, len(panels))
    n_rows, ticks = -(-len(panels) // n_columns), np.arange(n) + 0.5
    with drawing(3.0 * n_columns, 0.6 + (1.4 + 0.16 * n) * n_rows) as figure:
        grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for axes, (domain, table) in zip(grid, panels, strict=False):
            shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
            for (a, b), share in np.ndenumerate(shares):
                square = ([b, b + 1, b + 1, b], [a, a, a + 1, a + 1])
                colour = GREY if a == b else ACCENT
                axes.fill(*square, color=colour, alpha=0.85 * share, linewidth=0)
                if n <= 5 and table[a].any():
                    text = percent(share) if n > 3 else f"{percent(share)}\n{table[a, b]}"
                    axes.text(b + 0.5, a + 0.5, text, ha="center", va="center", fontsize=7)
            axes.set(xlim=(0, n), ylim=(n, 0), title=f"{domain} ({table.sum()})")
            labels = [short(name) for name in names]
            axes.set_xticks(ticks, labels, fontsize=7, rotation=90 if n > 3 else 0)
            axes.set_yticks(ticks, labels, fontsize=7)
            axes.tick_params(length=0)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel("predicted", fontsize=9)
        figure.supylabel("true", fontsize=9)
        correct = "; ".join(f"{name} {np.trace(t)} of {t.sum()} correct" for name, t in panels)
        alt = f"Predicted classes by true class on held-out domains, {label}: {correct}"
        caption = (
            f"Each cell shows the share of a true class (left) that {label} predicted as the class "
            f"below; errors are red. {subject} has a panel, with its number of rows in parentheses"
        )
        return Picture(to_svg(figure, "confusion", alt), alt, caption, wide=True)


def ranking(label: str, predictions: DomainPredictions, classes: Any) -> Section | None:
    """ROC AUC and average precision by domain, micro-averaged for more than two classes."""
    areas, precisions = {}, {}
    for domain, rows in predictions.items():
        values = rows["decisions"] if rows["probabilities"] is None else rows["probabilities"]
        indicators = np.eye(len(classes))[codes_of(rows["target"], classes)]
        if len(classes) == 2:
            indicators = indicators[:, 1]
            values = values[:, 1] if values is not None and values.ndim == 2 else values
        if values is not None and 0 < indicators.sum() < indicators.size:
            areas[domain] = roc_auc_score(indicators.ravel(), values.ravel())
            precisions[domain] = average_precision_score(indicators.ravel(), values.ravel())
    if not areas:
        return None
    lowest = min(areas, key=lambda d: areas[d])
    about = f"class {classes[1]}" if len(classes) == 2 else "all classes, each against the others"
    sentences = [
        f"The area under the ROC curve (AUC; 0.5 is chance, 1 is perfect) of {label} is "
        f"{_mean(areas):.2f} on average over held-out domains; the lowest is {areas[lowest]:.2f}, "
        f"on {names_of(lowest)}. The average precision in the table is the area under the "
        f"precision-recall curve for {about}."
    ]
    if one_class_names := [str(domain) for domain in predictions if domain not in areas]:
        sentences.append(f"Domains with only one class have no AUC: {', '.join(one_class_names)}.")
    columns = {"AUC": areas, "average precision": precisions}
    texts = {name: {d: f"{v:.2f}" for d, v in values.items()} for name, values in columns.items()}
    return Section("Discrimination between classes", sentences, [], texts)


def calibration(label: str, predictions: DomainPredictions, classes: Any) -> Section:
    """Calibration of the probabilities."""
    if any(rows["probabilities"] is None for rows in predictions.values()):
        return Section("Calibration", [f"{label} does not predict probabilities."], [])
    with drawing(4.3, 4.6) as figure:
        arrays = [
            (rows["target"], rows["probabilities"], np.full(len(rows["target"]), domain))
            for domain, rows in predictions.items()
        ]
        display = CalibrationByDomainDisplay.from_predictions(
            *map(np.concatenate, zip(*arrays, strict=True)),
            classes=classes,
            ax=figure.subplots(),
            max_domains=MAX_PANELS,
        )
        errors = {domain: curve.error for domain, curve in display.curves.items()}
        alt = f"Probabilities of {label} against observed frequencies by held-out domain"
        caption = "On the dotted line, predicted probabilities equal observed frequencies"
        picture = Picture(to_svg(figure, "reliable", alt), alt, caption)
    worst = max(errors, key=lambda d: errors[d])
    predicted, observed, counts, _ = display.curves[worst]
    about, share = f"class {display.about}", percent(counts @ observed / counts.sum())
    outcome = f"its observed frequency is {share}"
    if len(classes) > 2:
        about, outcome = display.about, f"it is correct in {share} of the rows"
    sentence = (
        f"The calibration error of {label}, which is the mean absolute difference between "
        f"predicted probabilities and observed frequencies, is {_mean(errors):.2f} on average over "
        f"held-out domains. It is largest on {names_of(worst)}: {errors[worst]:.2f}. There, the "
        f"mean predicted probability of {about} is {percent(counts @ predicted / counts.sum())}, "
        f"and {outcome}."
    )
    columns = {"calibration error": {d: f"{e:.2f}" for d, e in errors.items()}}
    return Section("Calibration", [sentence], [picture], columns)


def residuals(label: str, predictions: DomainPredictions, classes: Any = None) -> Section:
    """Residuals, and the bias on each domain."""
    errors = {d: r["prediction"] - np.asarray(r["target"], float) for d, r in predictions.items()}
    bias = {domain: float(error.mean()) for domain, error in errors.items()}
    squared_error = {domain: float(np.mean(error**2)) for domain, error in errors.items()}
    bias_share = {d: bias[d] ** 2 / squared_error[d] if squared_error[d] else 0.0 for d in errors}
    worst = max(bias, key=lambda d: abs(bias[d]))
    sentence = (
        f"The bias of {label} is largest on {names_of(worst)}: its predictions are "
        f"{abs(bias[worst]):.3g} too {'high' if bias[worst] > 0 else 'low'} on average, which "
        f"accounts for {percent(bias_share[worst])} of the squared error there. On average over "
        f"held-out domains, bias accounts for {percent(_mean(bias_share))} of the squared error."
    )
    worst_domains = sorted(errors, key=lambda d: -squared_error[d])[:MAX_DOMAINS]
    with drawing(4.3, 1.2 + 0.26 * len(worst_domains)) as figure:
        axes = figure.subplots()
        for i, domain in enumerate(worst_domains):
            quantiles = np.quantile(errors[domain], [0.05, 0.25, 0.5, 0.75, 0.95])
            colour = ACCENT if i == 0 else GREY
            axes.hlines(-i, quantiles[0], quantiles[4], color=colour)
            axes.hlines(-i, quantiles[1], quantiles[3], color=colour, linewidth=5, alpha=0.6)
            axes.plot(quantiles[2], -i, "o", color=INK, markersize=3.5)
        axes.axvline(0.0, color=INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(-np.arange(len(worst_domains)), [short(domain) for domain in worst_domains])
        axes.set_xlabel("predicted − observed")
        medians = "; ".join(f"{domain} {np.median(errors[domain]):.3g}" for domain in worst_domains)
        alt = f"Residuals of {label} on held-out domains, with these medians: {medians}"
        caption = f"Residuals of {label}: median (dot), middle half (bar) and middle 90 % (line)"
        caption += f", for the {MAX_DOMAINS} worst domains" * (len(errors) > MAX_DOMAINS)
        picture = Picture(to_svg(figure, "residuals", alt), alt, caption)
    share_texts = {d: percent(s) for d, s in bias_share.items()}
    columns = {"bias": _aligned(bias, "+"), "squared error due to bias": share_texts}
    return Section("Residuals", [sentence], [picture], columns)


def coverage(label: str, predictions: DomainPredictions, classes: Any) -> Section | None:
    """Coverage of prediction sets or intervals, which are calibrated on the other domains."""
    nominal = reported_coverage(len(predictions) - 1)
    if nominal is None:
        return None
    pairs = coverage_by_domain(predictions, classes, nominal)
    shares, sizes = ({d: pair[i] for d, pair in pairs.items()} for i in (0, 1))
    lowest = min(shares, key=lambda d: shares[d])
    kind, value, size_name, meaning = "interval", "value", "width of intervals", "range"
    extent = f"an interval is {_mean(sizes):.3g} wide"
    if classes is not None:
        kind, value, size_name, meaning = "set", "class", "classes per set", "set of classes"
        extent = f"a set contains {_mean(sizes):.2g} classes (0 to {len(classes)} are possible)"
    sentence = (
        f"A prediction {kind} is a {meaning} that should contain the true {value} of a row with a "
        f"given probability (50 %, 80 % or 90 %). Higher probabilities need more domains; with "
        f"{len(shares)} domains, this report uses {percent(nominal)}. On average over held-out "
        f"domains, {extent}, and {percent(_mean(shares))} of the {kind}s of {label} contain the "
        f"true {value}; this share is lowest on {names_of(lowest)}: {percent(shares[lowest])}. "
        "These numbers are approximate, because the predictions used to calibrate a domain's "
        f"{kind}s come from models whose training data included that domain."
    )
    coverage_texts = {d: percent(s) for d, s in shares.items()}
    columns = {f"coverage (nominal {percent(nominal)})": coverage_texts, size_name: _aligned(sizes)}
    return Section(f"Coverage of prediction {kind}s", [sentence], [], columns)


def coverage_by_domain(
    predictions: DomainPredictions, classes: Array | None, nominal: float
) -> dict[Any, tuple[float, float]]:
    """Coverage and mean size of the prediction sets or intervals for each domain.

    The threshold for a domain is computed from the nonconformity scores of all other domains.
    """
    scores = {domain: record_scores(rows, classes) for domain, rows in predictions.items()}
    domain_of = np.repeat(np.arange(len(scores)), [len(s) for _, _, s in scores.values()])
    pooled_scores = np.concatenate([observed for _, _, observed in scores.values()])
    pairs = {}
    for i, (domain, (_, by_class, observed)) in enumerate(scores.items()):
        is_other = domain_of != i
        quantiles = DomainQuantiles.from_scores(pooled_scores[is_other], domain_of[is_other])
        threshold = quantiles.threshold(nominal)
        sizes = (by_class <= threshold).sum(axis=1)
        size = 2 * threshold if classes is None else sizes.mean()
        pairs[domain] = (float((observed <= threshold).mean()), float(size))
    return pairs


def _aligned(values: Mapping[Any, float], sign: str = "") -> dict[Any, str]:
    """Format values with the same number of decimals, so that the largest has three digits."""
    largest = max(map(abs, values.values()))
    decimals = max(0, 2 - int(np.floor(np.log10(largest)))) if 0 < largest < np.inf else 0
    return {domain: f"{value:{sign}.{decimals}f}" for domain, value in values.items()}


def _mean(values: Mapping[Any, float]) -> float:
    return float(np.mean(list(values.values())))
