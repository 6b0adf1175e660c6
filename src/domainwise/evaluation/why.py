"""What the page says about why: how sure scores are, and what differs between the domains."""

from __future__ import annotations

from typing import Any

import numpy as np

from domainwise.evaluation.found import Found, percent
from domainwise.evaluation.sure import UNKNOWN
from domainwise.evaluation.verdict import price_in_words
from domainwise.report.page import TextCell, TextTable

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
        if np.isfinite(result.price) and result.key != "constant":
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
