"""How sure scores are, and what being unseen costs.

Intervals of means come from domains that are drawn: scores by domain hold the noise of their rows
already, and drawing those too would count it twice. That of the worst domain draws domains, then
rows; that of a single domain its rows, or is exact where none of these is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.evaluation.found import Found, MethodResult, Row
from domainwise.scoring.intervals import (
    BOOTSTRAP,
    TAIL,
    defined_score,
    expected_score,
    share_interval,
    widened,
)
from domainwise.scoring.measures import Measure
from domainwise.scoring.predictions import Predictions, codes_of

#: Draws of the rows of a domain; fewer where each asks a scorer of scikit-learn.
ROW_DRAWS, SLOW_DRAWS = 400, 100
PARTS = ("prediction", "probabilities", "decisions")
#: Measures of which all draws are scored at once; a scorer takes a millisecond for each.
ERRORS = ("root_mean_squared", "mean_squared", "mean_absolute")
QUICK = ("accuracy", "balanced_accuracy", *(f"neg_{name}_error" for name in ERRORS))
Ends = tuple[float, float]
UNKNOWN: Ends = (float("nan"), float("nan"))


def with_intervals(found: Found, seen: dict[str, list[Row]]) -> list[MethodResult]:
    """Return the results with intervals, and scores of ``seen``: records of random folds.

    Rows of all methods are drawn alike, so that differences are those of the same rows.
    """
    measure, classes = found.measure, found.facts["classes"]
    classes = None if classes is None else np.asarray(classes)
    names = list(found.best.known)
    chosen = np.random.default_rng(0).integers(len(names), size=(BOOTSTRAP, len(names)))
    drawn = np.random.default_rng(1).integers(ROW_DRAWS, size=chosen.shape)
    some = {result.key for result in (*found.main, found.rival) if result is not None}
    results, outside = [], {}
    for result in found.results:
        if list(result.known) != names:
            results.append(result)
            continue
        mine, theirs = (grouped(records.get(result.key, ())) for records in (found.records, seen))
        pooled = {d: pooled_score(measure, classes, theirs[d]) for d in names if d in theirs}
        known = {d: pooled.get(d, float("nan")) for d in result.scores}
        # Others that need a scorer of scikit-learn are judged by their domains alone.
        rows = measure.name in QUICK or (result.key in some and not measure.own)
        scores = np.array([[result.known[name]] * ROW_DRAWS for name in names])
        inside = np.array([[known[name]] * ROW_DRAWS for name in names])
        ends = dict.fromkeys(names, UNKNOWN)
        for place, name in enumerate(names if rows else ()):
            scores[place] = resampled(measure, classes, mine[name], place)
            ends[name] = _ends_of(measure, mine[name], scores[place])
            if name in theirs:
                inside[place] = resampled(measure, classes, theirs[name], place)
        outside[result.key] = scores
        draws = scores[chosen, drawn]
        around = {"mean": expected_score(list(result.known.values()), 0)[1:]}
        around["worst"] = _ends(draws.min(axis=1)) if len(names) > 1 else UNKNOWN
        lost = inside - scores
        if np.isfinite(lost).all():
            around["price"] = _between(lost, chosen)
        results.append(replace(result, seen=known, ends=ends, around=around))
    first, rival = results[0], found.rival
    if rival is not None and {first.key, rival.key} <= outside.keys():
        gap = _between(outside[first.key] - outside[rival.key], chosen)
        results[0] = replace(first, around={**first.around, "gap": gap})
    return results


def _between(differences: Array, chosen: Array) -> Ends:
    by_domain = differences.mean(axis=1)
    draws = by_domain[chosen].mean(axis=1)
    return widened(float(by_domain.mean()), draws, len(by_domain), np.inf)


def _ends(values: Array) -> Ends:
    low, high = np.nanquantile(values, (TAIL, 1 - TAIL))
    return (float(low), float(high)) if high > low else UNKNOWN


def _ends_of(measure: Measure, records: Sequence[Row], draws: Array) -> Ends:
    """Interval of a domain's score; exact, with added squares, where a share in it is 0 or 1."""
    names = ("row", "target", "prediction")
    row, target, told = (np.concatenate([r[name] for r in records]) for name in names)
    of = {"accuracy": np.zeros(len(row)), "balanced_accuracy": target}.get(measure.name, target[:0])
    parts = [(target == told)[of == group] for group in np.unique(of)]
    if all(part.any() and not part.all() for part in parts):
        return _ends(draws)
    times = len(row) / len(np.unique(row))  # that the domain was left out
    shares = np.array([part.mean() for part in parts])
    ends = np.array([share_interval(part.sum() / times, len(part) / times) for part in parts])
    below, above = np.linalg.norm(ends - shares[:, None], axis=0) / len(parts)
    return float(shares.mean() - below), float(shares.mean() + above)


def grouped(records: Sequence[Row]) -> dict[Any, list[Row]]:
    """Records by domain."""
    found: dict[Any, list[Row]] = {}
    for record in records:
        found.setdefault(record["domain"], []).append(record)
    return found


def joined(records: Sequence[Row]) -> Row:
    """Rows of one domain from several models, in the order of the table."""
    order = np.argsort(np.concatenate([record["row"] for record in records]), kind="stable")

    def part(name: str) -> Any:
        values = [record[name] for record in records]
        return None if any(v is None for v in values) else np.concatenate(values)[order]

    return {name: part(name) for name in ("target", *PARTS)}


def pooled_score(measure: Measure, classes: Array | None, records: Sequence[Row]) -> float:
    """Score of all rows of a domain together, whichever model predicted them."""
    if measure.own:
        return float(
            np.average([r["score"] for r in records], weights=[len(r["row"]) for r in records])
        )
    return _score(measure, classes, joined(records), slice(None))


def _score(measure: Measure, classes: Array | None, rows: Row, at: Any) -> float:
    parts = [rows[name] if rows[name] is None else rows[name][at] for name in PARTS]
    some = Predictions.kept(classes, *parts)
    return defined_score(lambda at: measure.scorer(some, None, rows["target"][at]), at)


def resampled(measure: Measure, classes: Array | None, records: Sequence[Row], seed: int) -> Array:
    """Scores of a domain whose rows are drawn with replacement.

    A domain that was left out more than once has the mean over its models, of the same rows.
    """
    found = []
    if any(not np.array_equal(r["row"], records[0]["row"]) for r in records):  # pieces of it
        records = [joined(records)]
    for record in records:
        n = len(record["target"])
        rng = np.random.default_rng([seed, n])
        if measure.name in QUICK:
            counts = rng.multinomial(n, np.full(n, 1 / n), size=ROW_DRAWS).astype(np.float64)
            scores = quick_scores(measure.name, record, counts, classes)
        else:
            draws = rng.integers(n, size=(SLOW_DRAWS, n))
            scores = np.array([_score(measure, classes, record, at) for at in draws])
            scores = np.resize(scores, ROW_DRAWS)
        usual = np.nanmean(scores) if np.isfinite(scores).any() else np.nan
        found.append(np.where(np.isfinite(scores), scores, usual))
    return np.asarray(np.mean(found, axis=0))


def quick_scores(name: str, record: Row, counts: Array, classes: Array | None) -> Array:
    """Scores of all draws at once, by how often each row was drawn."""
    target, told = record["target"], record["prediction"]
    if classes is not None and name == "balanced_accuracy":  # over the classes that a draw has
        member = np.eye(len(classes))[codes_of(target, classes)]
        of, right = counts @ member, counts @ (member * (target == told)[:, None])
        return np.asarray((right / np.where(of > 0, of, 1)).sum(axis=1) / (of > 0).sum(axis=1))
    values = target == told if name == "accuracy" else np.abs(target - told)
    values = values.astype(np.float64) ** (2 if "squared" in name else 1)
    means = np.asarray(counts @ values / counts.sum(axis=1))
    means = np.sqrt(means) if "root" in name else means
    return means if name == "accuracy" else -means
