"""What a site sends in each of two rounds, and how the coordinator merges it.

The first round has statistics of columns, from which the plan of the second round is made. The
second has moments of the columns of the plan's maps, from which the model is fitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import reduce
from itertools import product
from typing import Any, TypeVar

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import pdist
from sklearn import config_context

from domainwise.arrays import Array, Frame
from domainwise.ensemble.moments import Moments
from domainwise.federated.disclosure import (
    ADVICE,
    VALUES_PER_NUMBER,
    DisclosureError,
    Request,
    SiteRows,
    chosen_columns,
    grouped,
    kept_rows,
    masked,
    site_rows,
)
from domainwise.federated.files import (
    BLOCK_CELLS,
    BLOCKS,
    LARGEST,
    METRICS,
    SHARES,
    SiteFile,
    SiteFiles,
    check_statistics,
    check_units,
    gathered,
    sketches,
    symmetric,
)
from domainwise.federated.plan import RIDGE, TEXTS, Plan, PlanError, plain
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
from domainwise.ridge.search import sharing_distances
from domainwise.search.grids import RIDGE_GAMMAS
from domainwise.shift.watch import CLIP
from domainwise.tables.schema import make_preprocessor
from domainwise.tables.statistics import (
    Sketch,
    Statistics,
    joined_sketch,
    quantile,
    sketched,
)

#: Rows that are prepared at a time.
BLOCK_ROWS = 2**17
#: Rows whose distances a site looks at.
DISTANCE_ROWS = 1000
FEWER = "choose fewer n_features, kernels or gammas in the plan"
#: A source's range goes beyond its outermost blocks by this share of their way to the median.
TAIL = 0.5
#: Landmarks that others explain up to this are left out: machines round them differently.
INDEPENDENT = 1e-6
#: Points at which domains are compared with new rows, at most.
WATCH_POINTS = 30
#: Columns of a map that sites choose by themselves, at most.
MOST_AUTO = 500
QUANTILES = 200  #: of a continuous target, as landmarks

Call = TypeVar("Call", bound=Callable[..., Any])


def default_output(function: Call) -> Call:
    """Compute with arrays inside, whatever output scikit-learn is configured to return."""
    return config_context(transform_output="default")(function)


def statistics(
    frame: Frame, plan: Plan, *, site: str | None = None, accept_disclosure: bool = False
) -> SiteFile:
    """Make a site's file of the first round: what preprocessing and widths of kernels need.

    Of each column of numbers the count, mean, squared deviations and means of blocks of
    neighbouring values, each of twice ``smallest_cell`` rows or more; of each column of text the
    counts of categories with ``smallest_cell`` rows or more; counts of classes; and a few quantiles
    of distances between rows, to two digits. Nothing is sent about domains.

    Parameters
    ----------
    frame : data frame
        The rows of the site, with the plan's columns.
    plan : Plan
    site : str, default=None
        Name of the site; None is the name of its domain, where all rows are of one.
    accept_disclosure : bool, default=False
        Make the file even if it has more than half as many numbers as the rows have values.

    Returns
    -------
    file : SiteFile
        ``words()`` says what is in it, ``save(path)`` writes it.

    See Also
    --------
    merge : Makes the second plan of these.
    moments : The second round.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from domainwise.federated import Plan, statistics
    >>> values = np.random.default_rng(0).normal(size=(400, 3))
    >>> frame = pd.DataFrame(values, columns=["dose", "age", "weight"])
    >>> frame["ill"] = np.where(frame["dose"] > 0, "yes", "no")
    >>> plan = Plan.of_table(frame, target="ill", n_features=10)
    >>> statistics(frame, plan, site="north").content["rows"]
    400
    """
    file = _first_file(site_rows(frame, plan, site), plan)
    n, values = file.content["rows"], file.content["rows"] * len(plan.schema.features)
    if VALUES_PER_NUMBER * _n_numbers(file) > values and not accept_disclosure:
        raise DisclosureError(
            f"the first round is not written: it would have {_n_numbers(file)} numbers about {n} "
            f"rows with {len(plan.schema.features)} columns, more than half of their {values} "
            f"values. {ADVICE}"
        )
    return file


def _first_file(rows: SiteRows, plan: Plan) -> SiteFile:
    schema, least, n = plan.schema, plan.smallest_cell, len(rows.X)
    names, numbers = [*schema.numbers], rows.X[schema.numbers].to_numpy(dtype=np.float64)
    if plan.classes is None:
        numbers, names = np.column_stack([numbers, rows.y]), [*names, schema.target]
    if numbers.size and np.nanmax(np.abs(numbers), initial=0.0) > LARGEST:
        raise DisclosureError(f"a column has values beyond {LARGEST:.0e}: check its unit")
    blocks = [_block_means(column[~np.isnan(column)], least) for column in numbers.T]
    moments = Moments.of_rows(numbers, np.zeros(n, dtype=np.int64), 1)
    # Of a column with a few gaps, how many these are is not sent: it counts as complete.
    counts = masked(moments.count[0], n, least)
    squares = moments.squares[0] * np.where(counts > 0, counts / np.maximum(moments.count[0], 1), 0)
    categories, notes = [], [*rows.notes]
    for name in schema.categorical:
        occurring = Counter(rows.X[name].dropna().tolist())
        counted = {text: count for text, count in sorted(occurring.items()) if count >= least}
        if len(counted) < len(occurring):
            notes.append(f"not sent: categories of {name!r} with fewer than {least} rows")
        if counted:  # few gaps and rare categories count as the most frequent, which fills gaps
            rest = n - sum(counted.values())
            counted[max(counted, key=lambda text: (counted[text], text))] += rest * (rest < least)
        categories.append(counted)
    sizes = {
        "n": n,
        "n_numbers": len(names),
        "n_blocks": max(map(len, blocks), default=0),
        "block_rows": BLOCK_CELLS * least,
        "n_texts": len(categories),
        "least": least,
        "n_quantiles": len(SHARES),
    }
    content = {
        "rows": n,
        "classes": np.bincount(rows.classes, minlength=len(plan.classes or "-")).tolist(),
        "categories": categories,
        "left_out": rows.left_out,
        "checksum": rows.checksum(),
        "words": [sentence.format(**sizes) for sentence in TEXTS["statistics"]],
    }
    arrays = {
        "numbers": np.vstack([counts, moments.mean[0], squares]),
        "lengths": np.array([len(values) for values in blocks], dtype=np.int64),
        "blocks": np.concatenate([*blocks, np.zeros(0)]),
        "distances": _distances(rows.X, schema),
    }
    return SiteFile("statistics", rows.site, plan.hash, content, arrays, tuple(notes))


def _block_means(values: Array, least: int) -> Array:
    """Means of blocks of neighbouring values, of nearly equal numbers of rows."""
    n_blocks = min(BLOCKS, max(len(values) // (BLOCK_CELLS * least), int(len(values) > 0)))
    if not n_blocks:
        return np.zeros(0)
    starts = np.arange(n_blocks) * len(values) // n_blocks
    sizes = np.diff([*starts, len(values)])
    # Rounding of sums must not take means out of order.
    return np.maximum.accumulate(np.add.reduceat(np.sort(values), starts) / sizes)


@default_output
def _distances(X: Any, schema: Any) -> Array:
    """Quantiles of distances between some rows, in the site's own scale, which is like all's."""
    some = X.iloc[np.linspace(0, len(X) - 1, min(len(X), DISTANCE_ROWS)).astype(int)]
    Z, quantiles = make_preprocessor(schema).fit_transform(some), []
    for metric in METRICS.values():
        distances = pdist(Z, metric)
        positive = distances[distances > 0]
        quantiles.append(np.quantile(positive if len(positive) else np.zeros(1), SHARES))
    return np.array([[float(f"{value:.2g}") for value in row] for row in quantiles])


def _n_numbers(file: SiteFile) -> int:
    """Numbers in a file of the first round."""
    categories = sum(map(len, file.content["categories"]))
    return sum(a.size for a in file.arrays.values()) + categories + len(file.content["classes"])


def merge(plan: Plan, files: SiteFiles) -> Plan:
    """Merge the statistics of sites into the plan of the second round.

    How many columns and maps there are follows from the counts of the sites, unless the plan says
    it: as many as may be sent for most of their rows (see :mod:`domainwise.federated.disclosure`).

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

    See Also
    --------
    statistics : Makes what is merged.
    moments : The second round.
    """
    if plan.merged is not None:
        raise PlanError("this plan was merged before: merge into the plan of the first round")
    sites = gathered(plan, files, "statistics", check_statistics)
    check_units(plan, sites)
    n_rows = sum(file.content["rows"] for file in sites)
    total = Statistics(
        0,
        reduce(Moments.merged, [Moments(*file.arrays["numbers"][:, None]) for file in sites]),
        [joined_sketch(some) for some in zip(*map(sketches, sites), strict=True)],
        [
            sum((Counter(f.content["categories"][j]) for f in sites), Counter())
            for j in range(len(plan.schema.categorical))
        ],
        Counter(),
        Counter({"": n_rows}),
    )
    merged: dict[str, Any] = {
        "sites": {file.site: file.content["checksum"] for file in sites},
        "learnt": asdict(total.learnt(plan.schema)),
        "maps": [{"kernel": kernel, "gamma": gamma} for kernel, gamma in _widths(plan, sites)],
        "target": None,
        "target_range": None,
    }
    if plan.classes is None:
        values = total.sketches[-1][0]
        merged["target_range"] = [float(values[0]), float(values[-1])]
        if plan.method != RIDGE:
            merged["target"] = _target(total.sketches[-1])
    _choose_columns(plan, sites, merged)
    merged["watch"] = _watch(plan, sites, total, min(WATCH_POINTS, merged["columns"]))
    if plan.feature_map != "fourier":
        centres = replace(plan, merged=plain(merged)).prepared_centres
        for entry in merged["maps"]:
            W = Kernel(entry["kernel"], entry["gamma"]).matrix(centres)
            _, order, rank, _ = dpstrf(W, tol=INDEPENDENT, lower=1)
            entry["chosen"] = order[:rank] - 1
    return replace(plan, merged=plain(merged))


def _choose_columns(plan: Plan, sites: list[SiteFile], merged: dict[str, Any]) -> None:
    """Columns, maps, and whether second moments are by class, from the sites' counts."""
    counts = [np.array(file.content["classes"]) for file in sites]
    first, maps = [_n_numbers(file) for file in sites], merged["maps"]
    extra = (plan.classes is None) + len((merged["target"] or {"points": ()})["points"])

    def request(columns: int, n_maps: int, by_class: bool = False) -> Request:
        points = min(WATCH_POINTS, columns)
        return _request(plan, n_maps, columns + extra, by_class, points)

    if plan.n_features == "auto":
        # The first kernel comes first, and its widest width: few columns suit a smooth kernel.
        fewer = [3, 1] if isinstance(plan.gammas, str) else []
        n_maps = [len(maps), *(k for k in fewer if k < len(maps))]
        columns, k = chosen_columns(request, n_maps, counts, first, MOST_AUTO)
        merged["maps"] = maps[:k]
    else:
        columns, k = int(plan.n_features), len(maps)
    by_class = plan.second_moments == "classes"
    if plan.second_moments == "auto":
        rows = [kept_rows(request(columns, k, option), counts, first) for option in (False, True)]
        by_class = rows[0] == rows[1] > 0
    merged["columns"], merged["by_class"] = columns, by_class


def _request(plan: Plan, n_maps: int, width: int, by_class: bool, points: int) -> Request:
    schema = plan.schema
    n_watch = 3 + 4 * len(schema.numbers) + 2 * len(schema.categorical) + points
    n_columns, n_classes = len(schema.features), len(plan.classes or "-")
    return Request(n_columns, n_classes, n_maps, width, by_class, n_watch)


def asked(plan: Plan) -> Request:
    """What a merged plan asks of a site in the second round."""
    width = max(map(plan.width, plan.maps))
    points = len(plan.part("watch")["landmarks"])
    return _request(plan, len(plan.maps), width, plan.part("by_class"), points)


def _widths(plan: Plan, sites: list[SiteFile]) -> Iterator[tuple[str, float]]:
    """Kernels and their gammas: given, or by the median of distances inside of sites."""
    rows = [np.full(len(SHARES), float(file.content["rows"])) for file in sites]
    for place, kernel in enumerate(METRICS):
        gammas: Any = plan.gammas
        if isinstance(gammas, str):
            distances = np.concatenate([file.arrays["distances"][place] for file in sites])
            median = quantile(sketched(distances, np.concatenate(rows)), 0.5)
            if median <= 0:
                raise PlanError("all rows of the sites are equal: pass gammas as numbers")
            middle = 1.0 / (2.0 * median**2) if kernel == "rbf" else 1.0 / median
            gammas = [middle * factor for factor in RIDGE_GAMMAS]
        yield from ((kernel, float(gamma)) for gamma in gammas if kernel in plan.kernels)


def _target(sketch: Sketch) -> dict[str, Any]:
    """Landmarks of a continuous target, and the width of its kernel."""
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    points = np.array([quantile(sketch, share) for share in shares])[:, None]
    if not np.ptp(points):
        raise PlanError("the target has only one value: there is nothing to learn")
    gamma, rest = resolve_gamma("median", "rbf", points), residual_trace(1e-3)
    # Sites do not send their outermost values: landmarks go beyond the blocks, too.
    reach = np.ptp(points) / 2
    beyond = np.linspace(points[0] - reach, points[-1] + reach, QUANTILES)
    chosen = LabelMap.choose(points, "rbf", gamma, rest, "the target kernel", [*points, *beyond])
    return {"gamma": gamma, "points": chosen.points[:, 0]}


def _watch(plan: Plan, sites: list[SiteFile], total: Statistics, n_points: int) -> dict[str, Any]:
    """Ranges of sources, and landmarks whose columns are drawn from blocks one by one."""
    learnt, rng = total.learnt(plan.schema), np.random.RandomState(plan.seed)
    p, scale = len(learnt.mean), np.sqrt(np.where(learnt.variance > 0, learnt.variance, 1.0))
    ends, points = np.full((2, p), np.nan), np.zeros((n_points if p else 0, p))
    for j, (values, weights) in enumerate(total.sketches[:p]):
        for blocks, _ in (sketches(file)[j] for file in sites):
            if len(blocks):
                low, middle, high = blocks[0], float(np.median(blocks)), blocks[-1]
                ends[0, j] = np.fmin(ends[0, j], low - TAIL * (middle - low))
                ends[1, j] = np.fmax(ends[1, j], high + TAIL * (high - middle))
        if not len(values):
            continue
        shares = (np.cumsum(weights) - weights / 2) / weights.sum()
        drawn = np.interp(rng.uniform(size=n_points), shares, values)
        points[:, j] = np.clip((drawn - learnt.mean[j]) / scale[j], -CLIP, CLIP)
    alike = not np.ptp(points, axis=0).any() if p else True
    gamma = 1.0 if alike else resolve_gamma("median", "rbf", points)
    return {"ends": ends, "landmarks": points, "gamma": gamma}


# The second round.


@default_output
def moments(
    frame: Frame, plan: Plan, *, site: str | None = None, accept_disclosure: bool = False
) -> SiteFile:
    """Make a site's file of the second round: what the model is fitted from.

    Of the columns of each map their sums by class and domain, and one second moment about the
    means of classes, or one for each class where the plan says so. Of each domain what
    :func:`~domainwise.check_shift` compares new rows with. Domains that are too small for that are
    sent as one, and classes that are too small are left out.

    Parameters
    ----------
    frame : data frame
        The rows of the site, with the plan's columns: those of the first round.
    plan : Plan
        The plan that :func:`merge` has returned.
    site : str, default=None
        Name of the site; None is the name of its domain, where all rows are of one.
    accept_disclosure : bool, default=False
        Send every domain and class with ``smallest_cell`` rows or more, whatever could be inferred
        about these rows, and also where the rows are not those of the first round.

    Returns
    -------
    file : SiteFile
        ``words()`` says what is in it, ``save(path)`` writes it.

    See Also
    --------
    statistics : The first round.
    fit : Fits the model to these.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from domainwise.federated import Plan, merge, moments, statistics
    >>> values = np.random.default_rng(0).normal(size=(400, 3))
    >>> frame = pd.DataFrame(values, columns=["dose", "age", "weight"])
    >>> frame["ill"] = np.where(frame["dose"] > 0, "yes", "no")
    >>> plan = Plan.of_table(frame, target="ill", n_features=10)
    >>> plan = merge(plan, [statistics(frame, plan, site=name) for name in ("north", "south")])
    >>> moments(frame, plan, site="north").site
    'north'
    """
    maps, targets, rows = plan.maps, plan.target_map, site_rows(frame, plan, site)
    if not accept_disclosure:
        _check_same_rows(plan, rows)
    request = asked(plan)
    rows = grouped(rows, request, _n_numbers(_first_file(rows, plan)), accept_disclosure)
    n_classes, n_domains, X = request.n_classes, len(rows.names), rows.X
    groups = rows.classes * n_domains + rows.domains
    keys = [*product(range(n_classes), rows.names)]
    check_cell_memory(n_classes, [plan.width(nystrom) for nystrom in maps], None, FEWER)
    if plan.feature_map != "fourier" and not accept_disclosure:
        _check_centres(plan, X)
    total: CellSums | None = None
    for start in range(0, len(X), BLOCK_ROWS):
        some, dense = slice(start, start + BLOCK_ROWS), None
        if plan.classes is None:
            values = rows.y[some, None]
            dense = values if targets is None else np.hstack([targets.features(values), values])
        cells = CellRows(rows.classes[some], groups[some], range(n_classes), keys, dense)
        Z = np.ascontiguousarray(plan.prepare.transform(X.iloc[some]))
        shared = sharing_distances(maps)
        sums = CellSums([s for part in shared for s in sum_cells(part, Z, cells).maps])
        total = sums if total is None else total.merge(sums)
    counts = np.bincount(groups, minlength=len(keys)).reshape(n_classes, n_domains)
    totals, freedom = plan.watch.summed_up(X, rows.domains, n_domains)
    if not accept_disclosure:
        for name in ("missing", "beyond", "unknown"):
            part = plan.watch.parts(totals)[name]
            part[:] = masked(part, counts.sum(axis=0)[:, None], rows.least)
    arrays = {"counts": counts, "watch": totals, "freedom": freedom}
    for i, of_map in enumerate(total.maps if total is not None else []):
        arrays |= _packed(i, of_map, n_classes, rows.names, plan.part("by_class"))
    second = "a second moment for each class" if request.by_class else "one second moment"
    sizes = {"n": len(X), "n_domains": n_domains, "least": plan.smallest_cell, "second": second}
    sizes |= {"maps": request.maps, "width": request.width}
    sentences = [TEXTS["moments"], *TEXTS["accepted" if accept_disclosure else "bounded"]]
    content = {
        "domains": rows.names,
        "left_out": rows.left_out,
        "accepted": accept_disclosure,
        "words": [sentence.format(**sizes) for sentence in sentences],
    }
    return SiteFile("moments", rows.site, plan.hash, content, arrays, tuple(rows.notes))


def _check_same_rows(plan: Plan, rows: SiteRows) -> None:
    """Refuse rows other than those of the first round: of two files one can take the difference."""
    before = plan.part("sites").get(rows.site)
    if before is not None and before != rows.checksum():
        raise DisclosureError(
            f"the second round is not written: the rows of site {rows.site!r} are not those of the "
            "first round. The difference of two files would disclose the rows that came or went. "
            "Use the table of the first round, or send rows that are new as a site of their own; "
            "pass accept_disclosure=True (--accept-disclosure) if you may disclose these rows"
        )


def _check_centres(plan: Plan, X: Any) -> None:
    """Refuse centres that few rows are close to: they would show whether these rows are there."""
    centres, Z = plan.prepared_centres, np.asarray(plan.prepare.transform(X))
    for entry in plan.part("maps"):
        kernel, total, squares = Kernel(entry["kernel"], entry["gamma"]), 0.0, 0.0
        for start in range(0, len(Z), 4096):
            values = kernel.matrix(Z[start : start + 4096], centres)
            total, squares = total + values.sum(axis=0), squares + (values**2).sum(axis=0)
        close = np.square(total) / np.maximum(squares, np.finfo(float).tiny)
        if close.min() < plan.smallest_cell:
            raise DisclosureError(
                f"the second round is not written: centre {int(close.argmin())} of the plan, with "
                f"the {entry['kernel']} kernel of gamma {entry['gamma']:.3g}, is close to fewer "
                f"than {plan.smallest_cell} rows, and its sum would show whether these rows are "
                "there. Ask for a plan with smaller gammas, other centres, or Fourier features"
            )


def _packed(
    i: int, cells: Cells, n_classes: int, domains: list[str], by_class: bool
) -> dict[str, Array]:
    """Arrays of one map: of symmetric matrices the upper half."""
    width = len(next(iter(cells.values())).mean)
    upper = np.triu_indices(width)
    sums = np.zeros((n_classes, len(domains), width))
    second = np.zeros((n_classes, len(upper[0])))
    for c, cell in cells.items():
        second[c] = cell.second[upper]
        for (_, domain), (_, total) in cell.groups.items():
            sums[c, domains.index(domain)] = total
    return {f"second{i}": second if by_class else second.sum(axis=0)[None], f"sums{i}": sums}


def unpacked(file: SiteFile, i: int, labels: Any) -> list[NystromSums]:
    """Sums of one map, by class; groups are of the plan's labels and of the site's domains.

    Where there is one second moment about the means of classes, every row has the same part in it:
    whatever counts rows alike is exact, and what weighs classes takes their spread for equal.
    """
    counts, sums, cells = file.arrays["counts"], file.arrays[f"sums{i}"], []
    by_class, seconds = counts.sum(axis=1), [*symmetric(file.arrays[f"second{i}"], sums.shape[2])]
    for c, label in enumerate(labels or [None]):
        n = int(by_class[c])
        second = seconds[c] if len(seconds) > 1 else seconds[0] * (n / by_class.sum())
        parts = zip(file.content["domains"], counts[c], sums[c], strict=True)
        groups = {(label, domain): (int(k), total) for domain, k, total in parts if k}
        cells.append(NystromSums(n, sums[c].sum(axis=0) / max(n, 1), second, groups))
    return cells
