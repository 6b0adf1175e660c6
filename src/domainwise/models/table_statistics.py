"""What preprocessing learns from tables whose rows are not in one place: statistics that merge.

Categories and the most frequent of them, means and deviations are those of all rows; medians,
which stand in for missing numbers, come from a sketch, within 1 % of rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.ensemble.moments import Moments
from domainwise.tables.cells import MAX_CATEGORIES, as_labels
from domainwise.tables.schema import Schema, TableError, import_pandas, make_preprocessor

#: Values of a sketch. Each merge moves a rank by up to half of one over this; there are few merges.
SKETCH = 2000

Sketch = tuple[Array, Array]  #: Sorted values, and how many each of them stands for.


def sketched(values: Array, weights: Array, most: int = SKETCH) -> Sketch:
    """At most so many values that stand for all, by equal shares of their weights."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if len(values) <= most:
        return values, weights
    middle, total = np.cumsum(weights) - weights / 2, float(weights.sum())
    shares = (np.arange(most) + 0.5) * (total / most)
    chosen = np.searchsorted(middle, shares).clip(max=len(values) - 1)
    return values[chosen], np.full(most, total / most)


def joined_sketch(sketches: Sequence[Sketch]) -> Sketch:
    """A sketch of the rows of all."""
    values, weights = (np.concatenate(parts) for parts in zip(*sketches, strict=True))
    return sketched(values, weights)


def quantile(sketch: Sketch, share: float) -> float:
    """Value below which a share of the rows lies; 0 where there is none."""
    values, weights = sketch
    place = np.searchsorted(np.cumsum(weights), share * weights.sum())
    return float(values[min(place, len(values) - 1)]) if len(values) else 0.0


@dataclass(frozen=True)
class Learnt:
    """What preprocessing has learnt of numbers, missing ones filled in, and of categories."""

    n_rows: int
    medians: Array
    mean: Array
    variance: Array
    categories: list[list[str]]
    frequent: list[str | None]  #: the most frequent category of each column, None where none is

    def preprocessor(self, schema: Schema) -> Any:
        """The transformer of a table's features, as a fit to all rows would leave it."""
        pandas = import_pandas()
        # One row for each category makes the encoder; what is learnt of numbers is put in place.
        most = max([1, *(len(names) for names in self.categories)])
        columns: dict[str, Any] = dict.fromkeys(schema.numbers, np.arange(float(most)))
        for name, names in zip(schema.categorical, self.categories, strict=True):
            filled: list[Any] = [*names] or [np.nan]
            columns[name] = pandas.Series(filled * most, dtype=object)[:most]
        prepare = make_preprocessor(schema)
        prepare.fit(pandas.DataFrame(columns, index=range(most)))
        if schema.numbers:
            imputer, scaler = (step for _, step in prepare.named_transformers_["numeric"].steps)
            imputer.statistics_ = self.medians
            scaler.mean_, scaler.var_ = self.mean, self.variance
            scaler.scale_ = np.where(scaler.var_ > 0, np.sqrt(scaler.var_), 1.0)
            scaler.n_samples_seen_ = np.int64(self.n_rows)
        if schema.categorical:
            imputer = prepare.named_transformers_["categorical"].steps[0][1]
            texts = [np.nan if name is None else name for name in self.frequent]
            imputer.statistics_ = np.array(texts, dtype=object)
        return prepare


@dataclass(frozen=True)
class Statistics:
    """What a first pass over rows finds: of numbers, of categories, and of labels."""

    left_out: int
    numbers: Moments
    sketches: list[Sketch]
    categories: list[Counter[str]]
    classes: Counter[str]
    domains: Counter[str]

    def merged(self, other: Statistics) -> Statistics:
        """Of the rows of both."""
        return Statistics(
            self.left_out + other.left_out,
            self.numbers.merged(other.numbers),
            [joined_sketch(two) for two in zip(self.sketches, other.sketches, strict=True)],
            [a + b for a, b in zip(self.categories, other.categories, strict=True)],
            self.classes + other.classes,
            self.domains + other.domains,
        )

    def medians(self) -> Array:
        """Median of each numeric column; 0 where there is no value."""
        return np.array([quantile(sketch, 0.5) for sketch in self.sketches])

    def learnt(self, schema: Schema) -> Learnt:
        """What preprocessing learns of all these rows."""
        names, frequent = [], []
        for column, counts in zip(schema.categorical, self.categories, strict=True):
            if len(counts) > max(MAX_CATEGORIES, counts.total() // 2):
                raise TableError(
                    f"column {column!r} has {len(counts)} different texts in {counts.total()} "
                    "rows: it names rows instead of describing them; leave it out"
                )
            names.append(sorted(counts))
            ordered = sorted(counts, key=lambda text: (-counts[text], text))
            frequent.append(ordered[0] if ordered else None)
        p = len(schema.numbers)
        count, mean, squares = (np.asarray(part)[0, :p] for part in vars(self.numbers).values())
        n, medians = sum(self.domains.values()), self.medians()[:p]
        missing = n - count
        centre = (count * mean + missing * medians) / n
        away = count * (mean - centre) ** 2 + missing * (medians - centre) ** 2
        return Learnt(n, medians, centre, (squares + away) / n, names, frequent)


def labels_by_text(texts: Iterable[str]) -> dict[str, Any]:
    """Labels by their text: whole numbers if all are, as in a table in memory."""
    names = sorted(texts)
    if not names:
        return {}
    found = as_labels(import_pandas().Series(names))
    return dict(zip(names, found.tolist(), strict=True))
