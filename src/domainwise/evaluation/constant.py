"""Compare a model with a constant prediction on held-out domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import stdtrit

from domainwise.base.files import to_json
from domainwise.evaluation.problem import make_problem
from domainwise.evaluation.run import compare_methods
from domainwise.evaluation.sites import pool_method
from domainwise.held_out.calibration.quantiles import calibrate_sets
from domainwise.held_out.scoring.statistics import expected_range, expected_score
from domainwise.models.registry import METHODS, TRIVIAL, Method, find_method
from domainwise.models.table_model import table_setting
from domainwise.tables.schema import Table

#: Maximum number of rows on which `fit` compares a model with a constant prediction.
CHECKED_ROWS = 2000


@dataclass(frozen=True)
class Check:
    """Scores of a model on held-out domains, compared with a constant prediction."""

    metric: str
    model: float  #: mean score of the model over domains; larger is better (errors are negative)
    constant: float  #: mean score of a constant prediction
    worst: float  #: the model's score on ``worst_domain``
    worst_domain: Any
    n_domains: int
    better: bool  #: whether the mean gain over ``constant`` is significant (one-sided test, 10 %)
    low: float | None = None  #: lower end of a 95 % bootstrap interval for ``model``, over domains
    high: float | None = None  #: upper end of this interval
    calibration: dict[str, Any] | None = None  #: calibration of prediction sets
    #: 90 % prediction interval for the score on one new domain.
    range: tuple[float, float] | None = None
    true_range: tuple[float, float] | None = None  #: the same for the true score (theory 20)
    n_rows: int | None = None  #: number of rows on which the scores are based; None if unknown


def check_table(table: Table, method: str | Method = "auto", **options: Any) -> Check:
    """Score a method and a constant prediction on held-out domains, as ``evaluate`` does.

    ``options`` are passed to :func:`~domainwise.models.table_model.table_setting`.
    """
    setting = table_setting(table, **options)
    problem = make_problem(
        table.X,
        table.y,
        table.sample_domain,
        task=table.schema.task,
        schema=table.schema,
        scoring=options.get("scoring"),
        inner_scoring=setting.scoring,
        max_rows=max(CHECKED_ROWS, 2 * len(np.unique(table.sample_domain))),
        random_state=setting.seed,
        pos_label=setting.pos_label,
        weights=table.sample_weight,
    )
    run = partial(compare_methods, details=False, n_jobs=setting.n_jobs, progress=False)
    names = ("class_weight", "predictor", "decision")
    overrides = {name: getattr(setting, name) for name in names}
    method_without_context = replace(find_method(method, len(table.y)), context=False)
    constant_evaluation = run(problem, [METHODS[TRIVIAL]])
    model_evaluation = run(replace(problem, overrides=overrides), [method_without_context])
    calibration = calibrate_sets(model_evaluation.records[model_evaluation.best_], problem.classes)
    scores = model_evaluation.best.known, constant_evaluation.best.known
    pooled = pool_method(model_evaluation, model_evaluation.best)
    true_range, metric = None if pooled is None else pooled.true_range, problem.measure.name
    return compare_with_constant(metric, *scores, calibration, true_range, len(problem.y))


def compare_with_constant(
    metric: str,
    model_scores: Mapping[Any, float],
    constant_scores: Mapping[Any, float],
    calibration: dict[str, Any] | None = None,
    true_range: Sequence[float] | None = None,
    n_rows: int | None = None,
) -> Check:
    """Compare scores of a model and of a constant prediction by domain; larger is better.

    ``true_range`` is as displayed: errors are positive.
    """
    common_domains = [domain for domain in model_scores if domain in constant_scores]
    gains = np.array([model_scores[d] - constant_scores[d] for d in common_domains])
    n, scores = len(gains), list(model_scores.values())
    # A one-sided t-test at 10 %: one in ten models that are no better than the constant passes.
    min_gain = gains.std(ddof=1) / np.sqrt(n) * stdtrit(n - 1, 0.9)
    worst_domain = min(model_scores, key=lambda domain: model_scores[domain])
    low, high = to_json(expected_score(scores, 0, metric)[1:])
    if true_range is not None:
        sign = -1 if metric.startswith("neg_") else 1
        true_low, true_high = sorted(sign * end for end in true_range)
        true_range = true_low, true_high
    return Check(
        metric,
        model=float(np.mean(scores)),
        constant=float(np.mean(list(constant_scores.values()))),
        worst=model_scores[worst_domain],
        worst_domain=worst_domain,
        n_domains=n,
        better=bool(gains.mean() > max(min_gain, 1e-12)),
        low=low,
        high=high,
        calibration=calibration,
        range=expected_range(scores, metric),
        true_range=true_range,
        n_rows=n_rows,
    )
