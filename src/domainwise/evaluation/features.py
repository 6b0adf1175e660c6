"""Features as users have them, arrays or data frames, and what turns them into numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.checks.inputs import LARGEST_NUMBER, too_large
from domainwise.tables.columns import is_numeric, refuse_unusable
from domainwise.tables.errors import import_pandas
from domainwise.tables.schema import Schema, make_preprocessor


def prepare_features(X: Any) -> tuple[Any, Any]:
    """Return X in a form that rows can be taken from, and a preprocessor for it, not fitted.

    Missing numbers become the median of the sources, numbers are standardised, categories become
    one column each; see :func:`domainwise.tables.schema.make_preprocessor`.
    """
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
    for name in names:
        refuse_unusable(X[name], name)
    numeric = tuple(name for name in names if is_numeric(X[name]))
    categorical = tuple(name for name in names if name not in numeric)
    schema = Schema(numeric, categorical, "", "", "")
    return schema.prepare(X), make_preprocessor(schema)


def _numbers(X: Any) -> tuple[Any, Any]:
    X = X.astype(np.float64, copy=False)
    if np.isinf(X).any():
        raise ValueError("X contains infinity; use NaN for what is missing")
    if too_large(X):
        raise ValueError(f"X holds values beyond {LARGEST_NUMBER:.0e}: scale it")
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    return X, make_pipeline(imputer, StandardScaler())
