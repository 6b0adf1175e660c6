"""Scores of methods with context on parts of held-out domains, as batches come in practice.

Context assumes that a batch looks like the whole domain. The first half of a table, or a few rows
of it, may not.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.checks import ContextWarning
from domainwise.scoring.measures import Measure
from domainwise.scoring.predictions import Predictions
from domainwise.scoring.statistics import defined_score

Row = dict[str, Any]
#: In place of the number of a fold: all rows of a held-out domain, predicted in two halves of the
#: table and in ten random tenths.
HALVES, TENTHS = -2, -3
#: Kinds of batches in which context is measured.
BATCHES = ("whole", "first half", "last half", "random tenth")
#: By kind of batch: mean score with context and without, standard error of their difference over
#: domains, and the number of domains.
BatchScores = dict[str, dict[str, float]]


def partial_records(
    model: Any, X: Any, classes: Array | None, drawn: Array | None, record: Row, seed: int
) -> Iterator[Row]:
    """Predict the rows of a held-out domain in parts, by a model that takes ``sample_domain``.

    X has all rows of the domain in the order of the table, of which ``drawn`` are in ``record``,
    the predictions with the whole domain.
    """
    n = X.shape[0]
    halves = (np.arange(n) >= n // 2).astype(np.intp)
    tenths = np.random.default_rng(seed).permutation(n) % 10
    for fold, parts in ((HALVES, halves), (TENTHS, tenths)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ContextWarning)
            predictions = Predictions(model, X, classes, parts, drawn)
            yield {**record, "fold": fold, **predictions.outputs()}


def batch_scores(
    measure: Measure, classes: Array | None, context: Iterable[Row], plain: Iterable[Row]
) -> BatchScores:
    """Score the records of a method with context, and those of the same fits without it.

    Domains on which the measure is not defined are ignored, and so is every score that needs the
    model itself.
    """
    pairs: dict[str, list[tuple[float, float]]] = {}
    plain_records = {record["domain"]: record for record in plain}
    for record in context if not measure.own else ():
        other = plain_records.get(record["domain"])
        if other is None or len(other["row"]) != len(record["row"]):
            continue
        order = np.argsort(record["row"], kind="stable")
        first, last = order[: len(order) // 2], order[len(order) // 2 :]
        kinds = {HALVES: {"first half": first, "last half": last}, TENTHS: {"random tenth": order}}
        for kind, rows in kinds.get(record["fold"], {"whole": order}).items():
            pair = (_score(measure, classes, record, rows), _score(measure, classes, other, rows))
            if np.isfinite(pair).all():
                pairs.setdefault(kind, []).append(pair)
    scores = {}
    for kind in (kind for kind in BATCHES if kind in pairs):
        with_context, without = np.array(pairs[kind]).T
        n = len(without)
        error = float((with_context - without).std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        means = {"context": float(with_context.mean()), "plain": float(without.mean())}
        scores[kind] = {**means, "error": error, "domains": n}
    return scores


def _score(measure: Measure, classes: Array | None, record: Row, rows: Array) -> float:
    """Score of some rows; NaN where it is not defined."""
    target = record["target"]
    if not len(rows) or not measure.defined(target, target[rows], classes is not None):
        return float("nan")
    return defined_score(partial(measure.score_record, classes, record), rows)


def holds_up(scores: Mapping[str, Mapping[str, float]]) -> bool:
    """Whether context is better with whole domains, and not worse with parts of them.

    Worse is a mean difference beyond one standard error.
    """
    gains = {kind: means["context"] - means["plain"] for kind, means in scores.items()}
    better = gains.get("whole", 0.0) > 0.0
    return better and all(gain >= -scores[kind]["error"] for kind, gain in gains.items())
