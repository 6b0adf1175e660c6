"""The HTML report of an evaluation: the answer on the first screen, then sections with details."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from domainwise.base.files import write_text
from domainwise.base.process import filtered_warnings
from domainwise.evaluation import verdict
from domainwise.evaluation.failures import site_section, target_column
from domainwise.evaluation.html import Picture, TextCell, TextTable, drawing, render_page, to_svg
from domainwise.evaluation.plots import DomainScoresDisplay, ForestDisplay, ShiftDisplay
from domainwise.evaluation.plots.sites import forest_height
from domainwise.evaluation.plots.style import short
from domainwise.evaluation.results import PROBABILITY_SCORES, MethodResult, Results, percent
from domainwise.evaluation.sites import pool_method
from domainwise.held_out.scoring.pooling import PooledScores
from domainwise.held_out.scoring.statistics import p_text
from domainwise.models.registry import TRIVIAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of methods in the figure of all scores, and of columns in the plot of shifts.
MAX_METHODS, MAX_FEATURES = 8, 12
#: Explanations that follow the names of metrics in the report.
METRIC_EXPLANATIONS = {
    "balanced_accuracy": ", the share of correct predictions in each class, averaged over classes",
    "neg_root_mean_squared_error": ", the root mean squared error in the unit of the target",
    "roc_auc": ", the area under the ROC curve: 0.5 is chance, and 1 is perfect separation",
}


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
        metric_explanation=METRIC_EXPLANATIONS.get(evaluation.measure.name, ""),
        evaluation=evaluation,
        answer=answer,
        no_fault=verdict.NO_FAULT,
        folds=verdict.folds(evaluation),
        forest_picture=forest_picture(evaluation),
        other_faults=[problem for problem in problems if problem not in answer.faults],
        show=show,
        interval=partial(verdict.interval, evaluation),
        methods_table=methods_table(evaluation),
        sites=site_section(evaluation),
        table_name=table_name,
        worst_domain=verdict.names_of(evaluation.worst_domain),
        recommended=verdict.in_sentence(method),
        rule=verdict.rule(evaluation),
        difference_sentence=verdict.difference_sentence(evaluation) if columns else "",
        importance_sentences=[
            verdict.importance_sentence(evaluation),
            verdict.unused_columns(evaluation),
        ]
        if columns
        else [],
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
    pooled = pool_method(evaluation, method)
    ranges = {"prediction interval": evaluation.next_site}
    ranges |= {"… of the true score": None if pooled is None else pooled.true_range}
    heading, target_texts = target_column(evaluation)
    display = ForestDisplay(
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
    parts = ["Lines and bars are intervals: 95 % for a domain"]
    if pooled is not None:
        scale = f", {pooled.scale} scale" * (pooled.scale != "identity")
        parts.append(f"90 % for the pooled mean (diamond{scale}) and for a new domain")
    parts.append("the worst domain is red")
    if constant is not None:
        parts.append(f"dashed: {constant.label}")
    if pooled is not None and pooled.tau is not None and pooled.tau_interval is not None:
        low, high = pooled.tau_interval
        parts.append(
            f"heterogeneity: τ = {pooled.tau:.2f} ({low:.2f} to {high:.2f}), "
            f"I² = {percent(pooled.i2 or 0.0)}"
        )
    return "; ".join(parts)


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
    display = DomainScoresDisplay(
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
    display = ShiftDisplay(
        features=[column["name"] for column in columns],
        domains=[domain["name"] for domain in differences["domains"]],
        ends=scaled_quantiles[1:4],
    )
    n_shown = min(MAX_FEATURES, len(columns))
    with drawing(9.0, 1.2 + 0.36 * n_shown) as figure:
        display.plot(figure.subplots(), max_features=n_shown, highlight=[worst_domain])
        alt = f"Standardized medians and quartiles of {n_shown} columns by domain"
        caption = (
            "A dot is the median of a column in a domain, and a line connects its quartiles; "
            f"{verdict.names_of(worst_domain)} (worst score) is highlighted. 0 is the median of "
            "all domain medians, and the unit is the standard deviation within domains. The "
            "columns that differ most are at the top"
        )
        return Picture(to_svg(figure, "shift", alt), alt, caption, wide=True)
