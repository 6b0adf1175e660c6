"""Rows projected with the worst domain left out, and distances between domains before and after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.evaluation.problem import Problem
from domainwise.metrics import mmd
from domainwise.models.method import Method
from domainwise.scoring.predictions import fit_with_domains
from domainwise.splits.draw import spaced_rows
from domainwise.splits.folds import Split

Row = dict[str, Any]

#: Points in a picture, and domains in a matrix.
MAX_POINTS = 1500
MAX_DOMAINS = 25


@dataclass(frozen=True)
class DomainProjection:
    """Two components of rows of all domains, and how far domains lie apart."""

    label: str  #: the method
    left_out: list[Any]  #: domains that it did not see, the worst one among them
    worst: Any
    Z: Array  #: projected rows, of shape (n_points, 2)
    informative: int  #: components that the target determines; others are there to fill the picture
    target: Array  #: class (or value) of each point
    domain: Array  #: and its domain
    domains: list[Any]  #: in the order of the matrices: source domains, then those left out
    before: Array  #: maximum mean discrepancy between domains, of the features
    after: Array  #: and of the projection


def project_domains(
    problem: Problem,
    method: Method,
    splits: Sequence[Split],
    rows: Sequence[Row],
    worst_domain: Any,
) -> DomainProjection | None:
    """Project with a method, fitted without the worst domain.

    Returns None where its picture cannot be drawn.
    """
    names = problem.domains.tolist()
    worst = names.index(worst_domain)
    number = next(n for n, (_, test) in enumerate(splits) if worst in problem.codes[test])
    row = next(r for r in rows if r["split"] == number and r["method"] == method.key)
    share = max(10, MAX_POINTS // (len(names) + 1))
    shown = spaced_rows(problem.codes, np.where(np.arange(len(names)) == worst, 2, 1) * share)
    train, test = splits[number]
    try:
        with threadpool_limits(limits=1), warnings.catch_warnings():
            # More components than the target determines are asked for, to fill the picture.
            warnings.simplefilter("ignore")
            features = clone(problem.preprocessor).fit(problem.rows(train))
            X = np.asarray(features.transform(problem.rows(train)))
            model = _projection(method, row["settled"], problem, len(train))
            fit_with_domains(model, X, problem.y[train], problem.codes[train])
            before = np.asarray(features.transform(problem.rows(shown)))
            after = model.transform(before)
            left_out = np.unique(problem.codes[test])
            order = _order(problem, left_out, worst)
            kept = np.isin(problem.codes[shown], order)
            rank = np.argsort(np.argsort(order))  # mmd sorts domains by their codes
            apart = [mmd(Z[kept], problem.codes[shown][kept]) for Z in (before, after)]
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return None
    return DomainProjection(
        method.label(problem.classification),
        [names[code] for code in left_out],
        names[worst],
        after[:, :2] if after.shape[1] > 1 else np.column_stack([after, np.zeros(len(after))]),
        int(getattr(model, "n_informative_", after.shape[1])),
        problem.y[shown],
        problem.domains[problem.codes[shown]],
        [names[code] for code in order],
        *(distance[np.ix_(rank, rank)] for distance in apart),
    )


def _projection(method: Method, chosen: dict[str, Any], problem: Problem, n_rows: int) -> Any:
    """The projection alone, not fitted, with what was chosen, and two components."""
    model = method.make(problem.setting(n_rows)).estimator.named_steps["project"]
    arguments = {
        name: float(value) if value == "inf" else value
        for name, value in chosen.items()
        if name != "n_components"
    }
    model = model.searched(arguments) if method.searches else model.set_params(**arguments)
    return model.set_params(n_components=2)


def _order(problem: Problem, left_out: Array, worst: int) -> Array:
    """Sources first, then the domains left out, the worst one last; the first ones if many."""
    sources = np.setdiff1d(np.arange(len(problem.domains)), left_out)
    others = left_out[left_out != worst]
    room = MAX_DOMAINS - 1 - len(others[: MAX_DOMAINS // 2])
    return np.concatenate([sources[:room], others[: MAX_DOMAINS // 2], [worst]])
