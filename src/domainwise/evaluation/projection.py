"""Rows projected with the worst domain left out, and distances between domains before and after."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.estimators import COIR, DCM, DICA, KPCA, FastDCM
from domainwise.evaluation.problem import Problem, Split
from domainwise.metrics import mmd

if TYPE_CHECKING:
    from domainwise.evaluation.result import Evaluation

Row = dict[str, Any]

#: Points in a picture, and domains in a matrix.
MAX_POINTS = 1500
MAX_DOMAINS = 25
_PROJECTIONS: dict[str, type] = {
    "kpca": KPCA,
    "coir": COIR,
    "dica": DICA,
    "dcm": DCM,
    "fastdcm": FastDCM,
    "dcmcv": DCM,
}


@dataclass(frozen=True)
class DomainProjection:
    """Two components of rows of all domains, and how far domains lie apart.

    Attributes
    ----------
    label : str
        The method.
    left_out : list
        Domains that it did not see, the worst one among them.
    worst : object
        The worst domain.
    Z : ndarray of shape (n_points, 2)
        Projected rows.
    informative : int
        Components that the target determines; others are there to fill the picture.
    target, domain : ndarray of shape (n_points,)
        Class (or value) and domain of each point.
    domains : list
        Domains in the order of the matrices: source domains, then those left out.
    before, after : ndarray of shape (n_domains, n_domains)
        Maximum mean discrepancy between domains, of the features and of the projection.
    """

    label: str
    left_out: list[Any]
    worst: Any
    Z: Array
    informative: int
    target: Array
    domain: Array
    domains: list[Any]
    before: Array
    after: Array


def project_domains(
    problem: Problem, splits: Sequence[Split], rows: Sequence[Row], found: Evaluation
) -> DomainProjection | None:
    """Project with the best of the projections, fitted without the worst domain.

    Returns None where no projection was evaluated, or its picture cannot be drawn.
    """
    best = next((result for result in found.results if result.kind == "projection"), None)
    if best is None:
        return None
    names = problem.domains.tolist()
    worst = names.index(found.worst_domain)
    number = next(n for n, (_, test) in enumerate(splits) if worst in problem.codes[test])
    row = next(r for r in rows if r["split"] == number and r["method"] == best.key)
    shown = _thinned(problem, worst)
    train, test = splits[number]
    try:
        with threadpool_limits(limits=1), warnings.catch_warnings():
            # More components than the target determines are asked for, to fill the picture.
            warnings.simplefilter("ignore")
            features = clone(problem.preprocessor).fit(problem.rows(train))
            X = np.asarray(features.transform(problem.rows(train)))
            model = _projection(best.key, row["parameters"], problem.seed)
            with config_context(enable_metadata_routing=True):
                model.fit(X, problem.y[train], sample_domain=problem.codes[train])
            before = np.asarray(features.transform(problem.rows(shown)))
            after = model.transform(before)
            left_out = np.unique(problem.codes[test])
            order = _order(problem, left_out, worst)
            kept = np.isin(problem.codes[shown], order)
            rank = np.argsort(np.argsort(order))  # mmd sorts domains by their codes
            apart = [mmd(Z[kept], problem.codes[shown][kept]) for Z in (before, after)]
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return None
    target = problem.y[shown]
    return DomainProjection(
        best.label,
        [names[code] for code in left_out],
        names[worst],
        after[:, :2] if after.shape[1] > 1 else np.column_stack([after, np.zeros(len(after))]),
        int(getattr(model, "n_informative_", after.shape[1])),
        target if problem.classes is None else problem.classes[target],
        problem.domains[problem.codes[shown]],
        [names[code] for code in order],
        *(distance[np.ix_(rank, rank)] for distance in apart),
    )


def _projection(key: str, parameters: dict[str, Any], seed: int) -> Any:
    model = _PROJECTIONS[key](n_components=2)
    known = model.get_params()
    chosen = {
        name: float(value) if value == "inf" else value
        for name, value in parameters.items()
        if name in known and name != "n_components"
    }
    return model.set_params(**chosen, random_state=seed)


def _thinned(problem: Problem, worst: int) -> Array:
    """Evenly spaced rows of each domain, more of the worst one."""
    share = max(10, MAX_POINTS // (len(problem.domains) + 1))
    parts = []
    for code in range(len(problem.domains)):
        mine = np.flatnonzero(problem.codes == code)
        most = min(len(mine), 2 * share if code == worst else share)
        parts.append(mine[np.linspace(0, len(mine) - 1, most).astype(int)])
    return np.concatenate(parts)


def _order(problem: Problem, left_out: Array, worst: int) -> Array:
    """Sources first, then the domains left out, the worst one last; the first ones if many."""
    sources = np.setdiff1d(np.arange(len(problem.domains)), left_out)
    others = left_out[left_out != worst]
    room = MAX_DOMAINS - 1 - len(others[: MAX_DOMAINS // 2])
    return np.concatenate([sources[:room], others[: MAX_DOMAINS // 2], [worst]])
