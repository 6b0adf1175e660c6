"""What a site sends in each of two rounds, and how the coordinator checks and merges it.

First statistics of columns, which become the plan of the second round; then moments of the
columns of the plan's maps, which the model is fitted from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import pdist

from domainwise.arrays import Array, Frame
from domainwise.ensemble.moments import Moments
from domainwise.federated.files import SiteFile, SiteFiles, check_shapes, gathered
from domainwise.federated.plan import RIDGE, Plan, PlanError, plain
from domainwise.federated.rows import site_rows
from domainwise.gram.nystrom import LabelMap
from domainwise.gram.sums import (
    CellRows,
    Cells,
    CellSums,
    NystromSums,
    check_cell_memory,
    sum_cells,
)
from domainwise.kernels.functions import Kernel, resolve_gamma
from domainwise.labels.factors import residual_trace
from domainwise.models.table_statistics import (
    Sketch,
    Statistics,
    joined_sketch,
    quantile,
    sketched,
)
from domainwise.ridge.candidates import AUTO_GAMMAS
from domainwise.ridge.rows import in_groups
from domainwise.shift.watch import CLIP, LANDMARKS
from domainwise.tables.schema import make_preprocessor

#: Rows that are prepared at a time.
BLOCK_ROWS = 2**17
#: Share of a second moment's trace by which rounding may take it below zero, and of sums.
ROUNDING = 1e-9
ADVICE = "choose fewer n_features, kernels or gammas in the plan"
#: Quantiles of a column that a site tells, at most: half of one over this is told of ranks.
QUANTILES = 200
#: Rows whose distances a site looks at, and the quantiles that it tells of these.
DISTANCE_ROWS, SHARES = 1000, (0.1, 0.25, 0.5, 0.75, 0.9)
METRICS = {"rbf": "euclidean", "laplacian": "cityblock"}
#: A source's range goes beyond its outermost quantiles by this share of their way to the median.
TAIL = 0.5
#: Landmarks that others explain up to this are left out: machines round them differently.
INDEPENDENT = 1e-6


def statistics(frame: Frame, plan: Plan, *, site: str | None = None) -> SiteFile:
    """Make a site's file of the first round: what preprocessing and widths of kernels need.

    Of each column of numbers the count, mean, squared deviations and quantiles, of which each
    stands for ``smallest_cell`` rows or more; of each column of text the counts of categories with
    so many rows; counts of domains; and a few quantiles of distances between rows.

    Parameters
    ----------
    frame : data frame
        The rows of the site, with the plan's columns.
    plan : Plan
    site : str, default=None
        Name of the site; None is the name of its domain, where all rows are of one.

    Returns
    -------
    file : SiteFile
        ``words()`` says what is in it, ``save(path)`` writes it.
    """
    rows, schema, least = site_rows(frame, plan, site), plan.schema, plan.smallest_cell
    names, numbers = [*schema.numbers], rows.X[schema.numbers].to_numpy(dtype=np.float64)
    if plan.classes is None:
        numbers, names = np.column_stack([numbers, rows.y]), [*names, schema.target]
    columns = [column[~np.isnan(column)] for column in numbers.T]
    found = [sketched(c, np.ones(len(c)), min(QUANTILES, len(c) // least))[0] for c in columns]
    categories, withheld = [], [*rows.withheld]
    for name in schema.categorical:
        counts = Counter(rows.X[name].dropna().tolist())
        categories.append({text: n for text, n in sorted(counts.items()) if n >= least})
        if len(categories[-1]) < len(counts):
            withheld.append(f"column {name!r}: categories of fewer than {least} rows")
    moments = Moments.of_rows(numbers, np.zeros(len(numbers), dtype=np.int64), 1)
    words = [
        f"contains, of {len(rows.X):,} rows: how many there are of each domain; of {len(names)} "
        "columns of numbers the count, mean, squared deviations and up to "
        f"{max(map(len, found), default=0)} quantiles, of which each stands for {least} rows or "
        f"more; of {len(categories)} columns of text how often each category occurs; "
        f"{len(SHARES)} quantiles of the distances between rows",
        "does not contain: rows, the smallest and largest values, or anything of domains, classes "
        f"and categories with fewer than {least} rows",
    ]
    told = {
        "left_out": rows.left_out,
        "domains": dict(zip(rows.names, np.bincount(rows.domains).tolist(), strict=True)),
        "categories": categories,
        "withheld": withheld,
        "words": words,
    }
    arrays = {
        "numbers": np.vstack([moments.count, moments.mean, moments.squares]),
        "lengths": np.array([len(values) for values in found], dtype=np.int64),
        "quantiles": np.concatenate([*found, np.zeros(0)]),
        "distances": _distances(rows.X, schema),
    }
    return SiteFile("statistics", rows.site, plan.hash, told, arrays)


def _distances(X: Any, schema: Any) -> Array:
    """Quantiles of distances between some rows, in the site's own scale, which is like all's."""
    some = X.iloc[np.linspace(0, len(X) - 1, min(len(X), DISTANCE_ROWS)).astype(int)]
    Z, found = make_preprocessor(schema).fit_transform(some), []
    for metric in METRICS.values():
        distances = pdist(Z, metric)
        positive = distances[distances > 0]
        found.append(np.quantile(positive if len(positive) else np.zeros(1), SHARES))
    return np.array(found)


def check_statistics(plan: Plan, file: SiteFile) -> None:
    """Refuse statistics that no table of the plan can have."""
    told, arrays, p = file.content, file.arrays, len(plan.schema.numbers) + (plan.classes is None)
    shapes = {"numbers": (3, p), "lengths": (p,), "distances": (len(METRICS), len(SHARES))}
    check_shapes(file, {**shapes, "quantiles": (int(arrays["lengths"].sum()),)}, "lengths")
    if (arrays["numbers"][[0, 2]] < 0).any() or (arrays["distances"] < 0).any():
        raise ValueError("counts, squares and distances cannot be negative")
    falls = any((np.diff(values) < 0).any() for values, _ in _sketches(file))
    if falls or (arrays["lengths"] > QUANTILES).any():
        raise ValueError(f"quantiles of a column have to rise, and to be {QUANTILES} at most")
    if len(told["categories"]) != len(plan.schema.categorical) or not told["domains"]:
        raise ValueError("counts of categories or domains are missing")
    for counts in (told["domains"], *told["categories"]):
        if not all(type(n) is int and n >= plan.smallest_cell for n in counts.values()):
            raise ValueError(f"a count is no whole number from {plan.smallest_cell} on")


def _sketches(file: SiteFile) -> list[Sketch]:
    """Quantiles of each column, and the rows that each stands for."""
    parts = np.split(file.arrays["quantiles"], np.cumsum(file.arrays["lengths"]))[:-1]
    counts = file.arrays["numbers"][0]
    return [(v, np.full(len(v), n / max(len(v), 1))) for v, n in zip(parts, counts, strict=True)]


def merge(plan: Plan, files: SiteFiles) -> Plan:
    """Merge the statistics of sites into the plan of the second round.

    Parameters
    ----------
    plan : Plan
        The plan that the files were made by.
    files : iterable of SiteFile or path-like
        One of each site, in any order.

    Returns
    -------
    plan : Plan
        With preprocessing, widths of kernels and a place for every centre; its hash is a new one.
    """
    if plan.merged is not None:
        raise PlanError("this plan has been merged before: merge into the plan of the first round")
    sites = gathered(plan, files, "statistics", check_statistics)
    total = Statistics(
        0,
        reduce(Moments.merged, [Moments(*file.arrays["numbers"][:, None]) for file in sites]),
        [joined_sketch(some) for some in zip(*map(_sketches, sites), strict=True)],
        [
            sum((Counter(f.content["categories"][j]) for f in sites), Counter())
            for j in range(len(plan.schema.categorical))
        ],
        Counter(),
        sum((Counter(file.content["domains"]) for file in sites), Counter()),
    )
    merged: dict[str, Any] = {
        "sites": [file.site for file in sites],
        "learnt": asdict(total.learnt(plan.schema)),
        "maps": [{"kernel": kernel, "gamma": gamma} for kernel, gamma in _widths(plan, sites)],
        "target": None,
        "watch": _watch(plan, sites, total),
    }
    if plan.classes is None and plan.method != RIDGE:
        merged["target"] = _target(total.sketches[-1])
    if plan.feature_map != "fourier":
        centres = replace(plan, merged=plain(merged)).prepared_centres
        for each in merged["maps"]:
            W = Kernel(each["kernel"], each["gamma"]).matrix(centres)
            _, order, rank, _ = dpstrf(W, tol=INDEPENDENT, lower=1)
            each["chosen"] = order[:rank] - 1
    return replace(plan, merged=plain(merged))


def _widths(plan: Plan, sites: list[SiteFile]) -> Iterator[tuple[str, float]]:
    """Kernels and their gammas: given, or by the median of distances inside of sites."""
    rows = [np.full(len(SHARES), float(sum(f.content["domains"].values()))) for f in sites]
    for place, kernel in enumerate(METRICS):
        gammas: Any = plan.gammas
        if isinstance(gammas, str):
            told = np.concatenate([file.arrays["distances"][place] for file in sites])
            median = quantile(sketched(told, np.concatenate(rows)), 0.5)
            if median <= 0:
                raise PlanError("the rows of sites do not differ: give gammas as numbers")
            middle = 1.0 / (2.0 * median**2) if kernel == "rbf" else 1.0 / median
            gammas = [middle * factor for factor in AUTO_GAMMAS]
        yield from ((kernel, float(gamma)) for gamma in gammas if kernel in plan.kernels)


def _target(sketch: Sketch) -> dict[str, Any]:
    """Landmarks of a continuous target, and the width of its kernel."""
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    points = np.array([quantile(sketch, share) for share in shares])[:, None]
    if not np.ptp(points):
        raise PlanError("the target has one value only: nothing to learn")
    gamma, rest = resolve_gamma("median", "rbf", points), residual_trace(1e-3)
    # Sites do not tell their outermost values: landmarks go beyond the quantiles, too.
    reach = np.ptp(points) / 2
    beyond = np.linspace(points[0] - reach, points[-1] + reach, QUANTILES)
    chosen = LabelMap.choose(points, "rbf", gamma, rest, "the target kernel", [*points, *beyond])
    return {"gamma": gamma, "points": chosen.points[:, 0]}


def _watch(plan: Plan, sites: list[SiteFile], total: Statistics) -> dict[str, Any]:
    """Ranges of sources, and landmarks whose columns are drawn from quantiles one by one."""
    learnt, rng = total.learnt(plan.schema), np.random.RandomState(plan.seed)
    p, scale = len(learnt.mean), np.sqrt(np.where(learnt.variance > 0, learnt.variance, 1.0))
    ends, points = np.full((2, p), np.nan), np.zeros((LANDMARKS if p else 0, p))
    for j, (values, weights) in enumerate(total.sketches[:p]):
        for told, _ in (_sketches(file)[j] for file in sites):
            if len(told):
                low, middle, high = told[0], float(np.median(told)), told[-1]
                ends[0, j] = np.fmin(ends[0, j], low - TAIL * (middle - low))
                ends[1, j] = np.fmax(ends[1, j], high + TAIL * (high - middle))
        if not len(values):
            continue
        shares = (np.cumsum(weights) - weights / 2) / weights.sum()
        drawn = np.interp(rng.uniform(size=LANDMARKS), shares, values)
        points[:, j] = np.clip((drawn - learnt.mean[j]) / scale[j], -CLIP, CLIP)
    alike = not np.ptp(points, axis=0).any() if p else True
    gamma = 1.0 if alike else resolve_gamma("median", "rbf", points)
    return {"ends": ends, "landmarks": points, "gamma": gamma}


# The second round.


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
