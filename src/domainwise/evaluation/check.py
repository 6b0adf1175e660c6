"""How a model does on domains left out: the method as `evaluate` measures it, and a constant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from domainwise.evaluation.evaluate import compare_methods
from domainwise.evaluation.problem import make_problem
from domainwise.models.registry import METHODS, find_method
from domainwise.models.table_model import table_setting
from domainwise.tables.schema import Table


@dataclass(frozen=True)
class Check:
    """How a model does on domains it has not seen, beside a constant prediction.

    Attributes
    ----------
    metric : str
    model, constant : float
        Mean over domains; larger is better (errors are negative).
    worst : float
        The model's score on the worst domain.
    worst_domain : object
    n_domains : int
    better : bool
        Whether the gain over the constant is more than chance among so many domains.
    """

    metric: str
    model: float
    constant: float
    worst: float
    worst_domain: Any
    n_domains: int
    better: bool


def check_table(table: Table, method: str = "auto", **options: Any) -> Check:
    """Score a method, and a constant, on the domains and rows that `evaluate` would leave out.

    Parameters
    ----------
    table : Table
    method : str, default="auto"
    **options
        See :func:`~domainwise.models.table_model.table_setting`.

    Returns
    -------
    Check
    """
    chosen = find_method(method, len(table.y))
    setting = table_setting(table, **options)
    problem = make_problem(
        table.X,
        table.y,
        table.sample_domain,
        task=table.schema.task,
        scoring=setting.scoring,
        max_rows="auto",
        random_state=setting.seed,
        pos_label=setting.pos_label,
    )
    decided = {"class_weight": setting.class_weight, "predictor": setting.predictor}
    constant, model = (
        compare_methods(
            replace(problem, overrides=overrides),
            [one],
            inside=False,
            n_jobs=setting.n_jobs,
            progress=False,
        ).best
        for one, overrides in ((METHODS["constant"], {}), (chosen, decided))
    )
    gain = np.array([score - constant.known[name] for name, score in model.known.items()])
    # One-sided at 10 %: of models that know nothing, nine in ten are called what they are.
    error = gain.std(ddof=1) / np.sqrt(len(gain)) * stdtrit(len(gain) - 1, 0.9)
    return Check(
        problem.measure.name,
        model.mean,
        constant.mean,
        model.worst,
        model.worst_domain,
        len(gain),
        bool(gain.mean() > max(error, 1e-12)),
    )
