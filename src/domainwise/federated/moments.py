"""The second round: moments of the map's columns by class, which everything is fitted from."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from domainwise.arrays import Array, Frame
from domainwise.federated.files import SiteFile, check_shapes
from domainwise.federated.plan import Plan
from domainwise.federated.rows import site_rows
from domainwise.gram.cells import CellRows, Cells, CellSums, check_cell_memory, sum_cells
from domainwise.gram.nystrom import NystromSums
from domainwise.selection.ridge_rows import in_groups

#: Rows that are prepared at a time.
BLOCK_ROWS = 2**17
#: Share of a second moment's trace by which rounding may take it below zero, and of sums.
ROUNDING = 1e-9
ADVICE = "choose fewer n_features, kernels or gammas in the plan"


def moments(frame: Frame, plan: Plan, *, site: str | None = None) -> SiteFile:
    """Make a site's file of the second round: what the model is fitted from.

    Of the columns of each map: by class their number of rows, mean and second moment; by class and
    domain their sums. Of each domain what :func:`~domainwise.check_shift` compares new rows with.

    Parameters
    ----------
    frame : data frame
        The rows of the site, with the plan's columns.
    plan : Plan
        The plan that :func:`merge` has returned.
    site : str, default=None
        Name of the site; None is the name of its domain, where all rows are of one.

    Returns
    -------
    file : SiteFile
        ``words()`` says what is in it, ``save(path)`` writes it.
    """
    maps, targets, rows = plan.maps, plan.target_map, site_rows(frame, plan, site)
    n_classes, n_domains = len(plan.classes or "-"), len(rows.names)
    groups, keys = rows.classes * n_domains + rows.domains, [*product(range(n_classes), rows.names)]
    check_cell_memory(n_classes, [plan.width(each) for each in maps], None, ADVICE)
    parts: list[CellSums] = []
    for start in range(0, len(rows.X), BLOCK_ROWS):
        some, dense = slice(start, start + BLOCK_ROWS), None
        if plan.classes is None:
            y = rows.y[some, None]
            dense = y if targets is None else np.hstack([targets.features(y), y])
        cells = CellRows(rows.classes[some], groups[some], range(n_classes), keys, dense)
        Z = np.ascontiguousarray(plan.prepare.transform(rows.X.iloc[some]))
        found = [each for group in in_groups(maps) for each in sum_cells(group, Z, cells).maps]
        parts = [parts[0].merge(CellSums(found)) if parts else CellSums(found)]
    counts = np.bincount(groups, minlength=len(keys)).reshape(n_classes, n_domains)
    totals, freedom = plan.watch.summed_up(rows.X, rows.domains, n_domains)
    arrays = {"counts": counts, "watch": totals, "freedom": freedom}
    for i, sums in enumerate(parts[0].maps):
        arrays |= _packed(i, sums, n_classes, rows.names)
    told = {"domains": rows.names, "left_out": rows.left_out, "withheld": rows.withheld}
    words = [
        f"contains, of {len(rows.X):,} rows: of {len(maps)} maps with {maps[0].n_features} columns "
        f"the count, mean and second moment by class, and sums by class and domain ({n_domains} "
        "domains); of each domain counts of rows and of missing values, sums and squares of "
        "columns, and a kernel mean. The size does not depend on the number of rows",
        "does not contain: rows, predictions for rows, or anything of domains and classes with "
        f"fewer than {plan.smallest_cell} rows. It is no differential privacy",
    ]
    fewest = int(counts.sum(axis=1)[counts.any(axis=1)].min())
    if fewest < maps[0].n_features:
        words.append(
            f"careful: a class has {fewest} rows, fewer than the map has columns. From its second "
            "moment these rows could be worked out; a plan with fewer n_features tells less"
        )
    return SiteFile("moments", rows.site, plan.hash, {**told, "words": words}, arrays)


def _packed(i: int, cells: Cells, n_classes: int, domains: list[str]) -> dict[str, Array]:
    """Arrays of one map: of symmetric matrices the upper half."""
    width = len(next(iter(cells.values())).mean)
    upper = np.triu_indices(width)
    mean, sums = np.zeros((n_classes, width)), np.zeros((n_classes, len(domains), width))
    second = np.zeros((n_classes, len(upper[0])))
    for c, cell in cells.items():
        mean[c], second[c] = cell.mean, cell.second[upper]
        for (_, domain), (_, total) in cell.groups.items():
            sums[c, domains.index(domain)] = total
    return {f"mean{i}": mean, f"second{i}": second, f"sums{i}": sums}


def unpacked(file: SiteFile, i: int, labels: Any) -> list[NystromSums]:
    """Sums of one map, by class; groups are of the plan's labels and of the site's domains."""
    counts, mean = file.arrays["counts"], file.arrays[f"mean{i}"]
    upper, found = np.triu_indices(mean.shape[1]), []
    for c, label in enumerate(labels or [None]):
        second = np.zeros((mean.shape[1], mean.shape[1]))
        second[upper] = file.arrays[f"second{i}"][c]
        second += np.triu(second, 1).T
        told = zip(file.content["domains"], counts[c], file.arrays[f"sums{i}"][c], strict=True)
        groups = {(label, domain): (int(n), total) for domain, n, total in told if n}
        found.append(NystromSums(int(counts[c].sum()), mean[c], second, groups))
    return found


def check_moments(plan: Plan, file: SiteFile) -> None:
    """Refuse moments that no rows of the plan can have."""
    domains, watch = file.content["domains"], plan.watch
    if not all(isinstance(name, str) for name in domains) or len(set(domains)) < len(domains):
        raise ValueError("domains have to be different texts")
    shape = (len(plan.classes or "-"), len(domains))
    shapes: dict[str, tuple[int, ...]] = {"counts": shape, "freedom": shape[1:]}
    shapes["watch"] = (len(domains), watch.n_totals)
    for i, each in enumerate(plan.maps):
        width = plan.width(each)
        shapes |= {f"mean{i}": (shape[0], width), f"sums{i}": (*shape, width)}
        shapes[f"second{i}"] = (shape[0], width * (width + 1) // 2)
    check_shapes(file, shapes, "counts")
    counts, totals = file.arrays["counts"], watch.parts(file.arrays["watch"])
    if ((counts > 0) & (counts < plan.smallest_cell)).any() or not counts.any(axis=0).all():
        raise ValueError(f"it tells of fewer than {plan.smallest_cell} rows")
    if (totals["rows"][:, 0] != counts.sum(axis=0)).any() or (file.arrays["freedom"] <= 0).any():
        raise ValueError("the summary of its domains is of other rows than its moments")
    if any((totals[n] < 0).any() for n in ("missing", "beyond", "spread", "unknown", "norms")):
        raise ValueError("the summary of its domains holds negative counts or squares")
    for i in range(len(plan.maps)):
        for c, cell in enumerate(unpacked(file, i, plan.classes)):
            sums = file.arrays[f"sums{i}"][c].sum(axis=0)
            size = np.abs(sums).max() + np.abs(cell.mean).max() * cell.n_samples
            if np.abs(sums - cell.n_samples * cell.mean).max() > ROUNDING * size:
                raise ValueError(f"sums and means of map {i} are of different rows")
            shift = ROUNDING * float(np.trace(cell.second)) + np.finfo(float).tiny
            try:
                np.linalg.cholesky(cell.second + shift * np.eye(len(cell.second)))
            except np.linalg.LinAlgError:
                raise ValueError(f"a second moment of map {i} is not positive") from None
