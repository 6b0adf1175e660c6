"""Score the predictions of all jobs, and summarize the scores as an evaluation."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import sklearn

from domainwise import __version__
from domainwise.base.files import to_json
from domainwise.base.messages import listed
from domainwise.base.process import Row
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.jobs import JobScorer, Memo, can_score, job_key
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.results import (
    Kind,
    MethodResult,
    Prediction,
    Results,
    SiteColumns,
    domain_weights,
    grouped,
    joined,
    pooled_score,
    probability_scores,
)
from domainwise.held_out.calibration.decisions import rule_for, tunes_threshold
from domainwise.held_out.folds import Split
from domainwise.held_out.scoring.measures import Measure, counts_by_domain
from domainwise.held_out.scoring.pooling import N_DRAWS, score_error
from domainwise.held_out.scoring.predictions import codes_of
from domainwise.held_out.scoring.statistics import (
    compare,
    defined_score,
)
from domainwise.models.registry import CONTEXT, Method

#: Batches of rows on which scores with context are compared with scores without context.
BATCHES = ("whole", "first half", "last half", "random tenth")


def scorable_methods(
    problem: Problem, methods: Sequence[Method], measures: Sequence[Measure]
) -> list[Method]:
    """Methods whose predictions at least one of the measures can score."""
    problems = [problem.measured_by(measure) for measure in measures]
    methods = [method for method in methods if any(can_score(method, p) for p in problems)]
    if problem.measure.is_custom:  # a custom scorer does not pass domains to the model
        return [replace(method, context=False) for method in methods]
    return methods


def scored_evaluation(
    problem: Problem,
    measure: Measure,
    methods: Sequence[Method],
    splits: Sequence[Split],
    rows: Sequence[Row],
    memo: Memo | None = None,
) -> Evaluation:
    """Score the predictions of all jobs with a measure, and summarize the scores.

    ``memo`` contains what an earlier call with other rows of the same jobs has computed.
    """
    memo = {} if memo is None else memo
    scored_problem = problem.measured_by(measure)
    scored_methods = scorable_methods(problem, methods, [measure])
    scored_keys = [method.key for method in scored_methods]
    left_out = {
        method.key: f"does not predict probabilities, which {measure.name} needs"
        for method in methods
        if method.key not in scored_keys
    }
    # A method that can use context has two variants: with and without context.
    variants = [(m, *variant) for m in scored_methods for variant in m.rows(problem.classification)]
    jobs = _score_jobs(
        JobScorer(scored_problem, splits, memo), [key for _, key, _, _ in variants], rows
    )
    results = []
    predictions_by_kind: dict[Kind, dict[str, list[Prediction]]] = {
        Kind.HELD_OUT: {},
        Kind.SEEN: {},
    }
    for method, key, label, context in variants:
        method_jobs = jobs[key]
        errors = [f"failed: {job['error']}" for job in method_jobs if "error" in job]
        if errors or not method_jobs:
            left_out[key] = errors[0] if errors else "not finished"
            continue
        scores = _means_by_domain(scored_problem, method_jobs, "scores")
        if not np.isfinite(list(scores.values())).any():
            left_out[key] = f"{measure.label} is not defined on any domain"
            continue
        score_drops = [item for job in method_jobs for item in job.get("worth", {}).items()]
        batches = {}
        if context:
            with_context = [
                prediction
                for prediction in _select(method_jobs, Kind.HELD_OUT, Kind.HALVES, Kind.TENTHS)
                if prediction.domain not in scored_problem.unscored
            ]
            row_by_row = _select(jobs[method.key], Kind.HELD_OUT)
            batches = batch_scores(measure, scored_problem.classes, with_context, row_by_row)
        results.append(
            MethodResult(
                key,
                label,
                method.kind,
                method.about(scored_problem.classification),
                scores,
                [job["parameters"] for job in method_jobs],
                method_jobs[0]["candidates"],
                round(sum(job["seconds"] for job in method_jobs), 3),
                tuple(dict.fromkeys(text for job in method_jobs for text in job["warnings"])),
                context=context,
                batches=batches,
                importance=_means((name, drop) for name, drops in score_drops for drop in drops),
                probability_scores=probability_scores(
                    _select(method_jobs, Kind.HELD_OUT), scored_problem.classes
                ),
                n_rows=len(problem.y),
            )
        )
        for kind, predictions_by_key in predictions_by_kind.items():
            predictions_by_key[key] = [
                replace(prediction, domain=to_json(problem.domains[prediction.domain]))
                for prediction in _select(method_jobs, kind)
            ]
    if not results:
        reasons = ", ".join(f"{key} ({reason})" for key, reason in left_out.items())
        raise ValueError(
            f"no method could be evaluated: {reasons}. Choose other methods, or correct the table"
        )
    results, held_out = with_p_values(results), predictions_by_kind[Kind.HELD_OUT]
    evaluation = Evaluation(
        results,
        list(results[0].scores),
        measure,
        left_out,
        _facts(scored_problem),
        records=held_out,
        methods=list({m.key: m for m, key, _, _ in variants if key in held_out}.values()),
    )
    evaluation.results = with_errors(evaluation, predictions_by_kind[Kind.SEEN], memo)
    evaluation.row_counts = {
        domain: _row_count(predictions)
        for domain, predictions in grouped(evaluation.records[evaluation.best.key]).items()
    }
    evaluation.weights = domain_weights(evaluation.results, evaluation.row_counts)
    selected_on = {job.get("selected_on") for method_jobs in jobs.values() for job in method_jobs}
    evaluation.notes = _notes(problem, evaluation, "rows" in selected_on)
    return evaluation


def with_errors(
    evaluation: Results, seen: dict[str, list[Prediction]], memo: Memo
) -> list[MethodResult]:
    """Add standard errors of domain scores, and scores on seen domains, to the results.

    ``seen`` contains predictions from random folds, by method. If there is no formula for the
    standard error, it is computed from resampled rows, for the main methods only.
    """
    measure, classes = evaluation.measure, evaluation.classes
    main_keys = [result.key for result in evaluation.main]
    results = []
    for result in evaluation.results:
        held_out = grouped(evaluation.records.get(result.key, ()))
        seen_predictions = grouped(seen.get(result.key, ()))
        seen_scores = dict.fromkeys(result.scores, float("nan"))
        errors = dict.fromkeys(result.known, float("nan"))
        for name in result.known:
            if name in seen_predictions:
                seen_scores[name] = pooled_score(measure, classes, seen_predictions[name])
            if measure.is_custom:
                continue
            predictions, is_main = held_out[name], result.key in main_keys
            rows = np.concatenate([prediction.row for prediction in predictions])
            key = (measure.name, result.key, name, is_main, len(rows))
            if key not in memo:
                inputs = (joined(predictions), result.scores[name])
                error = score_error(measure, classes, *inputs, N_DRAWS if is_main else 0)
                # A domain that was held out several times has no more rows than before.
                memo[key] = float(np.sqrt(len(rows) / len(np.unique(rows)))) * error
            errors[name] = memo[key]
        results.append(replace(result, seen=seen_scores, errors=errors))
    return results


def _row_count(predictions: Sequence[Prediction]) -> int:
    """Number of rows of a domain, or the sum of their weights."""
    rows, weights = (
        np.concatenate([getattr(p, name) for p in predictions]) for name in ("row", "row_weights")
    )
    return round(weights[np.unique(rows, return_index=True)[1]].sum())


def compare_columns(
    evaluation: Results, without: MethodResult, columns: Sequence[str]
) -> SiteColumns:
    """Compare the recommended method with the same method ``without`` some columns, by domain."""
    method, shown = evaluation.recommended, evaluation.measure.shown
    names = [name for name in method.known if name in without.known]
    scores = np.array([(method.known[name], without.known[name]) for name in names])
    (score_with, score_without), gains = scores.mean(axis=0), scores[:, 0] - scores[:, 1]
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else None
    return SiteColumns(
        [*columns],
        method.key,
        shown(float(score_with)),
        shown(float(score_without)),
        float(gains.mean()),
        error,
        len(gains),
    )


def _score_jobs(score: JobScorer, keys: Sequence[str], rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Score the jobs of each method; also add their predictions for seen domains."""
    seen_row_by_key = {job_key(row)[:2]: row for row in rows if job_key(row)[2] != Kind.HELD_OUT}
    jobs: dict[str, list[Row]] = {key: [] for key in keys}
    for row in sorted(rows, key=lambda row: row["split"]):
        if row["method"] in jobs and job_key(row)[2] == Kind.HELD_OUT:
            seen_row = seen_row_by_key.get(job_key(row)[:2], {})
            predictions = [*row.get("predictions", ()), *seen_row.get("predictions", ())]
            jobs[row["method"]].append(score({**row, "predictions": predictions}))
    return jobs


def _select(jobs: Sequence[Row], *kinds: Kind) -> list[Prediction]:
    """Predictions of these kinds, from the jobs that did not fail."""
    predictions = (p for job in jobs if "error" not in job for p in job["predictions"])
    return [prediction for prediction in predictions if prediction.kind in kinds]


def _means(pairs: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """Mean value for each key, from (key, value) pairs."""
    values_by_key: dict[Any, list[float]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, []).append(value)
    return {key: float(np.mean(values)) for key, values in values_by_key.items()}


def _means_by_domain(problem: Problem, jobs: Sequence[Row], key: str) -> dict[Any, float]:
    """Mean of ``job[key]`` for each domain over the splits that hold it out, sorted by domain."""
    means = _means(item for job in jobs for item in job[key].items())
    return {to_json(problem.domains[code]): means[code] for code in sorted(means)}


def with_p_values(results: list[MethodResult]) -> list[MethodResult]:
    """Sort methods by mean score, and test each against the best baseline, paired by domain."""
    results = sorted(results, key=lambda result: -result.mean)
    baseline = next((result for result in results if result.kind == "baseline"), None)
    if baseline is None:
        return results
    p_values = {
        result.key: p_value
        for result in results
        if result.kind != "baseline"
        and (p_value := compare(result.known, baseline.known).p_value) is not None
    }
    holm_p_values = holm(p_values)
    return [
        replace(result, p_value=p_values.get(result.key), p_adjusted=holm_p_values.get(result.key))
        for result in results
    ]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values for multiple comparisons by Holm's method.

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    keys = sorted(p_values, key=lambda key: p_values[key])
    products = [(len(keys) - rank) * p_values[key] for rank, key in enumerate(keys)]
    return dict(zip(keys, np.minimum(1, np.maximum.accumulate(products)).tolist(), strict=True))


def with_sizes(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Add the results of methods that were run only at smaller sizes of a plan, smallest first."""
    evaluation = evaluations[-1]
    sizes: list[dict[str, Any]] = []
    for other in evaluations[::-1]:
        results_by_key = {result.key: result for result in evaluation.results}
        if other.domains == evaluation.domains:  # not if the last size was interrupted
            further_results = [r for r in other.results if r.key not in results_by_key]
            evaluation.results += further_results
            evaluation.records |= {r.key: other.records[r.key] for r in further_results}
            evaluation.methods += [m for m in other.methods if m not in evaluation.methods]
            evaluation.left_out |= {k: v for k, v in other.left_out.items() if "failed" in v}
        scores = {r.key: evaluation.measure.shown(r.mean) for r in other.results}
        sizes.insert(0, {"rows": other.facts["rows"], "scores": scores})
    evaluation.facts["sizes"] = sizes
    return evaluation


def size_notes(evaluation: Evaluation) -> list[str]:
    """Sentences about methods that were run on fewer rows, and about the order with more rows."""
    sizes, n_rows, leader = evaluation.facts["sizes"], evaluation.facts["rows"], evaluation.leader()
    notes, n_total = [], evaluation.facts["rows_given"]
    for n_fewer in sorted({result.n_rows for result in evaluation.results} - {n_rows}):
        labels = [result.label for result in evaluation.results if result.n_rows == n_fewer]
        notes.append(
            f"{listed(labels)}: compared on {n_fewer:,} rows only, because of clearly worse scores "
            "than the best method or too long a time on more rows."
        )
    if n_rows >= n_total:
        return notes
    start = f"With all {n_total:,} rows, to which a model will be fitted, the order of the methods"
    if len(sizes) < 2:
        return [*notes, f"{start} may change: they were compared on {n_rows:,} rows only."]
    before, last = sizes[-2:]
    # Scores are extrapolated to all rows, linearly in the logarithm of the number of rows.
    steps = np.log(n_total / last["rows"]) / np.log(last["rows"] / before["rows"])
    outlook = {
        result.label: score + steps * (score - before["scores"][result.key])
        for result in evaluation.row_by_row
        if (score := last["scores"][result.key]) is not None and result.key in before["scores"]
    }
    sign = evaluation.measure.sign
    rivals = [label for label in outlook if sign * (outlook[label] - outlook[leader.label]) > 0]
    change = (
        f"may change: {listed(rivals)} improved more"
        if rivals
        else "is unlikely to change: no method improved much more"
    )
    return [
        *notes,
        f"{start} {change} than {leader.label} between {before['rows']:,} and "
        f"{last['rows']:,} rows.",
    ]


def decision_note(problem: Problem) -> str:
    """A sentence about how classes are predicted from probabilities."""
    if problem.classes is None:
        return ""
    class_codes = codes_of(problem.full.y, problem.classes)
    full = problem.full
    counts = counts_by_domain(class_codes, full.codes, len(problem.classes), full.weights)
    setting = problem.setting(1)
    metric = None if problem.measure.is_custom else problem.measure.name
    rule = rule_for(setting.decision, counts, setting.metric or metric)
    start = "Probabilities have the class frequencies of the source domains. "
    is_tuned = rule.threshold is not None and setting.decision == "auto"
    is_tuned = is_tuned and tunes_threshold(problem.measure)
    tuning = ", unless another threshold is better on held-out source domains" if is_tuned else ""
    if rule.kind == "threshold":
        return f"{start}Methods predict {rule.describe(problem.classes)}."
    if rule.kind == "argmax":
        return f"{start}For {problem.measure.label}, methods predict {rule.describe([])}{tuning}."
    start += f"Because a class is rare, or all classes count the same in {problem.measure.label}, "
    start += "methods predict the class with the largest ratio of probability and frequency"
    return f"{start}{tuning}."


def _notes(problem: Problem, evaluation: Evaluation, selected_on_rows: bool) -> list[str]:
    """Sentences about special conditions of the evaluation."""
    measure, label, positive = evaluation.measure, evaluation.measure.label, problem.positive
    one_class_names = [str(name) for name in problem.domains[problem.unscored]]
    undefined_names = [str(d) for d, s in evaluation.best.scores.items() if not np.isfinite(s)]
    undefined_text = ", ".join(name for name in undefined_names if name not in one_class_names)
    median_domain_size = int(np.median(np.bincount(problem.full.codes)))
    conditional_notes = [
        (
            one_class_names,
            "These domains have only one class and are used for training, but not scored: "
            f"{', '.join(one_class_names)}.",
        ),
        (
            undefined_text,
            f"On {undefined_text}, {label} is not defined; means are over the other domains.",
        ),
        (
            selected_on_rows,
            "Some parameters were chosen by cross-validation over rows, because there was only one "
            "source domain.",
        ),
        (
            any(result.context for result in evaluation.results),
            f"Methods with {CONTEXT} predict all rows of the held-out domain together (a median of "
            f"{median_domain_size:,} rows), without using their labels, and assume that these rows "
            "are typical of the domain. The other methods predict each row independently.",
        ),
        (problem.classification, decision_note(problem)),
        (
            measure.uses_positive_class and positive is not None,
            f"The positive class, for which {label} is computed, is {positive!s} (pos_label).",
        ),
        *((True, f"{key}: {reason.rstrip('.')}.") for key, reason in evaluation.left_out.items()),
        (
            problem.classification and measure.name != problem.measure.name,
            f"Classes were predicted for {problem.measure.label}; {label} is computed from the "
            "same predictions.",
        ),
    ]
    return [*problem.notes, *(text for applies, text in conditional_notes if applies)]


def _facts(problem: Problem) -> dict[str, Any]:
    """Task, sizes, seed and versions, for JSON."""
    return {
        "task": problem.task,
        "rows": len(problem.y),
        "rows_given": problem.n_total,
        "columns": int(problem.X.shape[1]),
        "domains": len(problem.domains),
        "classes": None if problem.classes is None else problem.classes.tolist(),
        "decision": problem.overrides.get("decision", "auto"),
        "positive": None if problem.positive is None else to_json(problem.positive),
        "seed": problem.seed,
        "python": platform.python_version(),
        "versions": {
            "domainwise": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }


def batch_scores(
    measure: Measure,
    classes: Any,
    with_context: Iterable[Prediction],
    row_by_row: Iterable[Prediction],
) -> dict[str, dict[str, float]]:
    """Compare scores of predictions with context and row by row, by batch.

    For each batch, return the mean score with context (``context``) and without (``plain``), the
    standard error of their difference over domains (``error``), and the number of domains on which
    the measure is defined (``domains``). The result is empty for custom scorers.
    """
    score_pairs: dict[str, list[list[float]]] = {}
    counterpart_by_domain = {prediction.domain: prediction for prediction in row_by_row}
    for prediction in with_context if not measure.is_custom else ():
        counterpart, target = counterpart_by_domain.get(prediction.domain), prediction.target
        if counterpart is None or len(counterpart.row) != len(prediction.row):
            continue
        row_order = np.argsort(prediction.row, kind="stable")
        n_half = len(row_order) // 2
        halves = {"first half": row_order[:n_half], "last half": row_order[n_half:]}
        batches_by_kind = {Kind.HALVES: halves, Kind.TENTHS: {"random tenth": row_order}}
        for batch, rows in batches_by_kind.get(prediction.kind, {"whole": row_order}).items():
            if len(rows) and measure.is_defined(target, target[rows], classes is not None):
                pair = (prediction, counterpart)
                scorers = [partial(measure.score_outputs, classes, outputs) for outputs in pair]
                score_pair = [defined_score(scorer, rows) for scorer in scorers]
                if np.isfinite(score_pair).all():
                    score_pairs.setdefault(batch, []).append(score_pair)
    scores_by_batch = {}
    for batch in (batch for batch in BATCHES if batch in score_pairs):
        context_scores, plain_scores = np.array(score_pairs[batch]).T
        n_domains, gains = len(plain_scores), context_scores - plain_scores
        standard_error = float(gains.std(ddof=1) / np.sqrt(n_domains)) if n_domains > 1 else 0.0
        means = {"context": float(context_scores.mean()), "plain": float(plain_scores.mean())}
        scores_by_batch[batch] = {**means, "error": standard_error, "domains": n_domains}
    return scores_by_batch
