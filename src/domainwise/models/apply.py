"""Apply a model to files of any size in chunks, locally or on the workers of a cluster.

A chunk may contain only some rows of a domain. To predict rows in the context of all rows of their
domain, a first pass computes statistics of the domains, and a second pass predicts with a copy of
the model that uses these statistics.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context

from domainwise.base.arrays import Array
from domainwise.base.files import replacing_folder
from domainwise.base.process import filtered_warnings
from domainwise.estimators.ensemble.batches import Moments, random_numbers, row_keys
from domainwise.estimators.ensemble.context import DomainContext, DomainStatistics
from domainwise.models.table_model import TableModel
from domainwise.tables.errors import Argument, TableError, import_pandas
from domainwise.tables.files import CHUNK_ROWS, open_table, writing_table
from domainwise.tables.names import require_columns, split_names
from domainwise.tables.shift.check import Finding, find_shifts, find_watch
from domainwise.tables.shift.watch import ShiftStatistics, merge_statistics

#: Maximum number of rows in the random sample of a domain. An ensemble divides the sample into
#: batches, and uses it to decide whether context is safe for this domain.
DOMAIN_SAMPLE_ROWS = 4000
#: Maximum number of sampled rows in all domains together.
SAMPLE_ROWS = 200_000


@dataclass(frozen=True)
class DomainSummary:
    """Moments of a domain's rows, and a random sample: the rows with the smallest ``draws``."""

    n_rows: int
    moments: Moments
    draws: Array  #: random numbers of the sampled rows, sorted
    rows: Array  #: sampled rows


Summaries = dict[Any, DomainSummary]  #: summaries by domain


def find_context(model: Any) -> tuple[Any, list[Any]]:
    """Return the estimator in a model that uses context, and the steps before it."""
    matches = list(_context_estimators(model, []))
    if not matches:
        raise ValueError(
            "this model predicts rows one by one: its method has no context, or context did not "
            "improve its scores on held-out domains. Predict without context"
        )
    if len(matches) > 1:
        raise ValueError(
            "several estimators in this model use context. Fit a pipeline with a single "
            "DomainContext"
        )
    return matches[0]


def _context_estimators(model: Any, earlier_steps: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield all estimators that use context, with the steps before them."""
    if isinstance(model, DomainContext) or getattr(model, "uses_context", False):
        yield model, earlier_steps
    if hasattr(model, "estimator_"):
        yield from _context_estimators(model.estimator_, earlier_steps)
    for _, step in getattr(model, "steps", ()):
        yield from _context_estimators(step, earlier_steps)
        earlier_steps = [*earlier_steps, step]


def summarize_domains(model: Any, X: Any, domains: Array) -> Summaries:
    """Summarize the rows of each domain; ``X`` is a data frame that the model accepts."""
    estimator, earlier_steps = find_context(model)
    for step in earlier_steps:
        X = step.transform(X)
    X = np.asarray(X, dtype=np.float64)
    moments_by_domain = getattr(estimator, "domain_context_", estimator).domain_moments(X, domains)
    summaries = {}
    for domain, domain_moments in moments_by_domain.items():
        rows = X[domains == domain]
        n_rows = len(rows)
        if isinstance(estimator, DomainContext):
            rows = rows[:0]  # moments are sufficient
        draws = random_numbers(row_keys(rows, 0))
        order = np.argsort(draws, kind="stable")[:DOMAIN_SAMPLE_ROWS]
        summaries[domain] = DomainSummary(n_rows, domain_moments, draws[order], rows[order])
    return summaries


def merge_summaries(a: Summaries, b: Summaries) -> Summaries:
    """Merge the summaries of two chunks of a table."""
    merged_summaries = a | b
    for name in a.keys() & b.keys():
        first, second = a[name], b[name]
        draws = np.concatenate([first.draws, second.draws])
        order = np.argsort(draws, kind="stable")
        rows = np.concatenate([first.rows, second.rows])[order]
        moments, n_rows = first.moments.merged(second.moments), first.n_rows + second.n_rows
        merged_summaries[name] = DomainSummary(n_rows, moments, draws[order], rows)
    max_rows = min(DOMAIN_SAMPLE_ROWS, SAMPLE_ROWS // max(1, len(merged_summaries)))
    return {
        name: replace(summary, draws=summary.draws[:max_rows], rows=summary.rows[:max_rows].copy())
        for name, summary in merged_summaries.items()
    }


def with_summaries(model: Any, summaries: Summaries) -> Any:
    """Return a copy of a model that uses these domain summaries instead of the rows of X.

    The copy shares the model's fitted attributes. The model itself is not changed.
    """
    estimator, _ = find_context(model)
    statistics = DomainStatistics({name: summary.moments for name, summary in summaries.items()})
    if not isinstance(estimator, DomainContext) and summaries:
        batches = {n: estimator.batch_of(s.rows, s.n_rows, s.moments) for n, s in summaries.items()}
        statistics = replace(statistics, batches=batches)
        rows = np.concatenate([summary.rows for summary in summaries.values()])
        row_domains = np.repeat(list(summaries), [len(s.rows) for s in summaries.values()])
        batch_estimator = estimator.with_statistics(statistics)
        excluded_domains = batch_estimator.domains_without_context(rows, row_domains)
        statistics = replace(statistics, without_context=frozenset(excluded_domains))
    return _substitute(model, estimator, estimator.with_statistics(statistics))


def _substitute(model: Any, old: Any, new: Any) -> Any:
    """Return a copy of a model in which the estimator ``old`` is replaced by ``new``."""
    if model is old:
        return new
    model_copy = copy(model)
    if hasattr(model, "steps"):
        model_copy.steps = [(name, _substitute(step, old, new)) for name, step in model.steps]
    if "estimator_" in vars(model):
        model_copy.estimator_ = _substitute(model.estimator_, old, new)
    return model_copy


@dataclass(frozen=True)
class ApplyResult:
    """The result of applying a model to a chunk of a table, or to the whole table."""

    columns: list[str] = field(default_factory=list)  #: names of the output columns
    n_rows: int = 0
    statistics: dict[Any, ShiftStatistics] = field(default_factory=dict)  #: by domain, for shift
    notes: list[str] = field(default_factory=list)  #: warning messages
    frame: Any = None  #: output rows; None if a worker has written them, or in a first pass
    summaries: Summaries = field(default_factory=dict)  #: by domain, for context
    findings: list[Finding] = field(default_factory=list)  #: shift found in the whole table


@dataclass(frozen=True)
class Application:
    """Predicts or projects the rows of a chunk; it can be pickled, so that workers can call it."""

    model: TableModel
    source: str  #: path of the table
    kept_columns: list[str]  #: columns of the source that are copied to the output
    project: bool  #: whether to project rows instead of predicting
    encoding: str | None = None  #: of a CSV file; None detects it
    check_shift: bool = True
    first_pass: bool = False  #: whether to compute statistics only
    #: Context of a row: "column" (rows of its domain), "one" (all rows), or None (no context).
    context: str | None = None
    coverage: float | None = None

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        return list(dict.fromkeys([*self.model.schema.features, *self.kept_columns]))

    def frames(self, chunk_rows: int) -> Iterator[Any]:
        """Read the table in chunks of ``chunk_rows`` rows."""
        options: dict[str, Any] = {"encoding": self.encoding, "chunk_rows": chunk_rows}
        return self.model.read(self.source, self.columns, **options)

    @config_context(transform_output="default")
    def __call__(self, frame: Any, first_row: int) -> ApplyResult:
        """Predict or project a chunk, which begins after ``first_row`` rows of the table."""
        model, domain_column = self.model, self.model.schema.domain
        X = model.schema.prepare(frame, first_row=first_row)
        domains: Any = model.schema.read_domains(frame)
        if domains is not None:  # "" if the domain of a row is missing
            domains = np.array(["" if name is None else name for name in domains])
        watch, _ = find_watch(model.pipeline) if self.check_shift else (None, None)
        statistics = {} if watch is None else watch.summarize(X, domains)
        if self.context != "column":
            domains = None if self.context is None else np.full(len(frame), "all")
        elif (domains == "").any():
            raise TableError(
                f"{self.source} has rows without a domain in column {domain_column!r}, but context "
                "needs the domain of every row. Fill in the missing domains, or remove these rows"
            )
        if self.first_pass:
            summaries = {} if domains is None else summarize_domains(model.pipeline, X, domains)
            return ApplyResult(n_rows=len(frame), statistics=statistics, summaries=summaries)
        with filtered_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always", UserWarning)
            if self.project:
                output = model.projection(X)
            else:
                output = model.predictions(X, domains, self.coverage)
        if duplicate_names := sorted({*self.kept_columns} & {*output.columns}):
            raise TableError(
                f"column {duplicate_names[0]!r} of {self.source} has the same name as an output "
                "column. Rename it, or do not keep it"
            )
        kept_frame = frame[self.kept_columns].reset_index(drop=True)
        output = import_pandas().concat([kept_frame, output], axis=1)
        notes = [str(w.message) for w in caught_warnings if issubclass(w.category, UserWarning)]
        return ApplyResult([*map(str, output.columns)], len(output), statistics, notes, output)


class ShiftError(TableError):
    """Raised with ``strict`` if new rows differ from the source domains; see ``findings``."""

    def __init__(self, source: str | Path, findings: list[Finding]) -> None:
        reason = f"{source} differs from the source domains of the model, so nothing was written"
        super().__init__(f"{reason}. Check the findings, or omit ", Argument("strict", True))
        self.findings = findings


def apply_to_file(
    model: TableModel,
    source: str | Path,
    destination: str | Path,
    *,
    project: bool = False,
    keep: Sequence[str] = (),
    chunk_rows: int = CHUNK_ROWS,
    progress: Callable[[int], None] | None = None,
    client: Any = None,
    strict: bool = False,
    context: str | None = None,
    coverage: float | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na: Sequence[str] = (),
) -> ApplyResult:
    """Predict or project all rows of a file in chunks.

    With a ``client``, its workers apply the model; a destination without a file extension is then a
    folder of Parquet files. Otherwise the output is one file, which replaces an older file when it
    is complete. The columns in ``keep`` (an entry may contain several names, separated by commas)
    and the domain column are copied as they are written. With ``strict`` or
    ``context``, the source is read twice. ``strict`` first checks for shift, and raises ShiftError
    if there is any. The context is "column" (rows of the same domain) or "one" (all rows).
    ``progress`` is called with the number of finished rows. ``decimal`` is the
    decimal mark of numbers in text, ``encoding`` the encoding of a CSV file, and ``na`` lists
    further values that count as missing; by default, they are those of the training table.
    """
    columns, model = open_table(source, encoding=encoding).names, model.with_options(decimal, na)
    keep = split_names(keep, columns) or ()
    require_columns(keep, columns, str(source))
    domain_column = model.schema.domain
    kept_columns = [name for name in dict.fromkeys([*keep, domain_column]) if name in columns]
    application = Application(
        model, str(source), kept_columns, project, encoding=encoding, coverage=coverage
    )
    if context is not None:
        if context not in ("column", "one") or project:
            raise ValueError(
                f"context={context!r} is not supported with project={project}. Use 'column' or "
                "'one' to predict, and None to project"
            )
        if context == "column":
            require_columns([domain_column], columns, str(source), reason=", which context needs")
        find_context(model.pipeline)
        application = replace(application, context=context)
    apply = partial(_apply, chunk_rows=chunk_rows, client=client, progress=progress)
    if strict or context is not None:
        first_pass_result = apply(replace(application, first_pass=True, check_shift=strict))
        if first_pass_result.findings:
            raise ShiftError(source, first_pass_result.findings)
        application = replace(application, check_shift=not strict)
        if context is not None:
            pipeline = with_summaries(model.pipeline, first_pass_result.summaries)
            application = replace(application, model=replace(model, pipeline=pipeline))
    if client is not None and not Path(destination).suffix:
        with replacing_folder(destination) as folder:
            return apply(application, folder=folder)
    with writing_table(destination) as writer:
        return apply(application, write=writer.write)


def _apply(
    application: Application,
    *,
    chunk_rows: int,
    client: Any,
    progress: Callable[[int], None] | None,
    folder: Path | None = None,
    write: Callable[[Any], None] | None = None,
) -> ApplyResult:
    """Apply a model to all chunks, write their outputs, and merge their statistics."""
    table_result = ApplyResult()
    # When a chunk is read, ``table_result.n_rows`` is the number of rows before it.
    frames = application.frames(chunk_rows)
    chunk_results: Iterator[Any] = (application(frame, table_result.n_rows) for frame in frames)
    if client is not None:
        from domainwise.models.large_table import apply_on_workers

        chunk_results = apply_on_workers(client, application, folder)
    for chunk_result in chunk_results:
        if write is not None:
            write(chunk_result.frame)
        table_result = ApplyResult(
            chunk_result.columns,
            table_result.n_rows + chunk_result.n_rows,
            merge_statistics([table_result.statistics, chunk_result.statistics]),
            list(dict.fromkeys(table_result.notes + chunk_result.notes)),
            summaries=merge_summaries(table_result.summaries, chunk_result.summaries),
        )
        if progress is not None:
            progress(table_result.n_rows)
    watch, _ = find_watch(application.model.pipeline)
    findings = [] if watch is None else find_shifts(watch, table_result.statistics)
    return replace(table_result, findings=findings)
