"""Fit models to tables larger than memory, and apply models, on the workers of a cluster.

A fit makes two passes over a Parquet table: one for column statistics, one for sums over rows.
Column types and the task are inferred from evenly spaced rows. Outputs keep the order of rows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from domainwise.algebra.backends.dask import Layout, Partitions
from domainwise.algebra.gram.dask.graphs import Deferred, calls, constant, run, task, tree
from domainwise.base.arrays import Array, available_memory
from domainwise.distributed import parquet
from domainwise.estimators.ensemble.batches import Moments
from domainwise.held_out.folds import draw_rows
from domainwise.models.registry import find_method
from domainwise.models.table_model import (
    TableModel,
    describe_model,
    make_preprocessor,
    table_setting,
)
from domainwise.tables import schema as schemas
from domainwise.tables.cells import as_labels, text_problem
from domainwise.tables.errors import TableError, import_pandas
from domainwise.tables.files import CHUNK_ROWS, TableWriter, existing_format, index_columns
from domainwise.tables.names import choose_features
from domainwise.tables.shift.watch import ShiftWatch

#: Number of copies of a table that a fit in memory needs, at eight bytes per cell.
N_COPIES = 4
#: Number of rows from which column types are inferred, and number of pieces with these rows.
SAMPLE_ROWS, SAMPLE_PIECES = 40_000, 20
#: Maximum number of rows in a prediction task. A longer row group is read by several tasks.
TASK_ROWS = 2 * CHUNK_ROWS
#: Maximum number of sampled rows that are predicted for the calibration.
HELD_OUT_ROWS = 5000
METHOD = "invariantridge"  #: the method that can be fitted to sums over rows


def exceeds_memory(path: str | Path) -> bool:
    """Return whether a table is stored as Parquet and is too large for a fit in memory."""
    if existing_format(path) != "parquet":
        return False
    free_bytes = available_memory()
    n_cells = sum(f.metadata.num_rows * f.metadata.num_columns for f in parquet.read_footers(path))
    return free_bytes is not None and N_COPIES * 8 * n_cells > free_bytes


@dataclass(frozen=True)
class Reader:
    """Reads a piece of the table (one or more row groups), and prepares its rows."""

    schema: schemas.Schema
    columns: list[str]
    drop_domains: frozenset[str] = frozenset()  #: domains to exclude, as text
    classes: tuple[Any, ...] = ()  #: classes in the sample
    labels: tuple[dict[str, Any], dict[str, Any]] = ({}, {})  #: class and domain labels, by text
    preprocessor: Any = None  #: fitted; needed by :meth:`preprocessed_rows`

    @property
    def feature_names(self) -> list[str]:
        """Names of the preprocessed features."""
        return [f"x{i}" for i in range(len(self.preprocessor.get_feature_names_out()))]

    def rows(self, piece: parquet.Piece) -> tuple[Any, Any, Array, int]:
        """Return X, y, domains as text, and the number of rows without a target or domain."""
        frame = parquet.read_piece(piece, self.columns, exact=True)
        try:
            row_arrays: tuple[Any, ...] = self.schema.read_labels(frame, self.classes)
            n_left_out = len(frame) - len(row_arrays[0])
            is_kept = ~np.isin(row_arrays[2], list(self.drop_domains))
            rows, y, domains = (array[is_kept] for array in row_arrays)
            return self.schema.prepare(frame, rows=rows), y, domains, n_left_out
        except TableError as error:
            raise TableError(f"{piece.source}: ", *error.parts) from None

    def preprocessed_rows(self, piece: parquet.Piece) -> Any:
        """Return the preprocessed features, with the columns ``y`` and ``domain``."""
        X, y, domains, _ = self.rows(piece)
        Z = self.preprocessor.transform(X) if len(X) else np.empty((0, len(self.feature_names)))
        frame = import_pandas().DataFrame(Z, columns=self.feature_names)
        if self.schema.task == "classification":
            y = np.array([self.labels[0][text] for text in y])
        return frame.assign(y=y, domain=[self.labels[1][text] for text in domains])


# Statistics of a table in chunks, which can be merged.


@dataclass(frozen=True)
class Statistics:
    """Statistics of a table chunk: numbers, categories, classes and domains."""

    n_left_out: int  #: number of rows without a target or domain
    numbers: Moments
    categories: list[Counter[str]]
    classes: Counter[str]
    domains: Counter[str]

    def merged(self, other: Statistics) -> Statistics:
        """Return the statistics of all rows in both chunks."""
        return Statistics(
            self.n_left_out + other.n_left_out,
            self.numbers.merged(other.numbers),
            [a + b for a, b in zip(self.categories, other.categories, strict=True)],
            self.classes + other.classes,
            self.domains + other.domains,
        )

    def preprocessor(self, schema: schemas.Schema, sample: Any) -> Any:
        """Return the preprocessor for these rows, equal to one fitted to all of them.

        Missing numbers are replaced by the medians of a sample of the rows.

        scikit-learn cannot create a fitted transformer from known statistics, and transform needs
        private attributes that only fit sets. So the preprocessor is fitted to made-up rows with
        all categories, and public attributes of the imputers and the scaler are set afterwards.
        """
        made_up_cells, modes = [], []
        for column, counts in zip(schema.categorical, self.categories, strict=True):
            if problem := text_problem(counts):
                raise TableError(f"column {column!r} ", *problem, ". Drop it")
            modes.append(min(((-n, name) for name, n in counts.items()), default=(0, np.nan))[1])
            imputed_counts = counts + Counter({modes[-1]: self.domains.total() - counts.total()})
            ranked_counts = sorted(((n, name) for name, n in imputed_counts.items()), reverse=True)
            # The categories that are not pooled occur more often than the others.
            frequent_names = [name for n, name in ranked_counts if n >= schemas.MIN_LEVEL_ROWS]
            cells: list[Any] = frequent_names[: schemas.MAX_LEVELS - 1]
            for count, name in ranked_counts:
                cells = cells + [name] * min(count, schemas.MIN_LEVEL_ROWS)
            made_up_cells.append(cells)
        n = max([1, *map(len, made_up_cells)])
        columns: dict[str, Any] = dict.fromkeys(schema.numbers, np.arange(float(n)))
        for name, cells in zip(schema.categorical, made_up_cells, strict=True):
            padded_cells = [*cells, *cells[:1] * (n - len(cells))]
            columns[name] = import_pandas().Series(padded_cells, dtype=object)
        made_up_rows = import_pandas().DataFrame(columns, index=range(n))
        preprocessor = make_preprocessor(schema).fit(made_up_rows)
        steps = preprocessor.named_transformers_
        if schema.numbers:
            imputer, scaler = steps["numeric"][0], steps["numeric"][1]
            p, n_rows = len(schema.numbers), self.domains.total()
            medians = sample[list(schema.numbers)].median().fillna(0.0).to_numpy(dtype=np.float64)
            n_values, means, squares = (np.asarray(m)[0, :p] for m in vars(self.numbers).values())
            n_missing = n_rows - n_values
            all_means = (n_values * means + n_missing * medians) / n_rows  # after imputation
            squares = squares + n_values * (means - all_means) ** 2
            squares += n_missing * (medians - all_means) ** 2
            imputer.statistics_ = medians
            scaler.mean_, scaler.var_ = all_means, squares / n_rows
            scaler.scale_ = np.where(scaler.var_ > 0, np.sqrt(scaler.var_), 1.0)
            scaler.n_samples_seen_ = np.int64(n_rows)
        if schema.categorical:
            steps["categorical"][0].statistics_ = np.array(modes, dtype=object)
        return preprocessor


def labels_by_text(texts: Iterable[str]) -> dict[str, Any]:
    """Map labels that were read as text to integers if all are whole numbers, otherwise to text."""
    names = np.array(sorted(texts), dtype=object)
    return dict(zip(names.tolist(), as_labels(names).tolist(), strict=True))


@task
def statistics_of(reader: Reader, piece: parquet.Piece) -> Statistics:
    """Compute the statistics of a piece, in the first pass."""
    X, y, domains, n_left_out = reader.rows(piece)
    numeric_values = X[reader.schema.numbers].to_numpy(dtype=np.float64)
    class_counts = Counter(y.tolist()) if reader.schema.task == "classification" else Counter()
    return Statistics(
        n_left_out,
        Moments.of_rows(numeric_values, np.zeros(len(X), dtype=np.int64), 1),
        [Counter(X[name].dropna().tolist()) for name in reader.schema.categorical],
        class_counts,
        Counter(domains.tolist()),
    )


@task
def merge_statistics(statistics: list[Statistics]) -> Statistics:
    """Merge the statistics of consecutive pieces."""
    return reduce(Statistics.merged, statistics)


@dataclass(frozen=True)
class LargeTable:
    """A Parquet table, and a sample of its rows."""

    table: schemas.Table  #: the sample
    reader: Reader
    pieces: list[parquet.Piece]

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
        """Read a sample; see :func:`~domainwise.tables.schema.load_table` for the arguments."""
        footers: list[parquet.Footer] = parquet.read_footers(path)
        schema, folder_columns = footers[0].schema, [*footers[0].folder_columns]
        column_names = [n for n in schema.names if n not in index_columns(schema)] + folder_columns
        roles: dict[str, Any] = {"target": target, "domain": domain}
        feature_names, _ = choose_features(column_names, roles, features, drop, where=str(path))
        columns = [*feature_names, target, domain]
        pieces = parquet.cut_pieces(footers, columns)
        piece_indices = np.unique(np.linspace(0, len(pieces) - 1, SAMPLE_PIECES).astype(int))
        frames = []
        for i in piece_indices:
            frame = parquet.read_piece(pieces[i], columns, exact=True)
            positions = np.linspace(0, len(frame) - 1, SAMPLE_ROWS // len(piece_indices))
            frames.append(frame.iloc[np.unique(positions.astype(int))])
        sample = import_pandas().concat(frames, ignore_index=True)
        table = schemas.check_table(
            sample,
            features=feature_names,
            drop_domains=drop_domains,
            where=str(path),
            **roles,
            **options,
        )
        columns = [*table.schema.features, target, domain]
        excluded_domains = frozenset(table.dropped_domains)
        reader = Reader(table.schema, columns, excluded_domains, tuple(table.classes or ()))
        return cls(table, reader, pieces)

    def fit(self, client: Any, method: str = "auto", **options: Any) -> TableModel:
        """Fit InvariantRidge on the workers of a client; see ``table_setting`` for the options."""
        if method not in ("auto", METHOD):
            raise TableError(
                f"method {method!r} needs the table in memory, but the table is too large. Use "
                f"method {METHOD!r}, or a table with fewer rows or columns"
            )
        with client.as_current():
            reader_task = constant(self.reader, "reader")
            tasks = calls(statistics_of, [(reader_task, piece) for piece in self.pieces])
            (statistics,) = run([tree(tasks, merge_statistics)])
            return self._run_second_pass(statistics, options)

    def _run_second_pass(self, statistics: Statistics, options: dict[str, Any]) -> TableModel:
        """Preprocess rows with the statistics from the first pass, and fit the model to them."""
        schema, method = self.table.schema, find_method(METHOD, len(self.table.y))
        n_rows = sum(statistics.domains.values())
        setting = replace(table_setting(self.table, **options), n_rows=n_rows)
        labels = labels_by_text(statistics.classes), labels_by_text(statistics.domains)
        class_labels, domain_labels = labels
        preprocessor = statistics.preprocessor(schema, self.table.X)
        reader = replace(self.reader, preprocessor=preprocessor, labels=labels)
        features, sources = reader.feature_names, tuple(piece.source for piece in self.pieces)
        layout = Layout(tuple(features), len(features), np.dtype(np.float64), "y", "domain")
        empty_frame = import_pandas().DataFrame(columns=features, dtype=np.float64)
        deferred_pieces = [Deferred(reader.preprocessed_rows, piece) for piece in self.pieces]
        partitions = Partitions(layout, empty_frame, deferred_pieces, None, None, None, sources)
        search = method.make(setting)
        model = clone(search.estimator).fit_partitions(partitions)
        # New rows will be passed as arrays, whose columns have no names.
        del model.feature_names_in_
        self._hold_out(model, reader, n_rows)
        search.set_fitted(model, model.best_params_, model.cv_results_["params"])
        notes = [
            f"the table does not fit in memory, so column types were inferred from "
            f"{len(self.table.y)} of {n_rows} rows"
        ]
        if schema.numbers:
            sample_text = f"{len(self.table.y)} sampled rows"
            notes.append(f"missing numbers are replaced by the medians of {sample_text}")
        if class_labels and model.curve_ is None:
            notes.append("there are no probabilities, because a class is not in the sampled rows")
        if statistics.n_left_out:
            notes.append(f"{statistics.n_left_out} rows have no target or domain and are left out")
        sample_notes = [note for note in self.table.notes if "rows have no" not in note]
        info = describe_model(
            method,
            setting,
            search,
            classes=sorted(class_labels.values()) if statistics.classes else None,
            domains=sorted((domain_labels[text], n) for text, n in statistics.domains.items()),
            notes=[*sample_notes, *notes],
        )
        watch = ShiftWatch().fit(self.table.X, sample_domain=self.table.sample_domain)
        # Ranges come from the sample, but categories from all rows, because a sample can miss some.
        watch.categories_ = [sorted(counts) for counts in statistics.categories]
        steps = [("watch", watch), ("prepare", preprocessor), ("model", search)]
        return TableModel(Pipeline(steps), schema, info)

    def _hold_out(self, model: Any, reader: Reader, n_rows: int) -> None:
        """Predict sampled rows of held-out domains, by which probabilities are calibrated."""
        table, classes = self.table, reader.labels[0]
        domain_codes = np.unique(table.sample_domain, return_inverse=True)[1]
        drawn = draw_rows(domain_codes, max(HELD_OUT_ROWS, 2 * len(table.domains)), 0)
        y = table.y[drawn]
        if classes:
            y = np.array([classes[str(label)] for label in y])
        if not classes or len(np.unique(y)) == len(classes):
            Z = reader.preprocessor.transform(table.X.iloc[drawn])
            model.hold_out(Z, y, domain_codes[drawn], len(drawn) / n_rows)


def apply_on_workers(client: Any, application: Any, folder: Path | None = None) -> Iterator[Any]:
    """Apply a model on the workers of a client, and yield the task results in order.

    With a ``folder``, which client and workers must share, each task writes a Parquet file to it,
    and the results contain no rows.
    """
    application_future = client.compute(constant(application, "model"))
    max_tasks = 2 * max(1, sum(client.nthreads().values()))  # submitted at a time
    futures: deque[Any] = deque()
    first_future: Any = None
    for task_number, task_args in enumerate(_task_arguments(application)):
        path = folder and folder.absolute() / f"part-{task_number:06d}.parquet"
        submit_args = (application_future, *task_args, path, first_future)
        futures.append(client.submit(_apply, *submit_args, pure=False))
        # All files use the first file's types, because a column without values has no type.
        first_future = first_future or (folder and futures[0])
        if len(futures) > max_tasks:
            yield futures.popleft().result()[0]
    while futures:
        yield futures.popleft().result()[0]


def _task_arguments(application: Any) -> Iterator[tuple[int, Any, slice]]:
    """Yield, for each task, the number of earlier rows, a data frame or piece, and a row slice.

    Workers read the row groups of Parquet files; rows of other files are sent to them.
    """
    first_row = 0
    if existing_format(application.source) != "parquet":
        for frame in application.frames(CHUNK_ROWS):
            yield first_row, frame, slice(None)
            first_row += len(frame)
        return
    footers = parquet.read_footers(application.source)
    for piece in parquet.cut_pieces(footers, application.columns, TASK_ROWS):
        for start in range(0, piece.n_rows, TASK_ROWS):
            yield first_row + start, piece, slice(start, start + TASK_ROWS)
        first_row += piece.n_rows


@task
def _apply(
    application: Any, first_row: int, source: Any, rows: slice, path: Path | None, first_result: Any
) -> tuple[Any, Any]:
    """Apply a model to rows; with ``path``, write the output with the first task's column types."""
    if isinstance(source, parquet.Piece):
        source = parquet.read_piece(source, application.columns, exact=True)
    chunk_result = application(source.iloc[rows].reset_index(drop=True), first_row)
    if path is None:
        return chunk_result, None
    schema = None if first_result is None else first_result[1]
    with closing(TableWriter(path, "parquet", schema)) as writer:
        writer.write(chunk_result.frame)
    return replace(chunk_result, frame=None), writer.schema
