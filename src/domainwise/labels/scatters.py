"""Scatters of classes and domains as small matrices in label space, for SCA and MDA.

With ``e`` the mean indicator of a group of rows, ``K e`` is the group's mean in feature space. A
scatter of such means is ``K F F' K`` with a thin factor F of label space; the one inside classes is
``K (I / N + F F' - E E') K``. The constant vector, which K maps to zero, is taken out of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from domainwise.arrays import Array
from domainwise.checks.warn import warn_caller
from domainwise.labels.factors import Cells, LabelSpace


@dataclass(frozen=True)
class Scatters:
    """Factors of a method's scatters, in coordinates of label space."""

    between: Array  #: of the scatter that is to be large
    domain: Array  #: of the scatter of domains
    within_added: Array  #: what the scatter inside classes has beyond ``I / N``
    within_removed: Array  #: and what it lacks


def sca_scatters(labels: LabelSpace) -> Scatters:
    """Scatters of scatter component analysis: of class means, of domain means, inside classes."""
    cells = _cells(labels, "SCA")
    class_means, shares = _class_means(cells)
    removed = class_means * np.sqrt(shares)
    domain = np.zeros((len(cells.counts), 0))
    if cells.domains is not None:
        means = _centred(_group_means(cells.counts, cells.domains), cells.counts)
        domain = (means - means.mean(axis=1, keepdims=True)) / np.sqrt(means.shape[1])
    return Scatters(removed, domain, removed[:, :0], removed)


def mda_scatters(labels: LabelSpace, between: float) -> Scatters:
    """Scatters of multidomain discriminant analysis.

    A class's mean counts its domains by the class's share in each. ``between`` weighs the
    discrepancy of all pairs of classes against the scatter about the overall mean.
    """
    cells = _cells(labels, "MDA")
    counts, classes = cells.counts, np.asarray(cells.classes)
    domains = np.zeros(len(counts), dtype=int) if cells.domains is None else cells.domains
    _, domains = np.unique(domains, return_inverse=True)
    _, classes = np.unique(classes, return_inverse=True)
    share = counts / np.bincount(domains, weights=counts)[domains]
    of_class = np.eye(int(classes.max()) + 1)[classes]
    weight = share @ of_class
    cell_means = _centred(np.diag(1.0 / np.sqrt(counts)), counts)
    u = cell_means @ (of_class * share[:, None]) / weight
    class_means, shares = _class_means(cells)
    overall = u @ weight[:, None] / (domains.max() + 1)
    pairs = (u - u.mean(axis=1, keepdims=True)) * np.sqrt(2.0 / (u.shape[1] - 1))
    about = (u - overall) * np.sqrt(shares)
    left = np.hstack([np.sqrt(between) * pairs, np.sqrt(1.0 - between) * about])
    domain = _pairs_in_classes(cell_means, of_class, int(domains.max()) + 1)
    added = (u - class_means) * np.sqrt(shares)
    return Scatters(left, domain, added, class_means * np.sqrt(shares))


def _pairs_in_classes(cell_means: Array, of_class: Array, n_domains: int) -> Array:
    """Factor of the mean of ``(e_sj - e_tj)(e_sj - e_tj)'`` over classes and pairs of domains.

    The squares of all pairs of n points add up to n times those about their mean.
    """
    present = of_class.sum(axis=0)
    n_pairs = float((present * (present - 1)).sum() / 2)
    absent = int(of_class.shape[1] * n_domains - present.sum())
    if absent:
        warn_caller(
            f"{absent} of {of_class.shape[1] * n_domains} pairs of a class and a domain have no "
            "rows; they are left out of the scatter of domains, and of the count it is divided by"
        )
    if not n_pairs:
        return cell_means[:, :0]
    about = cell_means - (cell_means @ of_class / present) @ of_class.T
    return np.asarray(about * np.sqrt(of_class @ present / n_pairs))


def _cells(labels: LabelSpace, method: str) -> Cells:
    if labels.cells is None:
        raise ValueError(
            f"{method} compares the means of domains, so that sample_domain has to hold labels; "
            "got continuous descriptors"
        )
    return labels.cells


def _class_means(cells: Cells) -> tuple[Array, Array]:
    """Centred mean indicators of the classes, and the classes' shares of the rows."""
    classes = np.asarray(cells.classes)
    sizes = np.bincount(classes, weights=cells.counts)
    means = _centred(_group_means(cells.counts, classes), cells.counts)
    return means, sizes[sizes > 0] / cells.counts.sum()


def _group_means(counts: Array, groups: Array) -> Array:
    """Mean indicators of groups of cells: a cell's own direction is ``1_cell / sqrt(count)``."""
    present, codes = np.unique(groups, return_inverse=True)
    sizes = np.bincount(codes, weights=counts)
    return np.asarray(np.sqrt(counts)[:, None] * np.eye(len(present))[codes] / sizes)


def _centred(columns: Array, counts: Array) -> Array:
    """Columns without the part that is the same in all rows."""
    root = np.sqrt(counts)
    return np.asarray(columns - np.outer(root, root @ columns) / counts.sum())
