"""How a model does on domains left out: the method as `evaluate` measures it, and a constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import stdtrit

from domainwise.evaluation.evaluate import compare_methods
from domainwise.evaluation.found import plain
from domainwise.evaluation.problem import make_problem
from domainwise.models.calibration import calibrated
from domainwise.models.method import Method
from domainwise.models.registry import METHODS, find_method
from domainwise.models.table_model import table_setting
from domainwise.scoring.intervals import expected_score
from domainwise.tables.schema import Table


@dataclass(frozen=True)
class Check:
    """How a model does on domains it has not seen, beside a constant prediction."""

    metric: str
    model: float  #: mean over domains; larger is better (errors are negative)
    constant: float  #: the same of a constant
    worst: float  #: the model's score on the worst domain
    worst_domain: Any
    n_domains: int
    better: bool  #: whether the gain over the constant is more than chance among so many domains
    low: float | None = None  #: of a 95 % interval of ``model`` (bootstrap over domains)
    high: float | None = None
    calibration: dict[str, Any] | None = None  #: for prediction sets


def check_table(table: Table, method: str | Method = "auto", **options: Any) -> Check:
    """Score a method, and a constant, on the domains and rows that `evaluate` would leave out.

    For options see :func:`~domainwise.models.table_model.table_setting`.
    """
    setting = table_setting(table, **options)
    chosen = find_method(method, len(table.y))
    problem = make_problem(
        table.X,
        table.y,
        table.sample_domain,
        task=table.schema.task,
        scoring=options.get("scoring"),
        inner_scoring=setting.scoring,
        max_rows="auto",
        random_state=setting.seed,
        pos_label=setting.pos_label,
    )
    compare = partial(compare_methods, inside=False, n_jobs=setting.n_jobs, progress=False)
    decided = {"class_weight": setting.class_weight, "predictor": setting.predictor}
    constant, model = (
        compare(replace(problem, overrides=overrides), [replace(one, context=False)])
        for one, overrides in ((METHODS["constant"], {}), (chosen, decided))
    )
    calibration = calibrated(model.records[model.best_], problem.classes)
    known = model.best.known, constant.best.known
    return compare_with_constant(problem.measure.name, *known, calibration)


def compare_with_constant(
    metric: str,
    model: Mapping[Any, float],
    constant: Mapping[Any, float],
    calibration: dict[str, Any] | None = None,
) -> Check:
    """Sum up scores of a model and of a constant by domain; larger ones are better."""
    gain = np.array([score - constant[name] for name, score in model.items()])
    # One-sided at 10 %: of models that know nothing, nine in ten are called what they are.
    error = gain.std(ddof=1) / np.sqrt(len(gain)) * stdtrit(len(gain) - 1, 0.9)
    worst = min(model, key=lambda name: model[name])
    better = bool(gain.mean() > max(error, 1e-12))
    mean, other = (float(np.mean(list(scores.values()))) for scores in (model, constant))
    low, high = plain(expected_score(list(model.values()), 0)[1:])
    told = (mean, other, model[worst], worst, len(gain), better, low, high)
    return Check(metric, *told, calibration)
