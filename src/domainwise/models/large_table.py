"""Models of Parquet tables that do not fit memory: statistics in one pass, sums in another.

What a column is, and the task, are told from evenly spaced rows. Categories and the most frequent
of them, means and deviations are those of all rows; medians, which stand in for missing numbers,
come from a sketch, within 1 % of rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from domainwise.arrays import Array
from domainwise.backends.dask_input import Layout, Partitions
from domainwise.distributed.parquet import (
    PARTITION_BYTES,
    Footer,
    Piece,
    cut_pieces,
    read_footers,
    read_piece,
)
from domainwise.ensemble.moments import Moments
from domainwise.gram.dask.graphs import Unread, calls, constant, run, task, tree
from domainwise.gram.dense import available_memory
from domainwise.models.registry import find_method
from domainwise.models.table_model import TableModel, described, table_setting
from domainwise.models.watch import ShiftWatch
from domainwise.tables.cells import MAX_CATEGORIES
from domainwise.tables.columns import as_labels, as_numbers, split_names
from domainwise.tables.files import existing_format
from domainwise.tables.schema import (
    Schema,
    Table,
    TableError,
    check_table,
    choose_features,
    import_pandas,
    make_preprocessor,
)

#: Copies of a table's cells, of eight bytes each, that fitting it in memory takes.
COPIES = 4
#: Rows that columns are told from, and pieces that these are taken from.
LOOK_ROWS, LOOK_PIECES = 40_000, 20
#: Values of a sketch. Each merge moves a rank by up to half of one over this; there are few merges.
SKETCH = 2000
METHOD = "invariantridge"


def exceeds_memory(path: str | Path) -> bool:
    """Whether a table is stored as Parquet and too large to be fitted in memory."""
    if existing_format(path) != "parquet":
        return False
    free = available_memory()
    cells = sum(f.content.num_rows * f.content.num_columns for f in read_footers(path))
    return free is not None and COPIES * 8 * cells > free


Sketch = tuple[Array, Array]  #: Sorted values, and how many each of them stands for.


def sketched(values: Array, weights: Array) -> Sketch:
    """At most ``SKETCH`` values that stand for all, by equal shares of their weights."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    if len(values) <= SKETCH:
        return values, weights
    middle, total = np.cumsum(weights) - weights / 2, float(weights.sum())
    shares = (np.arange(SKETCH) + 0.5) * (total / SKETCH)
    chosen = np.searchsorted(middle, shares).clip(max=len(values) - 1)
    return values[chosen], np.full(SKETCH, total / SKETCH)


@dataclass(frozen=True)
class Statistics:
    """What the first pass finds: of numbers, of categories, and of labels."""

    left_out: int
    numbers: Moments
    sketches: list[Sketch]
    categories: list[Counter[str]]
    classes: Counter[str]
    domains: Counter[str]

    def merged(self, other: Statistics) -> Statistics:
        """Of the rows of both."""
        pairs = zip(self.sketches, other.sketches, strict=True)
        return Statistics(
            self.left_out + other.left_out,
            self.numbers.merged(other.numbers),
            [sketched(*(np.concatenate(two) for two in zip(a, b, strict=True))) for a, b in pairs],
            [a + b for a, b in zip(self.categories, other.categories, strict=True)],
            self.classes + other.classes,
            self.domains + other.domains,
        )

    def medians(self) -> Array:
        """Median of each numeric column; 0 where there is no value."""
        found = []
        for values, weights in self.sketches:
            half = np.searchsorted(np.cumsum(weights), weights.sum() / 2)
            found.append(values[min(half, len(values) - 1)] if len(values) else 0.0)
        return np.array(found)


@dataclass(frozen=True)
class Reader:
    """How a piece of the table becomes rows."""

    schema: Schema
    columns: list[str]
    dropped: frozenset[str] = frozenset()
    labels: tuple[dict[str, Any], dict[str, Any]] | None = None
    prepare: Any = None

    def rows(self, piece: Piece) -> tuple[Any, Any, Array, int]:
        """Features as :meth:`Schema.prepare` has them, targets, domains as text, rows left out."""
        frame = read_piece(piece, self.columns)
        n, target, domain = len(frame), self.schema.target, self.schema.domain
        frame = frame[frame[target].notna() & frame[domain].notna()]
        domains = as_labels(frame[domain]).astype(str) if len(frame) else np.array([], dtype=str)
        if self.dropped:
            keep = ~np.isin(domains, list(self.dropped))
            frame, domains = frame[keep], domains[keep]
        frame = frame.reset_index(drop=True)
        if self.schema.task == "regression":
            y = as_numbers(frame[target], target)
        else:
            y = as_labels(frame[target]).astype(str) if len(frame) else domains
        return self.schema.prepare(frame), y, domains, n - len(frame)

    def prepared(self, piece: Piece) -> Any:
        """Features as numbers, with ``y`` and ``domain`` beside them."""
        X, y, domains, _ = self.rows(piece)
        assert self.labels is not None
        values = self.prepare.transform(X) if len(X) else np.empty((0, len(self.names)))
        frame = import_pandas().DataFrame(values, columns=self.names)
        if self.schema.task == "classification":
            y = np.array([self.labels[0][text] for text in y])
        return frame.assign(y=y, domain=[self.labels[1][text] for text in domains])

    @property
    def names(self) -> list[str]:
        """Names of prepared features while they are summed."""
        return [f"x{i}" for i in range(len(self.prepare.get_feature_names_out()))]


@task
def statistics_of(reader: Reader, piece: Piece) -> Statistics:
    """First pass over a piece."""
    X, y, domains, left_out = reader.rows(piece)
    numbers = X[reader.schema.numbers].to_numpy(dtype=np.float64)
    columns = [column[~np.isnan(column)] for column in numbers.T]
    classes = Counter(y.tolist()) if reader.schema.task == "classification" else Counter()
    return Statistics(
        left_out,
        Moments.of_rows(numbers, np.zeros(len(X), dtype=np.int64), 1),
        [sketched(column, np.ones(len(column))) for column in columns],
        [Counter(X[name].dropna().tolist()) for name in reader.schema.categorical],
        classes,
        Counter(domains.tolist()),
    )


@task
def merge_statistics(parts: list[Statistics]) -> Statistics:
    """Join the statistics of neighbouring pieces, in their order."""
    first, *others = parts
    for part in others:
        first = first.merged(part)
    return first


def fitted_preprocessor(schema: Schema, found: Statistics) -> Any:
    """The transformer of a table's features, as a fit to all rows would leave it."""
    for name, counts in zip(schema.categorical, found.categories, strict=True):
        if len(counts) > max(MAX_CATEGORIES, counts.total() // 2):
            raise TableError(
                f"column {name!r} has {len(counts)} different texts in {counts.total()} rows: it "
                "names rows instead of describing them; leave it out"
            )
    # One row for each category makes the encoder; what is learnt of numbers is put in its place.
    most = max([1, *(len(counts) for counts in found.categories)])
    columns: dict[str, Any] = dict.fromkeys(schema.numbers, np.arange(float(most)))
    frequent = []
    for name, counts in zip(schema.categorical, found.categories, strict=True):
        names: list[Any] = sorted(counts)
        frequent.append(min(names, key=lambda text: (-counts[text], text), default=np.nan))
        columns[name] = import_pandas().Series((names or [np.nan]) * most, dtype=object)[:most]
    prepare = make_preprocessor(schema)
    prepare.fit(import_pandas().DataFrame(columns, index=range(most)))
    if schema.numbers:
        imputer, scaler = (step for _, step in prepare.named_transformers_["numeric"].steps)
        count, mean, squares = (np.asarray(part)[0] for part in vars(found.numbers).values())
        n, medians = sum(found.domains.values()), found.medians()
        missing = n - count
        imputer.statistics_ = medians
        scaler.mean_ = (count * mean + missing * medians) / n
        away = count * (mean - scaler.mean_) ** 2 + missing * (medians - scaler.mean_) ** 2
        scaler.var_ = (squares + away) / n
        scaler.scale_ = np.where(scaler.var_ > 0, np.sqrt(scaler.var_), 1.0)
        scaler.n_samples_seen_ = np.int64(n)
    if schema.categorical:
        imputer = prepare.named_transformers_["categorical"].steps[0][1]
        imputer.statistics_ = np.array(frequent, dtype=object)
    return prepare


@dataclass(frozen=True)
class LargeTable:
    """A Parquet table of which some rows have been looked at."""

    table: Table  #: the rows that were looked at
    reader: Reader
    pieces: list[Piece]

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        target: str,
        domain: str,
        features: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        drop_domains: Sequence[str] | None = None,
        encoding: str | None = None,
        **options: Any,
    ) -> LargeTable:
        """Look at a table; see :func:`~domainwise.tables.schema.load_table` for the arguments."""
        footers: list[Footer] = read_footers(path)
        names = [*footers[0].content.schema.to_arrow_schema().names, *footers[0].keys]
        told: dict[str, Any] = {"target": target, "domain": domain, "where": str(path)}
        features, drop = split_names(features, names), split_names(drop, names)
        chosen = choose_features(names, features=features, drop=drop, **told)
        columns = [*chosen, target, domain]
        pieces = cut_pieces(footers, columns, max_rows=PARTITION_BYTES // (8 * len(columns)))
        few = np.unique(np.linspace(0, len(pieces) - 1, LOOK_PIECES).astype(int))
        frames = []
        for i in few:
            frame = read_piece(pieces[i], columns)
            rows = np.linspace(0, len(frame) - 1, LOOK_ROWS // len(few)).astype(int)
            frames.append(frame.iloc[np.unique(rows)])
        look = import_pandas().concat(frames, ignore_index=True)
        table = check_table(look, features=chosen, drop_domains=drop_domains, **told, **options)
        used = [*table.schema.features, target, domain]
        dropped = frozenset(split_names(drop_domains, []) or [])
        return cls(table, Reader(table.schema, used, dropped), pieces)

    def fit(self, client: Any, method: str = "auto", **options: Any) -> TableModel:
        """Fit a ridge search on the workers of a client; see ``table_setting`` for the options."""
        if method not in ("auto", METHOD):
            raise TableError(
                f"method {method!r} needs the table in memory, where it does not fit; use "
                f"{METHOD!r}, or fewer rows or columns"
            )
        with client.as_current():
            shared = constant(self.reader, "reader")
            tasks = calls(statistics_of, [(shared, piece) for piece in self.pieces])
            (found,) = run([tree(tasks, merge_statistics)])
            return self._fitted(found, options)

    def _fitted(self, found: Statistics, options: dict[str, Any]) -> TableModel:
        schema, chosen = self.table.schema, find_method(METHOD, len(self.table.y))
        n_rows = sum(found.domains.values())
        setting = replace(table_setting(self.table, **options), n_rows=n_rows)
        labels = _labels(found.classes), _labels(found.domains)
        prepare = fitted_preprocessor(schema, found)
        reader = replace(self.reader, prepare=prepare, labels=labels)
        names = reader.names
        layout = Layout(tuple(names), len(names), np.dtype(np.float64), "y", "domain")
        empty = import_pandas().DataFrame(columns=names, dtype=np.float64)
        unread = [Unread(reader.prepared, piece) for piece in self.pieces]
        files = tuple(piece.source for piece in self.pieces)
        parts = Partitions(layout, empty, unread, None, None, None, files)
        model = chosen.build(setting)
        model.fit_partitions(parts)
        # New rows come as arrays, whose columns have no names.
        del model.feature_names_in_
        search = chosen.make(setting)
        search._keep(model, model.best_params_, model.cv_results_["params"], "domains")
        notes = [
            f"the table does not fit memory: columns were told from {len(self.table.y)} of "
            f"{n_rows} rows"
        ]
        if schema.numbers:
            notes.append("medians of numbers come from a sketch, within 1 % of rank")
        if found.left_out:
            notes.append(f"{found.left_out} rows have no target or domain and are left out")
        told = [note for note in self.table.notes if "rows have no" not in note]
        info = described(
            chosen,
            setting,
            search,
            classes=sorted(labels[0].values()) if found.classes else None,
            domains=sorted((labels[1][text], n) for text, n in found.domains.items()),
            notes=[*told, *notes],
        )
        watch = ShiftWatch().fit(self.table.X, sample_domain=self.table.sample_domain)
        # Ranges of rows that were looked at do; a rare category must not pass for a new one.
        watch.categories_ = [sorted(counts) for counts in found.categories]
        steps = [("watch", watch), ("prepare", prepare), ("model", search)]
        return TableModel(Pipeline(steps), schema, info)


def _labels(texts: Counter[str]) -> dict[str, Any]:
    """Labels by their text: whole numbers if all are, as in a table in memory."""
    names = sorted(texts)
    if not names:
        return {}
    found = as_labels(import_pandas().Series(names))
    return dict(zip(names, found.tolist(), strict=True))
