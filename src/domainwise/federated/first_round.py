"""The first round: sites send statistics of their columns, which are merged into a new plan.

A file contains counts, means and squared deviations of columns, means of blocks of neighbouring
values, row counts of classes and categories, and quantiles of distances between rows. Statistics
that no table could produce are rejected before files are merged.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import pdist

from domainwise.arrays import Array, Frame
from domainwise.arrays.namespace import evenly_spaced
from domainwise.ensemble.moments import Moments
from domainwise.federated import disclosure
from domainwise.federated.disclosure import DisclosureError, SiteRows, choose_sizes, read_site_rows
from domainwise.federated.files import (
    MAX_ROWS,
    SiteFile,
    SiteFileError,
    SiteFiles,
    check_arrays,
    default_output,
    load_files,
)
from domainwise.federated.plan import RIDGE, TEXTS, Plan, PlanError, check_plan, to_json
from domainwise.gram.nystrom import LabelMap
from domainwise.kernels.functions import Kernel, resolve_gamma
from domainwise.labels.factors import max_residual_trace
from domainwise.search.grids import RIDGE_GAMMAS
from domainwise.shift.watch import CLIP
from domainwise.tables.schema import make_preprocessor
from domainwise.tables.statistics import Sketch, Statistics, make_sketch, merge_sketches, quantile

#: Maximum number of block means that a site sends for a column, and minimum number of rows in a
#: block, in multiples of ``smallest_cell``.
MAX_BLOCKS, MIN_BLOCK_CELLS = 100, 2
#: Levels of the distance quantiles that a site sends, and number of rows sampled to compute them.
QUANTILE_LEVELS, DISTANCE_ROWS = (0.1, 0.25, 0.5, 0.75, 0.9), 1000
METRICS = {"rbf": "euclidean", "laplacian": "cityblock"}  #: distance metric of each kernel
MAX_VALUE = 1e150  #: maximum absolute value in a column; its square is finite
#: If values at one site exceed those at all other sites by this factor, a wrong unit is reported.
MAX_UNIT_RATIO = 1e6
#: The range of a column extends beyond its outermost block means by this fraction of their distance
#: from the median.
TAIL = 0.5
#: Centres with smaller Cholesky pivots are nearly linear combinations of the others. They are
#: dropped, because their rounding errors differ between machines.
MIN_PIVOT = 1e-6
#: Number of quantiles, and of grid points, from which landmarks for the target are chosen.
N_QUANTILES = 200


def statistics(
    frame: Frame, plan: Plan, *, site: str | None = None, accept_disclosure: bool = False
) -> SiteFile:
    """Compute a site's first-round file, from which preprocessing and kernel widths are set.

    It contains, for each numeric column, the count, the mean, the sum of squared deviations, and
    means of blocks of at least twice ``smallest_cell`` neighbouring values; for each text column,
    the counts of categories with at least ``smallest_cell`` rows; row counts of classes; and a few
    quantiles of distances between rows, rounded to two digits. It does not describe domains.

    Parameters
    ----------
    frame : data frame
        The site's rows, with the plan's columns.
    plan : Plan
    site : str, default=None
        Name of the site. None uses the domain name, if all rows belong to one domain.
    accept_disclosure : bool, default=False
        Create the file even if the table has fewer than two values for each number in the file.

    Returns
    -------
    file : SiteFile
        ``describe()`` returns a description of its content, and ``save(path)`` writes the file.

    See Also
    --------
    merge : Creates the second-round plan from these files.
    moments : Computes a site's second-round file.

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
    file = compute_statistics(read_site_rows(frame, plan, site), plan)
    n, p, n_numbers = file.content["rows"], len(plan.schema.features), count_numbers(file)
    max_numbers = n * p // disclosure.VALUES_PER_NUMBER
    if n_numbers > max_numbers and not accept_disclosure:
        raise DisclosureError(
            f"the first-round file was not created: it would contain {n_numbers} numbers, but "
            f"{n} rows and {p} columns allow at most {max_numbers}. Use a table with more rows, or "
            "ask for a plan with a larger value of smallest_cell (the minimum number of rows per "
            f"class or category). {disclosure.ACCEPT_ADVICE}"
        )
    return file


def compute_statistics(rows: SiteRows, plan: Plan) -> SiteFile:
    """Compute the first-round file without checking whether it discloses too much."""
    schema, min_rows, n = plan.schema, plan.smallest_cell, len(rows.X)
    column_names, X = [*schema.numbers], rows.X[schema.numbers].to_numpy(dtype=np.float64)
    if plan.classes is None:
        column_names, X = [*column_names, schema.target], np.column_stack([X, rows.y])
    if (is_too_large := (np.abs(X) > MAX_VALUE).any(axis=0)).any():
        name = column_names[int(is_too_large.argmax())]
        raise DisclosureError(f"{name!r} has absolute values above {MAX_VALUE:.0e}. Check its unit")
    block_means = [_compute_block_means(column[~np.isnan(column)], min_rows) for column in X.T]
    moments = Moments.of_rows(X, np.zeros(n, dtype=np.int64), 1)
    # A few missing values are not reported; the column is then treated as complete.
    counts = disclosure.hide_small_counts(moments.count[0], n, min_rows)
    squares = moments.squares[0] * np.where(counts > 0, counts / np.maximum(moments.count[0], 1), 0)
    category_counts, notes = [], [*rows.notes]
    for name in schema.categorical:
        all_counts = Counter(rows.X[name].dropna().tolist())
        sent_counts = {k: count for k, count in sorted(all_counts.items()) if count >= min_rows}
        if len(sent_counts) < len(all_counts):
            notes.append(f"categories of {name!r} with fewer than {min_rows} rows were not sent")
        n_other_rows = n - sum(sent_counts.values())
        if sent_counts and n_other_rows < min_rows:  # add other rows to the largest category
            sent_counts[max((count, k) for k, count in sent_counts.items())[1]] += n_other_rows
        category_counts.append(sent_counts)
    sizes = {"n": n, "n_numbers": len(column_names), "n_texts": len(category_counts)}
    sizes |= {"block_rows": MIN_BLOCK_CELLS * min_rows, "n_quantiles": len(QUANTILE_LEVELS)}
    sizes |= {"n_blocks": max(map(len, block_means), default=0), "min_rows": min_rows}
    content = {
        "rows": n,
        "classes": np.bincount(rows.class_codes, minlength=plan.n_classes).tolist(),
        "categories": category_counts,
        "left_out": rows.n_left_out,
        "checksum": rows.checksum(),
        "words": [sentence.format(**sizes) for sentence in TEXTS["statistics"]],
    }
    arrays = {
        "numbers": np.vstack([counts, moments.mean[0], squares]),
        "lengths": np.array([len(means) for means in block_means], dtype=np.int64),
        "blocks": np.concatenate([*block_means, np.zeros(0)]),
        "distances": _compute_distance_quantiles(rows.X, schema),
    }
    return SiteFile("statistics", rows.site, plan.hash, content, arrays, tuple(notes))


def _compute_block_means(values: Array, min_rows: int) -> Array:
    """Sort values, divide them into blocks of nearly equal size, and return the blocks' means."""
    if not len(values):
        return np.zeros(0)
    n_blocks = min(MAX_BLOCKS, max(len(values) // (MIN_BLOCK_CELLS * min_rows), 1))
    starts = np.arange(n_blocks) * len(values) // n_blocks
    sizes = np.diff([*starts, len(values)])
    # Rounding errors of the sums must not change the order of the means.
    return np.maximum.accumulate(np.add.reduceat(np.sort(values), starts) / sizes)


@default_output
def _compute_distance_quantiles(X: Any, schema: Any) -> Array:
    """Return quantiles of distances between sampled rows after preprocessing, by metric."""
    sample = X.iloc[evenly_spaced(len(X), DISTANCE_ROWS)]
    Z, quantiles = make_preprocessor(schema).fit_transform(sample), []
    for metric in METRICS.values():
        distances = pdist(Z, metric)
        distances = distances[distances > 0]
        quantiles.append(np.quantile(distances if len(distances) else [0.0], QUANTILE_LEVELS))
    return np.array([[float(f"{value:.2g}") for value in row] for row in quantiles])


def count_numbers(file: SiteFile) -> int:
    """Count the numbers in a first-round file."""
    n_categories = sum(map(len, file.content["categories"]))
    return sum(a.size for a in file.arrays.values()) + n_categories + len(file.content["classes"])


def check_statistics(plan: Plan, file: SiteFile) -> None:
    """Raise ValueError for statistics that no table with the plan's columns could produce."""
    content, arrays, min_rows = file.content, file.arrays, plan.smallest_cell
    n, class_counts, n_classes = content["rows"], content["classes"], plan.n_classes
    category_counts = [[*counts.values()] for counts in content["categories"]]
    n_texts, p = len(plan.schema.categorical), len(plan.schema.numbers) + (plan.classes is None)
    if not min_rows <= n <= MAX_ROWS:
        raise ValueError(f"'rows' is {n}; it must be between {min_rows} and {MAX_ROWS}")
    has_small_class = any(count < min_rows for count in class_counts if count)
    if has_small_class or len(class_counts) != n_classes or sum(class_counts) != n:
        raise ValueError(
            f"'classes' must contain {n_classes} counts, each 0 or at least {min_rows}, that add "
            f"up to 'rows' ({n})"
        )
    has_valid_counts = [sum(c) <= n and min(c, default=n) >= min_rows for c in category_counts]
    if not all(has_valid_counts) or len(category_counts) != n_texts:
        raise ValueError(
            f"'categories' must have length {n_texts}, with counts of at least {min_rows} that add "
            f"up to at most {n} in each column"
        )
    n_blocks = int(arrays["lengths"].sum()) if "lengths" in arrays else 0
    shapes = {"lengths": (p,), "blocks": (n_blocks,), "numbers": (3, p)}
    shapes["distances"] = (len(METRICS), len(QUANTILE_LEVELS))
    check_arrays(file, shapes, "lengths", MAX_BLOCKS)
    (counts, means, squares), distances = arrays["numbers"], arrays["distances"]
    if ((counts < min_rows) & (counts != 0)).any() or (counts > n).any() or (counts % 1).any():
        raise ValueError(f"every count in 'numbers' must be 0 or an integer from {min_rows} to {n}")
    if (distances < 0).any() or (np.diff(distances, axis=1) < 0).any():
        raise ValueError("'distances' must be non-negative and in ascending order")
    if max(np.abs(a).max(initial=0.0) for a in (arrays["blocks"], distances)) > MAX_VALUE:
        raise ValueError(f"absolute values in 'blocks' or 'distances' exceed {MAX_VALUE:.0e}")
    for j, (block_means, weights) in enumerate(unpack_sketches(file)):
        if (np.diff(block_means) < 0).any() or (len(block_means) > 0) != (counts[j] > 0):
            raise ValueError(
                "'blocks' must be in ascending order, with no entry for a column without values "
                "and at least one for any other column"
            )
        if not len(block_means):
            continue
        max_abs = np.abs(block_means).max() + np.finfo(float).tiny
        # Block sizes differ by up to one row, so the mean of block means is approximate.
        tolerance = np.ptp(block_means) * len(block_means) / counts[j] + 1e-6 * max_abs
        if abs(means[j] - block_means.mean()) > tolerance:
            raise ValueError("the mean of a column ('numbers') differs from that of its 'blocks'")
        block_squares = float((weights * (block_means - block_means.mean()) ** 2).sum())
        slack = 2 * tolerance * np.ptp(block_means) * counts[j] + 1e-6 * counts[j] * max_abs**2
        if not max(block_squares - slack, 0.0) <= squares[j] <= MAX_VALUE**2:
            raise ValueError(
                "squared deviations in 'numbers' are smaller than 'blocks' imply, or too large"
            )


def check_units(plan: Plan, site_files: list[SiteFile]) -> None:
    """Raise SiteFileError if values at one site are far larger than at all other sites."""
    column_names = [*plan.schema.numbers, *([plan.schema.target] if plan.classes is None else [])]
    counts, means, squares = np.swapaxes([file.arrays["numbers"] for file in site_files], 0, 1)
    scales = np.abs(means) + np.sqrt(squares / np.maximum(counts, 1))
    for s, file in enumerate(site_files if len(site_files) > 1 else []):
        other_scales = np.delete(scales, s, axis=0).max(axis=0)
        is_large = (other_scales > 0) & (scales[s] > MAX_UNIT_RATIO * other_scales)
        if is_large.any():
            j = int(is_large.argmax())
            raise SiteFileError(
                f"the file from site {file.site!r} is inconsistent with the other files: values of "
                f"{column_names[j]!r} are about {scales[s][j]:.1e}, but at most "
                f"{other_scales[j]:.1e} at all other sites. Ask the site to check the unit of this "
                "column, or omit its file"
            )


def unpack_sketches(file: SiteFile) -> list[Sketch]:
    """Return the block means of each column, and the number of rows in each block."""
    block_means = np.split(file.arrays["blocks"], np.cumsum(file.arrays["lengths"]))[:-1]
    columns = zip(block_means, file.arrays["numbers"][0], strict=True)
    return [(means, np.full(len(means), n / max(len(means), 1))) for means, n in columns]


def merge(plan: Plan, files: SiteFiles) -> Plan:
    """Merge the statistics from all sites into the second-round plan.

    Unless the plan sets the numbers of columns and maps, they are the largest numbers for which
    sums may still include most rows (see :mod:`domainwise.federated.disclosure`).

    Parameters
    ----------
    plan : Plan
        The plan with which the files were created.
    files : iterable of SiteFile or path-like
        One file per site, in any order.

    Returns
    -------
    plan : Plan
        The plan with preprocessing, kernel widths and selected centres; it has a new hash.

    See Also
    --------
    statistics : Computes the files that are merged.
    moments : Computes a site's second-round file.
    """
    check_plan(plan)
    if plan.merged is not None:
        raise PlanError("this is the second-round plan. Pass the first-round plan")
    site_files = load_files(plan, files, "statistics", check_statistics)
    check_units(plan, site_files)
    site_sketches = [unpack_sketches(file) for file in site_files]
    site_moments = [Moments(*file.arrays["numbers"][:, None]) for file in site_files]
    site_category_counts = [[Counter(c) for c in file.content["categories"]] for file in site_files]
    pooled_statistics = Statistics(
        n_left_out=0,
        numbers=reduce(Moments.merged, site_moments),
        sketches=[*map(merge_sketches, zip(*site_sketches, strict=True))],
        categories=[sum(counts, Counter()) for counts in zip(*site_category_counts, strict=True)],
        classes=Counter(),
        domains=Counter({"": sum(file.content["rows"] for file in site_files)}),
    )
    preprocessing = pooled_statistics.preprocessing(plan.schema)
    target_range, target_settings, target_width = None, None, 0
    if plan.classes is None:
        target_sketch, target_width = pooled_statistics.sketches[-1], 1
        target_range = [float(target_sketch[0][0]), float(target_sketch[0][-1])]
        if plan.method != RIDGE:
            target_settings = _choose_target_landmarks(target_sketch)
            target_width += len(target_settings["points"])
    kernels = _list_kernels(plan, site_files)
    class_counts = [np.array(file.content["classes"]) for file in site_files]
    sent_counts = [count_numbers(file) for file in site_files]
    n_columns, n_maps, by_class = choose_sizes(
        plan, class_counts, sent_counts, len(kernels), target_width
    )
    merged: dict[str, Any] = {
        "sites": {file.site: file.content["checksum"] for file in site_files},
        "learnt": asdict(preprocessing),
        "maps": kernels[:n_maps],
        "target": target_settings,
        "target_range": target_range,
        "columns": n_columns,
        "by_class": by_class,
        "watch": _choose_shift_settings(plan, site_sketches, pooled_statistics, n_columns),
    }
    if plan.feature_map != "fourier":
        centres = replace(plan, merged=to_json(merged)).prepared_centres
        for entry in merged["maps"]:
            K = Kernel(entry["kernel"], entry["gamma"]).matrix(centres)
            _, pivots, rank, _ = dpstrf(K, tol=MIN_PIVOT, lower=1)
            entry["chosen"] = pivots[:rank] - 1  # LAPACK counts from 1
    return replace(plan, merged=to_json(merged))


def _list_kernels(plan: Plan, site_files: list[SiteFile]) -> list[dict[str, Any]]:
    """List each kernel with each gamma; "auto" gammas are computed from distances within sites."""
    weights = np.repeat([float(file.content["rows"]) for file in site_files], len(QUANTILE_LEVELS))
    kernels: list[dict[str, Any]] = []
    for i, kernel_name in enumerate(METRICS):
        gammas: Any = plan.gammas
        if isinstance(gammas, str):
            distances = np.concatenate([file.arrays["distances"][i] for file in site_files])
            median = quantile(make_sketch(distances, weights), 0.5)
            if median <= 0:
                raise PlanError("the median distance between rows is 0. Pass a list of gammas")
            median_gamma = 1.0 / (2.0 * median**2) if kernel_name == "rbf" else 1.0 / median
            gammas = [median_gamma * factor for factor in RIDGE_GAMMAS]
        if kernel_name in plan.kernels:
            kernels += [{"kernel": kernel_name, "gamma": float(gamma)} for gamma in gammas]
    return kernels


def _choose_target_landmarks(sketch: Sketch) -> dict[str, Any]:
    """Return landmarks for a continuous target, and the gamma of its kernel."""
    levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
    quantiles = np.array([quantile(sketch, level) for level in levels])[:, None]
    if not np.ptp(quantiles):
        raise PlanError("the target has the same value in all rows. Choose another target")
    gamma, tolerance = resolve_gamma("median", "rbf", quantiles), max_residual_trace(1e-3)
    # Sites do not send extreme values, so the grid extends beyond the block means.
    margin = np.ptp(quantiles) / 2
    grid_points = np.linspace(quantiles[0] - margin, quantiles[-1] + margin, N_QUANTILES)
    candidates = [*quantiles, *grid_points]
    label_map = LabelMap.choose(quantiles, "rbf", gamma, tolerance, "the target kernel", candidates)
    return {"gamma": gamma, "points": label_map.points[:, 0]}


def _choose_shift_settings(
    plan: Plan, site_sketches: list[list[Sketch]], pooled_statistics: Statistics, n_columns: int
) -> dict[str, Any]:
    """Return column ranges, and landmarks for comparing new rows with domains."""
    preprocessing = pooled_statistics.preprocessing(plan.schema)
    rng = np.random.RandomState(plan.seed)
    p, n_landmarks = len(preprocessing.mean), min(disclosure.MAX_WATCH_LANDMARKS, n_columns)
    scales = np.sqrt(np.where(preprocessing.variance > 0, preprocessing.variance, 1.0))
    ranges, landmarks = np.full((2, p), np.nan), np.zeros((n_landmarks if p else 0, p))
    for j, (block_means, weights) in enumerate(pooled_statistics.sketches[:p]):
        if not len(block_means):
            continue
        site_block_means = [sketches[j][0] for sketches in site_sketches if len(sketches[j][0])]
        ranges[0, j] = min(b[0] - TAIL * (float(np.median(b)) - b[0]) for b in site_block_means)
        ranges[1, j] = max(b[-1] + TAIL * (b[-1] - float(np.median(b))) for b in site_block_means)
        levels = (np.cumsum(weights) - weights / 2) / weights.sum()
        draws = np.interp(rng.uniform(size=n_landmarks), levels, block_means)
        landmarks[:, j] = np.clip((draws - preprocessing.mean[j]) / scales[j], -CLIP, CLIP)
    gamma = resolve_gamma("median", "rbf", landmarks) if p and np.ptp(landmarks, 0).any() else 1.0
    return {"ends": ranges, "landmarks": landmarks, "gamma": gamma}
