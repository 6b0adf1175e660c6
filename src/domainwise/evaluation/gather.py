"""The rows of all jobs, scored and gathered into an evaluation."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sklearn

from domainwise import __version__
from domainwise.evaluation.batches import HALVES, TENTHS, BatchScores, batch_scores
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.jobs import (
    OUTSIDE,
    PARTS,
    SEEN,
    Row,
    Scorer,
    can_score,
    job_key,
)
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import (
    MethodResult,
    domain_weights,
    grouped,
    plain,
    with_intervals,
)
from domainwise.models.registry import CONTEXT, Method
from domainwise.scoring.measures import Measure
from domainwise.scoring.statistics import compare
from domainwise.splits.folds import Split


def able_methods(
    problem: Problem, methods: Sequence[Method], measures: Sequence[Measure]
) -> list[Method]:
    """Methods that have what one of the measures asks for."""
    able = [m for m in methods if any(can_score(m, problem.measured_by(by)) for by in measures)]
    if problem.measure.own:  # a caller's scorer does not pass domains
        return [replace(method, context=False) for method in able]
    return able


def outside_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows of held-out domains, with the predictions of the same method on seen domains."""
    seen = {job_key(row)[:2]: row for row in rows if job_key(row)[2] != PARTS[0]}
    joined = []
    for row in rows:
        if job_key(row)[2] == PARTS[0]:
            more = seen.get(job_key(row)[:2], {}).get("predictions", [])
            predictions = [*row.get("predictions", ()), *more]
            joined.append(row if "error" in row else {**row, "predictions": predictions})
    return joined


def scored_evaluation(
    problem: Problem,
    measure: Measure,
    methods: Sequence[Method],
    splits: Sequence[Split],
    rows: Sequence[Row],
) -> Evaluation:
    """Score the predictions of all jobs, and gather what follows."""
    measured, able = problem.measured_by(measure), able_methods(problem, methods, [measure])
    left_out = {
        method.key: f"gives no probabilities, which {measure.name} needs"
        for method in methods
        if method.key not in {other.key for other in able}
    }
    keys = [key for method in able for key, _, _ in method.rows(measured.classification)]
    order = {key: place for place, key in enumerate(keys)}
    ours = sorted(
        (row for row in outside_rows(rows) if row["method"] in order),
        key=lambda row: (row["split"], order[row["method"]]),
    )
    evaluation = collect(measured, able, list(map(Scorer(measured, splits), ours)), left_out)
    made, would = problem.setting(1), replace(problem, measure=measure).setting(1)
    if (made.scoring, made.class_weight) != (would.scoring, would.class_weight):
        evaluation.notes.append(
            f"Parameters and class weights were chosen for {problem.measure.label}; "
            f"{measure.label} is computed from the same predictions."
        )
    return evaluation


def collect(
    problem: Problem, methods: Sequence[Method], rows: Sequence[Row], left_out: Mapping[str, str]
) -> Evaluation:
    """Gather the rows of all jobs; ``left_out`` says why some methods were not run."""
    missing = dict(left_out)
    results = []
    records: dict[str, list[Row]] = {}
    seen: dict[str, list[Row]] = {}
    variants = [(method, *row) for method in methods for row in method.rows(problem.classification)]
    for method, key, label, context in variants:
        mine = [row for row in rows if row["method"] == key]
        errors = [row["error"] for row in mine if "error" in row]
        if errors:
            missing[key] = f"failed: {errors[0]}"
            continue
        if not mine:
            missing[key] = "not finished"
            continue
        scores = _by_domain(problem, mine, "scores")
        if not any(np.isfinite(value) for value in scores.values()):
            missing[key] = f"{problem.measure.label} is defined on no domain"
            continue
        losses = [by_column for row in mine for by_column in row.get("worth", {}).items()]
        results.append(
            MethodResult(
                key,
                label,
                method.kind,
                method.about,
                scores,
                _by_domain(problem, mine, "within"),
                [row["parameters"] for row in mine],
                mine[0]["candidates"],
                float(sum(row["seconds"] for row in mine)),
                tuple(dict.fromkeys(text for row in mine for text in row["warnings"])),
                context=context,
                batches=_batches(problem, rows, method.key, key) if context else {},
                importance=_means((name, lost) for name, each in losses for lost in each),
            )
        )
        for by_method, fold in ((records, OUTSIDE), (seen, SEEN)):
            by_method[key] = [
                {**record, "domain": plain(problem.domains[record["domain"]])}
                for row in mine
                for record in row["predictions"]
                if record["fold"] == fold
            ]
    if not results:
        reasons = "; ".join(f"{key} {reason}" for key, reason in missing.items())
        raise ValueError(f"no method could be evaluated: {reasons}")
    compared = with_p_values(results)
    evaluation = Evaluation(
        compared,
        list(compared[0].scores),
        problem.measure,
        missing,
        _facts(problem),
        records=records,
        methods=list({m.key: m for m, key, _, _ in variants if key in records}.values()),
    )
    evaluation.results = with_intervals(evaluation, seen)
    best = grouped(records[evaluation.best.key])
    counts = {d: len(np.unique(np.concatenate([r["row"] for r in best[d]]))) for d in best}
    evaluation.weights = domain_weights(evaluation.results, counts)
    evaluation.notes = _notes(problem, evaluation, rows)
    return evaluation


def _batches(problem: Problem, rows: Sequence[Row], plain_key: str, key: str) -> BatchScores:
    """Scores of a method with context by kind of batch, and of the same fits without context."""

    def records(method: str, folds: Sequence[int]) -> list[Row]:
        mine = [row for row in rows if row["method"] == method and "error" not in row]
        return [r for row in mine for r in row["predictions"] if r["fold"] in folds]

    together, alone = records(key, (OUTSIDE, HALVES, TENTHS)), records(plain_key, (OUTSIDE,))
    scored = [r for r in together if r["domain"] not in problem.unscored]
    return batch_scores(problem.measure, problem.classes, scored, alone)


def _means(values: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """Mean of the values of group key."""
    groups: dict[Any, list[float]] = {}
    for key, value in values:
        groups.setdefault(key, []).append(value)
    return {key: float(np.mean(group)) for key, group in groups.items()}


def _by_domain(problem: Problem, rows: Sequence[Row], name: str) -> dict[Any, float]:
    """Mean over the splits in which a domain was held out, in the order of the domains."""
    means = _means(scored for row in rows for scored in row[name].items())
    return {plain(problem.domains[code]): means[code] for code in sorted(means)}


def with_p_values(results: list[MethodResult]) -> list[MethodResult]:
    """Sort by mean and test against the best baseline, over domains."""
    results = sorted(results, key=lambda result: -result.mean)
    baseline = next((result for result in results if result.kind == "baseline"), None)
    if baseline is None:
        return results
    raw = {
        result.key: p_value
        for result in results
        if result.kind != "baseline"
        and (p_value := compare(result.known, baseline.known).p_value) is not None
    }
    adjusted = holm(raw)
    return [
        replace(result, p_value=raw.get(result.key), p_adjusted=adjusted.get(result.key))
        for result in results
    ]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values for their number by Holm's rule.

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, (key, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_value))
        adjusted[key] = largest
    return adjusted


def drawn_rows_note(problem: Problem) -> str:
    """Describe how many rows methods learn from, and on how many they are scored."""
    return (
        f"Methods learn from {len(problem.y):,} of {problem.n_given:,} rows, drawn evenly from "
        f"the domains (max_rows), and are scored on {len(problem.everything.scored):,}."
    )


def _notes(problem: Problem, evaluation: Evaluation, rows: Sequence[Row]) -> list[str]:
    notes = list(problem.notes)
    if len(problem.y) < problem.n_given:
        notes.append(drawn_rows_note(problem))
    single = [str(name) for name in problem.domains[problem.unscored]]
    if single:
        notes.append(
            f"One class only in {', '.join(single)}: these rows are used for training, and are not "
            "scored."
        )
    undefined = [
        str(name) for name, score in evaluation.best.scores.items() if not np.isfinite(score)
    ]
    undefined = [name for name in undefined if name not in single]
    if undefined:
        notes.append(
            f"{evaluation.measure.label} is not defined on {', '.join(undefined)}; the means are "
            "over the other domains."
        )
    if any(row.get("selected_on") == "rows" for row in rows):
        notes.append(
            "Some parameters were chosen with folds of rows, because there was no second source "
            "domain to hold out."
        )
    if problem.class_weight is not None:
        notes.append(
            "Classes are weighted equally in training, however rare, as they are in "
            f"{evaluation.measure.label}."
        )
    if any(result.context for result in evaluation.results):
        notes.append(
            f"Methods with {CONTEXT} get all rows of the held-out domain together, without labels "
            f"({_usual_size(problem):,} rows of a domain, the median), and assume that a batch "
            "looks like the whole domain; other methods predict each row by itself."
        )
    if evaluation.measure.about_one_class and problem.positive is not None:
        notes.append(
            f"{evaluation.measure.label} is about the class {problem.positive!s} (pos_label)."
        )
    notes += [f"{key}: {reason}." for key, reason in evaluation.left_out.items()]
    return notes


def _usual_size(problem: Problem) -> int:
    """Median number of rows of a domain."""
    return int(np.median(np.bincount(problem.everything.codes)))


def _facts(problem: Problem) -> dict[str, Any]:
    return {
        "task": problem.task,
        "rows": len(problem.y),
        "rows_given": problem.n_given,
        "columns": int(problem.X.shape[1]),
        "domains": len(problem.domains),
        "classes": None if problem.classes is None else problem.classes.tolist(),
        "class_weight": problem.class_weight,
        "positive": None if problem.positive is None else plain(problem.positive),
        "seed": problem.seed,
        "python": platform.python_version(),
        "versions": {
            "domainwise": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }
