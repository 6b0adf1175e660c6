"""Sums of features over all rows, or over sets of rows (cells), in one pass (theory 9.2, 13.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, product
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from domainwise.algebra.gram.nystrom import LabelMap, NystromGram, NystromMap
from domainwise.algebra.gram.tiles import in_threads, panels, use_compiled
from domainwise.algebra.labels import LabelSpace, category_space
from domainwise.base import arrays
from domainwise.base.arrays import Array, available_memory

#: Number of rows in a batch; their features take a few megabytes.
BATCH_ROWS = 4096


@dataclass(frozen=True)
class NystromSums:
    """Sums of the Nystrom features Phi and of the features of continuous labels, over rows.

    :meth:`partial` sums over a batch, :meth:`merge` adds two sums, and :func:`finalize` turns sums
    into a Gram operator. A distributed computation needs only these three functions.

    Centred second moments are merged by Chan's update, which is numerically stable. The second
    moments of Phi are zero if the method does not use them. With weights, a row counts as often as
    its weight says.
    """

    n_samples: float  #: number of rows, or the sum of their weights
    mean: Array
    second: Array  #: centred second moments
    groups: dict[Any, tuple[float, Array]]  #: count and sum of features for each (class, domain)
    n_rows: int

    def __sizeof__(self) -> int:
        """Size of all arrays in bytes, from which Dask estimates transfer times."""
        group_bytes = sum(total.nbytes for _, total in self.groups.values())
        return int(self.mean.nbytes + self.second.nbytes + group_bytes)

    def __getstate__(self) -> dict[str, Any]:
        # Return lists, because saved models cannot contain a dict with tuples as keys.
        counts_and_totals = self.groups.values()
        return vars(self) | {
            "groups": list(self.groups),
            "counts": [count for count, _ in counts_and_totals],
            "totals": [total for _, total in counts_and_totals],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        counts_and_totals = zip(state["counts"], state["totals"], strict=True)
        group_keys = [tuple(key) for key in state["groups"]]
        for name in ("n_samples", "mean", "second", "n_rows"):
            object.__setattr__(self, name, state[name])
        object.__setattr__(self, "groups", dict(zip(group_keys, counts_and_totals, strict=True)))

    @classmethod
    def partial(
        cls,
        features: Any,
        group_codes: Any,
        group_keys: Sequence[Hashable],
        label_features: Any = None,
        weights: Any = None,
        *,
        moments: bool = True,
    ) -> NystromSums:
        """Sum over one batch of rows; ``features``, an array or a tensor, is overwritten.

        ``group_codes`` contains the group of each row, as an index into ``group_keys``, the
        (class, domain) pairs. ``label_features`` contains the features of continuous labels.
        ``moments=False`` sets the second moments of ``features`` to zero.
        """
        (n_rows, m), n = features.shape, features.shape[0] if weights is None else weights.sum()
        xp, columns, dtype = arrays.namespace(features), features, features.dtype
        shares = None if weights is None else arrays.cast(weights / n, dtype)

        def average(columns: Any) -> Any:
            if shares is None:
                return columns.mean(0, dtype=xp.float64)
            return arrays.cast(shares @ columns, xp.float64)

        if label_features is not None:
            if not arrays.is_tensor(label_features):
                label_features = arrays.to_device_of(label_features, features)
            columns = xp.hstack([features, arrays.cast(label_features, dtype)])
        mean = average(columns)
        columns -= arrays.cast(mean, dtype)
        # The rounding errors of the means that were subtracted above.
        mean_errors = average(columns)
        mean = arrays.cast(arrays.cast(mean, dtype), xp.float64)
        roots = None if weights is None else arrays.cast(xp.sqrt(weights), dtype)[:, None]
        if roots is not None:
            columns *= roots
        second_moments = xp.zeros((len(mean), len(mean)), dtype=xp.float64, device=columns.device)
        start = 0 if moments else m
        second_moments[start:] = arrays.cast(columns[:, start:].T @ columns, xp.float64)
        second_moments[start:] -= n * xp.outer(mean_errors[start:], mean_errors)
        second_moments[:start, start:] = second_moments[start:, :start].T
        counts = arrays.to_host(xp.bincount(group_codes, weights, minlength=len(group_keys)))
        nonempty_codes = np.flatnonzero(counts).tolist()
        if len(nonempty_codes) == 1:
            sums = n * (mean + mean_errors)[None]
        else:
            renumbered_codes = arrays.to_device_of(np.cumsum(counts > 0) - 1, columns)[group_codes]
            columns = columns if roots is None else columns * roots
            sums = arrays.group_sums(columns, renumbered_codes, len(nonempty_codes))
            sums += arrays.to_device_of(counts[nonempty_codes], columns)[:, None] * mean
        groups = {
            group_keys[g]: (counts[g].item(), s) for g, s in zip(nonempty_codes, sums, strict=True)
        }
        return cls(float(n), mean + mean_errors, second_moments, groups, n_rows)

    def of_features(self, nystrom: NystromMap) -> NystromSums:
        """Convert sums of :meth:`NystromMap.summands` to sums of features."""
        triangle, constant = nystrom.triangle, nystrom.kernel.constant
        if not nystrom.direct or triangle is None:
            return self
        m = len(triangle)

        def solve(sums: Array, shift: float = 0.0) -> Array:
            out = sums.copy()
            out[..., :m] = solve_triangular(triangle, (sums[..., :m] + shift).T, lower=True).T
            return out

        groups = {key: (n, solve(total, n * constant)) for key, (n, total) in self.groups.items()}
        second_moments = solve(solve(self.second).T)
        mean = solve(self.mean, constant)
        return replace(self, mean=mean, second=second_moments, groups=groups)

    def mapped(self, convert: Callable[[Any], Any]) -> NystromSums:
        """Return the same sums, with every array converted by ``convert``."""
        groups = {key: (count, convert(total)) for key, (count, total) in self.groups.items()}
        mean, second = convert(self.mean), convert(self.second)
        return replace(self, mean=mean, second=second, groups=groups)

    def classes(self) -> set[Any]:
        """Return the set of classes that have rows."""
        return {key[0] for key in self.groups}

    def merge(self, other: NystromSums) -> NystromSums:
        """Merge the sums of two sets of rows."""
        n = self.n_samples + other.n_samples
        delta = other.mean - self.mean
        weight = other.n_samples / n
        second_moments = self.second + other.second
        second_moments += delta[:, None] * (delta * (self.n_samples * weight))
        groups = add_groups(chain(self.groups.items(), other.groups.items()))
        mean, n_rows = self.mean + weight * delta, self.n_rows + other.n_rows
        return NystromSums(n, mean, second_moments, groups, n_rows)


def add_groups(
    group_items: Iterable[tuple[Any, tuple[float, Any]]],
) -> dict[Any, tuple[float, Any]]:
    """Add the counts and sums of groups with the same key."""
    groups: dict[Any, tuple[float, Any]] = {}
    for key, (count, total) in group_items:
        old_count, old_total = groups.get(key, (0, None))
        groups[key] = (old_count + count, total if old_total is None else old_total + total)
    return groups


def sum_rows(
    nystrom: NystromMap,
    X: Any,
    group_codes: Any,
    group_keys: Sequence[Hashable],
    get_label_features: Callable[[slice], Array | None],
    weights: Any = None,
    *,
    moments: bool = True,
    batch_rows: int | None = None,
) -> NystromSums:
    """Sum over the rows of X, batch by batch, in threads whose results are merged in order.

    ``get_label_features`` returns the features of continuous labels for a slice of rows, or None;
    see :meth:`NystromSums.partial` for the other arguments.
    """
    batches = panels(len(X), batch_rows or BATCH_ROWS)
    use_numba = use_compiled(len(X) * nystrom.n_features)

    def work(thread: int, pool_size: int) -> NystromSums:
        memory = _batch_memory(nystrom, X)

        def sum_batch(rows: slice) -> NystromSums:
            summands = nystrom.summands(X[rows], memory, compiled=use_numba)
            batch_weights = None if weights is None else weights[rows]
            label_args = group_codes[rows], group_keys, get_label_features(rows), batch_weights
            return NystromSums.partial(summands, *label_args, moments=moments)

        return reduce(NystromSums.merge, map(sum_batch, batches[thread::pool_size]))

    return reduce(NystromSums.merge, in_threads(len(batches), work, sequential=arrays.is_tensor(X)))


def _batch_memory(nystrom: NystromMap, X: Any) -> Array | None:
    """Return memory for the features of a batch, to be reused by a thread; None for tensors."""
    return None if arrays.is_tensor(X) else np.empty(BATCH_ROWS * nystrom.n_features)


Cells = dict[Any, NystromSums]  #: sums over the rows of each cell, by cell key


@dataclass(frozen=True)
class CellRows:
    """The cell and the group of each row, and columns to sum in addition to the features.

    A cell is a set of rows whose second moments are computed. Its rows can belong to many groups,
    the (class, domain) pairs, for which only row counts and sums are stored.
    """

    cell_codes: Any  #: cell of each row, as an index into ``cell_keys``
    group_codes: Any  #: group of each row, as an index into ``group_keys``
    cell_keys: Sequence[Hashable]
    group_keys: Sequence[Hashable]
    extra_columns: Any = None  #: descriptors of domains, then continuous targets
    weights: Any = None  #: weight of each row; None without weights

    @classmethod
    def of_parts(
        cls,
        part_codes: Any,
        class_codes: Any,
        domain_codes: Any,
        n_categories: tuple[int, int],
        extra_columns: Any,
        by_class: bool,
        weights: Any = None,
    ) -> CellRows:
        """Make each part of the rows a cell, or each (part, class) pair if ``by_class``.

        A part is a set of rows that no split divides. ``part_codes``, ``class_codes`` and
        ``domain_codes`` contain one code per row. ``n_categories`` contains the number of classes
        and the number of domains, which are 0 if there are no class or domain labels.
        """
        class_keys: list[Any] = list(range(n_categories[0])) or [None]
        n_domains, parts = max(1, n_categories[1]), range(int(part_codes.max()) + 1)
        return cls(
            part_codes * len(class_keys) + class_codes if by_class else part_codes,
            class_codes * n_domains + domain_codes,
            list(product(parts, class_keys)) if by_class else [(part, None) for part in parts],
            list(product(class_keys, range(n_domains))),
            extra_columns,
            weights,
        )

    @property
    def n_extra_columns(self) -> int:
        """Number of extra columns."""
        return 0 if self.extra_columns is None else int(self.extra_columns.shape[1])

    def batches(self, batch_rows: int) -> Iterator[tuple[Hashable, Any]]:
        """Yield (cell key, row indices) for each batch of each cell."""
        xp = arrays.namespace(self.cell_codes)
        order = xp.argsort(self.cell_codes, stable=True)
        ends = np.cumsum(
            arrays.to_host(xp.bincount(self.cell_codes, minlength=len(self.cell_keys)))
        )
        for key, start, end in zip(self.cell_keys, [0, *ends[:-1]], ends, strict=True):
            for batch_start in range(start, end, batch_rows):
                yield key, order[batch_start : min(batch_start + batch_rows, end)]


@dataclass(frozen=True)
class CellSums:
    """Sums over the same rows, cell by cell, for each of several feature maps."""

    maps: list[Cells]  #: the cells of each feature map

    def merge(self, other: CellSums) -> CellSums:
        """Merge the sums of two sets of rows, on the device of ``other``."""
        like = next((cell.mean for cell in other.maps[0].values()), None)
        moved_sums = self.mapped(lambda array: arrays.to_device_of(arrays.to_host(array), like))
        pairs = zip(moved_sums.maps, other.maps, strict=True)
        return CellSums([merged_cells(a, b) for a, b in pairs])

    def mapped(self, convert: Callable[[Any], Any]) -> CellSums:
        """Return the same sums, with every array converted by ``convert``."""
        return CellSums(
            [{key: cell.mapped(convert) for key, cell in cells.items()} for cells in self.maps]
        )

    def classes(self) -> set[Any]:
        """Return the set of classes that have rows."""
        return set().union(*(cell.classes() for cell in self.maps[0].values()))

    @property
    def n_samples(self) -> float:
        """Number of rows, or the sum of their weights."""
        return sum(cell.n_samples for cell in self.maps[0].values())

    def __sizeof__(self) -> int:
        """Size of all arrays in bytes, from which Dask estimates transfer times."""
        return sum(cell.__sizeof__() for cells in self.maps for cell in cells.values())

    def __getstate__(self) -> dict[str, Any]:
        # Return lists, because saved models cannot contain a dict with tuples as keys.
        host_sums = self.mapped(arrays.to_host)  # the machine that loads a file may lack the device
        return {
            "keys": [list(cells) for cells in host_sums.maps],
            "cells": [list(cells.values()) for cells in host_sums.maps],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        maps = [
            dict(zip((tuple(key) for key in cell_keys), cells, strict=True))
            for cell_keys, cells in zip(state["keys"], state["cells"], strict=True)
        ]
        object.__setattr__(self, "maps", maps)


def merged_cells(a: Cells, b: Cells) -> Cells:
    """Merge two sets of cells; cells with the same key become one."""
    return a | {key: a[key].merge(cell) if key in a else cell for key, cell in b.items()}


def joined_cells(cells: Mapping[Any, NystromSums]) -> NystromSums:
    """Merge all cells into one, in the order of the mapping."""
    return reduce(NystromSums.merge, cells.values())


def cells_by_split(
    cells: Cells, splits: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> Iterator[tuple[Cells, Cells]]:
    """Yield the training cells and the test cells of each split, merged by class.

    The keys of ``cells`` are (part, class) pairs. A split is a (training parts, test parts) pair.
    """
    cells_by_part: dict[int, Cells] = {}
    for (part, class_label), cell in cells.items():
        cells_by_part.setdefault(part, {})[class_label] = cell

    def merge_parts(parts: Iterable[int]) -> Cells:
        return reduce(merged_cells, (cells_by_part.get(part, {}) for part in parts), {})

    all_parts = set().union(*(parts for split in splits for parts in split))
    all_test_parts = [part for _, test_parts in splits for part in test_parts]
    if sorted(all_test_parts) != sorted(all_parts) or any(
        len(train_parts) + len(test_parts) != len(all_parts) for train_parts, test_parts in splits
    ):
        for train_parts, test_parts in splits:
            yield merge_parts(train_parts), merge_parts(test_parts)
        return
    # Each part is held out once, so the training cells of a split are the other splits' test cells.
    test_cells_by_split = [merge_parts(test_parts) for _, test_parts in splits]
    cells_after: list[Cells] = [{}]
    for test_cells in test_cells_by_split[:0:-1]:
        cells_after.append(merged_cells(test_cells, cells_after[-1]))
    cells_before: Cells = {}
    for test_cells in test_cells_by_split:
        yield merged_cells(cells_before, cells_after.pop()), test_cells
        cells_before = merged_cells(cells_before, test_cells)


def sum_cells(
    nystrom: NystromMap, X: Any, rows: CellRows, *, batch_rows: int | None = None
) -> Cells:
    """Sum over the rows of X in each cell, in threads whose results are merged in order."""
    xp, batches = arrays.namespace(X), list(rows.batches(batch_rows or BATCH_ROWS))
    use_numba = use_compiled(len(X) * nystrom.n_features)

    def work(thread: int, pool_size: int) -> Cells:
        start, stop = (t * len(batches) // pool_size for t in (thread, thread + 1))
        memory = _batch_memory(nystrom, X)
        cells: Cells = {}
        for key, indices in batches[start:stop]:
            # A slice of contiguous rows is not copied.
            is_contiguous = not arrays.is_tensor(X) and indices[-1] - indices[0] + 1 == len(indices)
            batch = X[indices[0] : indices[-1] + 1] if is_contiguous else X[indices]
            extra_columns = None if rows.extra_columns is None else rows.extra_columns[indices]
            weights = None if rows.weights is None else rows.weights[indices]
            label_args = rows.group_codes[indices], rows.group_keys, extra_columns, weights
            summands = arrays.cast(nystrom.summands(batch, memory, compiled=use_numba), xp.float64)
            sums = NystromSums.partial(summands, *label_args)
            cells[key] = cells[key].merge(sums) if key in cells else sums
        return cells

    total = reduce(merged_cells, in_threads(len(batches), work, sequential=arrays.is_tensor(X)))
    unconverted_keys = list(total) if nystrom.direct and not arrays.is_tensor(X) else []

    def convert_to_features(thread: int, pool_size: int) -> None:
        for key in unconverted_keys[thread::pool_size]:
            total[key] = total[key].of_features(nystrom)

    in_threads(len(unconverted_keys), convert_to_features)
    return total


def check_cell_memory(n_cells: int, widths: Sequence[int], X: Any, advice: str) -> None:
    """Raise MemoryError if the cells do not fit into the memory of the device of X.

    ``widths`` contains the number of columns for each feature map. Merging doubles the memory.
    """
    needed_bytes = 2.0 * 8.0 * n_cells * sum(width**2 for width in widths)
    free_bytes = available_memory(X)
    if free_bytes is not None and needed_bytes > free_bytes:
        raise MemoryError(
            f"the second moments of {n_cells} group{'s' * (n_cells > 1)} of rows, for "
            f"{len(widths)} kernel{'s' * (len(widths) > 1)} with up to {max(widths)} features, "
            f"need {needed_bytes / 2**30:.1f} GiB of memory, but only "
            f"{free_bytes / 2**30:.1f} GiB are free; {advice}"
        )


def finalize(
    sums: NystromSums,
    nystrom: NystromMap,
    *,
    target: LabelMap | None = None,
    domain: LabelMap | None = None,
    conditional: bool = False,
) -> tuple[NystromGram, list[Any], list[Any]]:
    """Turn sums over rows into a Gram operator; also return the classes and domains.

    The columns of the sums are features of X, features of a continuous target, the target itself,
    and features of continuous domain descriptors. ``target`` and ``domain`` are the feature maps of
    continuous labels.
    """
    m = nystrom.n_features
    group_keys: list[Any] = sorted(sums.groups, key=repr)
    counts = np.array([sums.groups[key][0] for key in group_keys], dtype=np.float64)
    totals = np.array([sums.groups[key][1] for key in group_keys])
    classes = sorted({key[0] for key in group_keys if key[0] is not None})
    domains = sorted({key[1] for key in group_keys if key[1] is not None})
    class_codes = _encode([key[0] for key in group_keys], classes) if classes else None
    domain_codes = _encode([key[1] for key in group_keys], domains) if len(domains) > 1 else None
    group_space = category_space(counts, class_codes, domain_codes, conditional=conditional)
    # Products of the orthonormal group directions 1_g / sqrt(n_g) with the centred features.
    centred_sums = (totals - counts[:, None] * sums.mean) / np.sqrt(counts)[:, None]
    if target is None and domain is None:
        space, cross = group_space, centred_sums[: group_space.size, :m]
    else:
        space, cross = _joint_space(sums, group_space, centred_sums, counts, m, target, domain)
    # Without landmarks, the weights of the features determine the signs of components.
    landmark_features = np.eye(m) if nystrom.triangle is None else nystrom.triangle - sums.mean[:m]
    moments, dtype = sums.second[:m, :m], nystrom.landmarks.dtype
    gram = NystromGram(moments, cross, space, landmark_features, dtype, sums.n_rows)
    return gram, classes, domains


def _joint_space(
    sums: NystromSums,
    group_space: LabelSpace,
    centred_sums: Array,
    group_sizes: Array,
    m: int,
    target: LabelMap | None,
    domain: LabelMap | None,
) -> tuple[LabelSpace, Array]:
    """Return the label space spanned by group directions and label features, and ``cross``.

    The rows of ``cross`` are products of an orthonormal basis with the ``m`` features of X.
    """
    n_groups, root_sizes, label_moments = len(group_sizes), group_sizes**0.5, sums.second[m:, m:]
    # Group directions are orthonormal, except that centring removes the constant vector.
    group_gram = np.eye(n_groups) - np.outer(root_sizes, root_sizes) / sums.n_samples
    gram = np.block([[group_gram, centred_sums[:, m:]], [centred_sums[:, m:].T, label_moments]])
    # Scale label features to norm 1. Group directions are not scaled: they can be zero.
    squared_norms = np.diagonal(label_moments)
    min_squared_norm = np.finfo(float).eps * float(squared_norms.max(initial=np.finfo(float).tiny))
    scales = np.concatenate([np.ones(n_groups), np.maximum(squared_norms, min_squared_norm) ** 0.5])
    d, U = np.linalg.eigh(gram / np.outer(scales, scales))
    is_nonzero = d > len(d) * np.finfo(float).eps * d[-1]
    d, U = d[is_nonzero], U[:, is_nonzero]
    coordinates = (np.sqrt(d)[:, None] * U.T) * scales  # one column per direction or label feature
    basis = U / np.sqrt(d) / scales[:, None]
    cross = basis.T @ np.vstack([centred_sums[:, :m], sums.second[m:, :m]])
    n_target_features = 0 if target is None else target.n_features
    # Group directions are followed by target features, the target itself, and domain features.
    ends = n_groups + np.cumsum([0, n_target_features, target is not None])
    group_directions, target_features, target_values, domain_features = np.split(
        coordinates, ends, axis=1
    )

    def combine_directions(factor: Array | None) -> Array | None:
        return None if factor is None else group_directions @ factor

    space = LabelSpace(
        sums.n_samples,
        combine_directions(group_space.target) if target is None else target_features,
        combine_directions(group_space.domain) if domain is None else domain_features,
        combine_directions(group_space.domain_means) if domain is None else None,
        combine_directions(group_space.sign_direction) if target is None else target_values[:, 0],
    )
    return space, cross


def _encode(labels: list[Any], categories: list[Any]) -> Array:
    code_by_category = {category: i for i, category in enumerate(categories)}
    return np.array([code_by_category[label] for label in labels])
