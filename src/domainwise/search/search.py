"""Splits with the labels of their training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from domainwise.arrays import Array
from domainwise.checks.inputs import Labels
from domainwise.search.driver import Data
from domainwise.splits.folds import domain_folds


@dataclass(frozen=True)
class Split:
    """Rows of one split, with the labels of its training rows."""

    train: Array
    test: Array
    target: Any
    domain: Any


def make_splits(cv: Any, y: Array, target: Labels, domain: Labels) -> list[Split]:
    """Split by domains, or by rows where there are no domains to leave out."""
    classification = target.codes is not None
    splits, _ = domain_folds(y, domain.codes, classification=classification, cv=cv)
    data = Data(y, y, target=target, domain=domain)
    parts = [(train, test, data.take(train)) for train, test in splits]
    return [Split(train, test, part.target, part.domain) for train, test, part in parts]
