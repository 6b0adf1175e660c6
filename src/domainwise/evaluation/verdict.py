"""An evaluation in words: verdict, uncertainty of scores, and differences between domains."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.evaluation.results import UNKNOWN, Found, MethodResult, percent
from domainwise.models.method import CONTEXT
from domainwise.models.registry import TRIVIAL
from domainwise.report.page import TextCell, TextTable
from domainwise.scoring.statistics import MIN_PAIRS, compare, in_words

#: A difference with a smaller p-value is called one.
LEVEL = 0.05


def make_verdict(found: Found) -> list[str]:
    """Return the verdict, a sentence or two per item."""
    first = (_who_holds_up, _how_sure, _needs_domain, _worst_elsewhere)
    parts = (*first, _against_constant, _price, _failures)
    return [text for text in (*(part(found) for part in parts), found.next_step) if text]


def _who_holds_up(found: Found) -> str:
    best, rival = found.best, found.rival
    if best.trivial:
        text = (
            f"Nothing that was tried beats predicting a constant on an unseen domain: "
            f"{_both(found, best)}"
        )
        return f"{text}; {rival.label} has {_pair(found, rival)}." if rival else f"{text}."
    if rival is None:
        why = "" if found.baseline else "; no plain method was run to compare it with"
        return f"{best.label} has {_both(found, best)}{why}."
    if best.kind == "baseline":
        return (
            f"A plain method holds up best: {best.label} has {_both(found, best)}; the best of "
            f"the others, {rival.label}, has {_pair(found, rival)}."
        )
    verb = "keeps" if found.measure.sign > 0 else "errs by"
    return (
        f"{best.label} {verb} {found.show(best.worst)} ({found.measure.label}) on the "
        f"worst domain ({best.worst_domain!s}), {rival.label} {found.show(rival.worst)} "
        f"({rival.worst_domain!s}); on average over {_count(found)} they have "
        f"{found.show(best.mean)} and {found.show(rival.mean)}."
    )


def _needs_domain(found: Found) -> str:
    """That the best method has to be given the rows of a new domain together."""
    best = found.best
    if not best.context:
        return ""
    text = f"{best.label} needs the rows of the new domain at hand, with sample_domain in predict"
    alone = found.find(best.key.removesuffix(CONTEXT))
    return f"{text}; row by row it has {_pair(found, alone)}." if alone else f"{text}."


def _how_sure(found: Found) -> str:
    rival = found.rival
    if rival is None:
        return ""
    n = len(found.best.known.keys() & rival.known.keys())
    if abs(found.best.mean - rival.mean) < found.margin:
        return (
            f"That is no practical difference, whatever its p-value: less than "
            f"{found.show(found.measure.sign * found.margin)}, the margin here."
        )
    if n < MIN_PAIRS:
        return f"With {in_words(n)} domains there are too few to tell whether that is chance."
    tested = rival if found.best.kind == "baseline" else found.best
    raw, adjusted = tested.p_value, tested.p_adjusted
    if raw is None or adjusted is None:
        raw = adjusted = compare(found.best.known, rival.known).p_value
    if raw is None or adjusted is None:
        return ""
    n_tested = sum(result.p_value is not None for result in found.results)
    if raw >= LEVEL:
        return f"The difference is not beyond chance (p = {_p(raw)})."
    if adjusted >= LEVEL:
        return (
            f"The difference would be beyond chance by itself (p = {_p(raw)}), but not among the "
            f"{in_words(n_tested)} methods that were compared (p = {_p(adjusted)}, by Holm's rule)."
        )
    return f"The difference is beyond chance (p = {_p(raw)})."


def _worst_elsewhere(found: Found) -> str:
    safest = max(found.results, key=lambda result: result.worst)
    if safest.worst <= found.best.worst:
        return ""
    return (
        f"By its worst domain ({safest.worst_domain!s}) {safest.label} does best of all, with "
        f"{found.show(safest.worst)} there."
    )


def _against_constant(found: Found) -> str:
    constant = found.find(TRIVIAL)
    if constant is None or found.best.trivial:
        return ""
    p_value = compare(found.best.known, constant.known).p_value
    mean = found.show(constant.mean)
    if p_value is not None and p_value >= LEVEL:
        return (
            f"Beware: {found.best.label} is not better than a constant ({mean}) beyond chance "
            f"(p = {_p(p_value)})."
        )
    return ""


def _price(found: Found) -> str:
    """What is reached on domains that were seen, and so what being unseen costs."""
    best, *plain = found.main
    if not np.isfinite(best.price) or best.trivial:
        return ""
    others = [f"; for {r.label} {price_in_words(found, r)}" for r in plain if r.price == r.price]
    return (
        f"On domains of which it has seen other rows {best.label} has {found.show(best.seen_mean)} "
        f"(random folds): {price_in_words(found, best)}{''.join(others)}."
    )


def price_in_words(found: Found, result: MethodResult) -> str:
    """That being unseen costs so much, between these ends."""
    show, sign = found.show, found.measure.sign
    little = " next to nothing," if result.price < found.margin else ""
    little = " nothing," if result.price < 0 else little
    words = f"being unseen costs{little} {show(sign * result.price)}"
    if "price" not in result.around or not np.isfinite(result.around["price"]).all():
        return words
    low, high = (show(sign * end) for end in result.around["price"])
    return f"{words} ({low} to {high})"


def _failures(found: Found) -> str:
    """Which methods broke off, so that nobody takes them for worse."""
    failed = [key for key, why in found.left_out.items() if why.startswith("failed")]
    if not failed:
        return ""
    return f"Not judged, because they failed: {', '.join(failed)}; the notes say why."


def _both(found: Found, result: MethodResult) -> str:
    label = found.measure.label
    return (
        f"{label} {found.show(result.mean)} on average over {_count(found)} and "
        f"{found.show(result.worst)} on the worst ({result.worst_domain!s})"
    )


def _pair(found: Found, result: MethodResult) -> str:
    show = found.show
    return f"{show(result.mean)} and {show(result.worst)} ({result.worst_domain!s})"


def _count(found: Found) -> str:
    return f"{in_words(len(found.best.known))} unseen domains"


def _p(p_value: float) -> str:
    if p_value < 0.001:
        return "0.001 or less"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


#: A column that tells some domain at least so well is said to.
TELLS = 0.8
NO_FAULT = "Nothing looks like a fault: no other unit, swapped sign, or column that a site lacks."


def interval(found: Found, ends: Any) -> str:
    """Two scores as they are shown, the smaller one first; a dash for None."""
    shown = sorted(found.measure.shown(end) for end in ends or UNKNOWN)
    if not shown[0] < shown[1]:  # not known, or no two draws differ
        return "–"
    return " to ".join(found.show(found.measure.sign * value) for value in shown)


def hardest_first(found: Found) -> list[Any]:
    """Domains by the score of the best method; those without one last."""
    scores = found.best.scores
    return sorted(scores, key=lambda name: np.nan_to_num(scores[name], nan=np.inf))


def sure_sentences(found: Found) -> list[str]:
    """How sure the scores are."""
    best, rival, show, sign = found.best, found.rival, found.show, found.measure.sign
    ends = [interval(found, best.around.get(name)) for name in ("mean", "worst")]
    mean, worst = (f" ({text}, 95 %)" if text != "–" else "" for text in ends)
    told = [
        f"{best.label} has {show(best.mean)} on average over {len(best.known)} unseen domains"
        f"{mean}, and {show(best.worst)} on the worst of them{worst}."
    ]
    if rival is not None:
        gap, margin = best.mean - rival.mean, show(sign * found.margin)
        text = f"That is {show(sign * gap)} better on average than {rival.label}"
        if np.isfinite(best.around.get("gap", UNKNOWN)).all():
            text += " ({} to {}, 95 %)".format(*(show(sign * end) for end in best.around["gap"]))
        if gap < found.margin:
            told.append(f"{text}: no practical difference, which begins at {margin}.")
        else:
            told.append(f"{text}; less than {margin} would be no practical difference.")
    for result in found.main:
        if np.isfinite(result.price) and not result.trivial:
            told.append(
                f"On seen domains {result.label} has {show(result.seen_mean)}, on unseen ones "
                f"{show(result.mean)}: {price_in_words(found, result)}."
            )
    widths = {name: high - low for name, (low, high) in best.ends.items() if high >= low}
    domains = {domain["name"]: domain for domain in found.differences.get("domains", ())}
    if widths and domains:
        widest = max(widths, key=lambda name: widths[name])
        domain = domains[str(widest)]
        rows = f"{domain['rows']} rows"
        if "classes" in domain:
            pairs = zip(domain["classes"], found.facts["classes"], strict=True)
            rows += ", {} of class {}".format(*min(pair for pair in pairs if pair[0]))
        known = interval(found, best.ends[widest])
        told.append(f"Least is known about {widest} ({rows}): {known} (95 %).")
    return told


def sure_table(found: Found) -> TextTable:
    """Rows, classes and intervals of each domain, the hardest for the best method first."""
    best, rival, classes = found.best, found.rival, found.facts["classes"]
    main = [best] if rival is None else [best, rival]
    inside = any(np.isfinite(value) for value in best.within.values())
    columns = ["domain", "rows", "target, quartiles" if classes is None else "classes"]
    if classes is not None and len(classes) == 2:
        columns[2:] = [f"events ({classes[1]})", "share"]
    columns += [text for result in main for text in (result.label, f"{result.label}, 95 %")]
    columns += [f"seen, {best.label}"] + ["folds inside it"] * inside
    domains = {domain["name"]: domain for domain in found.differences.get("domains", ())}
    rows = []
    for name in hardest_first(found):
        domain = domains[str(name)]
        cells = [str(name), f"{domain['rows']:,}"]
        if classes is None:
            whole = all(value == round(value) for value in domain["target"])
            cells.append(" / ".join(f"{v:.4g}" if whole else f"{v:#.4g}" for v in domain["target"]))
        else:
            counts, n = domain["classes"], domain["rows"]
            often = sorted(zip(counts, map(str, classes), strict=True), reverse=True)[:3]
            both = [f"{counts[1]:,}", percent(counts[1] / n)] if len(classes) == 2 else None
            cells += both or [", ".join(f"{c}: {percent(k / n)}" for k, c in often if k)]
        for result in main:
            cells += [found.show(result.scores[name]), interval(found, result.ends.get(name))]
        cells += [found.show(best.seen.get(name))] + [found.show(best.within[name])] * inside
        rows.append([TextCell(text) for text in cells])
    kinds = ["worst" if row[0].text == str(found.worst_domain) else "" for row in rows]
    return TextTable(columns, rows, kinds)


def why_sentences(found: Found) -> list[str]:
    """What differs most, and what of that matters for the target."""
    told, best = found.differences, found.best
    columns = told["columns"]
    names = [domain["name"] for domain in told["domains"]]
    said = [f"{c['name']} ({names[c['tells_at']]}, {c['tells']:.2f})" for c in columns]
    telling = [column["name"] for column in columns if column["tells"] >= TELLS]
    text = f"No column alone tells a domain well; the best is {said[0]}."
    if telling:
        text = (
            f"{len(telling)} of {len(columns) + told['others']} columns tell some domain from the "
            f"others by themselves: {_some(said[: len(telling)])}."
        )
    faults = [] if told["faults"] else [NO_FAULT]
    if not best.worth:
        return [text, *faults]
    most = max(best.worth, key=lambda name: best.worth[name])
    loses = "{} loses {}" if found.measure.sign > 0 else "{} errs by {} more"
    losses = [
        loses.format(result.label, found.show(found.measure.sign * result.worth[most]))
        for result in found.main
        if most in result.worth
    ]
    worth = f"On left-out domains {most} is worth most: without it {' and '.join(losses)}."
    faulty = {fault["column"] for fault in told["faults"]}
    idle = [n for n in telling if n not in faulty and best.worth.get(n, np.inf) < found.margin / 2]
    without = [f"Next to nothing is lost there without {_some(idle)}: try that."] if idle else []
    return [text, *faults, worth, *without]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (" and others" if len(names) > 3 else "")
