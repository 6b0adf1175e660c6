"""The HTML report of an evaluation: the answer on the first screen, then sections with details."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import confusion_matrix

from domainwise.base.arrays import Array
from domainwise.base.files import write_text
from domainwise.base.process import filtered_warnings
from domainwise.evaluation import plots, sites, verdict
from domainwise.evaluation.html import Picture, TextCell, TextTable, drawing, render_page, to_svg
from domainwise.evaluation.plots.sites import forest_height
from domainwise.evaluation.plots.style import number_format, short
from domainwise.evaluation.results import PROBABILITY_SCORES, MethodResult, Results, percent
from domainwise.evaluation.verdict import in_sentence, names_of, say
from domainwise.held_out.calibration.quantiles import (
    DomainQuantiles,
    nonconformity,
    reported_coverage,
)
from domainwise.held_out.scoring.pooling import Ends, PooledScores
from domainwise.held_out.scoring.predictions import Outputs
from domainwise.held_out.scoring.site_calibration import SiteEstimates
from domainwise.held_out.scoring.statistics import p_text
from domainwise.models.registry import TRIVIAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of methods in the figure of all scores, and of columns in the plot of shifts.
MAX_METHODS, MAX_FEATURES = 8, 12
CAPTIONS: dict[str, str] = verdict.TEXTS["captions"]


def write_report(evaluation: Results, path: Path, *, title: str | None = None) -> None:
    """Write the report, and beside it a CSV file with the scores of all methods by domain."""
    table = path.with_name(f"{path.stem}-sites.csv")
    page = render(evaluation, title=title, table_name=table.name)
    write_text(table, sites_csv(evaluation))
    write_text(path, page)


def sites_csv(evaluation: Results) -> str:
    """Scores of all methods on each domain, as CSV."""
    buffer = io.StringIO()
    heading, target_texts = target_column(evaluation)
    writer = csv.writer(buffer, lineterminator="\n")
    numbers = ("score", "low", "high", "seen", "error")
    writer.writerow(["method", "domain", "rows", heading or "target", *numbers])
    for method in evaluation.results:
        for row in evaluation.domain_scores(method):
            values = (getattr(row, name) for name in numbers)
            texts = ["" if np.isnan(value) else repr(value) for value in values]
            domain = row.domain
            target_text = target_texts.get(domain, "").replace(",", "")
            n_rows = evaluation.row_counts.get(domain, "")
            writer.writerow([method.label, domain, n_rows, target_text, *texts])
    return buffer.getvalue()


def render(
    evaluation: Results, *, title: str | None = None, table_name: str = "report-sites.csv"
) -> str:
    """Return the report of an evaluation as a complete HTML document."""
    differences, method = evaluation.differences, evaluation.recommended
    answer, show = verdict.make_answer(evaluation), evaluation.show
    problems = [verdict.fault_in_words(fault) for fault in differences.get("faults", ())]
    columns = sorted(
        differences.get("columns", ()),
        key=lambda column: -method.importance.get(column["name"], -np.inf),
    )
    return render_page(
        "domainwise.evaluation",
        "evaluate.html.j2",
        styles=["style.css", "evaluate.css"],
        title=title or "Which method is best on a new domain?",
        metric_explanation=verdict.TEXTS["metrics"].get(evaluation.measure.name, ""),
        evaluation=evaluation,
        verdict=verdict,
        answer=answer,
        forest_picture=forest_picture(evaluation),
        other_faults=[problem for problem in problems if problem not in answer.faults],
        show=show,
        interval=partial(verdict.interval, evaluation),
        methods_table=methods_table(evaluation),
        sites=site_section(evaluation),
        table_name=table_name,
        recommended=in_sentence(method),
        differences={**differences, "columns": columns},
        shift_picture=shift_picture(evaluation) if columns else None,
        domain_names=[domain["name"] for domain in differences.get("domains", ())],
        importance={c: show(evaluation.measure.sign * x) for c, x in method.importance.items()},
        selected_parameters=_selected_parameters,
        warnings=[(r.label, text) for r in evaluation.results for text in r.warnings],
    )


def methods_table(evaluation: Results) -> TextTable:
    """Table of the scores of all methods on held-out domains."""
    show, sign = evaluation.show, evaluation.measure.sign
    headings = ["method", "mean", "prediction interval (90 %)", "worst", "worst domain", "spread"]
    headings += ["seen", "gap", "p", "adjusted p", *PROBABILITY_SCORES.values(), "rows", "seconds"]
    n_rows = {result.n_rows for result in evaluation.results}
    rows = []
    for r in evaluation.results:
        label = r.label + " ●" * (r is evaluation.baseline) + " ✓" * (r is evaluation.recommended)
        texts = [label, show(r.mean), verdict.interval(evaluation, evaluation.range_of(r))]
        texts += [show(r.worst), str(r.worst_domain), show(sign * r.spread), show(r.seen_mean)]
        texts += [show(sign * r.generalization_gap), p_text(r.p_value), p_text(r.p_adjusted)]
        probability_scores = [r.probability_scores.get(name) for name in PROBABILITY_SCORES]
        texts += ["–" if score is None else f"{score:.3f}" for score in probability_scores]
        texts += [f"{r.n_rows:,}" if len(n_rows) > 1 else "–", f"{r.seconds:.1f}"]
        rows.append([*map(TextCell, texts)])
    classes = ["recommended" if r is evaluation.recommended else r.kind for r in evaluation.results]
    return TextTable(headings, rows, classes).without_empty_columns()


def forest_picture(evaluation: Results) -> Picture:
    """Plot the recommended method's score on each domain, their mean, and ranges for a new one."""
    method, measure = evaluation.recommended, evaluation.measure
    constant = None if method.trivial else evaluation.find(TRIVIAL)
    pooled = sites.pool_method(evaluation, method)
    ranges = {"prediction interval": evaluation.next_site}
    ranges |= {"… of the true score": None if pooled is None else pooled.true_range}
    heading, target_texts = target_column(evaluation)
    display = plots.ForestDisplay(
        scores={name: measure.shown(score) for name, score in method.scores.items()},
        intervals={name: evaluation.ends(method, name) for name in method.known},
        pooled=pooled,
        ranges={name: ends for name, ends in ranges.items() if ends is not None},
        notes={
            name: " · ".join(filter(None, (f"{n:,}", target_texts.get(name))))
            for name, n in evaluation.row_counts.items()
            if n
        },
        notes_label=" · ".join(filter(None, ("rows", short(heading)))),
        chance=None if constant is None else measure.shown(constant.mean),
        label=measure.label,
        greater_is_better=measure.sign > 0,
    )
    with drawing(5.0, forest_height(len(method.scores), len(display.ranges))) as figure:
        display.plot(figure.subplots())
        caption = forest_caption(evaluation, pooled, constant)
        names = evaluation.hardest_first[:12]
        score_texts = [f"{name} {evaluation.show(method.scores[name])}" for name in names]
        score_texts += ["and others"] * (len(method.scores) > 12)
        alt = f"{method.label}. {caption}. {'; '.join(score_texts)}"
        return Picture(to_svg(figure, "expect", alt), alt, caption)


def forest_caption(
    evaluation: Results, pooled: PooledScores | None, constant: MethodResult | None
) -> str:
    """What the marks of the forest plot mean, and the heterogeneity between domains."""
    texts = {"pooled": "", "tau": "", "chance": f"; dashed: {constant.label}" if constant else ""}
    if pooled is not None:
        scale = f", {pooled.scale} scale" * (pooled.scale != "identity")
        new = " and for a new domain" * (pooled.true_range is not None)
        texts["pooled"] = CAPTIONS["forest_pooled"].format(scale=scale, new=new)
        if pooled.tau is not None and pooled.tau_interval is not None:
            values = dict(zip(("low", "high"), pooled.tau_interval, strict=True))
            values |= {"tau": pooled.tau, "i2": pooled.i2 or 0.0}
            texts["tau"] = CAPTIONS["forest_tau"].format(**values).replace("%", " %")
    return CAPTIONS["forest"].format(**texts)


def _selected_parameters(result: MethodResult) -> str:
    """List the selected parameters of a method, with their range or most frequent value."""
    texts = []
    for name in result.parameters[0] if result.parameters else ():
        values = [parameters[name] for parameters in result.parameters if name in parameters]
        if name.startswith(("gamma", "weight of ")):
            texts.append(f"{name} {min(map(float, values)):.3g} to {max(map(float, values)):.3g}")
            continue
        value, n_fits = Counter(values).most_common(1)[0]
        value_text = f"{value:.3g}" if isinstance(value, float) else str(value)
        texts.append(f"{name} {value_text} ({n_fits} of {len(values)})")
    return ", ".join(texts) or "–"


def scores_figure(evaluation: Results) -> Figure:
    """Return a matplotlib figure of the scores of the best methods on each domain."""
    measure = evaluation.measure
    main_keys = [result.key for result in evaluation.main]
    results = sorted(evaluation.results, key=lambda r: r.key not in main_keys)[:MAX_METHODS]
    display = plots.DomainScoresDisplay(
        scores={r.label: {d: measure.shown(s) for d, s in r.scores.items()} for r in results},
        intervals={r.label: {d: evaluation.ends(r, d) for d in r.scores} for r in results},
        reference={d: measure.shown(s) for d, s in evaluation.recommended.seen.items()},
        label=measure.label,
        greater_is_better=measure.sign > 0,
    )
    main_labels = [result.label for result in evaluation.main]
    return display.plot(highlight=main_labels).figure_


def shift_picture(evaluation: Results) -> Picture | None:
    """Plot numeric columns by domain, and highlight the worst domain; None without such columns."""
    differences, worst_domain = evaluation.differences, str(evaluation.worst_domain)
    columns = [column for column in differences["columns"] if column["kind"] == "number"]
    if not columns:
        return None
    nans = [np.nan] * 5  # for a domain without values
    quantiles = np.array([[q or nans for q in c["quantiles"]] for c in columns], dtype=np.float64)
    deviations = np.array([column["deviation"] for column in columns])
    with filtered_warnings():
        warnings.simplefilter("ignore")  # about columns without values
        scaled_quantiles = (quantiles.T - np.nanmedian(quantiles[:, :, 2], axis=1)) / deviations
    display = plots.ShiftDisplay(
        features=[column["name"] for column in columns],
        domains=[domain["name"] for domain in differences["domains"]],
        ends=scaled_quantiles[1:4],
    )
    n_shown = min(MAX_FEATURES, len(columns))
    with drawing(9.0, 1.2 + 0.36 * n_shown) as figure:
        display.plot(figure.subplots(), max_features=n_shown, highlight=[worst_domain])
        alt = f"Standardized medians and quartiles of {n_shown} columns by domain"
        caption = CAPTIONS["shift"].format(domain=names_of(worst_domain))
        return Picture(to_svg(figure, "shift", alt), alt, caption, wide=True)


# The recommended method on each held-out domain --------------------------------------------------

#: Names of estimates in tables.
TITLES: dict[str, str] = verdict.TEXTS["titles"]
Columns = dict[str, dict[Any, str]]  #: texts by heading, then by domain
DomainPredictions = Mapping[Any, Outputs]  #: a method's predictions by held-out domain


def recommended_predictions(evaluation: Results) -> DomainPredictions:
    """Predictions of the recommended method, worst domain first; empty if not available."""
    records = evaluation.records_of(evaluation.recommended)
    return {name: records[name] for name in evaluation.hardest_first if name in records}


def target_column(evaluation: Results) -> tuple[str, dict[Any, str]]:
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
    }
    return {name: texts for name, texts in columns.items() if set(texts.values()) - {"–"}}


def with_interval(text: Callable[[float], str], value: float, ends: Ends | None) -> str:
    """A value with its interval in parentheses, if it has one."""
    low, high = ends or (np.nan, np.nan)
    return f"{text(value)} ({text(low)} to {text(high)})" if low < high else text(value)


def estimate_texts(by_site: SiteEstimates) -> dict[Any, str]:
    """Value and interval of an estimate for each domain."""
    estimates = {d: e for d, e in by_site.sites.items() if np.isfinite(e.value)}
    ends = [e.interval for e in estimates.values()]
    text = number_format([e.value for e in estimates.values()], ends)
    return {d: with_interval(text, e.value, e.interval) for d, e in estimates.items()}


def site_estimates(evaluation: Results) -> dict[str, SiteEstimates]:
    """AUC, calibration and decisions of the recommended method, by heading."""
    method, estimates = evaluation.recommended, {}
    if not sites.has_outputs(evaluation, method):
        return {}
    classes = evaluation.classes
    if classes is not None and len(classes) == 2:
        estimates = sites.event_estimates(evaluation, method, evaluation.threshold)
    by_class = sites.calibration_estimates(evaluation, method)
    for label, by_quantity in by_class.items():
        suffix = f", class {label}" * (len(by_class) > 1)
        estimates |= {TITLES.get(q, q) + suffix: estimate for q, estimate in by_quantity.items()}
    return {TITLES.get(name, name): estimate for name, estimate in estimates.items()}


def pooled_table(evaluation: Results, estimates: Mapping[str, SiteEstimates]) -> TextTable:
    """Scores and estimates, pooled over domains."""
    label, score = evaluation.measure.label, sites.pool_method(evaluation, evaluation.recommended)
    pooled = {label: score, **{name: e.pooled for name, e in estimates.items() if name != label}}
    rows = []
    for name, entry in pooled.items():
        if entry is not None:
            text = number_format([entry.mean], filter(None, [entry.mean_interval]))
            tau = np.nan if entry.tau is None else entry.tau
            tau_text = with_interval(number_format([tau], []), tau, entry.tau_interval)
            mean = with_interval(text, entry.mean, entry.mean_interval)
            ends = " to ".join(map(text, entry.true_range or ())) or "–"
            i2 = "–" if entry.i2 is None else percent(entry.i2)
            rows.append([*map(TextCell, (name, mean, ends, tau_text, i2, str(entry.n_sites)))])
    headings = ["quantity", "mean", "prediction interval (true value)", "τ", "I²", "domains"]
    return TextTable(headings, rows, [""] * len(rows)).without_empty_columns()


def site_section(evaluation: Results) -> dict[str, Any]:
    """The part of the page about the held-out domains: tables, sentences and pictures."""
    classes, predictions = evaluation.classes, recommended_predictions(evaluation)
    estimates, columns = site_estimates(evaluation), score_columns(evaluation)
    statements = [calibration_statement, decision_statement]
    sentences = [statement(evaluation, estimates) for statement in statements]
    if classes is None or len(classes) == 2:  # otherwise, estimates are pooled only
        columns |= {name: estimate_texts(estimate) for name, estimate in estimates.items()}
    if predictions:
        describe = bias_statement if classes is None else error_statement
        for statement in (coverage_statement, describe):
            sentence, more_columns = statement(evaluation, predictions)
            sentences.append(sentence)
            columns |= more_columns
    domains, worst = evaluation.hardest_first, evaluation.worst_domain
    rows = [
        [TextCell(str(d)), *(TextCell(texts.get(d, "–")) for texts in columns.values())]
        for d in domains
    ]
    css_classes = ["worst" if d == worst else "" for d in domains]
    return {
        "table": TextTable(["domain", *columns], rows, css_classes),
        "columns": columns,
        "has_predictions": bool(predictions),
        "pooled": pooled_table(evaluation, estimates),
        "sentences": [*filter(None, sentences)],
        "pictures": pictures(evaluation, predictions),
    }


def calibration_statement(evaluation: Results, estimates: Mapping[str, SiteEstimates]) -> str:
    """The domain whose probabilities are farthest from the observed frequency."""
    by_site = estimates["O/E"].sites if "O/E" in estimates else {}
    distances = {d: abs(np.log(e.value)) for d, e in by_site.items() if np.isfinite(e.value)}
    if not distances:
        return ""
    domain = max(distances, key=lambda d: distances[d])
    value, (low, high) = by_site[domain].value, by_site[domain].interval
    values = {"domain": names_of(domain), "value": value, "low": low, "high": high}
    return say("worst_calibration", evaluation, **values)


def decision_statement(evaluation: Results, estimates: Mapping[str, SiteEstimates]) -> str:
    """The net benefit at the threshold, compared with treating all and nobody."""
    if evaluation.threshold is None or TITLES["net_benefit"] not in estimates:
        return ""
    benefits = [estimates[TITLES[name]].value for name in ("net_benefit", "treat_all")]
    benefit, treat_all = map(number_format(benefits, []), benefits)
    values = {"benefit": benefit, "treat_all": treat_all, "threshold": evaluation.threshold}
    return say("decision", evaluation, **values)


def error_statement(evaluation: Results, predictions: DomainPredictions) -> tuple[str, Columns]:
    """The most frequent error, and the share of correct predictions in each domain."""
    classes: Any = evaluation.classes
    matrices = {
        domain: confusion_matrix(
            record.target, record.prediction, labels=classes, sample_weight=record.weight
        )
        for domain, record in predictions.items()
    }
    columns = {
        "correct": {d: percent(np.trace(m) / m.sum()) for d, m in matrices.items()},
        "most frequent error": {d: _error_text(m, classes) for d, m in matrices.items()},
    }
    total = np.sum(list(matrices.values()), axis=0)
    if (error := _most_frequent_error(total)) is None:
        return say("no_errors", evaluation), columns
    true, predicted = error
    counts = {"n_errors": round(total[error]), "n_rows": round(total[true].sum())}
    share, names = percent(counts["n_errors"] / counts["n_rows"]), classes[[true, predicted]]
    values = {"true": names[0], "predicted": names[1], "share": share, **counts}
    return say("errors", evaluation, **values), columns


def _most_frequent_error(matrix: Array) -> tuple[int, int] | None:
    """Indices of the true and predicted class of the most frequent error; None without errors."""
    error_counts = matrix * (1 - np.eye(len(matrix), dtype=int))
    true, predicted = divmod(int(np.argmax(error_counts)), len(matrix))
    return (true, predicted) if error_counts.any() else None


def _error_text(matrix: Array, names: Array) -> str:
    error = _most_frequent_error(matrix)
    if error is None:
        return "none"
    true, predicted = error
    counts = f"{matrix[error]:.0f} of {matrix[true].sum():.0f}"
    return f"{names[predicted]} instead of {names[true]}: {counts}"


def bias_statement(evaluation: Results, predictions: DomainPredictions) -> tuple[str, Columns]:
    """The domain with the largest bias, and the share of the squared error due to bias."""
    errors = {d: r.prediction - r.target.astype(float) for d, r in predictions.items()}
    weights = {d: record.row_weights for d, record in predictions.items()}
    biases = {d: float(np.average(e, weights=weights[d])) for d, e in errors.items()}
    squares = {d: float(np.average(e**2, weights=weights[d])) for d, e in errors.items()}
    shares = {d: percent(biases[d] ** 2 / max(squares[d], 1e-300)) for d in errors}
    domain = max(biases, key=lambda d: abs(biases[d]))
    direction = "high" if biases[domain] > 0 else "low"
    values = {"size": abs(biases[domain]), "direction": direction, "share": shares[domain]}
    sentence = say("bias", evaluation, domain=names_of(domain), **values)
    return sentence, {"squared error due to bias": shares}


def coverage_statement(evaluation: Results, predictions: DomainPredictions) -> tuple[str, Columns]:
    """Coverage of prediction sets or intervals, which are calibrated on the other domains."""
    classes, level = evaluation.classes, reported_coverage(len(predictions) - 1)
    if level is None:
        return "", {}
    coverage = coverage_by_domain(predictions, classes, level)
    shares, sizes = ({d: pair[i] for d, pair in coverage.items()} for i in (0, 1))
    mean_share, mean_size = (float(np.mean(list(values.values()))) for values in (shares, sizes))
    noun, size = "interval", f"is {mean_size:.3g} wide"
    if classes is not None:
        noun, size = "set", f"contains {mean_size:.2g} of {len(classes)} classes"
    lowest, text = min(shares, key=lambda d: shares[d]), number_format(sizes.values(), [])
    values = {"nominal": percent(level), "share": percent(mean_share), "noun": noun, "size": size}
    values |= {"lowest": percent(shares[lowest]), "domain": names_of(lowest)}
    return say("coverage", evaluation, **values), {
        f"coverage (nominal {percent(level)})": {d: percent(s) for d, s in shares.items()},
        f"size of {noun}s": {d: text(value) for d, value in sizes.items()},
    }


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
    weights = np.concatenate([record.row_weights for record in predictions.values()])
    coverage_and_size = {}
    for i, (domain, (output_name, class_scores, true_scores)) in enumerate(scores.items()):
        is_other = domain_codes != i
        quantiles = DomainQuantiles.approximately(
            pooled_scores[is_other],
            domain_codes[is_other],
            weights[is_other],
            are_probabilities=output_name == "probabilities",
        )
        threshold = quantiles.threshold(level)
        mean = partial(np.average, weights=predictions[domain].row_weights)
        sizes = (class_scores <= threshold).sum(axis=1)
        mean_size = 2 * threshold if classes is None else mean(sizes)
        coverage_and_size[domain] = (float(mean(true_scores <= threshold)), float(mean_size))
    return coverage_and_size


def pictures(evaluation: Results, predictions: DomainPredictions) -> list[Picture]:
    """Calibration of classes and, for two classes, net benefit by threshold."""
    method, classes = evaluation.recommended, evaluation.classes
    if classes is None or not sites.has_outputs(evaluation, method):
        return []
    name = in_sentence(method)
    y, p, weights = (
        np.concatenate([getattr(record, key) for record in predictions.values()])
        for key in ("target", "probabilities", "row_weights")
    )
    domains = np.repeat([*predictions], [len(record.target) for record in predictions.values()])
    with drawing(4.3, 4.6) as figure:
        options: Any = {"classes": classes, "sample_weight": weights, "ax": figure.subplots()}
        plots.CalibrationDisplay.from_predictions(y, p, domains, **options)
        alt = f"Probabilities of {name} against observed frequencies by held-out domain"
        picture = to_svg(figure, "reliable", alt)
        calibration_picture = Picture(picture, alt, CAPTIONS["calibration"])
    if len(classes) > 2:
        return [calibration_picture]
    curves = sites.method_decision_curves(evaluation, method)
    with drawing(4.3, 4.0) as figure:
        display = plots.DecisionCurveDisplay(curves, threshold=evaluation.threshold)
        display.plot(figure.subplots())
        alt = f"Net benefit of {name} by threshold, on held-out domains"
        caption = CAPTIONS["decisions"].format(name=classes[1])
        return [calibration_picture, Picture(to_svg(figure, "decisions", alt), alt, caption)]
