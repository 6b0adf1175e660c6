"""Score the predictions of all jobs, and summarize the scores as an evaluation."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from domainwise.evaluation.jobs import Memo, can_score, job_key, score_job
from domainwise.evaluation.problem import Problem, require
from domainwise.evaluation.results import (
    Kind,
    MethodResult,
    Prediction,
    Results,
    SiteColumns,
    domain_weights,
    merge_by_domain,
    probability_scores,
    record_score,
)
from domainwise.evaluation.verdict import TEXTS
from domainwise.held_out.calibration.decisions import rule_for, tunes_threshold
from domainwise.held_out.folds import Split
from domainwise.held_out.scoring.measures import Measure, counts_by_domain, has_rare_class
from domainwise.held_out.scoring.pooling import N_DRAWS, score_error
from domainwise.held_out.scoring.predictions import codes_of
from domainwise.held_out.scoring.statistics import compare, defined_score
from domainwise.models.registry import Method

NOTES: dict[str, str] = TEXTS["notes"]
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
    memo: Memo,
) -> Evaluation:
    """Score the predictions of all jobs with a measure, and summarize the scores.

    ``memo`` contains what an earlier call with other rows of the same jobs has computed.
    """
    scored_problem = problem.measured_by(measure)
    scored_methods = scorable_methods(problem, methods, [measure])
    reason = f"does not predict probabilities, which {measure.name} needs"
    left_out = {m.key: reason for m in methods if m.key not in {s.key for s in scored_methods}}
    # A method that can use context has two variants: with and without context.
    variants = [(m, *variant) for m in scored_methods for variant in m.rows(problem.classification)]
    score = partial(score_job, scored_problem, splits, memo)
    jobs = _score_jobs(score, [key for _, key, _, _ in variants], rows)
    results: list[MethodResult] = []
    held_out: dict[str, list[Prediction]] = {}
    seen: dict[str, dict[Any, Prediction]] = {}
    for method, key, label, context in variants:
        method_jobs = jobs[key]
        errors = [f"failed: {job['error']}" for job in method_jobs if "error" in job]
        if errors or not method_jobs:
            left_out[key] = errors[0] if errors else "not finished"
            continue
        means = _means(item for job in method_jobs for item in job["scores"].items())
        scores = {to_json(problem.domains[code]): means[code] for code in sorted(means)}
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
        held_out[key] = _records(problem, method_jobs, Kind.HELD_OUT)
        seen[key] = {record.domain: record for record in _records(problem, method_jobs, Kind.SEEN)}
        results.append(
            MethodResult(
                *(key, label, method.kind, method.about(scored_problem.classification), scores),
                [job["parameters"] for job in method_jobs],
                method_jobs[0]["candidates"],
                round(sum(job["seconds"] for job in method_jobs), 3),
                tuple(dict.fromkeys(text for job in method_jobs for text in job["warnings"])),
                context=context,
                batches=batches,
                importance=_means((name, drop) for name, drops in score_drops for drop in drops),
                probability_scores=probability_scores(held_out[key], scored_problem.classes),
                n_rows=len(problem.y),
            )
        )
    reasons = ", ".join(f"{key} ({reason})" for key, reason in left_out.items())
    require(results, "no method", reasons=reasons)
    results = with_p_values(results)
    evaluation = Evaluation(
        results,
        list(results[0].scores),
        measure,
        left_out,
        _facts(scored_problem),
        records=held_out,
        methods=list({m.key: m for m, key, _, _ in variants if key in held_out}.values()),
    )
    evaluation.results = with_errors(evaluation, seen, memo)
    for record in held_out[evaluation.best.key]:
        first_indices = np.unique(record.row, return_index=True)[1]
        evaluation.row_counts[record.domain] = round(record.row_weights[first_indices].sum())
    evaluation.weights = domain_weights(evaluation.results, evaluation.row_counts)
    selected_on = {job.get("selected_on") for method_jobs in jobs.values() for job in method_jobs}
    evaluation.notes = _notes(problem, evaluation, "rows" in selected_on)
    return evaluation


def with_errors(
    evaluation: Results, seen: Mapping[str, Mapping[Any, Prediction]], memo: Memo
) -> list[MethodResult]:
    """Add standard errors of domain scores, and scores on seen domains, to the results.

    ``seen`` contains predictions from random folds, by method and domain. If there is no formula
    for the standard error, it is computed from resampled rows, for the main methods only.
    """
    measure, classes = evaluation.measure, evaluation.classes
    main_keys = [result.key for result in evaluation.main]
    results = []
    for result in evaluation.results:
        held_out, seen_records = evaluation.records_of(result), seen.get(result.key, {})
        seen_scores = dict.fromkeys(result.scores, float("nan"))
        errors = dict.fromkeys(result.known, float("nan"))
        for name in result.known:
            if name in seen_records:
                seen_scores[name] = record_score(measure, classes, seen_records[name])
            if measure.is_custom:
                continue
            record, is_main = held_out[name], result.key in main_keys
            n_rows = len(record.row)
            key = (measure.name, result.key, name, is_main, n_rows)
            if key not in memo:
                n_draws = N_DRAWS if is_main else 0
                error = score_error(measure, classes, record, result.scores[name], n_draws)
                # A domain that was held out several times has no more rows than before.
                memo[key] = float(np.sqrt(n_rows / len(np.unique(record.row)))) * error
            errors[name] = memo[key]
        results.append(replace(result, seen=seen_scores, errors=errors))
    return results


def compare_columns(
    evaluation: Results, without: MethodResult, columns: Sequence[str]
) -> SiteColumns:
    """Compare the recommended method with the same method ``without`` some columns, by domain."""
    method, shown = evaluation.recommended, evaluation.measure.shown
    names = [name for name in method.known if name in without.known]
    scores = np.array([(method.known[name], without.known[name]) for name in names])
    score_with, score_without = map(shown, scores.mean(axis=0).tolist())
    gains = scores[:, 0] - scores[:, 1]
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else None
    means = score_with, score_without, float(gains.mean())
    return SiteColumns([*columns], method.key, *means, error, len(gains))


def _score_jobs(
    score: Callable[[Row], Row], keys: Sequence[str], rows: Sequence[Row]
) -> dict[str, list[Row]]:
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


def _records(problem: Problem, jobs: Sequence[Row], kind: Kind) -> list[Prediction]:
    """Predictions of a kind, with the names of domains instead of their codes."""
    names = problem.domains
    return merge_by_domain(replace(p, domain=to_json(names[p.domain])) for p in _select(jobs, kind))


def _means(pairs: Iterable[tuple[Any, float]]) -> dict[Any, float]:
    """Mean value for each key, from (key, value) pairs."""
    values_by_key: dict[Any, list[float]] = {}
    for key, value in pairs:
        values_by_key.setdefault(key, []).append(value)
    return {key: float(np.mean(values)) for key, values in values_by_key.items()}


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
    facts, sign, leader = evaluation.facts, evaluation.measure.sign, evaluation.leader().label
    sizes, n_rows, n_total = facts["sizes"], facts["rows"], facts["rows_given"]
    notes, values = [], {"n_rows": n_rows, "n_total": n_total, "leader": leader}
    for n in sorted({result.n_rows for result in evaluation.results} - {n_rows}):
        labels = [result.label for result in evaluation.results if result.n_rows == n]
        notes.append(NOTES["fewer_rows"].format(names=listed(labels), n=n))
    if n_rows >= n_total:
        return notes
    if len(sizes) < 2:
        return [*notes, NOTES["order_unknown"].format(**values)]
    before, last = sizes[-2:]
    # Scores are extrapolated to all rows, linearly in the logarithm of the number of rows.
    steps = np.log(n_total / last["rows"]) / np.log(last["rows"] / before["rows"])
    outlook = {
        result.label: sign * (score + steps * (score - before["scores"][result.key]))
        for result in evaluation.row_by_row
        if (score := last["scores"][result.key]) is not None and result.key in before["scores"]
    }
    rivals = [label for label in outlook if outlook[label] > outlook[leader]]
    values |= {"rivals": listed(rivals), "n_before": before["rows"], "n_last": last["rows"]}
    return [*notes, NOTES["order_changes" if rivals else "order_stays"].format(**values)]


def decision_note(problem: Problem) -> str:
    """A sentence about how classes are predicted from probabilities."""
    if problem.classes is None:
        return ""
    full, setting, measure = problem.full, problem.setting(1), problem.measure
    class_codes = codes_of(full.y, problem.classes)
    counts = counts_by_domain(class_codes, full.codes, len(problem.classes), full.weights)
    metric = setting.metric or (None if measure.is_custom else measure.name)
    rule = rule_for(setting.decision, counts, metric)
    values = {"label": measure.label, "rule": rule.describe(problem.classes), "tuning": ""}
    if rule.kind == "argmax":
        values["rule"] = rule.describe([])
    if rule.threshold is not None and setting.decision == "auto" and tunes_threshold(measure):
        values["tuning"] = NOTES["tuned_threshold"]
    name = {"threshold": "by_threshold", "argmax": "by_argmax"}.get(rule.kind, "by_ratio")
    return " ".join([NOTES["frequencies"], NOTES[name].format(**values)])


def _notes(problem: Problem, evaluation: Evaluation, selected_on_rows: bool) -> list[str]:
    """Sentences about special conditions of the evaluation."""
    measure = evaluation.measure
    one_class = [str(name) for name in problem.domains[problem.unscored]]
    undefined = [str(d) for d, s in evaluation.best.scores.items() if not np.isfinite(s)]
    undefined = [name for name in undefined if name not in one_class]
    values = {
        "label": measure.label,
        "chosen_label": problem.measure.label,
        "positive": problem.positive,
        "one_class": ", ".join(one_class),
        "undefined": ", ".join(undefined),
        "n_median": int(np.median(np.bincount(problem.full.codes))),
    }
    conditions = {
        "one_class": one_class,
        "undefined": undefined,
        "selected_on_rows": selected_on_rows,
        "rare_class": measure.name == "balanced_accuracy" and _is_event_rare(problem),
        "context": any(result.context for result in evaluation.results),
        "positive": measure.uses_positive_class and problem.positive is not None,
        "other_measure": problem.classification and measure.name != problem.measure.name,
    }
    texts = [NOTES[key].format(**values) for key, applies in conditions.items() if applies]
    left_out = [f"{key}: {reason.rstrip('.')}." for key, reason in evaluation.left_out.items()]
    return [*problem.notes, *texts, *filter(None, [decision_note(problem)]), *left_out]


def _is_event_rare(problem: Problem) -> bool:
    """Return whether there are two classes, one of which is rare."""
    sizes = np.unique(problem.full.y, return_counts=True)[1]
    return len(sizes) == 2 and has_rare_class(sizes)


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
