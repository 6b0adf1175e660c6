"""Errors of the recommended method on held-out domains, computed from stored predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score

from domainwise.base.arrays import Array
from domainwise.evaluation.html import INK, Picture, TextCell, TextTable, drawing, to_svg
from domainwise.evaluation.plots import CalibrationDisplay, DecisionCurveDisplay
from domainwise.evaluation.plots.style import ACCENT, GRAY, short
from domainwise.evaluation.results import Prediction, Results, grouped, joined, percent
from domainwise.evaluation.verdict import in_sentence, names_of
from domainwise.held_out.calibration.quantiles import (
    DomainQuantiles,
    nonconformity,
    reported_coverage,
)
from domainwise.held_out.scoring.predictions import Outputs, codes_of

#: Maximum number of domains with their own panel or color, and of domains in a plot.
MAX_PANELS, MAX_DOMAINS = 5, 15
#: Minimum number of rows of a class in a domain for which an error rate is reported.
MIN_CLASS_ROWS = 5
DomainPredictions = Mapping[Any, Outputs]  #: a method's predictions by held-out domain


@dataclass
class Section:
    """A subsection of the page: sentences, plots, and columns for the table by domain."""

    title: str
    sentences: list[str]
    pictures: list[Picture]
    columns: dict[str, dict[Any, str]] = field(default_factory=dict)


def failure_sections(evaluation: Results) -> dict[str, Any] | None:
    """The part of the page about errors; None if predictions are not available."""
    method, class_names = evaluation.recommended, evaluation.facts["classes"]
    if method.key not in evaluation.records:
        return None
    predictions = predictions_by_domain(evaluation.records[method.key], evaluation.hardest_first)
    classes = None if class_names is None else np.asarray(class_names)
    section_makers = [residual_section, coverage_section]
    if class_names is not None:
        section_makers = [confusion_section, ranking_section, calibration_section, coverage_section]
    name = in_sentence(method)
    all_sections = (make_section(name, predictions, classes) for make_section in section_makers)
    sections = [section for section in all_sections if section is not None]
    columns = {"rows": {d: f"{len(record.target):,}" for d, record in predictions.items()}}
    for section in sections:
        columns |= section.columns
    rows = [
        [TextCell(text) for text in (str(d), *(column.get(d, "–") for column in columns.values()))]
        for d in predictions
    ]
    css_classes = ["worst" if domain == evaluation.worst_domain else "" for domain in predictions]
    table = TextTable(["domain", *columns], rows, css_classes).without_empty_columns()
    return {"sections": sections, "columns": columns, "table": table}


def predictions_by_domain(records: Sequence[Prediction], order: Sequence[Any]) -> DomainPredictions:
    """Predictions for all rows of each domain, with the domains in the given ``order``."""
    grouped_records = grouped(records)
    return {d: joined(grouped_records[d]) for d in order if d in grouped_records}


def confusion_section(name: str, predictions: DomainPredictions, classes: Any) -> Section:
    """Shares of correct predictions, and the most frequent errors."""
    class_names = [str(label) for label in classes]
    matrices = {
        domain: confusion_matrix(record.target, record.prediction, labels=classes)
        for domain, record in predictions.items()
    }
    total = np.sum(list(matrices.values()), axis=0)
    sentence = f"All rows of the held-out domains are predicted correctly by {name}."
    if error := _most_frequent_error(total):
        true, predicted = error
        sentence = (
            f"The most frequent error of {name} is to predict class {class_names[predicted]} "
            f"instead of class {class_names[true]}, in {total[error]:,} of {total[true].sum():,} "
            f"rows of class {class_names[true]} ({percent(total[error] / total[true].sum())})"
        )
        class_sizes = {d: matrix[true].sum() for d, matrix in matrices.items()}
        shares = {d: matrices[d][error] / n for d, n in class_sizes.items() if n >= MIN_CLASS_ROWS}
        if shares:
            domain = max(shares, key=lambda d: shares[d])
            sentence += f". This share is largest on {names_of(domain)}: {percent(shares[domain])}"
        sentence += "."
    error_texts = dict.fromkeys(matrices, "none")
    for d, matrix in matrices.items():
        if error := _most_frequent_error(matrix):
            true, predicted = error
            error_text = f"{class_names[predicted]} instead of {class_names[true]}"
            error_texts[d] = f"{error_text}: {matrix[error]} of {matrix[true].sum()}"
    correct_texts = {d: percent(np.trace(m) / m.sum()) for d, m in matrices.items()}
    columns = {"correct": correct_texts, "most frequent error": error_texts}
    picture = _confusion_picture(name, matrices, class_names)
    return Section("Classification errors", [sentence], [picture], columns)


def _most_frequent_error(matrix: Array) -> tuple[int, int] | None:
    """Indices of the true and predicted class of the most frequent error; None without errors."""
    error_counts = matrix * (1 - np.eye(len(matrix), dtype=int))
    true, predicted = divmod(int(np.argmax(error_counts)), len(matrix))
    return (true, predicted) if error_counts.any() else None


def _confusion_picture(name: str, matrices: Mapping[Any, Array], class_names: list[str]) -> Picture:
    """Plot the confusion matrix of each domain, or of the worst domains and all others together."""
    subject, panels = "Each domain", [(short(d), matrix) for d, matrix in matrices.items()]
    if len(other_panels := panels[MAX_PANELS:]) > 1:  # a single other domain has its own panel
        subject = f"Each of the {MAX_PANELS} worst of {len(panels)} domains"
        other_total = np.sum([matrix for _, matrix in other_panels], axis=0)
        panels = [*panels[:MAX_PANELS], (f"the other {len(other_panels)}", other_total)]
    n, n_columns = len(class_names), min(3, len(panels))
    n_rows, ticks = -(-len(panels) // n_columns), np.arange(n) + 0.5
    with drawing(3.0 * n_columns, 0.6 + (1.4 + 0.16 * n) * n_rows) as figure:
        all_axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
        for axes, (domain, matrix) in zip(all_axes, panels, strict=False):
            shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
            for (i, j), share in np.ndenumerate(shares):
                square = ([j, j + 1, j + 1, j], [i, i, i + 1, i + 1])
                color = GRAY if i == j else ACCENT
                axes.fill(*square, color=color, alpha=0.85 * share, linewidth=0)
                if n <= 5 and matrix[i].any():
                    text = percent(share) if n > 3 else f"{percent(share)}\n{matrix[i, j]}"
                    axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7)
            axes.set(xlim=(0, n), ylim=(n, 0), title=f"{domain} ({matrix.sum()})")
            labels = [short(class_name) for class_name in class_names]
            axes.set_xticks(ticks, labels, fontsize=7, rotation=90 if n > 3 else 0)
            axes.set_yticks(ticks, labels, fontsize=7)
            axes.tick_params(length=0)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel("predicted", fontsize=9)
        figure.supylabel("true", fontsize=9)
        correct_text = "; ".join(f"{d} {np.trace(m)} of {m.sum()} correct" for d, m in panels)
        alt = f"Predicted classes by true class on held-out domains, {name}: {correct_text}"
        caption = (
            f"Each row of a panel is a true class, and each column a predicted class. A cell shows "
            f"the share of the true class that gets this prediction from {name}; errors are red. "
            f"{subject} has a panel, with its number of rows in parentheses"
        )
        return Picture(to_svg(figure, "confusion", alt), alt, caption, wide=True)


def ranking_section(name: str, predictions: DomainPredictions, classes: Any) -> Section | None:
    """ROC AUC and average precision by domain, micro-averaged for more than two classes."""
    aucs, precision_areas = {}, {}
    for domain, record in predictions.items():
        probabilities = record.probabilities
        outputs = record.decisions if probabilities is None else probabilities
        indicators = np.eye(len(classes))[codes_of(record.target, classes)]
        if len(classes) == 2:
            indicators = indicators[:, 1]
            outputs = outputs[:, 1] if outputs is not None and outputs.ndim == 2 else outputs
        if outputs is not None and 0 < indicators.sum() < indicators.size:
            aucs[domain] = roc_auc_score(indicators.ravel(), outputs.ravel())
            precision_areas[domain] = average_precision_score(indicators.ravel(), outputs.ravel())
    if not aucs:
        return None
    lowest_domain = min(aucs, key=lambda d: aucs[d])
    subject = f"class {classes[1]}" if len(classes) == 2 else "all classes, each against the others"
    sentences = [
        f"The area under the ROC curve (AUC; 0.5 is chance, 1 is perfect) of {name} is "
        f"{_mean(aucs):.2f} on average over held-out domains; the lowest is "
        f"{aucs[lowest_domain]:.2f}, on {names_of(lowest_domain)}. The average precision in the "
        f"table below is the area under the precision-recall curve for {subject}."
    ]
    if one_class_names := [str(domain) for domain in predictions if domain not in aucs]:
        sentences.append(f"Domains with only one class have no AUC: {', '.join(one_class_names)}.")
    auc_texts = {domain: f"{auc:.2f}" for domain, auc in aucs.items()}
    precision_texts = {domain: f"{precision:.2f}" for domain, precision in precision_areas.items()}
    columns = {"AUC": auc_texts, "average precision": precision_texts}
    return Section("Discrimination between classes", sentences, [], columns)


def calibration_section(name: str, predictions: DomainPredictions, classes: Any) -> Section:
    """Predicted probabilities compared with observed frequencies."""
    if any(record.probabilities is None for record in predictions.values()):
        return Section("Calibration", [f"Probabilities are not available for {name}."], [])
    with drawing(4.3, 4.6) as figure:
        arrays = [
            (record.target, record.probabilities, np.full(len(record.target), domain))
            for domain, record in predictions.items()
        ]
        display = CalibrationDisplay.from_predictions(
            *map(np.concatenate, zip(*arrays, strict=True)),
            classes=classes,
            ax=figure.subplots(),
        )
        errors = {domain: curve.error for domain, curve in display.curves.items()}
        alt = f"Probabilities of {name} against observed frequencies by held-out domain"
        caption = "On the dotted line, predicted probabilities equal observed frequencies"
        picture = Picture(to_svg(figure, "reliable", alt), alt, caption)
    worst_domain = max(errors, key=lambda d: errors[d])
    probabilities, frequencies, counts, _ = display.curves[worst_domain]
    subject, frequency_text = f"class {display.about}", percent(counts @ frequencies / counts.sum())
    outcome = f"its observed frequency is {frequency_text}"
    if len(classes) > 2:
        subject, outcome = display.about, f"it is correct in {frequency_text} of the rows"
    sentence = (
        f"The calibration error of {name}, which is the mean absolute difference between "
        f"predicted probabilities and observed frequencies, is {_mean(errors):.2f} on average over "
        f"held-out domains. It is largest on {names_of(worst_domain)}: {errors[worst_domain]:.2f}. "
        f"There, the mean predicted probability of {subject} is "
        f"{percent(counts @ probabilities / counts.sum())}, and {outcome}."
    )
    columns = {"calibration error": {d: f"{error:.2f}" for d, error in errors.items()}}
    pooled_texts = []
    named = {"O/E": display.ratio, "calibration slope": display.slope}
    for quantity, estimates in named.items() if len(classes) == 2 else ():
        if estimates is None or estimates.pooled is None:
            continue
        columns[quantity] = {
            domain: f"{site.value:.2f} ({site.interval[0]:.2f} to {site.interval[1]:.2f})"
            for domain, site in estimates.sites.items()
            if np.isfinite(site.value)
        }
        range_text = ""
        if (ends := estimates.pooled.true_range) is not None:
            range_text = (
                f" (at a new site, {ends[0]:.2f} to {ends[1]:.2f} with a probability of 90 %)"
            )
        pooled_texts.append(f"{quantity} is {estimates.value:.2f}{range_text}")
    sentences = [sentence]
    if pooled_texts:
        sentences.append(
            f"Pooled over domains, {' and '.join(pooled_texts)}. O/E is the observed number of "
            f"rows of class {display.about} divided by the number expected from the probabilities, "
            "and a slope below 1 means that probabilities are too extreme."
        )
    pictures = [picture]
    if len(classes) == 2:
        pictures.append(_decision_picture(name, arrays, classes))
    return Section("Calibration", sentences, pictures, columns)


def _decision_picture(name: str, arrays: Sequence[tuple[Any, ...]], classes: Any) -> Picture:
    """Plot the net benefit of treating the rows above a threshold."""
    targets, probabilities, domains = map(np.concatenate, zip(*arrays, strict=True))
    with drawing(4.3, 4.0) as figure:
        DecisionCurveDisplay.from_predictions(
            targets, probabilities[:, 1], domains, pos_label=classes[1], ax=figure.subplots()
        )
        alt = f"Net benefit of {name} by threshold, on held-out domains"
        caption = (
            f"Net benefit of treating the rows whose probability of class {classes[1]} is at least "
            "the threshold: true positives minus weighted false positives, per row"
        )
        return Picture(to_svg(figure, "decisions", alt), alt, caption)


def residual_section(name: str, predictions: DomainPredictions, classes: Any = None) -> Section:
    """Residuals, and the bias (their mean) on each domain."""
    residuals = {d: r.prediction - r.target.astype(float) for d, r in predictions.items()}
    biases = {d: float(np.mean(errors)) for d, errors in residuals.items()}
    mean_squares = {d: float(np.mean(errors**2)) for d, errors in residuals.items()}
    bias_shares = {d: biases[d] ** 2 / s if s else 0.0 for d, s in mean_squares.items()}
    most_biased_domain = max(biases, key=lambda d: abs(biases[d]))
    bias, bias_share = biases[most_biased_domain], bias_shares[most_biased_domain]
    sentence = (
        f"The bias of {name} is largest on {names_of(most_biased_domain)}: predictions are "
        f"{abs(bias):.3g} too {'high' if bias > 0 else 'low'} on average, which accounts for "
        f"{percent(bias_share)} of the squared error there. On average over held-out domains, bias "
        f"accounts for {percent(_mean(bias_shares))} of the squared error."
    )
    worst_domains = sorted(residuals, key=lambda d: -mean_squares[d])[:MAX_DOMAINS]
    with drawing(4.3, 1.2 + 0.26 * len(worst_domains)) as figure:
        axes = figure.subplots()
        for i, domain in enumerate(worst_domains):
            quantiles = np.quantile(residuals[domain], [0.05, 0.25, 0.5, 0.75, 0.95])
            color = ACCENT if i == 0 else GRAY
            axes.hlines(-i, quantiles[0], quantiles[4], color=color)
            axes.hlines(-i, quantiles[1], quantiles[3], color=color, linewidth=5, alpha=0.6)
            axes.plot(quantiles[2], -i, "o", color=INK, markersize=3.5)
        axes.axvline(0.0, color=INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(-np.arange(len(worst_domains)), [short(domain) for domain in worst_domains])
        axes.set_xlabel("predicted − observed")
        medians_text = "; ".join(f"{d} {np.median(residuals[d]):.3g}" for d in worst_domains)
        alt = f"Residuals of {name} on held-out domains, with these medians: {medians_text}"
        caption = f"Residuals of {name}: median (dot), middle half (bar) and middle 90 % (line)"
        caption += f", for the {MAX_DOMAINS} worst domains" * (len(residuals) > MAX_DOMAINS)
        picture = Picture(to_svg(figure, "residuals", alt), alt, caption)
    share_texts = {d: percent(share) for d, share in bias_shares.items()}
    columns = {"bias": _align(biases, "+"), "squared error due to bias": share_texts}
    return Section("Residuals", [sentence], [picture], columns)


def coverage_section(name: str, predictions: DomainPredictions, classes: Any) -> Section | None:
    """Coverage of prediction sets or intervals, which are calibrated on the other domains."""
    level = reported_coverage(len(predictions) - 1)
    if level is None:
        return None
    coverage_and_size = coverage_by_domain(predictions, classes, level)
    shares = {d: share for d, (share, _) in coverage_and_size.items()}
    sizes = {d: size for d, (_, size) in coverage_and_size.items()}
    lowest_domain = min(shares, key=lambda d: shares[d])
    noun, target, size_name, definition = "interval", "value", "width of intervals", "range"
    size_text = f"an interval is {_mean(sizes):.3g} wide"
    if classes is not None:
        noun, target, size_name, definition = "set", "class", "classes per set", "set of classes"
        size_text = f"a set contains {_mean(sizes):.2g} classes (0 to {len(classes)} are possible)"
    lowest_text = ""
    if (min_share := shares[lowest_domain]) < max(shares.values()):
        lowest_text = f"; this share is lowest on {names_of(lowest_domain)}: {percent(min_share)}"
    sentence = (
        f"A prediction {noun} is a {definition} that should contain the true {target} of a row "
        f"with a given probability, here {percent(level)}. On average over held-out domains, "
        f"{size_text}, and {percent(_mean(shares))} of the {noun}s of {name} contain the true "
        f"{target} (the coverage){lowest_text}. "
        "These numbers are approximate, because the predictions used to calibrate a domain's "
        f"{noun}s come from models whose training data included that domain."
    )
    coverage_texts = {d: percent(share) for d, share in shares.items()}
    columns = {f"coverage (nominal {percent(level)})": coverage_texts, size_name: _align(sizes)}
    return Section(f"Coverage of prediction {noun}s", [sentence], [], columns)


def coverage_by_domain(
    predictions: DomainPredictions, classes: Array | None, level: float
) -> dict[Any, tuple[float, float]]:
    """Coverage and mean size of the prediction sets or intervals for each domain.

    The threshold for a domain is computed from the nonconformity scores of all other domains.
    """
    scores = {domain: nonconformity(record, classes) for domain, record in predictions.items()}
    true_score_arrays = [true_scores for _, _, true_scores in scores.values()]
    pooled_scores = np.concatenate(true_score_arrays)
    domain_codes = np.repeat(np.arange(len(scores)), [len(array) for array in true_score_arrays])
    coverage_and_size = {}
    for i, (domain, (output_name, class_scores, true_scores)) in enumerate(scores.items()):
        is_other = domain_codes != i
        quantiles = DomainQuantiles.approximately(
            pooled_scores[is_other],
            domain_codes[is_other],
            are_probabilities=output_name == "probabilities",
        )
        threshold = quantiles.threshold(level)
        sizes = (class_scores <= threshold).sum(axis=1)
        mean_size = 2 * threshold if classes is None else sizes.mean()
        coverage_and_size[domain] = (float((true_scores <= threshold).mean()), float(mean_size))
    return coverage_and_size


def _align(values: Mapping[Any, float], sign: str = "") -> dict[Any, str]:
    """Format values with the same number of decimals; the largest has at least three digits."""
    largest = max(map(abs, values.values()))
    decimals = max(0, 2 - int(np.floor(np.log10(largest)))) if 0 < largest < np.inf else 0
    return {domain: f"{value:{sign}.{decimals}f}" for domain, value in values.items()}


def _mean(values: Mapping[Any, float]) -> float:
    return float(np.mean(list(values.values())))
