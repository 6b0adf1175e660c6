"""The HTML report of an evaluation: the answer on the first screen, then sections with details."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from domainwise.base.process import filtered_warnings
from domainwise.evaluation import verdict
from domainwise.evaluation.failures import failure_sections
from domainwise.evaluation.html import (
    Picture,
    TextCell,
    TextTable,
    drawing,
    render_page,
    to_svg,
)
from domainwise.evaluation.plots import DomainScoresDisplay, ForestDisplay, ShiftDisplay
from domainwise.evaluation.plots.sites import forest_height
from domainwise.evaluation.plots.style import PALETTE
from domainwise.evaluation.results import PROBABILITY_SCORES, MethodResult, Results
from domainwise.evaluation.sites import pool_method
from domainwise.held_out.scoring.statistics import p_text
from domainwise.models.registry import TRIVIAL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Maximum number of methods in a legend, and in the table of scores by domain.
MAX_METHODS = 8
#: Explanations that follow the names of metrics in the report.
METRIC_EXPLANATIONS = {
    "balanced_accuracy": ", the share of correct predictions in each class, averaged over classes",
    "neg_root_mean_squared_error": ", the root mean squared error in the unit of the target",
    "roc_auc": ", the area under the ROC curve: 0.5 is chance, and 1 is perfect separation",
}


def render(evaluation: Results, *, title: str | None = None) -> str:
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
        forest_picture=forest_picture(evaluation),
        other_faults=[problem for problem in problems if problem not in answer.faults],
        show=show,
        interval=partial(verdict.interval, evaluation),
        methods_table=methods_table(evaluation),
        n_shown=len(shown_methods(evaluation)),
        domains_picture=domains_picture(evaluation),
        domains_table=verdict.domains_table(evaluation, shown_methods(evaluation)),
        worst_domain=verdict.names_of(evaluation.worst_domain),
        recommended=verdict.in_sentence(method),
        failures=failure_sections(evaluation),
        difference_sentence=verdict.difference_sentence(evaluation) if columns else "",
        importance_sentences=verdict.importance_sentences(evaluation) if columns else [],
        differences={**differences, "columns": columns},
        shift_picture=shift_picture(evaluation) if columns else None,
        domain_names=[domain["name"] for domain in differences.get("domains", ())],
        importance={c: show(evaluation.measure.sign * x) for c, x in method.importance.items()},
        selected_parameters=_selected_parameters,
        parameter_meanings=_parameter_meanings(evaluation),
        warnings=[(r.label, text) for r in evaluation.results for text in r.warnings],
    )


def shown_methods(evaluation: Results) -> list[MethodResult]:
    """Methods in legends: the main ones, the constant prediction, and the best of the others."""
    method_keys = [*(r.key for r in evaluation.main), TRIVIAL, *(r.key for r in evaluation.results)]
    shown_keys = [key for key in dict.fromkeys(method_keys) if evaluation.find(key)][:MAX_METHODS]
    return [result for result in evaluation.results if result.key in shown_keys]


def methods_table(evaluation: Results) -> TextTable:
    """Table of the scores of all methods on held-out domains."""
    show, sign = evaluation.show, evaluation.measure.sign
    headings = ["method", "mean", "next site (90 %)", "worst", "worst domain", "spread", "seen"]
    headings += ["gap", "p", "adjusted p", *PROBABILITY_SCORES.values(), "seconds"]
    best_worst_score = max(result.worst for result in evaluation.results)
    rows = []
    for r in evaluation.results:
        label = r.label + " ●" * (r is evaluation.baseline) + " ✓" * (r is evaluation.recommended)
        texts = [label, show(r.mean), verdict.interval(evaluation, evaluation.range_of(r))]
        texts += [show(r.worst), str(r.worst_domain), show(sign * r.spread), show(r.seen_mean)]
        texts += [show(sign * r.generalization_gap), p_text(r.p_value), p_text(r.p_adjusted)]
        probability_scores = [r.probability_scores.get(name) for name in PROBABILITY_SCORES]
        texts += ["–" if score is None else f"{score:.3f}" for score in probability_scores]
        is_bold_by_column = {1: r is evaluation.best, 3: r.worst == best_worst_score}
        cells = [TextCell(text, is_bold_by_column.get(i, False)) for i, text in enumerate(texts)]
        rows.append([*cells, TextCell(f"{r.seconds:.1f}")])
    return TextTable(headings, rows, [r.kind for r in evaluation.results]).without_empty_columns()


def forest_picture(evaluation: Results) -> Picture:
    """Plot the recommended method's score on each domain, their mean, and ranges for a new one."""
    method, measure = evaluation.recommended, evaluation.measure
    constant = None if method.trivial else evaluation.find(TRIVIAL)
    pooled = pool_method(evaluation, method)
    ranges = {"next site (90 %)": evaluation.next_site}
    ranges |= {"its true score (90 %)": None if pooled is None else pooled.true_range}
    notes = {}
    described_domains = {d["name"]: d for d in evaluation.differences.get("domains", ())}
    for name in method.scores:
        n_rows = evaluation.row_counts.get(name)
        class_counts = described_domains.get(str(name), {}).get("classes", ())
        events_text = f" ({class_counts[1]:,})" if len(class_counts) == 2 else ""
        notes[name] = f"{n_rows:,}{events_text}" if n_rows else ""
    classes = evaluation.facts["classes"]
    has_events = any("(" in note for note in notes.values())
    notes_label = f"rows (class {classes[1]})" if classes and has_events else "rows"
    display = ForestDisplay(
        scores={name: measure.shown(score) for name, score in method.scores.items()},
        intervals={name: evaluation.ends(method, name) for name in method.known},
        pooled=pooled,
        ranges={name: ends for name, ends in ranges.items() if ends is not None},
        notes=notes,
        notes_label=notes_label,
        chance=None if constant is None else measure.shown(constant.mean),
        label=measure.label,
        greater_is_better=measure.sign > 0,
    )
    with drawing(5.6, forest_height(len(method.scores), len(display.ranges))) as figure:
        display.plot(figure.subplots())
        caption = "Squares are scores on held-out domains, with 95 % intervals; the worst is red"
        caption += "; the diamond is their pooled mean" if pooled is not None else ""
        caption += "; bars are ranges for the next site" if display.ranges else ""
        if constant is not None:
            caption += f"; the dashed line is {constant.label} ({evaluation.show(constant.mean)})"
        names = evaluation.hardest_first[:12]
        score_texts = [f"{name} {evaluation.show(method.scores[name])}" for name in names]
        score_texts += ["and others"] * (len(method.scores) > 12)
        alt = f"{method.label}. {caption}. {'; '.join(score_texts)}"
        return Picture(to_svg(figure, "expect", alt), alt, caption)


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


#: What the methods' parameters do, for readers of the report.
PARAMETER_MEANINGS = {
    "kernel": "is the function that measures how similar two rows are",
    "gamma": "sets the width of the kernel: the larger it is, the narrower the kernel",
    "domain_weight": "is the strength of the penalty on differences between domains",
    "conditional": "is True if domains are compared within each class, and False otherwise",
    "C": "sets the penalty on complex models: the larger it is, the weaker the penalty",
    "alpha": "is the strength of the penalty on complex models",
    "ridge": "is like alpha, but for DCM and related methods; inf is the strongest penalty",
    "lam": "is like alpha, but for DICA",
    "n_components": "is the number of features that are computed before a linear model is fitted",
    "max_leaf_nodes": "is the maximum number of leaves of a tree",
}


def _parameter_meanings(evaluation: Results) -> list[tuple[str, str]]:
    """Return the selected parameters that need an explanation, with their meanings."""
    selected_names = {name for r in evaluation.results for fit in r.parameters for name in fit}
    return [(name, text) for name, text in PARAMETER_MEANINGS.items() if name in selected_names]


#: Maximum number of columns in the plot of shifts.
MAX_FEATURES = 12
#: Colors of methods, readable on white and on black.
COLORS = {
    "constant": "#848e9a",
    "svm": "#5b8def",
    "linear": "#2f96b4",
    "boosting": "#7a9a3a",
    "kpca": "#a678de",
    "coir": "#2a9d8f",
    "dica": "#c17a1a",
    "dcm": "#b06a50",
    "fastdcm": "#f09a8a",
    "dcmcv": "#e0533d",
    "invariant": "#d6498f",
    "invariantridge": "#8e5bd0",
    "ensemble": "#c2a000",
    "ensemble+context": "#e08a00",
}


def color_of(result: MethodResult) -> str:
    """Color of a method; the color of a custom method depends on its name."""
    return COLORS.get(result.key, PALETTE[sum(result.key.encode()) % len(PALETTE)])


def scores_figure(evaluation: Results) -> Figure:
    """Return a matplotlib figure of the scores of :func:`shown_methods` on each domain."""
    with _draw_scores(evaluation, 7.2) as figure:
        return figure


def domains_picture(evaluation: Results) -> Picture:
    """Plot the scores of the methods on each domain, sorted by the recommended method's score."""
    method, measure = evaluation.recommended, evaluation.measure
    worst_domain, method_name = method.worst_domain, verdict.in_sentence(method)
    alt = f"{measure.label} by method and held-out domain. The worst domain of {method_name} is "
    alt += f"{worst_domain!s}: {measure.format(method.scores[worst_domain])}"
    caption = f"Each row is a held-out domain; the worst domain of {method_name} is at the top. "
    caption += "Horizontal lines are 95 % confidence intervals"
    if any(np.isfinite(score) for score in method.seen.values()):
        caption += f". Vertical bars are scores of {method_name} on seen domains"
    with _draw_scores(evaluation, 9.0) as figure:
        return Picture(to_svg(figure, "domains", alt), alt, caption, wide=True)


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


@contextmanager
def _draw_scores(evaluation: Results, width: float) -> Iterator[Figure]:
    """Draw the scores of :func:`shown_methods` on each domain, and yield the figure."""
    measure, n_domains = evaluation.measure, len(evaluation.domains)
    results = shown_methods(evaluation)
    display = DomainScoresDisplay(
        scores={r.label: {d: measure.shown(s) for d, s in r.scores.items()} for r in results},
        intervals={r.label: {d: evaluation.ends(r, d) for d in r.scores} for r in results},
        reference={d: measure.shown(s) for d, s in evaluation.recommended.seen.items()},
        label=measure.label,
        greater_is_better=measure.sign > 0,
    )
    styles = {
        r.label: {"color": color_of(r), "marker": "o" if r.kind == "baseline" else "D"}
        for r in results
    }
    main_labels = [result.label for result in evaluation.main]
    with drawing(width, 1.3 + min(0.34 * n_domains, 3.0 + 0.19 * n_domains)) as figure:
        display.plot(figure.subplots(), highlight=main_labels, styles=styles)
        yield figure
