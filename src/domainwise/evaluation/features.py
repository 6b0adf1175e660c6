"""Features as users have them, arrays or data frames, and what turns them into numbers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.checks.inputs import plain_array, refuse_no_rows, refuse_too_large
from domainwise.tables.cells import decimal_marks
from domainwise.tables.columns import is_numeric
from domainwise.tables.csv_text import holds_row_numbers
from domainwise.tables.errors import ColumnError, TableError, import_pandas
from domainwise.tables.features import ReadColumns, feature_schema, make_preprocessor
from domainwise.tables.labels import refuse_quantities, target_column, target_values, task_of


def prepare_features(X: Any, notes: list[str]) -> tuple[Any, Any, ReadColumns | None]:
    """Return X in a form that rows can be taken from, a preprocessor for it, and its reader.

    Columns of a data frame are read as those of a file, and ``notes`` takes what is left out and
    how cells were read; the reader, None where there is nothing to do, does it to new rows.
    Missing numbers become the median of the sources, numbers are standardised, categories become
    one column each; see :func:`domainwise.tables.features.make_preprocessor`.
    """
    refuse_no_rows(X)
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    if issparse(X):
        raise TypeError("X is sparse: turn it into an array with X.toarray()")
    if not hasattr(X, "columns"):
        X = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must have rows and columns, got shape {X.shape}")
    if isinstance(X, np.ndarray):
        if X.dtype.kind in "biuf":
            return _numbers(X)
        X = import_pandas().DataFrame(X)
    X = X.infer_objects().set_axis([str(name) for name in X.columns], axis=1)
    names = list(X.columns)
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise ValueError(f"X has more than one column named {', '.join(double)}")
    numbered = [name for name in names if holds_row_numbers(name)]
    if numbered:
        notes.append("the first column has no name: taken for row numbers, and left out")
    X = X.drop(columns=numbered).reset_index(drop=True)
    marks = decimal_marks(X, list(X.columns))
    try:
        schema, frame = feature_schema(X, marks, dates=(), auto_drop=False, notes=notes)
    except ColumnError as error:
        raise TableError(
            *error.parts,
            ". These are arguments for files: of a data frame, turn the columns into numbers "
            f"first, or use X.drop(columns={list(error.problems)!r})",
        ) from None
    if not schema.features:
        raise ValueError(f"X has no column left to learn from: {'; '.join(notes)}")
    plain = len(schema.features) == len(names) and all(is_numeric(X[n]) for n in schema.numeric)
    reader = None if plain else ReadColumns(schema.as_dict())
    return schema.prepare(frame), make_preprocessor(schema), reader


def read_target(y: Any, task: str, notes: list[str]) -> Any:
    """Return quantities that are written as text as numbers, read as in a file; else y as it is."""
    labels = plain_array(y, "y")
    text = labels.ndim == 1 and all(isinstance(label, str) for label in labels)
    if not text or find_spec("pandas") is None:
        return y
    column = import_pandas().Series(labels.tolist(), dtype=object, name="y")
    read = target_column(column, decimal_marks({"y": column}, ["y"]).get("y"))
    if task_of(read, task) == "regression":
        notes.append("the target is text, and was read as numbers")
        return target_values(read, "regression", notes)
    refuse_quantities(read)
    return y


def _numbers(X: Any) -> tuple[Any, Any, None]:
    X = X.astype(np.float64, copy=False)
    if np.isinf(X).any():
        raise ValueError("X contains infinity; use NaN for what is missing")
    refuse_too_large(X, "X")
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    return X, make_pipeline(imputer, StandardScaler()), None
