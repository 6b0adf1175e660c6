"""The fast family on Dask: a first look, one pass over partitions, merges in a fixed tree.

Landmarks, ``gamma`` and the landmarks of continuous labels have to be fixed before the pass. They
come from a **first look**: evenly spaced rows of up to ``LOOK_PARTITIONS`` evenly spaced
partitions, ``LOOK_ROWS`` rows in all. Nothing about it is random, and where it covers all rows the
result is that of NumPy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from domainwise.arrays import Array
from domainwise.backends.dask_input import Layout, Partitions, named
from domainwise.backends.numpy import NumpyBackend
from domainwise.checks.inputs import Labels, check_sample_domain, check_target
from domainwise.gram.dask.graphs import calls, constant, received, run, task, tree
from domainwise.gram.nystrom import NystromSums

#: Partitions and rows that the first look takes in.
LOOK_PARTITIONS, LOOK_ROWS = 32, 32_768
#: With fewer rows than this it goes on to further partitions: many may be empty.
LOOK_LEAST = 2_000


@dataclass(frozen=True)
class Plan:
    """All that a task of the pass has to know, sent once to every worker."""

    model: Any  #: an estimator that has begun
    layout: Layout

    def labels(self, y: Any, domain: Any, n: int) -> tuple[Labels | None, Labels]:
        """Check a partition's labels: what they are was settled by the first look."""
        model, target = self.model, None
        if y is not None and model._uses_target:
            kernel = self._kernel(y, 0, "y", model.target_kernel)
            target = check_target(y, n, kernel, least_classes=1)
        if domain is None or not model._uses_domain:
            return target, check_sample_domain(None, n)
        kernel = self._kernel(domain, 1, "sample_domain", model.domain_kernel)
        return target, check_sample_domain(domain, n, kernel)

    def _kernel(self, labels: Array, which: int, name: str, given: Any) -> Any:
        if self.model._kinds[which].startswith("continuous"):
            return "rbf" if given == "auto" else given
        if given == "auto" and labels.dtype.kind == "f":
            finite = labels[np.isfinite(labels)]
            if (finite != np.round(finite)).any():
                argument = "target_kernel" if name == "y" else "domain_kernel"
                raise ValueError(
                    f"{name} holds continuous values, but the rows looked at before the pass held "
                    f'whole numbers, taken as labels: set {argument}="rbf" for continuous values'
                )
        return "delta"


def sum_partitions(estimator: Any, parts: Partitions) -> NystromSums:
    """Begin an estimator with a first look, and sum over all partitions."""
    validate_data(estimator, parts.empty, skip_check_array=True)
    # An explicit number of landmarks has to be chosen from at least as many rows.
    wanted, given = estimator.n_landmarks, not isinstance(estimator.landmarks, str)
    wanted = 0 if given or not isinstance(wanted, Integral) else int(wanted)
    (X, y, sample_domain), n_rows = first_look(parts, wanted)
    if n_rows < 2:
        raise ValueError(
            f"Found {n_rows} sample(s) in {len(parts)} partitions while a minimum of 2 is "
            f"required by {type(estimator).__name__}."
        )
    here = NumpyBackend()
    target, domain = estimator._check_labels(here, y, sample_domain, X, least_classes=1)
    estimator._begin(here, X, target, domain, n_rows=n_rows)
    model = copy.copy(estimator)
    model.__dict__.pop("_sums", None)
    plan = constant(Plan(model, parts.layout), "plan")
    sums = calls(partial_sums, [(plan, *parts.arguments(i)) for i in range(len(parts))])
    (merged,) = run([tree(sums, merge_sums)])
    # Arrays that have come over a network, as BLAS can use them.
    total = merged.mapped(received)
    if target is not None and target.codes is not None:
        classes = total.classes()
        if len(classes) == 1:
            raise ValueError(
                f"y has one class only ({classes.pop()!r}) in all {len(parts)} partitions; the "
                "classifier needs at least 2 classes to find directions that tell them apart"
            )
    return total


@task
def partial_sums(plan: Plan, rows: Any, y: Any, domain: Any, source: str) -> NystromSums | None:
    """Sum over one partition; None if it is empty."""
    with named(source):
        X, y, domain = plan.layout.split(rows, y, domain)
        if not len(X):
            return None
        labels = plan.labels(y, domain, len(X))
        plan.model._check_kinds(*labels)
        return plan.model._sum_rows(NumpyBackend(), X, *labels)


@task
def merge_sums(parts: list[NystromSums | None]) -> NystromSums | None:
    """Join the sums of neighbouring partitions, in their order."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.merge(part)
    return total


def first_look(parts: Partitions, wanted: int) -> tuple[tuple[Array, Any, Any], int]:
    """Take rows from evenly spaced partitions, and from more of them while there are too few.

    Returns X, y and sample_domain of these, in the order of the partitions, and the number of all
    rows: counted where lengths are known or every partition was looked at, else estimated.
    """
    left = [i for i in range(len(parts)) if parts.lengths is None or parts.lengths[i]]
    layout = constant(parts.layout, "layout")
    seen: dict[int, tuple[int, Array, Any, Any]] = {}
    while left and sum(len(rows) for _, rows, _, _ in seen.values()) < max(LOOK_LEAST, wanted):
        now = [left[i] for i in _spread(len(left), LOOK_PARTITIONS)]
        quotas = _quotas(parts, now, max(LOOK_ROWS, 4 * wanted))
        arguments = [
            (layout, *parts.arguments(i), quota) for i, quota in zip(now, quotas, strict=True)
        ]
        seen.update(zip(now, run(calls(look_at, arguments)), strict=True))
        left = [i for i in left if i not in seen]
    looks = [seen[i] for i in sorted(seen)]
    n_rows = sum(length for length, *_ in looks)
    if parts.lengths is not None:
        n_rows = sum(parts.lengths)
    elif left:
        n_rows = round(n_rows / len(looks) * len(parts))
    X, y, domain = (_stacked([part[k] for part in looks if part[0]]) for k in (1, 2, 3))
    return (X if X is not None else parts.empty, y, domain), n_rows


@task
def look_at(
    layout: Layout, rows: Any, y: Any, domain: Any, source: str, quota: int
) -> tuple[int, Array, Any, Any]:
    """Return the length of a partition and up to ``quota`` of its rows, evenly spaced."""
    with named(source):
        X, y, domain = layout.split(rows, y, domain)
        chosen = _spread(len(X), quota)
        few = [None if labels is None else labels[chosen] for labels in (y, domain)]
        return len(X), X[chosen], few[0], few[1]


def _quotas(parts: Partitions, chosen: list[int], total: int) -> list[int]:
    """Rows to take from each partition: in proportion where lengths are known, else alike."""
    if parts.lengths is None:
        return [-(-total // len(chosen))] * len(chosen)
    lengths = [parts.lengths[i] for i in chosen]
    share = min(1.0, total / sum(lengths))
    return [int(np.ceil(share * n)) for n in lengths]


def _spread(n: int, most: int) -> Array:
    """At most ``most`` of the indices 0 ... n - 1, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


def _stacked(parts: list[Any]) -> Any:
    if not parts or parts[0] is None:
        return None
    return np.concatenate(parts)
