"""The second round: moments of the plan's kernel features, from which a model is fitted.

A file contains sums by class and domain, second moments, and, for each domain, statistics with
which new rows are compared. Moments that no set of rows could produce are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import chain, product
from typing import Any

import numpy as np

from domainwise.arrays import Array, Frame
from domainwise.federated.disclosure import (
    ACCEPT_ADVICE,
    DisclosureError,
    Request,
    hide_small_counts,
    read_site_rows,
    select_rows,
)
from domainwise.federated.files import MAX_ROWS, SiteFile, check_arrays, default_output
from domainwise.federated.first_round import compute_statistics, count_numbers
from domainwise.federated.plan import TEXTS, Plan
from domainwise.gram.sums import CellRows, CellSums, NystromSums, check_cell_memory, sum_cells
from domainwise.kernels.functions import Kernel
from domainwise.ridge.search import group_by_distances
from domainwise.shift.watch import CLIP

BLOCK_ROWS = 2**17  #: number of rows that are preprocessed at a time
MEMORY_ADVICE = "use a plan with a smaller n_features, or fewer kernels or gammas"
DOMAIN_STATISTICS = "the domain statistics ('watch')"  #: name of the array ``watch`` in messages
COUNT_NAMES = ("missing", "beyond", "unknown")  #: missing, out-of-range and unknown values
ROUNDING = 1e-9  #: tolerance for rounding, relative to a bound or the trace of a second moment
#: Targets may lie outside the range of all block means by up to this multiple of the range.
TARGET_MARGIN = 1e3
#: A site that joins late may have up to this many times as many rows as all first-round sites.
MAX_LATE_RATIO = 10


@default_output
def moments(
    frame: Frame, plan: Plan, *, site: str | None = None, accept_disclosure: bool = False
) -> SiteFile:
    """Compute a site's second-round file, from which the model is fitted.

    For the columns of each map, it contains sums by class and domain, and one second moment about
    the class means (one for each class if the plan says so). For each domain, it contains the
    statistics with which :func:`~domainwise.check_shift` compares new rows. Domains that are too
    small to be sent separately are merged, and classes that are too small are left out.

    Parameters
    ----------
    frame : data frame
        The same rows as in the first round, with the plan's columns.
    plan : Plan
        The plan returned by :func:`merge`.
    site : str, default=None
        Name of the site. None uses the domain name, if all rows belong to one domain.
    accept_disclosure : bool, default=False
        Include every domain and class with at least ``smallest_cell`` rows, no matter what could
        be inferred about these rows, and even if the rows differ from those in the first round.

    Returns
    -------
    file : SiteFile
        ``describe()`` returns a description of its content, and ``save(path)`` writes the file.

    See Also
    --------
    statistics : Computes a site's first-round file.
    fit : Fits a model from these files.

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
    rows, request = read_site_rows(frame, plan, site), Request.of_merged(plan)
    first_checksum = plan.first_round("sites").get(rows.site)
    if not accept_disclosure and first_checksum not in (None, rows.checksum()):
        raise DisclosureError(
            f"the second-round file was not created: the rows at site {rows.site!r} differ from "
            "those in the first round. Comparing the files would reveal the rows that were added "
            "or removed. Use the first-round table, or send the new rows as a separate site. "
            f"{ACCEPT_ADVICE}"
        )
    n_numbers = count_numbers(compute_statistics(rows, plan))
    rows = select_rows(rows, request, n_numbers, accept_disclosure)
    n_classes, n_domains, X = request.n_classes, len(rows.domain_names), rows.X
    cell_codes = rows.class_codes * n_domains + rows.domain_codes
    cell_keys = [*product(range(n_classes), range(n_domains))]
    check_cell_memory(n_classes, [*map(plan.width, plan.maps)], None, MEMORY_ADVICE)
    if plan.feature_map != "fourier" and not accept_disclosure:
        _check_centres(plan, X)

    def sum_block(start: int) -> CellSums:
        block, targets = slice(start, start + BLOCK_ROWS), None
        if plan.classes is None:
            targets = rows.y[block, None]
            if plan.target_map is not None:
                targets = np.hstack([plan.target_map.features(targets), targets])
        codes = rows.class_codes[block], cell_codes[block]
        cell_rows = CellRows(*codes, range(n_classes), cell_keys, targets)
        Z = np.ascontiguousarray(plan.prepare.transform(X.iloc[block]))
        group_sums = (sum_cells(maps, Z, cell_rows) for maps in group_by_distances(plan.maps))
        return CellSums([*chain.from_iterable(sums.maps for sums in group_sums)])

    site_sums = reduce(CellSums.merge, map(sum_block, range(0, len(X), BLOCK_ROWS)))
    counts = np.bincount(cell_codes, minlength=len(cell_keys)).reshape(n_classes, n_domains)
    domain_totals, degrees_of_freedom = plan.watch.source_totals(X, rows.domain_codes, n_domains)
    if not accept_disclosure:
        for name in COUNT_NAMES:
            totals = plan.watch.split_totals(domain_totals)[name]  # a view, changed in place
            totals[:] = hide_small_counts(totals, counts.sum(axis=0)[:, None], rows.min_rows)
    arrays = {"counts": counts, "watch": domain_totals, "freedom": degrees_of_freedom}
    for i, sums_by_class in enumerate(site_sums.maps):
        width = plan.width(plan.maps[i])
        upper_indices, sums = np.triu_indices(width), np.zeros((n_classes, n_domains, width))
        second_moments = np.zeros((n_classes, len(upper_indices[0])))
        for c, class_sums in sums_by_class.items():
            second_moments[c] = class_sums.second[upper_indices]
            for cell, (_, cell_sum) in class_sums.groups.items():
                sums[cell] = cell_sum
        if not request.by_class:
            second_moments = second_moments.sum(axis=0, keepdims=True)
        arrays |= {f"second{i}": second_moments, f"sums{i}": sums}
    second_text = "a second moment for each class" if request.by_class else "one second moment"
    texts = {"maps": request.maps_text, "second": second_text}
    sizes = {"n": len(X), "n_domains": n_domains, "min_rows": plan.smallest_cell}
    sentences = [TEXTS["moments"], *TEXTS["accepted" if accept_disclosure else "bounded"]]
    content = {
        "domains": rows.domain_names,
        "left_out": rows.n_left_out,
        "accepted": accept_disclosure,
        "words": [sentence.format(**texts, **sizes) for sentence in sentences],
    }
    return SiteFile("moments", rows.site, plan.hash, content, arrays, tuple(rows.notes))


def _check_centres(plan: Plan, X: Any) -> None:
    """Raise DisclosureError if the sum of kernel values at a centre would reveal a few rows."""
    centres, Z = plan.prepared_centres, np.asarray(plan.prepare.transform(X))
    for entry in plan.first_round("maps"):
        kernel, sums, square_sums = Kernel(entry["kernel"], entry["gamma"]), 0.0, 0.0
        for start in range(0, len(Z), 4096):
            K = kernel.matrix(Z[start : start + 4096], centres)
            sums, square_sums = sums + K.sum(axis=0), square_sums + (K**2).sum(axis=0)
        # The effective number of rows in the sum at each centre.
        n_close = np.square(sums) / np.maximum(square_sums, np.finfo(float).tiny)
        if n_close.min() < plan.smallest_cell:
            raise DisclosureError(
                f"the second-round file was not created: centre {int(n_close.argmin())} of the "
                f"plan is close to fewer than {plan.smallest_cell} rows (kernel "
                f"{entry['kernel']!r}, gamma={entry['gamma']:.3g}), so the file would reveal that "
                "there are rows similar to this centre. Ask for a plan with smaller gammas, other "
                "centres, or Fourier features."
            )


def unpack_sums(file: SiteFile, i: int, labels: Any) -> list[NystromSums]:
    """Return the sums of map ``i`` for each class, grouped by label and domain.

    A second moment over all classes is divided in proportion to the number of rows in each class.
    Unweighted results are then exact; results with class weights assume equal covariances.
    """
    counts, sums, class_sums = file.arrays["counts"], file.arrays[f"sums{i}"], []
    class_counts = counts.sum(axis=1)
    second_moments = [*_unpack_symmetric(file.arrays[f"second{i}"], sums.shape[2])]
    if len(second_moments) == 1:
        second_moments = [second_moments[0] * (n / class_counts.sum()) for n in class_counts]
    for c, label in enumerate(labels or [None]):
        n, mean = int(class_counts[c]), sums[c].sum(axis=0) / max(class_counts[c], 1)
        cells = zip(file.content["domains"], counts[c], sums[c], strict=True)
        groups = {(label, domain): (int(k), cell_sum) for domain, k, cell_sum in cells if k}
        class_sums.append(NystromSums(n, mean, second_moments[c], groups))
    return class_sums


def _unpack_symmetric(upper_triangles: Array, width: int) -> Iterator[Array]:
    """Yield symmetric matrices from their upper triangles."""
    for entries in upper_triangles:
        triangle = np.zeros((width, width))
        triangle[np.triu_indices(width)] = entries
        yield triangle + np.triu(triangle, 1).T


def check_moments(plan: Plan, file: SiteFile) -> None:
    """Raise ValueError for moments that no set of rows could produce."""
    domain_names, arrays, min_rows = file.content["domains"], file.arrays, plan.smallest_cell
    if len(set(domain_names)) < len(domain_names):
        raise ValueError("'domains' contains duplicates")
    shape = (plan.n_classes, len(domain_names))
    shapes: dict[str, tuple[int, ...]] = {"counts": shape, "freedom": shape[1:]}
    shapes["watch"] = (len(domain_names), plan.watch.n_totals)
    n_moments = shape[0] if plan.first_round("by_class") else 1
    for i, width in enumerate(map(plan.width, plan.maps)):
        shapes |= {f"sums{i}": (*shape, width), f"second{i}": (n_moments, width * (width + 1) // 2)}
    check_arrays(file, shapes, "counts", MAX_ROWS)
    counts, n_first_rows = arrays["counts"], int(plan.preprocessing.n_rows)
    n = int(counts.sum())
    if (counts[counts > 0] < min_rows).any() or not counts.any(axis=0).all():
        raise ValueError(
            f"each entry of 'counts' must be 0 or at least {min_rows}, and each domain must have a "
            "nonzero entry"
        )
    max_rows = n_first_rows * (1 if file.site in plan.first_round("sites") else MAX_LATE_RATIO)
    if n > max_rows:
        raise ValueError(
            f"'counts' adds up to {n} rows, but all sites together had {n_first_rows} in the first "
            f"round, so at most {max_rows} are accepted"
        )
    totals = plan.watch.split_totals(arrays["watch"])
    _check_watch(totals, counts.sum(axis=0)[:, None], arrays["freedom"])
    for i, nystrom in enumerate(plan.maps):
        high = np.ones(plan.width(nystrom))  # the largest value that a row can have in each column
        if nystrom.triangle is None:
            high[: nystrom.n_features] = np.sqrt(2.0 / nystrom.n_features)
        low = -high
        if plan.classes is None:  # the last column is the target itself
            target_range = plan.first_round("target_range")
            margin = TARGET_MARGIN * (np.ptp(target_range) + np.finfo(float).tiny)
            low[-1], high[-1] = target_range[0] - margin, target_range[1] + margin
        _check_map(file, i, low, high)


def _check_watch(totals: dict[str, Array], n_rows: Array, degrees_of_freedom: Array) -> None:
    """Raise ValueError for totals that no domains with ``n_rows`` rows could produce."""
    if (totals["rows"] != n_rows).any():
        raise ValueError(f"{DOMAIN_STATISTICS} and 'counts' report different numbers of rows")
    for name in COUNT_NAMES:
        if (totals[name] < 0).any() or (totals[name] > n_rows).any() or (totals[name] % 1).any():
            raise ValueError(
                f"{DOMAIN_STATISTICS} contain {name!r} counts that are not integers from 0 to the "
                "number of rows"
            )
    sums, squares, norms, kernel_sums = (totals[k] for k in ("level", "spread", "norms", "kernel"))
    limit, n_landmarks = n_rows * (1 + ROUNDING), max(kernel_sums.shape[1], 1)
    if (np.abs(sums) > CLIP * limit).any() or (squares > CLIP**2 * limit).any():
        raise ValueError(f"{DOMAIN_STATISTICS} imply standardized values beyond ±{CLIP:g}")
    if (sums**2 > n_rows * squares * (1 + 1e-6) + 1e-6).any():
        raise ValueError(f"{DOMAIN_STATISTICS} contain sums that contradict the sums of squares")
    if (norms < 0).any() or (norms > limit * (1 + 1e-6)).any():
        raise ValueError(f"{DOMAIN_STATISTICS} contain squared norms outside the possible range")
    if ((kernel_sums**2).sum(axis=1, keepdims=True) > n_rows * norms * (1 + 1e-6) + 1e-6).any():
        raise ValueError(f"{DOMAIN_STATISTICS} contain kernel means that contradict 'norms'")
    if (degrees_of_freedom <= 0).any() or (degrees_of_freedom > n_landmarks * (1 + 1e-6)).any():
        raise ValueError(f"'freedom' must be positive and at most {n_landmarks}")


def _check_map(file: SiteFile, i: int, low: Array, high: Array) -> None:
    """Raise ValueError for sums and second moments that no rows within the bounds could produce."""
    counts, sums, triangles = (file.arrays[name] for name in ("counts", f"sums{i}", f"second{i}"))
    counts = counts[:, :, None]
    slack = ROUNDING * (counts + 1) * np.maximum(np.abs(low), np.abs(high))
    if ((sums < counts * low - slack) | (sums > counts * high + slack)).any():
        raise ValueError(f"'sums{i}' implies column means that no set of rows could produce")
    # The variance is largest if all rows are at the bounds: (high - mean)(mean - low).
    n = counts.sum(axis=1)
    means = sums.sum(axis=1) / np.maximum(n, 1)
    max_squares = n * (high - means) * (means - low) + ROUNDING * n * (high - low) ** 2
    for c, moment in enumerate(_unpack_symmetric(triangles, len(low))):
        limit = max_squares[c] if len(triangles) > 1 else max_squares.sum(axis=0)
        if (np.diagonal(moment) > limit).any():
            raise ValueError(f"'second{i}' contains variances that are too large, given 'sums{i}'")
        offset = ROUNDING * abs(np.trace(moment)) + np.finfo(float).tiny
        scales = np.sqrt(np.maximum(np.diagonal(moment), 0.0) + offset)
        try:
            np.linalg.cholesky(moment / np.outer(scales, scales) + 1e-7 * np.eye(len(moment)))
        except np.linalg.LinAlgError:
            raise ValueError(f"'second{i}' must be positive semi-definite") from None
