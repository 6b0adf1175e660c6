"""Sums over the rows of each cell apart: a domain or a fold, and a class (theory 13.1).

A cell is a :class:`~domainwise.gram.nystrom.NystromSums` in float64. Whatever leaves some rows
out is a merge of the other cells, and no row is needed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from domainwise.arrays import Array, is_tensor
from domainwise.arrays.namespace import to_host
from domainwise.gram.dense import available_memory
from domainwise.gram.nystrom import BATCH_ROWS, NystromMap, NystromSums
from domainwise.gram.tiles import in_threads

Cells = dict[Any, NystromSums]


@dataclass(frozen=True)
class CellRows:
    """Where each row belongs, and what is summed beside its features.

    A group is a (class, domain), of which the sums of the features alone are kept; a cell may hold
    many groups.
    """

    cells: Any  #: of each row, as an index of the keys
    groups: Any  #: likewise
    cell_keys: Sequence[Hashable]
    group_keys: Sequence[Hashable]
    dense: Any = None  #: further columns: descriptors of domains, then continuous targets

    @property
    def width(self) -> int:
        """Number of further columns."""
        return 0 if self.dense is None else int(self.dense.shape[1])

    def batches(self, batch_rows: int) -> Iterator[tuple[Hashable, Array]]:
        """Yield the key of a cell and up to so many of its rows, cell by cell."""
        order = np.argsort(self.cells, kind="stable")
        ends = np.cumsum(np.bincount(self.cells, minlength=len(self.cell_keys)))
        for key, start, end in zip(self.cell_keys, [0, *ends[:-1]], ends, strict=True):
            for a in range(start, end, batch_rows):
                yield key, order[a : min(a + batch_rows, end)]


@dataclass(frozen=True)
class CellSums:
    """Cells of the same rows for each of several maps."""

    maps: list[Cells]

    def merge(self, other: CellSums) -> CellSums:
        """Join the sums of two sets of rows."""
        pairs = zip(self.maps, other.maps, strict=True)
        return CellSums([merged_cells(mine, theirs) for mine, theirs in pairs])

    def mapped(self, convert: Callable[[Any], Any]) -> CellSums:
        """Return the same sums with every array converted."""
        return CellSums(
            [{key: cell.mapped(convert) for key, cell in cells.items()} for cells in self.maps]
        )

    def classes(self) -> set[Any]:
        """Classes that occurred."""
        return set().union(*(cell.classes() for cell in self.maps[0].values()))

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return sum(cell.n_samples for cell in self.maps[0].values())

    def __sizeof__(self) -> int:
        """Bytes with all arrays: what moving it to another worker takes."""
        return sum(cell.__sizeof__() for cells in self.maps for cell in cells.values())

    def __getstate__(self) -> dict[str, Any]:
        # Lists instead of dicts with tuples as keys, which saved models cannot hold.
        held = self.mapped(to_host)  # a file is read where there may be no such device
        return {
            "keys": [list(cells) for cells in held.maps],
            "cells": [list(cells.values()) for cells in held.maps],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        maps = [
            dict(zip((tuple(key) for key in keys), cells, strict=True))
            for keys, cells in zip(state["keys"], state["cells"], strict=True)
        ]
        object.__setattr__(self, "maps", maps)


def merged_cells(a: Cells, b: Cells) -> Cells:
    """Join two sets of cells, those of the same key into one."""
    joined = dict(a)
    for key, cell in b.items():
        mine = joined.get(key)
        joined[key] = cell if mine is None else mine.merge(cell)
    return joined


def sum_cells(maps: Sequence[NystromMap], X: Array, rows: CellRows) -> CellSums:
    """Sum over the rows of X cell by cell, in threads whose sums are merged in order.

    The maps are of the same landmarks; several of them share their distances.
    """
    tasks = list(rows.batches(BATCH_ROWS))
    shared = given_landmarks(maps)

    def work(thread: int, threads: int) -> CellSums:
        own = tasks[thread * len(tasks) // threads : (thread + 1) * len(tasks) // threads]
        memory = np.empty(BATCH_ROWS * max(m.n_features + rows.width for m in maps))
        total: list[Cells] = [{} for _ in maps]
        for key, index in own:
            batch = np.asarray(X[_as_slice(index)])
            distances = None if shared is None else cdist(batch, shared, "cityblock")
            for cells, nystrom in zip(total, maps, strict=True):
                m = nystrom.n_features
                values = memory[: len(index) * (m + rows.width)].reshape(len(index), -1)
                if nystrom.landmarks.dtype == values.dtype:
                    summands = nystrom.summands(batch, values[:, :m], distances)
                else:
                    summands = nystrom.summands(batch, None, distances)
                if not np.shares_memory(summands, values):
                    values[:, :m] = summands
                if rows.dense is not None:
                    values[:, m:] = rows.dense[index]
                part = NystromSums.partial(values, rows.groups[index], rows.group_keys)
                cells[key] = cells[key].merge(part) if key in cells else part
        return CellSums(total)

    total = reduce(CellSums.merge, in_threads(len(tasks), work))
    found = [
        (cells, key, nystrom)
        for nystrom, cells in zip(maps, total.maps, strict=True)
        for key in cells
        if nystrom.direct
    ]

    def turn_into_features(thread: int, threads: int) -> None:
        for cells, key, nystrom in found[thread::threads]:
            cells[key] = nystrom.moments(cells[key])

    if found:
        in_threads(len(found), turn_into_features)
    return total


def check_cell_memory(n_cells: int, widths: Sequence[int], X: Any, advice: str) -> None:
    """Refuse cells of maps with so many columns if they do not fit where X is.

    Merges of cells take about as much again as the cells.
    """
    needed = 2.0 * 8.0 * n_cells * sum(width**2 for width in widths)
    free = available_memory()
    if is_tensor(X) and X.device.type == "cuda":
        import torch

        unused = torch.cuda.memory_reserved(X.device) - torch.cuda.memory_allocated(X.device)
        free = torch.cuda.mem_get_info(X.device)[0] + unused
    if free is not None and needed > free:
        raise MemoryError(
            f"moments of {n_cells} cells and {len(widths)} kernel(s) with {max(widths)} columns "
            f"take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: {advice}"
        )


def given_landmarks(maps: Sequence[NystromMap]) -> Array | None:
    """Landmarks that several maps were made from; zeros for those that none of them uses."""
    first = maps[0]
    if len(maps) == 1 or first.chosen is None:
        return None
    landmarks = np.zeros((first.n_asked, first.landmarks.shape[1]), dtype=first.landmarks.dtype)
    for nystrom in maps:
        landmarks[nystrom.chosen] = nystrom.landmarks
    return landmarks


def _as_slice(index: Array) -> Any:
    """Neighbouring rows as a slice, which copies nothing."""
    if index[-1] - index[0] + 1 == len(index):
        return slice(int(index[0]), int(index[-1]) + 1)
    return index
