"""The verdict: which method holds up, by how much, and how sure that is, in words."""

from __future__ import annotations

import numpy as np

from domainwise.evaluation.found import Found, MethodResult
from domainwise.jobs.statistics import MIN_PAIRS, compare, in_words
from domainwise.models.method import CONTEXT

#: A difference with a smaller p-value is called one.
LEVEL = 0.05


def make_verdict(found: Found) -> list[str]:
    """Return the verdict, a sentence or two per item."""
    first = (_who_holds_up, _how_sure, _needs_domain, _worst_elsewhere)
    parts = (*first, _against_constant, _price, _failures)
    return [text for text in (*(part(found) for part in parts), found.next_step) if text]


def _who_holds_up(found: Found) -> str:
    best, rival = found.best, found.rival
    if best.key == "constant":
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
    constant = found.find("constant")
    if constant is None or found.best.key == "constant":
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
    if not np.isfinite(best.price) or best.key == "constant":
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
