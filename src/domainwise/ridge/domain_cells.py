"""A ridge search over cells of domains, which may still come while rows are forgotten."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.backends import Backend
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.sums import CellRows, Cells, CellSums, check_cell_memory, merged_cells
from domainwise.ridge.moments import (
    Judge,
    Penalties,
    all_rows,
    by_errors,
    score_cells,
    split_domains,
)
from domainwise.ridge.problem import Columns, Expansion, RidgeProblem
from domainwise.ridge.rows import ADVICE, Found, Rows, expansion, in_groups
from domainwise.ridge.rules import (
    ERROR_SCORES,
    ClassRule,
    NumberRule,
    class_codes,
    judging,
)


def cells_by_domain(backend: Backend, maps: list[NystromMap], rows: Rows) -> CellSums:
    """Sums over a batch by domain and class, whose labels are the keys."""
    classes, domains = rows.codes()
    dense: Any = rows.Y if rows.target.codes is None else None
    labels = [None] if rows.target.names is None else rows.target.names.tolist()
    names = rows.domain.names.tolist()
    cells = domains * len(labels) + classes
    keys = list(product(names, labels))
    groups = [(label, name) for name, label in keys]
    cell_rows = CellRows(cells, cells, keys, groups, dense)
    widths = [nystrom.n_features + cell_rows.width for nystrom in maps]
    check_cell_memory(len(keys), widths, rows.X, ADVICE)
    found = [backend.sum_cells(group, rows.X, cell_rows) for group in in_groups(maps)]
    return CellSums([cells for sums in found for cells in sums.maps])


def needs_predictions(scoring: Any, classification: bool) -> bool:
    """Whether a score needs more than moments."""
    return scoring is not None and (classification or scoring not in ERROR_SCORES)


def score_domains(
    estimator: Any, penalties: Penalties, domains: Array, classes: Array | None, parts: Any = None
) -> Found:
    """Scores of each map's candidates with domains left out, and its problem for all rows.

    A score of predictions takes another pass over the rows in ``parts``.
    """
    part_of, splits = split_domains(estimator.cv, len(domains))
    labels = [None] if classes is None else classes.tolist()
    codes = None if classes is None else dict(enumerate(class_codes(len(classes))))
    again = needs_predictions(estimator.scoring, classes is not None)
    functions: list[dict[int, Expansion]] = []
    found = []
    for nystrom, by_domain in zip(estimator._maps, estimator._sums.maps, strict=True):
        cells: Cells = {}
        for (d, domain), (c, label) in product(enumerate(domains.tolist()), enumerate(labels)):
            if (domain, label) in by_domain:
                key = (int(part_of[d]), None if label is None else c)
                cells = merged_cells(cells, {key: by_domain[domain, label]})
        columns = Columns(nystrom.n_features, 0, codes)
        functions.append({})
        judge = _kept(functions[-1], nystrom) if again else by_errors(columns, estimator.scoring)
        scores = score_cells(cells, columns, splits, penalties, judge)
        found.append((scores, all_rows(cells, columns, penalties)))
    if not again:
        return found
    from domainwise.ridge.partition_scores import left_out_scores

    rule = NumberRule() if classes is None else ClassRule(classes)
    tested = [domains[np.isin(part_of, test)] for _, test in splits]
    judge_all = judging(estimator.scoring, rule)
    each = left_out_scores(estimator, parts, functions, len(found[0][0]), tested, judge_all)
    return [(scores, problem) for scores, (_, problem) in zip(each, found, strict=True)]


def _kept(functions: dict[int, Expansion], nystrom: NystromMap) -> Judge:
    """Keep the candidates of each split for a pass over the rows."""

    def judge(split: int, problem: RidgeProblem, solutions: Any, test: Any) -> Array:
        functions[split] = expansion(nystrom, problem, solutions)
        return np.array(np.nan)

    return judge
