"""From a case and a seed to source and unseen domains."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from domainwise import datasets
from domainwise.arrays import Array
from domainwise.paper.cases import Case


@dataclass(frozen=True)
class Split:
    """Source domains to learn from, unseen ones to be judged on."""

    X: Array
    y: Array
    sample_domain: Array
    X_test: Array
    y_test: Array
    test_domain: Array

    @property
    def domains(self) -> tuple[list[str], list[str]]:
        """Names of the source and of the unseen domains."""
        sources, unseen = np.unique(self.sample_domain), np.unique(self.test_domain)
        return [str(name) for name in sources], [str(name) for name in unseen]


def seed_of(root_seed: int, *path: object) -> np.random.SeedSequence:
    """Seed of one piece of work, from the root seed and what the work is.

    It depends on nothing else, so that any subset of the work, in any order and on any number of
    workers, draws the same numbers.
    """
    key = tuple(zlib.crc32(str(part).encode()) for part in path)
    return np.random.SeedSequence(root_seed, spawn_key=key)


def make_split(case: Case, root_seed: int, repeat: int) -> Split:
    """Draw rows and domains of a repeat: the same for every method and setting, to be paired."""
    rng = np.random.default_rng(seed_of(root_seed, case.key, repeat))
    if case.source == "synthetic":
        draw = int(rng.integers(2**31 - 1))
        bunch = datasets.make_synthetic(random_state=draw, **case.source_params)
    else:
        bunch = _load(case.source, tuple(sorted(case.source_params.items())))
    return split_domains(bunch, case, rng)


def split_domains(bunch: Bunch, case: Case, rng: np.random.Generator) -> Split:
    """Choose source and unseen domains at random, and the rows drawn from each."""
    names = np.unique(bunch.sample_domain)
    wanted = case.train_domains + case.test_domains
    if len(names) < wanted:
        raise ValueError(f"{case.key} needs {wanted} domains, its data have {len(names)}")
    chosen = rng.permutation(names)[:wanted]
    rows = {
        name: rows_of_domain(
            np.flatnonzero(bunch.sample_domain == name),
            bunch.target,
            case.rows_per_domain,
            stratified=case.stratified,
            rng=rng,
        )
        for name in chosen
    }
    train = np.concatenate([rows[name] for name in chosen[: case.train_domains]])
    test = np.concatenate([rows[name] for name in chosen[case.train_domains :]])
    arrays = (bunch.data, bunch.target, bunch.sample_domain)
    return Split(*(values[chosen_rows] for chosen_rows in (train, test) for values in arrays))


def rows_of_domain(
    rows: Array, target: Array, count: int | None, *, stratified: bool, rng: np.random.Generator
) -> Array:
    """At most ``count`` of the rows, in their order; stratified keeps the ratio of classes."""
    if count is None or len(rows) <= count:
        return rows
    if not stratified:
        return np.sort(rng.choice(rows, count, replace=False))
    classes, sizes = np.unique(target[rows], return_counts=True)
    # Largest remainders, so that the parts add up to count.
    exact = sizes * count / len(rows)
    parts = np.floor(exact).astype(int)
    for index in np.argsort(parts - exact, kind="stable")[: count - parts.sum()]:
        parts[index] += 1
    drawn = [
        rng.choice(rows[target[rows] == label], part, replace=False)
        for label, part in zip(classes, parts, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


@lru_cache(maxsize=4)
def _load(name: str, params: tuple[tuple[str, Any], ...]) -> Bunch:
    loaded: Bunch = getattr(datasets, f"load_{name}")(**dict(params))
    return loaded
