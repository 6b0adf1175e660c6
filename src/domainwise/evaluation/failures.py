"""The recommended method on each held-out domain: scores, calibration, decisions and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix

from domainwise.base.arrays import Array
from domainwise.evaluation.html import Picture, TextCell, TextTable, drawing, to_svg
from domainwise.evaluation.plots import CalibrationDisplay, DecisionCurveDisplay
from domainwise.evaluation.plots.style import number_format
from domainwise.evaluation.results import (
    MethodResult,
    Prediction,
    Results,
    grouped,
    joined,
    percent,
)
from domainwise.evaluation.sites import (
    calibration_estimates,
    event_estimates,
    has_outputs,
    method_decision_curves,
    pool_method,
)
from domainwise.evaluation.verdict import in_sentence, names_of
from domainwise.held_out.calibration.quantiles import (
    DomainQuantiles,
    nonconformity,
    reported_coverage,
)
from domainwise.held_out.scoring.pooling import PooledScores
from domainwise.held_out.scoring.predictions import Outputs
from domainwise.held_out.scoring.site_calibration import SiteEstimates

#: Minimum number of rows of a class in a domain for which an error rate is reported.
MIN_CLASS_ROWS = 5
#: Names of estimates in tables.
TITLES = {
    "auc": "AUC",
    "oe": "O/E",
    "intercept": "calibration intercept",
    "slope": "calibration slope",
    "ppv": "PPV",
    "npv": "NPV",
    "net_benefit": "net benefit",
    "treat_all": "net benefit of treating all",
}
Columns = dict[str, dict[Any, str]]  #: texts by heading, then by domain
DomainPredictions = Mapping[Any, Outputs]  #: a method's predictions by held-out domain


def predictions_by_domain(records: Sequence[Prediction], order: Sequence[Any]) -> DomainPredictions:
    """Predictions for all rows of each domain, with the domains in the given ``order``."""
    grouped_records = grouped(records)
    return {d: joined(grouped_records[d]) for d in order if d in grouped_records}


def recommended_predictions(evaluation: Results) -> DomainPredictions:
    """Predictions of the recommended method, worst domain first; empty if not available."""
    records = evaluation.records.get(evaluation.recommended.key, ())
    return predictions_by_domain(records, evaluation.hardest_first)


def target_column(evaluation: Results, *, short: bool = False) -> tuple[str, dict[Any, str]]:
    """Heading and texts: rows of the second of two classes, or the mean of the target."""
    classes, counts = evaluation.classes, evaluation.row_counts
    targets = {d: record.target for d, record in recommended_predictions(evaluation).items()}
    if classes is None:
        means = {d: float(np.mean(y)) for d, y in targets.items()}
        spread = float(np.std(list(means.values()))) if means else 0.0
        text = number_format(means.values(), [(0.0, spread)])
        return "mean of the target", {d: text(mean) for d, mean in means.items()}
    if len(classes) != 2:
        return "", {}
    shares = {d: float(np.mean(y == classes[1])) for d, y in targets.items()}
    texts = {d: f"{share * counts.get(d, 0):,.0f}" for d, share in shares.items()}
    return f"class {classes[1]}", texts


def score_columns(evaluation: Results) -> Columns:
    """Rows, target, and scores with intervals, worst domain first."""
    method, measure, domains = evaluation.recommended, evaluation.measure, evaluation.hardest_first
    scores = {d: measure.shown(method.scores[d]) for d in domains}
    ends = {d: evaluation.ends(method, d) for d in domains}
    text = number_format(scores.values(), ends.values())
    heading, target_texts = target_column(evaluation)
    columns = {
        "rows": {d: f"{n:,}" for d, n in evaluation.row_counts.items() if n},
        heading: target_texts,
        measure.label: {d: text(score) for d, score in scores.items()},
        "95 %": {
            d: f"{text(low)} to {text(high)}" for d, (low, high) in ends.items() if low < high
        },
        "seen": {d: text(measure.shown(method.seen.get(d, np.nan))) for d in domains},
        "within": {d: text(measure.shown(method.within.get(d, np.nan))) for d in domains},
    }
    return {name: texts for name, texts in columns.items() if set(texts.values()) - {"–"}}


def estimate_texts(by_site: SiteEstimates) -> dict[Any, str]:
    """Value and interval of an estimate for each domain."""
    estimates = {d: e for d, e in by_site.sites.items() if np.isfinite(e.value)}
    text = number_format(
        [e.value for e in estimates.values()], [e.interval for e in estimates.values()]
    )
    return {
        d: f"{text(e.value)}"
        + f" ({text(e.interval[0])} to {text(e.interval[1])})" * bool(e.interval[0] < e.interval[1])
        for d, e in estimates.items()
    }


def site_estimates(evaluation: Results) -> dict[str, SiteEstimates]:
    """AUC, calibration and decisions of the recommended method, by heading."""
    method, estimates = evaluation.recommended, {}
    if not has_outputs(evaluation, method):
        return {}
    classes = evaluation.classes
    if classes is not None and len(classes) == 2:
        estimates = event_estimates(evaluation, method, evaluation.threshold)
    by_class = calibration_estimates(evaluation, method)
    for label, by_quantity in by_class.items():
        suffix = f", class {label}" * (len(by_class) > 1)
        estimates |= {TITLES.get(q, q) + suffix: estimate for q, estimate in by_quantity.items()}
    return {TITLES.get(name, name): estimate for name, estimate in estimates.items()}


def pooled_table(evaluation: Results, estimates: Mapping[str, SiteEstimates]) -> TextTable:
    """Scores and estimates, pooled over domains."""
    label, score = evaluation.measure.label, pool_method(evaluation, evaluation.recommended)
    pooled = {label: score, **{name: e.pooled for name, e in estimates.items() if name != label}}
    headings = ["quantity", "mean", "90 %", "prediction interval", "τ", "τ (90 %)", "I²", "domains"]
    rows = [pooled_row(name, entry) for name, entry in pooled.items() if entry is not None]
    return TextTable(headings, rows, [""] * len(rows)).without_empty_columns()


def pooled_row(name: str, pooled: PooledScores) -> list[TextCell]:
    """A row of :func:`pooled_table`."""
    mean_ends, range_ends = pooled.mean_interval, pooled.true_range
    text = number_format([pooled.mean], [ends for ends in (mean_ends,) if ends])
    tau_text = number_format([pooled.tau or 0.0], [])
    texts = [name, text(pooled.mean)]
    texts += [
        "–" if ends is None else " to ".join(map(text, ends)) for ends in (mean_ends, range_ends)
    ]
    texts += ["–" if pooled.tau is None else tau_text(pooled.tau)]
    texts += [
        "–" if pooled.tau_interval is None else " to ".join(map(tau_text, pooled.tau_interval))
    ]
    texts += ["–" if pooled.i2 is None else percent(pooled.i2), str(pooled.n_sites)]
    return [TextCell(text) for text in texts]


def site_section(evaluation: Results) -> dict[str, Any]:
    """The part of the page about the held-out domains: tables, sentences and pictures."""
    method, classes = evaluation.recommended, evaluation.classes
    predictions, estimates = recommended_predictions(evaluation), site_estimates(evaluation)
    columns, sentences = score_columns(evaluation), []
    # With several classes, calibration is pooled only.
    many_classes = classes is not None and len(classes) > 2
    columns |= {} if many_classes else {n: estimate_texts(e) for n, e in estimates.items()}
    parts: list[tuple[str, Columns]] = []
    if predictions:
        parts.append(coverage_statement(method, predictions, classes))
        if classes is None:
            parts.append(bias_statement(method, predictions))
        else:
            parts.append(error_statement(method, predictions, classes))
    for sentence, more_columns in parts:
        sentences.append(sentence)
        columns |= more_columns
    rows = [
        [TextCell(str(d)), *(TextCell(texts.get(d, "–")) for texts in columns.values())]
        for d in evaluation.hardest_first
    ]
    css_classes = [
        "worst" if d == evaluation.worst_domain else "" for d in evaluation.hardest_first
    ]
    return {
        "table": TextTable(["domain", *columns], rows, css_classes),
        "columns": columns,
        "has_predictions": bool(predictions),
        "pooled": pooled_table(evaluation, estimates),
        "sentences": [
            *filter(
                None,
                [
                    calibration_statement(estimates),
                    decision_statement(evaluation, estimates),
                    *sentences,
                ],
            )
        ],
        "pictures": pictures(evaluation, predictions)
        if has_outputs(evaluation, method) and classes is not None
        else [],
    }


def calibration_statement(estimates: Mapping[str, SiteEstimates]) -> str:
    """The domain whose probabilities are farthest from the observed frequency."""
    if "O/E" not in estimates:
        return ""
    sites = {d: e for d, e in estimates["O/E"].sites.items() if np.isfinite(e.value)}
    if not sites:
        return ""
    domain = max(sites, key=lambda d: abs(np.log(sites[d].value)))
    value, (low, high) = sites[domain].value, sites[domain].interval
    return (
        f"O/E, the observed number of events divided by the number expected from the "
        f"probabilities, is farthest from 1 on {names_of(domain)}: {value:.2f} (95 % interval "
        f"{low:.2f} to {high:.2f})."
    )


def decision_statement(evaluation: Results, estimates: Mapping[str, SiteEstimates]) -> str:
    """The net benefit at the threshold, compared with treating all and nobody."""
    if evaluation.threshold is None or TITLES["net_benefit"] not in estimates:
        return ""
    benefit, treat_all = (estimates[TITLES[n]].value for n in ("net_benefit", "treat_all"))
    text = number_format([benefit, treat_all], [])
    return (
        f"At the threshold {evaluation.threshold:g}, the net benefit per row is {text(benefit)}; "
        f"it is {text(treat_all)} for treating all rows and 0 for treating none."
    )


def error_statement(
    method: MethodResult, predictions: DomainPredictions, classes: Array
) -> tuple[str, Columns]:
    """The most frequent error, and the share of correct predictions in each domain."""
    names = [str(label) for label in classes]
    matrices = {
        domain: confusion_matrix(record.target, record.prediction, labels=classes)
        for domain, record in predictions.items()
    }
    columns = {
        "correct": {d: percent(np.trace(m) / m.sum()) for d, m in matrices.items()},
        "most frequent error": {d: _error_text(m, names) for d, m in matrices.items()},
    }
    total = np.sum(list(matrices.values()), axis=0)
    error = _most_frequent_error(total)
    if error is None:
        return (
            f"All rows of the held-out domains are predicted correctly by {in_sentence(method)}.",
            columns,
        )
    true, predicted = error
    n_errors, n_rows = total[error], total[true].sum()
    return (
        f"The most frequent error of {in_sentence(method)} is to predict class {names[predicted]} "
        f"instead of class {names[true]}, in {n_errors:,} of {n_rows:,} rows of class "
        f"{names[true]} ({percent(n_errors / n_rows)}).",
        columns,
    )


def _most_frequent_error(matrix: Array) -> tuple[int, int] | None:
    """Indices of the true and predicted class of the most frequent error; None without errors."""
    error_counts = matrix * (1 - np.eye(len(matrix), dtype=int))
    true, predicted = divmod(int(np.argmax(error_counts)), len(matrix))
    return (true, predicted) if error_counts.any() else None


def _error_text(matrix: Array, names: Sequence[str]) -> str:
    error = _most_frequent_error(matrix)
    if error is None:
        return "none"
    true, predicted = error
    return f"{names[predicted]} instead of {names[true]}: {matrix[error]} of {matrix[true].sum()}"


def bias_statement(method: MethodResult, predictions: DomainPredictions) -> tuple[str, Columns]:
    """The domain with the largest bias, and the share of the squared error due to bias."""
    errors = {d: r.prediction - r.target.astype(float) for d, r in predictions.items()}
    biases = {d: float(np.mean(e)) for d, e in errors.items()}
    shares = {d: biases[d] ** 2 / max(float(np.mean(e**2)), 1e-300) for d, e in errors.items()}
    domain = max(biases, key=lambda d: abs(biases[d]))
    return (
        f"The bias of {in_sentence(method)} is largest on {names_of(domain)}: predictions are "
        f"{abs(biases[domain]):.3g} too {'high' if biases[domain] > 0 else 'low'} on average, "
        f"which accounts for {percent(shares[domain])} of the squared error there.",
        {"squared error due to bias": {d: percent(share) for d, share in shares.items()}},
    )


def coverage_statement(
    method: MethodResult, predictions: DomainPredictions, classes: Array | None
) -> tuple[str, Columns]:
    """Coverage of prediction sets or intervals, which are calibrated on the other domains."""
    level = reported_coverage(len(predictions) - 1)
    if level is None:
        return "", {}
    coverage = coverage_by_domain(predictions, classes, level)
    shares, sizes = ({d: pair[i] for d, pair in coverage.items()} for i in (0, 1))
    mean_share, mean_size = (float(np.mean(list(values.values()))) for values in (shares, sizes))
    noun, size = "interval", f"is {mean_size:.3g} wide"
    if classes is not None:
        noun, size = "set", f"contains {mean_size:.2g} of {len(classes)} classes"
    lowest = min(shares, key=lambda d: shares[d])
    text = number_format(sizes.values(), [])
    return (
        f"Prediction {noun}s that should contain the true target of {percent(level)} of the rows "
        f"contain it in {percent(mean_share)} on average over held-out domains, and in "
        f"{percent(shares[lowest])} on {names_of(lowest)}; a {noun} {size} on average. These "
        f"numbers are approximate, because a domain's {noun}s are calibrated with predictions of "
        "models whose training data included that domain.",
        {
            f"coverage (nominal {percent(level)})": {d: percent(s) for d, s in shares.items()},
            f"size of {noun}s": {d: text(value) for d, value in sizes.items()},
        },
    )


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


def pictures(evaluation: Results, predictions: DomainPredictions) -> list[Picture]:
    """Calibration of classes and, for two classes, net benefit by threshold."""
    method, classes = evaluation.recommended, evaluation.classes
    assert classes is not None
    name = in_sentence(method)
    arrays = [
        (record.target, record.probabilities, np.full(len(record.target), domain))
        for domain, record in predictions.items()
    ]
    with drawing(4.3, 4.6) as figure:
        columns = map(np.concatenate, zip(*arrays, strict=True))
        CalibrationDisplay.from_predictions(*columns, classes=classes, ax=figure.subplots())
        alt = f"Probabilities of {name} against observed frequencies by held-out domain"
        caption = "On the dotted line, predicted probabilities equal observed frequencies"
        calibration_picture = Picture(to_svg(figure, "reliable", alt), alt, caption)
    if len(classes) > 2:
        return [calibration_picture]
    curves = method_decision_curves(evaluation, method)
    with drawing(4.3, 4.0) as figure:
        display = DecisionCurveDisplay(curves, threshold=evaluation.threshold)
        display.plot(figure.subplots())
        alt = f"Net benefit of {name} by threshold, on held-out domains"
        caption = (
            f"Net benefit of treating the rows whose probability of class {classes[1]} is at least "
            "the threshold: true positives minus weighted false positives, per row"
        )
        return [calibration_picture, Picture(to_svg(figure, "decisions", alt), alt, caption)]
