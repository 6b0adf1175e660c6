"""An evaluation in words: verdict, uncertainty of scores, and differences between domains."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.evaluation.results import UNKNOWN, MethodResult, Results, percent
from domainwise.models.registry import CONTEXT, TRIVIAL
from domainwise.report.page import TextCell, TextTable
from domainwise.scoring.statistics import MIN_PAIRS, compare, in_words

#: A difference with a smaller p-value is called significant.
LEVEL = 0.05
#: A column that identifies some domain at least so well is named.
IDENTIFIES = 0.8
NO_FAULT = (
    "No fault was detected in the table: no other unit, swapped sign, or column that is missing "
    "in one domain."
)


def make_verdict(results: Results) -> list[str]:
    """Return the verdict, a sentence or two per item."""
    first = (_best_method, _significance, _needs_context, _best_worst_domain)
    parts = (*first, _against_constant, _generalization_gap, _failures)
    return [text for text in (*(part(results) for part in parts), results.next_step) if text]


def _best_method(results: Results) -> str:
    best, rival = results.best, results.rival
    label, show = results.measure.label, results.show
    count = f"{in_words(len(best.known))} held-out domains"
    scores = f"{label} {show(best.mean)} on average over {count}"
    scores += f" and {show(best.worst)} on the worst ({best.worst_domain!s})"
    if best.trivial:
        text = f"No method is better than a constant prediction on unseen domains: {scores}"
        return f"{text}; {rival.label} scores {_pair(results, rival)}." if rival else f"{text}."
    if rival is None:
        alone = "" if results.baseline else "; no baseline was evaluated to compare it with"
        return f"{best.label} scores {scores}{alone}."
    if best.kind == "baseline":
        return (
            f"A baseline is best: {best.label} scores {scores}; the best of the other methods, "
            f"{rival.label}, scores {_pair(results, rival)}."
        )
    return (
        f"{best.label} scores {label} {show(best.worst)} on the worst domain "
        f"({best.worst_domain!s}), {rival.label} {show(rival.worst)} ({rival.worst_domain!s}). "
        f"On average over {count} they score {show(best.mean)} and {show(rival.mean)}."
    )


def _pair(results: Results, result: MethodResult) -> str:
    mean, worst = results.show(result.mean), results.show(result.worst)
    return f"{mean} on average and {worst} on the worst ({result.worst_domain!s})"


def _significance(results: Results) -> str:
    rival = results.rival
    if rival is None:
        return ""
    n = len(results.best.known.keys() & rival.known.keys())
    if abs(results.best.mean - rival.mean) < results.margin:
        margin = results.show(results.measure.sign * results.margin)
        return (
            f"There is no practical difference between the two, whatever the p-value: the means "
            f"differ by less than {margin}."
        )
    if n < MIN_PAIRS:
        return (
            f"With {in_words(n)} domains it cannot be tested whether the difference is due to "
            f"chance; at least {in_words(MIN_PAIRS)} are needed."
        )
    tested = rival if results.best.kind == "baseline" else results.best
    raw, adjusted = tested.p_value, tested.p_adjusted
    if raw is None or adjusted is None:
        raw = adjusted = compare(results.best.known, rival.known).p_value
    if raw is None or adjusted is None:
        return ""
    if raw >= LEVEL:
        return f"The difference is not significant (p = {_p(raw)})."
    if adjusted >= LEVEL:
        n_tested = sum(result.p_value is not None for result in results.results)
        return (
            f"The difference is significant by itself (p = {_p(raw)}), but not after correction "
            f"for the {in_words(n_tested)} methods that were compared (p = {_p(adjusted)}, Holm)."
        )
    return f"The difference is significant (p = {_p(raw)})."


def _needs_context(results: Results) -> str:
    """That the best method has to be given the rows of a new domain together."""
    best = results.best
    if not best.context:
        return ""
    text = f"{best.label} needs all rows of the new domain together: pass sample_domain to predict"
    alone = results.find(best.key.removesuffix(CONTEXT))
    return f"{text}; row by row it scores {_pair(results, alone)}." if alone else f"{text}."


def _best_worst_domain(results: Results) -> str:
    safest = max(results.results, key=lambda result: result.worst)
    if safest.worst <= results.best.worst:
        return ""
    return (
        f"{safest.label} has the best score on its worst domain, {results.show(safest.worst)} "
        f"({safest.worst_domain!s})."
    )


def _against_constant(results: Results) -> str:
    constant, best = results.find(TRIVIAL), results.best
    if constant is None or best.trivial:
        return ""
    p_value = compare(best.known, constant.known).p_value
    if p_value is None or p_value < LEVEL:
        return ""
    return (
        f"Warning: {best.label} is not significantly better than a constant prediction "
        f"({results.show(constant.mean)}; p = {_p(p_value)})."
    )


def _generalization_gap(results: Results) -> str:
    """The scores on seen domains, and their distance from those on unseen domains."""
    gaps = [
        gap_in_words(results, result)
        for result in results.main
        if np.isfinite(result.generalization_gap) and not result.trivial
    ]
    return f"Generalization gap of {'; of '.join(gaps)}." if gaps else ""


def gap_in_words(results: Results, result: MethodResult) -> str:
    """The generalization gap of a method, with its interval and the two scores."""
    show, sign = results.show, results.measure.sign
    interval = ""
    if np.isfinite(result.around.get("price", UNKNOWN)).all():
        interval = "95 %: {} to {}; ".format(*(show(sign * end) for end in result.around["price"]))
    return (
        f"{result.label}: {show(sign * result.generalization_gap)} ({interval}"
        f"{show(result.seen_mean)} on seen, {show(result.mean)} on unseen domains)"
    )


def _failures(results: Results) -> str:
    """Methods that raised an error, so that nobody takes them for worse."""
    failed = [key for key, why in results.left_out.items() if why.startswith("failed")]
    if not failed:
        return ""
    return f"Not scored, because they failed: {', '.join(failed)}; the notes give the errors."


def _p(p_value: float) -> str:
    if p_value < 0.001:
        return "0.001 or less"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def interval(results: Results, ends: Any) -> str:
    """Two scores as they are shown, the smaller one first; a dash for None."""
    shown = sorted(results.measure.shown(end) for end in ends or UNKNOWN)
    if not shown[0] < shown[1]:  # unknown, or no two draws differ
        return "–"
    return " to ".join(results.show(results.measure.sign * value) for value in shown)


def uncertainty_sentences(results: Results) -> list[str]:
    """The uncertainty of the scores."""
    best, rival, show, sign = results.best, results.rival, results.show, results.measure.sign
    ends = [interval(results, best.around.get(name)) for name in ("mean", "worst")]
    mean, worst = (f" (95 %: {text})" if text != "–" else "" for text in ends)
    sentences = [
        f"{best.label} scores {show(best.mean)} on average over {len(best.known)} held-out domains"
        f"{mean}, and {show(best.worst)} on the worst of them{worst}."
    ]
    if rival is not None:
        difference, margin = best.mean - rival.mean, show(sign * results.margin)
        text = f"On average it is {show(sign * difference)} better than {rival.label}"
        if np.isfinite(best.around.get("gap", UNKNOWN)).all():
            text += " (95 %: {} to {})".format(*(show(sign * end) for end in best.around["gap"]))
        practical = "no practical difference" if difference < results.margin else "more than"
        sentences.append(
            f"{text}; that is {practical}"
            + (f" (below {margin})." if difference < results.margin else f" the margin, {margin}.")
        )
    sentences += [
        f"Generalization gap of {gap_in_words(results, result)}."
        for result in results.main
        if np.isfinite(result.generalization_gap) and not result.trivial
    ]
    widths = {name: high - low for name, (low, high) in best.ends.items() if high >= low}
    domains = {domain["name"]: domain for domain in results.differences.get("domains", ())}
    if widths and domains:
        widest = max(widths, key=lambda name: widths[name])
        domain = domains[str(widest)]
        rows = f"{domain['rows']} rows"
        if "classes" in domain:
            pairs = zip(domain["classes"], results.facts["classes"], strict=True)
            rows += ", {} of class {}".format(*min(pair for pair in pairs if pair[0]))
        widest_interval = interval(results, best.ends[widest])
        sentences.append(f"The widest interval is that of {widest} ({rows}): {widest_interval}.")
    return sentences


def uncertainty_table(results: Results) -> TextTable:
    """Rows, classes and intervals of each domain, the hardest for the best method first."""
    best, rival, classes = results.best, results.rival, results.facts["classes"]
    main = [best] if rival is None else [best, rival]
    inside = any(np.isfinite(value) for value in best.within.values())
    columns = ["domain", "rows", "target, quartiles" if classes is None else "classes"]
    if classes is not None and len(classes) == 2:
        columns[2:] = [f"events ({classes[1]})", "share"]
    columns += [text for result in main for text in (result.label, f"{result.label}, 95 %")]
    columns += [f"seen, {best.label}"] + ["folds inside it"] * inside
    domains = {domain["name"]: domain for domain in results.differences.get("domains", ())}
    rows = []
    for name in results.hardest_first:
        domain = domains[str(name)]
        cells = [str(name), f"{domain['rows']:,}"]
        if classes is None:
            whole = all(value == round(value) for value in domain["target"])
            cells.append(" / ".join(f"{v:.4g}" if whole else f"{v:#.4g}" for v in domain["target"]))
        elif len(classes) == 2:
            counts = domain["classes"]
            cells += [f"{counts[1]:,}", percent(counts[1] / domain["rows"])]
        else:
            counts = zip(domain["classes"], map(str, classes), strict=True)
            often = [f"{c}: {percent(n / domain['rows'])}" for n, c in sorted(counts)[:-4:-1] if n]
            cells.append(", ".join(often))
        for result in main:
            cells += [results.show(result.scores[name]), interval(results, result.ends.get(name))]
        cells += [results.show(best.seen.get(name))] + [results.show(best.within[name])] * inside
        rows.append([TextCell(text) for text in cells])
    kinds = ["worst" if row[0].text == str(results.worst_domain) else "" for row in rows]
    return TextTable(columns, rows, kinds)


def label_sentence(results: Results) -> str:
    """What labels of a new domain would change; empty where that is not known."""
    gains = {
        int(gain["n_labels"]): results.measure.sign * gain["score"] for gain in results.label_gain
    }
    if not gains:
        return ""
    start, *counts = gains
    label, show = results.measure.label, results.show
    top = max(counts, key=lambda n: gains[n])
    if gains[top] - gains[start] < results.margin:
        last = counts[-1]
        return (
            f"Labels from the new site would hardly help {results.best.label}: {label} "
            f"{show(gains[start])} without labels, {show(gains[last])} with {last}."
        )
    # The fewest labels with which the score is about as good as with any number of them.
    enough = next(n for n in counts if gains[top] - gains[n] < results.margin)
    steps = [counts[0]] if gains[counts[0]] - gains[start] >= results.margin else []
    steps += [enough] if enough not in steps else []
    first, *rest = steps
    texts = [f"{first} labels: {label} {show(gains[start])} → {show(gains[first])}"]
    texts += [f"{n} labels: {show(gains[n])}" for n in rest]
    if enough < counts[-1]:
        texts.append(f"more than {enough} add little")
    return "; ".join(texts) + "."


def difference_sentences(results: Results) -> list[str]:
    """Columns that differ most, and which of them matter for the target."""
    differences, best, show = results.differences, results.best, results.show
    columns, importance = differences["columns"], results.best.importance
    names = [domain["name"] for domain in differences["domains"]]
    described = [f"{c['name']} ({names[c['tells_at']]}, AUC {c['tells']:.2f})" for c in columns]
    identifying = [column["name"] for column in columns if column["tells"] >= IDENTIFIES]
    text = f"No single column identifies a domain well; the best is {described[0]}."
    if identifying:
        text = (
            f"{len(identifying)} of {len(columns) + differences['others']} columns identify a "
            f"domain by themselves: {_some(described[: len(identifying)])}."
        )
    faults = [] if differences["faults"] else [NO_FAULT]
    if not importance:
        return [text, *faults]
    most = max(importance, key=lambda name: importance[name])
    change = "lower" if results.measure.sign > 0 else "higher"
    losses = [
        f"{show(results.measure.sign * result.importance[most])} {change} for {result.label}"
        for result in results.main
        if most in result.importance
    ]
    important = (
        f"The most important column on held-out domains is {most}: with it shuffled, "
        f"{results.measure.label} is {' and '.join(losses)}."
    )
    faulty = {name for fault in differences["faults"] for name in fault["columns"]}
    little = results.margin / 2
    unused = [n for n in identifying if n not in faulty and importance.get(n, np.inf) < little]
    advice = f"{best.label} loses almost nothing there without {_some(unused)}: consider dropping"
    advice += " it." if len(unused) == 1 else " them."
    return [text, *faults, important, *([advice] if unused else [])]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
