"""Sections of the page that say why: what differs between the domains, and how sure scores are."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from domainwise.evaluation.found import Found
from domainwise.evaluation.verdict import price_in_words
from domainwise.report.page import TextCell, TextTable

#: A column that tells some domain at least so well is said to.
TELLS = 0.8
#: Size of a small picture; more than so many domains make it wider.
HEIGHT, STEP, FEWEST = 46, 7, 12

SURE_LEGEND = (
    "Intervals hold 95 %: domains are drawn with replacement, then their rows; of a single domain "
    "its rows alone. They are approximate, and wide where there are few domains or events. Seen: "
    "random folds of all rows, scored by domain, with the parameters chosen on other domains."
)
WHY_LEGEND = (
    "One bar per domain, in the order of their names: line from the 10th to the 90th percentile, "
    "box between the quartiles, dot at the median; text: shares of the most frequent values. "
    "Distance: of the domain's median from that of all other rows, in deviations inside domains "
    "(text: half the sum of differences of shares). Tells: area under the curve of the column "
    "alone (or of its gaps) for one domain against the others, 0.5 is nothing and 1 everything. "
    "Worth: what is lost on left-out domains if the column is shuffled there."
)


def percent(share: float) -> str:
    """A share as it is shown."""
    return f"{100 * share:.0f} %"


def interval(found: Found, ends: Any) -> str:
    """Two scores as they are shown, the smaller one first."""
    shown = sorted(found.measure.shown(end) for end in ends)
    if not np.isfinite(shown).all():
        return "–"
    return " to ".join(found.show(found.measure.sign * value) for value in shown)


def sure_sentences(found: Found) -> list[str]:
    """How sure the scores are, in words."""
    best, rival, show = found.best, found.rival, found.show
    mean, worst = (interval(found, best.around.get(n, (np.nan, np.nan))) for n in ("mean", "worst"))
    words = [f" ({text}, 95 %)" if text != "–" else "" for text in (mean, worst)]
    told = [
        f"{best.label} has {show(best.mean)} on average over {len(best.known)} unseen domains"
        f"{words[0]}, and {show(best.worst)} on the worst of them{words[1]}."
    ]
    if rival is not None:
        gap = show(found.measure.sign * abs(best.mean - rival.mean))
        ends = best.around.get("gap", (np.nan, np.nan))
        text = f"It is {gap} better than {rival.label}"
        if np.isfinite(ends).all():
            low, high = (show(found.measure.sign * end) for end in ends)
            text += f", an advantage between {low} and {high} (95 %)"
        margin = show(found.measure.sign * found.margin)
        small = abs(best.mean - rival.mean) < found.margin
        text += (
            f": no practical difference, which begins at {margin}."
            if small
            else (f"; less than {margin} would be no practical difference.")
        )
        told.append(text)
    for result in dict.fromkeys((best.key, found.baseline.key if found.baseline else best.key)):
        one = found.find(result)
        if one is not None and np.isfinite(one.price) and one.key != "constant":
            told.append(
                f"On seen domains {one.label} has {show(one.seen_mean)}, on unseen ones "
                f"{show(one.mean)}: {price_in_words(found, one)}."
            )
    return [*told, *_least_sure(found)]


def _least_sure(found: Found) -> list[str]:
    """The domain about which least is known, with its rows."""
    ends = {name: high - low for name, (low, high) in found.best.ends.items() if high >= low}
    domains = {d["name"]: d for d in found.differences.get("domains", ())}
    if not ends or not domains:
        return []
    widest = max(ends, key=lambda name: ends[name])
    told = domains.get(str(widest), {"rows": 0})
    rows = f"{told['rows']} rows"
    if "classes" in told:
        counts = zip(found.facts["classes"], told["classes"], strict=True)
        few = min((pair for pair in counts if pair[1]), key=lambda pair: pair[1])
        rows += f", {few[1]} of class {few[0]}"
    known = interval(found, found.best.ends[widest])
    return [f"Least is known about {widest} ({rows}): {known} (95 %)."]


def sure_table(found: Found) -> TextTable:
    """Rows, classes and intervals of each domain, the hardest for the best method first."""
    classes = found.facts["classes"]
    told = {d["name"]: d for d in found.differences.get("domains", ())}
    main = [found.best]
    main += [r for r in (found.rival, found.baseline) if r is not None and r not in main][:1]
    few = classes is not None and len(classes) <= 4
    columns = ["domain", "rows"]
    if classes is None:
        columns += ["target, quartiles"]
    elif len(classes) == 2:
        columns += [f"events ({classes[1]})", "share"]
    else:
        columns += [str(c) for c in classes] if few else ["shares of classes"]
    for result in main:
        columns += [result.label, "95 %"]
    columns += [f"seen, {found.best.label}"]
    inside = any(np.isfinite(v) for v in found.best.within.values())
    columns += ["folds inside it"] if inside else []
    best = found.best
    rows = []
    for name in sorted(best.scores, key=lambda n: np.nan_to_num(best.scores[n], nan=np.inf)):
        domain = told.get(str(name), {"rows": 0, "classes": [0] * len(classes or ())})
        n = max(domain["rows"], 1)
        cells = [str(name), f"{domain['rows']:,}"]
        if classes is None:
            cells += [" / ".join(f"{v:.4g}" for v in domain.get("target", ()))]
        elif len(classes) == 2:
            cells += [f"{domain['classes'][1]:,}", percent(domain["classes"][1] / n)]
        elif few:
            cells += [percent(count / n) for count in domain["classes"]]
        else:
            order = np.argsort(domain["classes"])[::-1][:3]
            cells += [", ".join(f"{classes[i]} {percent(domain['classes'][i] / n)}" for i in order)]
        for result in main:
            score, ends = result.scores[name], result.ends.get(name, (np.nan, np.nan))
            cells += [found.show(score), interval(found, ends)]
        cells += [found.show(best.seen.get(name, np.nan))]
        cells += [found.show(best.within[name])] if inside else []
        rows.append([TextCell(text) for text in cells])
    kinds = ["worst" if row[0].text == str(found.worst_domain) else "" for row in rows]
    return TextTable(columns, rows, kinds)


def why_sentences(found: Found) -> list[str]:
    """What differs most, and what of that matters for the target."""
    told = found.differences
    columns, names = told["columns"], [d["name"] for d in told["domains"]]
    if not columns:
        return []
    telling = [c for c in columns if c["tells"] >= TELLS]
    n = len(columns) + told["others"]
    some = ", ".join(f"{c['name']} ({names[c['tells_at']]}, {c['tells']:.2f})" for c in telling[:3])
    text = f"{len(telling)} of {n} columns tell some domain from the others by themselves"
    if not telling:
        first = columns[0]
        text = (
            f"No column alone tells a domain from the others well: the best is {first['name']}, "
            f"for {names[first['tells_at']]} ({first['tells']:.2f})"
        )
    elif len(telling) == n == 1:
        text = f"The column alone tells some domain from the others: {some}"
    else:
        text += f": {some}" + (" and others" if len(telling) > 3 else "")
    sentences = [f"{text}."]
    worth = found.best.worth
    if worth:
        most = max(worth, key=lambda name: worth[name])
        lost = found.show(found.measure.sign * worth[most])
        text = (
            f"On left-out domains {most} is worth most: without it {found.best.label} loses {lost}"
        )
        plain = found.baseline
        if plain is not None and plain is not found.best and most in plain.worth:
            text += f", {plain.label} {found.show(found.measure.sign * plain.worth[most])}"
        sentences.append(f"{text}.")
        faulty = {fault["column"] for fault in told["faults"]}
        idle = [c["name"] for c in telling if worth.get(c["name"], np.inf) < found.margin / 2]
        idle = [name for name in idle if name not in faulty]
        if idle:
            shown = ", ".join(idle[:3]) + (" and others" if len(idle) > 3 else "")
            verb = "tells" if len(idle) == 1 else "tell"
            sentences.append(
                f"{shown} {verb} domains and {'is' if len(idle) == 1 else 'are'} worth next to "
                "nothing there: try without."
            )
    return sentences


def why_table(found: Found) -> TextTable:
    """One row per column: spread by domain, gaps, distance, what it tells and is worth."""
    told = found.differences
    names = [domain["name"] for domain in told["domains"]]
    plain = found.baseline if found.baseline is not found.best else None
    main = [r for r in (found.best, plain) if r is not None and r.worth]
    rows = []
    for column in told["columns"]:
        gaps = int(np.argmax(column["missing"]))
        share = column["missing"][gaps]
        cells = [
            TextCell(column["name"]),
            TextCell("", svg=small_picture(column, names)),
            TextCell(percent(share) + (f" ({names[gaps]})" if share else "")),
            TextCell(f"{column['distance']:.3g} ({names[column['distance_at']]})"),
            TextCell(f"{column['tells']:.2f} ({names[column['tells_at']]})"),
        ]
        for result in main:
            value = result.worth.get(column["name"])
            cells.append(TextCell("–" if value is None else found.show(found.measure.sign * value)))
        rows.append(cells)
    columns = ["column", "by domain", "most missing", "distance", "tells"]
    columns += [f"worth to {result.label}" for result in main]
    return TextTable(columns, rows, [""] * len(rows))


def small_picture(column: Mapping[str, Any], names: list[str]) -> str:
    """Spread of a column by domain as inline SVG; it takes the colours of the page."""
    n = len(names)
    width = STEP * max(n, FEWEST)
    step = width / n
    number = column["kind"] == "number"
    draw = _draw_numbers if number else _draw_shares
    parts = []
    for d, (x, inner) in enumerate(zip(np.arange(n) * step, draw(column, step), strict=True)):
        far = number and d == column["distance_at"] and column["distance"] >= 2
        title = f"<title>{escape(_told(column, names, d))}</title>"
        mark = ' class="far"' if far else ""
        parts.append(f'<g{mark} transform="translate({x:.1f})">{title}{inner}</g>')
    alt = f"{column['name']} by domain: " + "; ".join(
        _told(column, names, d) for d in dict.fromkeys((column["distance_at"], *range(min(n, 12))))
    )
    return (
        f'<svg class="small" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(alt)}">{"".join(parts)}</svg>'
    )


def _told(column: Mapping[str, Any], names: list[str], d: int) -> str:
    """What a domain has of a column, in words."""
    if column["kind"] == "number":
        there = column["quantiles"][d]
        return f"{names[d]} {'has none' if there is None else f'{there[2]:.4g}'}"
    there = column["shares"][d]
    if there is None:
        return f"{names[d]} has none"
    shares = zip(column["categories"], there, strict=True)
    return f"{names[d]} " + ", ".join(f"{name} {percent(share)}" for name, share in shares)


def _draw_numbers(column: Mapping[str, Any], step: float) -> list[str]:
    known = np.array([q for q in column["quantiles"] if q is not None]).reshape(-1, 5)
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    middle, wide = step / 2, min(step * 0.6, 10.0)
    drawn = []
    for quantiles in column["quantiles"]:
        if quantiles is None:
            drawn.append(f'<text class="none" x="{middle:.1f}" y="{HEIGHT - 3}">×</text>')
            continue
        y = HEIGHT - 3 - (np.array(quantiles) - low) / ((high - low) or 1.0) * (HEIGHT - 6)
        box = f'x="{middle - wide / 2:.1f}" y="{y[3]:.1f}" width="{wide:.1f}"'
        drawn.append(
            f'<path d="M{middle:.1f} {y[0]:.1f}V{y[4]:.1f}"/>'
            f'<rect {box} height="{max(y[1] - y[3], 1.0):.1f}"/>'
            f'<circle cx="{middle:.1f}" cy="{y[2]:.1f}" r="2"/>'
        )
    return drawn


def _draw_shares(column: Mapping[str, Any], step: float) -> list[str]:
    drawn = []
    for shares in column["shares"]:
        y, parts = float(HEIGHT - 2), []
        for place, share in enumerate(shares or ()):
            tall = share * (HEIGHT - 4)
            y -= tall
            box = f'x="{step * 0.15:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" height="{tall:.1f}"'
            parts.append(f'<rect class="share{place}" {box}/>')
        drawn.append("".join(parts))
    return drawn


def faults(found: Found) -> list[str]:
    """Sentences about what looks like a fault in the table."""
    return [f"{fault['words']}." for fault in found.differences.get("faults", ())]
