"""Tables as people have them: which columns are features, and what is wrong with them.

:func:`load_table` reads a file, or :func:`check_table` takes a data frame, and either returns a
:class:`Table` that estimators can use, or raises :class:`TableError` with words about what to do.
:func:`make_preprocessor` belongs at the front of a pipeline, so that imputation, scaling and
one-hot encoding are fitted on source domains only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from domainwise.arrays import Array
from domainwise.tables.columns import (
    as_labels,
    as_numbers,
    as_text,
    describe_names,
    is_numeric,
    refuse_unusable,
    split_names,
)
from domainwise.tables.files import (
    FORMATS,
    TableError,
    import_pandas,
    iter_table,
    read_table,
    table_columns,
)
from domainwise.tables.labels import (
    check_domains,
    note_domain_names,
    other_domains,
    refuse_constant,
    target_values,
    task_of,
    with_labels,
)

__all__ = [
    "FORMATS",
    "Schema",
    "Table",
    "TableError",
    "check_table",
    "choose_features",
    "iter_table",
    "load_table",
    "make_preprocessor",
    "read_table",
    "require_columns",
    "split_names",
    "table_columns",
]


TASKS = ("auto", "classification", "regression")


@dataclass(frozen=True)
class Schema:
    """The columns of a table and what each is for.

    Attributes
    ----------
    numeric, categorical : tuple of str
        Feature columns, in the order of the table.
    target, domain : str
        Names of the target and the domain column.
    task : "classification" or "regression"
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    target: str
    domain: str
    task: str

    @property
    def features(self) -> list[str]:
        """All feature columns, numeric ones first."""
        return [*self.numeric, *self.categorical]

    def prepare(self, frame: Any, *, first_row: int = 0) -> Any:
        """Bring the feature columns of a data frame into the form models are fitted on.

        Parameters
        ----------
        frame : pandas.DataFrame
            May have other columns, too.
        first_row : int, default=0
            Rows before this piece of a streamed table, for messages.

        Returns
        -------
        X : pandas.DataFrame
            Numeric columns as float64, categorical ones as text; missing values are NaN.

        Raises
        ------
        TableError
            If a column is missing, or text stands where the model knows numbers.
        """
        require_columns(self.features, list(frame.columns), "the table")
        pandas = import_pandas()
        columns = {name: as_numbers(frame[name], name, first_row) for name in self.numeric}
        columns |= {
            name: pandas.Series(as_text(frame[name]), dtype=object) for name in self.categorical
        }
        return pandas.DataFrame(columns, index=range(len(frame)))

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and strings, to be stored."""
        return {
            "numeric": list(self.numeric),
            "categorical": list(self.categorical),
            "target": self.target,
            "domain": self.domain,
            "task": self.task,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Schema:
        """Undo :meth:`as_dict`."""
        return cls(
            tuple(stored["numeric"]),
            tuple(stored["categorical"]),
            stored["target"],
            stored["domain"],
            stored["task"],
        )


@dataclass(frozen=True)
class Table:
    """A table that passed all checks.

    Attributes
    ----------
    X : pandas.DataFrame
        Feature columns, see :meth:`Schema.prepare`.
    y : ndarray of shape (n_rows,)
        Classes or continuous targets.
    sample_domain : ndarray of shape (n_rows,)
        Domain of each row: integers, or text.
    schema : Schema
    notes : tuple of str
        What a user should know: rows that were left out, and the like.
    """

    X: Any
    y: Array
    sample_domain: Array
    schema: Schema
    notes: tuple[str, ...] = ()

    @property
    def domains(self) -> list[Any]:
        """The domains, sorted."""
        return np.unique(self.sample_domain).tolist()

    @property
    def classes(self) -> list[Any] | None:
        """The classes, sorted; None for a continuous target."""
        return np.unique(self.y).tolist() if self.schema.task == "classification" else None


def load_table(
    path: str | Path,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    drop_domains: Sequence[str] | None = None,
    task: str = "auto",
) -> Table:
    """Read a file and check it; see :func:`check_table` for the arguments."""
    names = table_columns(path)
    chosen = choose_features(
        names, target=target, domain=domain, features=features, drop=drop, where=str(path)
    )
    columns = [*chosen, target, domain]
    frame = read_table(path, columns, labels=[domain], categories=chosen)
    return check_table(
        frame,
        target=target,
        domain=domain,
        features=chosen,
        drop_domains=drop_domains,
        task=task,
        where=str(path),
    )


def check_table(
    frame: Any,
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    drop_domains: Sequence[str] | None = None,
    task: str = "auto",
    where: str = "the table",
) -> Table:
    """Split a data frame into features, target and domains, and refuse what cannot be learnt from.

    Parameters
    ----------
    frame : pandas.DataFrame
    target, domain : str
        Names of the target and the domain column.
    features : sequence of str, default=None
        Feature columns; None takes all others.
    drop : sequence of str, default=None
        Columns to leave out.
    drop_domains : sequence of str, default=None
        Domains whose rows are left out; commas may stand between them.
    task : {"auto", "classification", "regression"}, default="auto"
        "auto" takes text and whole numbers with at most 20 values for classes.
    where : str
        Name of the table in messages.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        With words about what to do.
    """
    if task not in TASKS:
        raise TableError(f"task={task!r}: use one of {', '.join(TASKS)}")
    chosen = choose_features(
        [str(name) for name in frame.columns],
        target=target,
        domain=domain,
        features=features,
        drop=drop,
        where=where,
    )
    notes: list[str] = []
    frame = with_labels(frame, target, domain, notes)
    domains = as_labels(frame[domain])
    if drop_domains:
        keep = other_domains(domains, drop_domains, where)
        frame, domains = frame[keep], domains[keep]
    if not len(frame):
        raise TableError(f"{where}: no row has both a target and a domain")
    task = task_of(frame[target], task)
    y = target_values(frame[target], task)
    check_domains(domains, y, task, domain)
    for name in chosen:
        refuse_unusable(frame[name], name)
    refuse_constant(frame, chosen)
    numeric = tuple(name for name in chosen if is_numeric(frame[name]))
    categorical = tuple(name for name in chosen if name not in numeric)
    notes += note_domain_names(frame, categorical, domains)
    schema = Schema(numeric, categorical, target, domain, task)
    return Table(schema.prepare(frame), y, domains, schema, tuple(notes))


def choose_features(
    names: Sequence[str],
    *,
    target: str,
    domain: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    where: str = "the table",
) -> list[str]:
    """Return the feature columns: those given, or all but target and domain, less those dropped.

    >>> choose_features(["age", "site", "ill"], target="ill", domain="site")
    ['age']
    """
    double = {name for name in names if list(names).count(name) > 1}
    if double:
        raise TableError(f"{where} has more than one column named {describe_names(double)}")
    require_columns([target, domain, *(features or []), *(drop or [])], names, where)
    if target == domain:
        raise TableError(f"target and domain are the same column, {target!r}")
    both = {target, domain} & set(features or [])
    if both:
        raise TableError(f"{describe_names(both)} cannot be a feature: it is the target or domain")
    chosen = [
        name
        for name in (names if features is None else dict.fromkeys(features))
        if name not in (target, domain) and name not in (drop or ())
    ]
    if not chosen:
        raise TableError(f"{where} has no feature column left")
    return chosen


def require_columns(
    wanted: Iterable[str], names: Sequence[str], where: str, *, why: str = ""
) -> None:
    """Refuse columns that do not exist, and suggest what may have been meant."""
    missing = [name for name in dict.fromkeys(wanted) if name not in names]
    if not missing:
        return
    first = missing[0]
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(first.lower(), list(by_lower), n=1)
    hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"it has {describe_names(names)}"
    also = f" (nor {describe_names(missing[1:])})" if missing[1:] else ""
    raise TableError(f"{where} has no column {first!r}{also}{why}; {hint}")


def make_preprocessor(schema: Schema) -> ColumnTransformer:
    """Return the transformer of a table's features into numbers, not fitted.

    Numeric columns: median for missing values, then unit variance. Categorical columns: the most
    frequent value for missing ones, then one column per category; a category that was not there
    in fit is none of them.

    Parameters
    ----------
    schema : Schema

    Returns
    -------
    transformer : ColumnTransformer
    """
    numeric = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    categorical = make_pipeline(
        SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    parts = [
        ("numeric", numeric, list(schema.numeric)),
        ("categorical", categorical, list(schema.categorical)),
    ]
    return ColumnTransformer([part for part in parts if part[2]], verbose_feature_names_out=False)
