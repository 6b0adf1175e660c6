"""The page of an evaluation: verdict, tables, pictures. One file, no network."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from domainwise.evaluation import plots, why
from domainwise.evaluation.failures import failure_sections
from domainwise.evaluation.found import Found, MethodResult
from domainwise.evaluation.verdict import make_verdict
from domainwise.jobs.statistics import p_text
from domainwise.models.calibration import calibrated, sets_in_words
from domainwise.report.page import Templates


def render(found: Found, *, title: str | None = None) -> str:
    """Make the report of an evaluation, a complete HTML document."""
    projection: Any = found.projection
    told = found.differences
    main = [result for result in found.main if result.worth]
    records = found.records.get(found.best.key)
    sets = found.calibration if records is None else calibrated(records, found.facts["classes"])

    def worth(lost: float | None) -> str:
        if lost is None:
            return "–"
        # No finer than the third digit of a score: the rest is chance.
        unit = 10.0 ** (np.floor(np.log10(abs(found.best.mean) or 1.0)) - 2)
        return found.show(found.measure.sign * min(unit, 0.001) * round(lost / min(unit, 0.001)))

    return Templates("domainwise.evaluation").render(
        "evaluate.html.j2",
        styles=["style.css", "evaluate.css"],
        title=title or "Which method holds up on an unseen domain?",
        found=found,
        show=found.show,
        interval=partial(why.interval, found),
        p_text=p_text,
        order=why.hardest_first(found),
        top={d: np.nanmax([r.scores[d] for r in found.results]) for d in found.best.known},
        safest=max(result.worst for result in found.results),
        verdict=make_verdict(found),
        faults=[fault["words"] for fault in told.get("faults", ())],
        sure=why.sure_sentences(found),
        sure_table=why.sure_table(found) if told.get("domains") else None,
        why=why.why_sentences(found) if told.get("columns") else [],
        differences=told,
        shift=plots.shift_picture(found, "shift") if told.get("columns") else None,
        names=[domain["name"] for domain in told.get("domains", ())],
        worth_to=[f"worth to {result.label}" for result in main],
        worth=lambda name: [worth(result.worth.get(name)) for result in main],
        notes=found.notes,
        methods_picture=plots.methods_picture(found, "methods"),
        domains_picture=plots.domains_picture(found, "domains"),
        worst=str(found.worst_domain),
        best=found.best.label,
        projection=projection,
        projections=partial(plots.projection_picture, projection),
        distances=partial(plots.distances_picture, projection, "distances"),
        failures=failure_sections(found),
        chosen=_chosen,
        warnings=[(result.label, text) for result in found.results for text in result.warnings],
        sets=sets_in_words(sets),
    )


def _chosen(result: MethodResult) -> str:
    """Every parameter with its most frequent value, and how often that was chosen."""
    parts = []
    for name in result.parameters[0] if result.parameters else ():
        values = [chosen[name] for chosen in result.parameters if name in chosen]
        if name.startswith(("gamma", "weight of ")):
            numbers = sorted(float(value) for value in values)
            parts.append(f"{name} {numbers[0]:.3g} to {numbers[-1]:.3g}")
            continue
        value, times = Counter(values).most_common(1)[0]
        shown = f"{value:.3g}" if isinstance(value, float) else str(value)
        parts.append(f"{name} {shown} ({times} of {len(values)})")
    return ", ".join(parts) or "–"
