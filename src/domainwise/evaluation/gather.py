"""From the rows of all jobs to an evaluation: scores by domain, tests, and what is to be noted."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sklearn

from domainwise import __version__
from domainwise.evaluation.found import MethodResult, Row, plain
from domainwise.evaluation.jobs import OUTSIDE, SEEN
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.result import Evaluation
from domainwise.evaluation.sure import with_intervals
from domainwise.jobs.statistics import compare
from domainwise.models.method import CONTEXT, Method


def gather(
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
        scores = _by_domain(problem, mine, "scores")
        if not any(np.isfinite(value) for value in scores.values()):
            missing[key] = f"{problem.measure.label} is defined on no domain"
            continue
        worth = [by_column for row in mine for by_column in row.get("worth", {}).items()]
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
                worth=_means((name, lost) for name, each in worth for lost in each),
            )
        )
        for kept, fold in ((records, OUTSIDE), (seen, SEEN)):
            kept[key] = [
                {**record, "domain": plain(problem.domains[record["domain"]])}
                for row in mine
                for record in row["predictions"]
                if record["fold"] == fold
            ]
    if not results:
        reasons = "; ".join(f"{key} {reason}" for key, reason in missing.items())
        raise ValueError(f"no method could be evaluated: {reasons}")
    compared = with_p_values(results)
    found = Evaluation(
        compared,
        list(compared[0].scores),
        problem.measure,
        missing,
        _facts(problem),
        records=records,
        methods=list({m.key: m for m, key, _, _ in variants if key in records}.values()),
    )
    found.results = with_intervals(found, seen)
    found.notes = _notes(problem, found, rows)
    return found


def _means(values: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """Mean of the values of each key."""
    found: dict[Any, list[float]] = {}
    for key, value in values:
        found.setdefault(key, []).append(value)
    return {key: float(np.mean(each)) for key, each in found.items()}


def _by_domain(problem: Problem, rows: Sequence[Row], name: str) -> dict[Any, float]:
    """Mean over the splits in which a domain was left out, in the order of the domains."""
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


def _notes(problem: Problem, found: Evaluation, rows: Sequence[Row]) -> list[str]:
    notes = list(problem.notes)
    if len(problem.y) < problem.n_given:
        notes.append(
            f"{len(problem.y):,} of {problem.n_given:,} rows were used, drawn evenly from the "
            "domains (max_rows)."
        )
    single = [str(name) for name in problem.domains[problem.unscored]]
    if single:
        notes.append(
            f"One class only in {', '.join(single)}: these rows serve for training, and are not "
            "scored."
        )
    undefined = [str(name) for name, score in found.best.scores.items() if not np.isfinite(score)]
    undefined = [name for name in undefined if name not in single]
    if undefined:
        notes.append(
            f"{found.measure.label} is not defined on {', '.join(undefined)}; the means leave "
            "these domains out."
        )
    if any(row.get("selected_on") == "rows" for row in rows):
        notes.append(
            "Some parameters were chosen by folds of rows, because there was no second source "
            "domain to leave out."
        )
    if problem.class_weight is not None:
        notes.append(
            f"Every class counts the same in training, however rare, as it does in "
            f"{found.measure.label}."
        )
    if any(result.context for result in found.results):
        notes.append(
            f"{CONTEXT} marks methods that were given the rows of the left-out domain together, "
            "without labels; all others predict rows one by one."
        )
    if found.measure.about_one_class and problem.positive is not None:
        notes.append(f"{found.measure.label} is about the class {problem.positive!s} (pos_label).")
    notes += [f"{key}: {reason}." for key, reason in found.left_out.items()]
    return notes


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
