"""Sums of features over all rows, or over sets of rows (cells), in one pass (theory 9.2, 13.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, product
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from domainwise.arrays import Array, is_tensor
from domainwise.arrays.namespace import (
    cast,
    cross_distances,
    group_sums,
    namespace,
    to_device_of,
    to_host,
)
from domainwise.gram.dense import available_memory
from domainwise.gram.nystrom import LabelMap, NystromGram, NystromMap
from domainwise.gram.tiles import in_threads, panels, use_compiled
from domainwise.labels.factors import LabelSpace, category_space

#: Number of rows in a batch; their features take a few megabytes.
BATCH_ROWS = 4096


@dataclass(frozen=True)
class NystromSums:
    """Sums over rows of the features Phi, and of the features of continuous labels.

    :meth:`partial` sums over a batch, :meth:`merge` adds two sums, and :func:`finalize` turns sums
    into a Gram operator. A distributed computation needs only these three functions.

    Centred second moments are merged by Chan's update, which is numerically stable. The second
    moments of Phi are zero if the method does not use them.
    """

    n_samples: int
    mean: Array
    second: Array  #: centred second moments
    groups: dict[Any, tuple[int, Array]]  #: row count and sum of features for each (class, domain)

    def __sizeof__(self) -> int:
        """Size of all arrays in bytes, from which Dask estimates transfer times."""
        totals = sum(total.nbytes for _, total in self.groups.values())
        return int(self.mean.nbytes + self.second.nbytes + totals)

    def __getstate__(self) -> dict[str, Any]:
        # Return lists, because saved models cannot contain a dict with tuples as keys.
        pairs = self.groups.values()
        return vars(self) | {
            "groups": list(self.groups),
            "counts": [count for count, _ in pairs],
            "totals": [total for _, total in pairs],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        pairs = zip(state["counts"], state["totals"], strict=True)
        keys = [tuple(key) for key in state["groups"]]
        for name in ("n_samples", "mean", "second"):
            object.__setattr__(self, name, state[name])
        object.__setattr__(self, "groups", dict(zip(keys, pairs, strict=True)))

    @classmethod
    def partial(
        cls,
        features: Any,
        codes: Any,
        keys: Sequence[Hashable],
        dense: Any = None,
        *,
        moments: bool = True,
    ) -> NystromSums:
        """Sum over one batch of rows; ``features``, an array or a tensor, is overwritten.

        ``codes`` contains the group of each row as an index into ``keys``, the (class, domain)
        pairs, and ``dense`` the features of continuous labels. ``moments=False`` sets the second
        moments of ``features`` to zero.
        """
        n, m = features.shape
        xp, rows, dtype = namespace(features), features, features.dtype
        if dense is not None:
            label_features = dense if is_tensor(dense) else to_device_of(dense, features)
            rows = xp.hstack([features, cast(label_features, dtype)])
        mean = rows.mean(0, dtype=xp.float64)
        rows -= cast(mean, dtype)
        # The difference between the mean and its rounded value, which was subtracted above.
        rounding = rows.mean(0, dtype=xp.float64)
        mean = cast(cast(mean, dtype), xp.float64)
        second = xp.zeros((len(mean), len(mean)), dtype=xp.float64, device=rows.device)
        first_column = 0 if moments else m
        second[first_column:] = cast(rows[:, first_column:].T @ rows, xp.float64)
        second[first_column:] -= n * xp.outer(rounding[first_column:], rounding)
        second[:first_column, first_column:] = second[first_column:, :first_column].T
        counts = to_host(xp.bincount(codes, minlength=len(keys)))
        nonempty_ids = np.flatnonzero(counts)
        if len(nonempty_ids) == 1:
            sums = n * (mean + rounding)[None]
        else:
            nonempty_codes = to_device_of(np.cumsum(counts > 0) - 1, rows)[codes]
            sums = group_sums(rows, nonempty_codes, len(nonempty_ids))
            sums += to_device_of(counts[nonempty_ids], rows)[:, None] * mean
        groups = {keys[g]: (int(counts[g]), sums[i]) for i, g in enumerate(nonempty_ids.tolist())}
        return cls(n, mean + rounding, second, groups)

    def of_features(self, nystrom: NystromMap) -> NystromSums:
        """Convert sums over :meth:`NystromMap.summands` to sums over features."""
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
        return NystromSums(self.n_samples, solve(self.mean, constant), second_moments, groups)

    def mapped(self, convert: Callable[[Any], Any]) -> NystromSums:
        """Return the same sums with every array converted."""
        groups = {key: (count, convert(total)) for key, (count, total) in self.groups.items()}
        return NystromSums(self.n_samples, convert(self.mean), convert(self.second), groups)

    def classes(self) -> set[Any]:
        """Return the classes of the rows."""
        return {key[0] for key in self.groups}

    def regrouped(self, key_of: Callable[[Any], Any]) -> NystromSums:
        """Return the same sums, with groups merged if ``key_of`` returns the same key for them."""
        groups = add_groups((key_of(key), sums) for key, sums in self.groups.items())
        return replace(self, groups=groups)

    def merge(self, other: NystromSums) -> NystromSums:
        """Merge the sums of two sets of rows."""
        n = self.n_samples + other.n_samples
        delta = other.mean - self.mean
        weight = other.n_samples / n
        second_moments = self.second + other.second
        second_moments += delta[:, None] * (delta * (self.n_samples * weight))
        groups = add_groups(chain(self.groups.items(), other.groups.items()))
        return NystromSums(n, self.mean + weight * delta, second_moments, groups)


def add_groups(groups: Iterable[tuple[Any, tuple[int, Any]]]) -> dict[Any, tuple[int, Any]]:
    """Add the counts and sums of groups with the same key."""
    sums: dict[Any, tuple[int, Any]] = {}
    for key, (count, total) in groups:
        n, previous_total = sums.get(key, (0, None))
        sums[key] = (n + count, total if previous_total is None else previous_total + total)
    return sums


def sum_rows(
    nystrom: NystromMap,
    X: Any,
    codes: Any,
    keys: Sequence[Hashable],
    dense: Callable[[slice], Array | None],
    *,
    moments: bool = True,
    batch_rows: int | None = None,
) -> NystromSums:
    """Sum over the rows of X, batch by batch, in threads whose results are merged in order.

    ``dense`` returns the continuous label features of a batch, given its slice of rows; see
    :meth:`NystromSums.partial` for the other arguments.
    """
    batches = panels(len(X), batch_rows or BATCH_ROWS)
    compiled = use_compiled(len(X) * nystrom.n_features)

    def work(thread: int, threads: int) -> NystromSums:
        memory = _batch_memory([nystrom], X)

        def batch_sums(rows: slice) -> NystromSums:
            summands = nystrom.summands(X[rows], memory, compiled=compiled)
            return NystromSums.partial(summands, codes[rows], keys, dense(rows), moments=moments)

        return reduce(NystromSums.merge, map(batch_sums, batches[thread::threads]))

    return reduce(NystromSums.merge, in_threads(len(batches), work, sequential=is_tensor(X)))


def _batch_memory(maps: Sequence[NystromMap], X: Any) -> Array | None:
    """Return memory for the features of a batch, which a thread reuses for all batches."""
    if is_tensor(X):
        return None
    return np.empty(BATCH_ROWS * max(nystrom.n_features for nystrom in maps))


Cells = dict[Any, NystromSums]


@dataclass(frozen=True)
class CellRows:
    """Cells and groups of the rows, and columns that are summed in addition to the features.

    A cell is a set of rows whose second moments are computed. Its rows can belong to many groups,
    the (class, domain) pairs, for which only row counts and sums are stored.
    """

    cells: Any  #: cell of each row, as an index into ``cell_keys``
    groups: Any  #: group of each row, as an index into ``group_keys``
    cell_keys: Sequence[Hashable]
    group_keys: Sequence[Hashable]
    dense: Any = None  #: additional columns: descriptors of domains, then continuous targets

    @classmethod
    def of_parts(
        cls,
        part_codes: Any,
        classes: Any,
        domains: Any,
        n_categories: tuple[int, int],
        dense: Any,
        by_class: bool,
    ) -> CellRows:
        """Return one cell for each part of the rows, or for each (part, class) if ``by_class``.

        A part is a set of rows that no split divides. ``part_codes``, ``classes`` and ``domains``
        contain one code per row; ``n_categories`` are the numbers of classes and of domains, 0 if
        there are none.
        """
        class_codes: list[Any] = list(range(n_categories[0])) or [None]
        n_domains = max(1, n_categories[1])
        parts = range(int(part_codes.max()) + 1)
        return cls(
            part_codes * len(class_codes) + classes if by_class else part_codes,
            classes * n_domains + domains,
            list(product(parts, class_codes)) if by_class else [(part, None) for part in parts],
            list(product(class_codes, range(n_domains))),
            dense,
        )

    @property
    def width(self) -> int:
        """Number of additional columns."""
        return 0 if self.dense is None else int(self.dense.shape[1])

    def batches(self, batch_rows: int) -> Iterator[tuple[Hashable, Any]]:
        """Yield the key of a cell and the indices of a batch of its rows, for all batches."""
        xp = namespace(self.cells)
        order = xp.argsort(self.cells, stable=True)
        ends = np.cumsum(to_host(xp.bincount(self.cells, minlength=len(self.cell_keys))))
        for key, start, end in zip(self.cell_keys, [0, *ends[:-1]], ends, strict=True):
            for a in range(start, end, batch_rows):
                yield key, order[a : min(a + batch_rows, end)]


@dataclass(frozen=True)
class CellSums:
    """Sums over the same rows, cell by cell, for each of several feature maps."""

    maps: list[Cells]

    def merge(self, other: CellSums) -> CellSums:
        """Merge the sums of two sets of rows."""
        pairs = zip(self.maps, other.maps, strict=True)
        return CellSums([merged_cells(a, b) for a, b in pairs])

    def mapped(self, convert: Callable[[Any], Any]) -> CellSums:
        """Return the same sums with every array converted."""
        return CellSums(
            [{key: cell.mapped(convert) for key, cell in cells.items()} for cells in self.maps]
        )

    def classes(self) -> set[Any]:
        """Return the classes of the rows."""
        return set().union(*(cell.classes() for cell in self.maps[0].values()))

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return sum(cell.n_samples for cell in self.maps[0].values())

    def __sizeof__(self) -> int:
        """Size of all arrays in bytes, from which Dask estimates transfer times."""
        return sum(cell.__sizeof__() for cells in self.maps for cell in cells.values())

    def __getstate__(self) -> dict[str, Any]:
        # Return lists, because saved models cannot contain a dict with tuples as keys.
        on_host = self.mapped(to_host)  # the machine that loads a file may lack the device
        return {
            "keys": [list(cells) for cells in on_host.maps],
            "cells": [list(cells.values()) for cells in on_host.maps],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        maps = [
            dict(zip((tuple(key) for key in keys), cells, strict=True))
            for keys, cells in zip(state["keys"], state["cells"], strict=True)
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

    The keys of ``cells`` are (part, class). A split consists of training parts and test parts.
    """
    cells_by_part: dict[int, Cells] = {}
    for (part, label), cell in cells.items():
        cells_by_part.setdefault(part, {})[label] = cell

    def union(selected: Iterable[int]) -> Cells:
        return reduce(merged_cells, (cells_by_part.get(part, {}) for part in selected), {})

    all_parts = set().union(*(side for split in splits for side in split))
    test_parts = [part for _, test in splits for part in test]
    if sorted(test_parts) != sorted(all_parts) or any(
        len(train) + len(test) != len(all_parts) for train, test in splits
    ):
        for train, test in splits:
            yield union(train), union(test)
        return
    # Each part is held out once: the training cells are all cells before and after the test cells.
    test_cells = [union(test) for _, test in splits]
    cells_after: list[Cells] = [{}]
    for held_out_cells in test_cells[:0:-1]:
        cells_after.append(merged_cells(held_out_cells, cells_after[-1]))
    cells_before: Cells = {}
    for held_out_cells in test_cells:
        yield merged_cells(cells_before, cells_after.pop()), held_out_cells
        cells_before = merged_cells(cells_before, held_out_cells)


def sum_cells(
    maps: Sequence[NystromMap], X: Any, rows: CellRows, *, batch_rows: int | None = None
) -> CellSums:
    """Sum over the rows of each cell of X, in threads whose results are merged in order.

    If there are several maps, their kernels are Laplacian and share distances to the landmarks.
    """
    xp, batches = namespace(X), list(rows.batches(batch_rows or BATCH_ROWS))
    landmarks = common_landmarks(maps)
    landmarks = None if landmarks is None else cast(landmarks, X.dtype)
    compiled_flags = [use_compiled(len(X) * nystrom.n_features) for nystrom in maps]

    def work(thread: int, threads: int) -> CellSums:
        start, stop = (t * len(batches) // threads for t in (thread, thread + 1))
        memory = _batch_memory(maps, X)
        map_cells: list[Cells] = [{} for _ in maps]
        for key, indices in batches[start:stop]:
            # A slice of contiguous rows is not copied.
            is_contiguous = not is_tensor(X) and indices[-1] - indices[0] + 1 == len(indices)
            batch = X[indices[0] : indices[-1] + 1] if is_contiguous else X[indices]
            distances = None if landmarks is None else cross_distances(batch, landmarks, l1=True)
            dense = None if rows.dense is None else rows.dense[indices]
            for cells, nystrom, is_compiled in zip(map_cells, maps, compiled_flags, strict=True):
                values = nystrom.summands(batch, memory, distances, compiled=is_compiled)
                values = cast(values, xp.float64)
                sums = NystromSums.partial(values, rows.groups[indices], rows.group_keys, dense)
                cells[key] = cells[key].merge(sums) if key in cells else sums
        return CellSums(map_cells)

    total = reduce(CellSums.merge, in_threads(len(batches), work, sequential=is_tensor(X)))
    direct_cells = [
        (cells, key, nystrom)
        for nystrom, cells in zip(maps, total.maps, strict=True)
        for key in cells
        if nystrom.direct and not is_tensor(X)
    ]

    def convert_to_features(thread: int, threads: int) -> None:
        for cells, key, nystrom in direct_cells[thread::threads]:
            cells[key] = cells[key].of_features(nystrom)

    in_threads(len(direct_cells), convert_to_features)
    return total


def check_cell_memory(n_cells: int, widths: Sequence[int], X: Any, advice: str) -> None:
    """Raise MemoryError if the cells do not fit into the memory of the device of X.

    ``widths`` contains the number of columns of each feature map. Merging doubles the memory.
    """
    needed = 2.0 * 8.0 * n_cells * sum(width**2 for width in widths)
    free = available_memory(X)
    if free is not None and needed > free:
        raise MemoryError(
            f"the second moments of {n_cells} group{'s' * (n_cells > 1)} of rows, for "
            f"{len(widths)} kernel{'s' * (len(widths) > 1)} with up to {max(widths)} features, "
            f"need {needed / 2**30:.1f} GiB of memory, but only {free / 2**30:.1f} GiB are free; "
            f"{advice}"
        )


def common_landmarks(maps: Sequence[NystromMap]) -> Any:
    """Return the landmarks of several maps in one array, with zeros for rows that no map uses."""
    first = maps[0]
    if len(maps) == 1 or first.chosen is None:
        return None
    shape, dtype = (first.n_asked, first.landmarks.shape[1]), first.landmarks.dtype
    landmarks = namespace(first.landmarks).zeros(shape, dtype=dtype, device=first.landmarks.device)
    for nystrom in maps:
        landmarks[nystrom.chosen] = nystrom.landmarks
    return landmarks


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
    keys: list[Any] = sorted(sums.groups, key=repr)
    counts = np.array([sums.groups[key][0] for key in keys], dtype=np.float64)
    totals = np.array([sums.groups[key][1] for key in keys])
    classes = sorted({key[0] for key in keys if key[0] is not None})
    domains = sorted({key[1] for key in keys if key[1] is not None})
    class_codes = _codes([key[0] for key in keys], classes) if classes else None
    domain_codes = _codes([key[1] for key in keys], domains) if len(domains) > 1 else None
    groups = category_space(counts, class_codes, domain_codes, conditional=conditional)
    # Products of the orthonormal group directions 1_g / sqrt(n_g) with the centred features.
    centred_sums = (totals - counts[:, None] * sums.mean) / np.sqrt(counts)[:, None]
    if target is None and domain is None:
        space, cross = groups, centred_sums[: groups.size, :m]
    else:
        space, cross = _joint_space(sums, groups, centred_sums, np.sqrt(counts), m, target, domain)
    # Without landmarks, the weights of the features determine the signs of components.
    landmark_features = np.eye(m) if nystrom.triangle is None else nystrom.triangle - sums.mean[:m]
    moments, dtype = sums.second[:m, :m], nystrom.landmarks.dtype
    return NystromGram(moments, cross, space, landmark_features, dtype), classes, domains


def _joint_space(
    sums: NystromSums,
    groups: LabelSpace,
    centred_sums: Array,
    root_counts: Array,
    m: int,
    target: LabelMap | None,
    domain: LabelMap | None,
) -> tuple[LabelSpace, Array]:
    """Build the label space spanned by the group directions and the continuous label features.

    ``root_counts`` are the square roots of the group sizes.
    """
    n_groups, label_moments = len(centred_sums), sums.second[m:, m:]
    # Group directions are orthonormal, except that centring removes the constant vector.
    group_gram = np.eye(n_groups) - np.outer(root_counts, root_counts) / sums.n_samples
    gram = np.block([[group_gram, centred_sums[:, m:]], [centred_sums[:, m:].T, label_moments]])
    # Scale label features to norm 1. Group directions keep their scale: a zero one must stay zero.
    squared_norms = np.diagonal(label_moments)
    floor = np.finfo(float).eps * float(squared_norms.max(initial=np.finfo(float).tiny))
    scale = np.concatenate([np.ones(n_groups), np.sqrt(np.maximum(squared_norms, floor))])
    d, U = np.linalg.eigh(gram / np.outer(scale, scale))
    keep = d > len(d) * np.finfo(float).eps * d[-1]
    d, U = d[keep], U[:, keep]
    coordinates = (np.sqrt(d)[:, None] * U.T) * scale  # one column per group direction and feature
    basis = U / np.sqrt(d) / scale[:, None]
    products = np.vstack([centred_sums[:, :m], sums.second[m:, :m]])
    cross = basis.T @ products
    n_target = 0 if target is None else target.n_features
    # Group directions are followed by target features, the target itself, and domain features.
    ends = n_groups + np.cumsum([0, n_target, target is not None])
    group_directions, target_features, target_values, domain_features = np.split(
        coordinates, ends, axis=1
    )

    def from_groups(factor: Array | None) -> Array | None:
        return None if factor is None else group_directions @ factor

    space = LabelSpace(
        sums.n_samples,
        from_groups(groups.target) if target is None else target_features,
        from_groups(groups.domain) if domain is None else domain_features,
        from_groups(groups.domain_means) if domain is None else None,
        from_groups(groups.sign) if target is None else target_values[:, 0],
    )
    return space, cross


def _codes(labels: list[Any], names: list[Any]) -> Array:
    code_of = {name: i for i, name in enumerate(names)}
    return np.array([code_of[label] for label in labels])
