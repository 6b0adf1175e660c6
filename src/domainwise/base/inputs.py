"""Checks of X, y and sample_domain, and warnings about domains and class shares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _num_samples, column_or_1d, has_fit_parameter, validate_data

from domainwise.base.arrays import Array, is_dask, is_tensor, to_host
from domainwise.base.messages import NoDomainsWarning, listed, quoted, warn_caller
from domainwise.base.process import filtered_warnings

#: Sums of squares of larger numbers may overflow.
LARGEST_NUMBER = 1e150
#: Integers up to this one have an exact float64 representation.
MAX_EXACT_INTEGER = 2.0**53
#: Functions that select and count the rows of any array or data frame.
take_rows, count_rows = _safe_indexing, _num_samples
#: Integers with more distinct values than this are treated as quantities, not as classes.
MAX_CLASSES = 20


@dataclass(frozen=True)
class Labels:
    """Checked targets or domains: categories (codes, names) or continuous values."""

    #: ``codes`` and ``names`` are None for continuous values, ``values`` is None for categories.
    codes: Any = None
    names: Any = None
    values: Any = None

    @property
    def n_categories(self) -> int:
        """Number of distinct categories; 0 for continuous values."""
        return 0 if self.names is None else len(self.names)

    def take(self, rows: Array) -> Labels:
        """Return the labels of some rows; ``names`` still contains all categories."""
        codes = None if self.codes is None else self.codes[rows]
        return Labels(codes, self.names, None if self.values is None else self.values[rows])


def check_target(
    y: Any, n_samples: int, kernel: str | Callable[..., Array], *, min_classes: int = 2
) -> Labels:
    """Check y and decide whether it contains classes or continuous values.

    ``kernel="auto"`` follows :func:`sklearn.utils.multiclass.type_of_target`: one column of labels
    contains classes; numbers with fractions, or several columns, are continuous values.
    """
    y = _check_label_array(plain_array(y, "y"), "y", n_samples)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if kernel == "auto":
        target_type = type_of_target(as_sortable(y, "y") if y.ndim == 1 else y, input_name="y")
        kernel = "delta" if target_type in ("binary", "multiclass") else "rbf"
    labels = _categories(y, "y", "target") if kernel == "delta" else Labels(values=_floats(y, "y"))
    if labels.names is not None and len(labels.names) < min_classes:
        raise ValueError(
            f"y has only one class ({quoted(labels.names[0])}), but at least 2 classes are "
            "required. Add rows from another class."
        )
    is_constant = labels.values is not None and not np.ptp(labels.values, axis=0).any()
    if is_constant and min_classes > 1:
        raise ValueError(
            f"y is constant (every value is {y[0]}), so there is nothing to learn. Pass a target "
            "that varies or, if the estimator does not require y, omit y."
        )
    return labels


def _check_label_array(labels: Array, name: str, n_samples: int) -> Array:
    """Check the shape of labels, and that they are finite and not complex."""
    if labels.ndim == 0 or len(labels) != n_samples:
        size_text = f"has {_entries(len(labels))}" if labels.ndim else "is a single value"
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {name} {size_text}, but "
            f"X has {n_samples} rows. Pass one entry per row."
        )
    if labels.ndim > 2:
        raise ValueError(
            f"{name} must have one or two dimensions, got shape {labels.shape}. Pass one entry, or "
            "one vector, per row."
        )
    refuse_complex(labels, name)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError(f"Input {name} contains NaN or infinity. Remove the affected rows.")
    return labels


def check_length(n_entries: int, name: str, n_rows: int, rows_name: str = "X") -> None:
    """Reject an argument that does not have one entry per row."""
    if n_entries != n_rows:
        raise ValueError(
            f"{name} has {_entries(n_entries)}, but {rows_name} has {n_rows} rows. Pass one entry "
            "per row."
        )


def _entries(n: int) -> str:
    """Return a count and its noun, such as "1 entry"."""
    return f"{n} " + ("entry" if n == 1 else "entries")


def _categories(labels: Array, name: str, role: str) -> Labels:
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must contain one label per row; got shape {labels.shape}. Pass one column or, "
            f'if you set {role}_kernel="delta", choose another {role}_kernel.'
        )
    names, codes = np.unique(as_sortable(labels, name), return_inverse=True)
    return Labels(codes=codes, names=names)


def is_quantity(values: Array) -> bool:
    """Return whether numbers are quantities, not classes: fractions, or many distinct values.

    >>> is_quantity(np.array([1, 2, 2])), is_quantity(np.arange(30)), is_quantity(np.array([0.5]))
    (False, True, True)
    """
    return bool(np.any(values != np.round(values))) or len(np.unique(values)) > MAX_CLASSES


def check_classes(y: Any, n_samples: int, *, min_classes: int = 2) -> Labels:
    """Check that y contains enough classes, and no missing labels or continuous values."""
    check_classification_targets(label_array(y, "y"))
    return check_target(y, n_samples, "delta", min_classes=min_classes)


def check_conditional(target: Labels | None) -> None:
    """Reject ``conditional=True`` without classes."""
    if target is None or target.codes is None:
        problem = "y is missing" if target is None else "y is continuous"
        raise ValueError(
            f"conditional=True compares domains within classes, but {problem}. Pass class labels "
            "as y, or use conditional=False."
        )


def check_class_weight(class_weight: Any, classes: Array) -> None:
    """Reject weights for classes that do not exist, and weights of 0.

    Probabilities are corrected for weights, which is not possible for a class with weight 0.
    """
    if not isinstance(class_weight, dict):
        return
    class_names = classes.tolist()
    unknown_classes = [name for name in class_weight if name not in class_names]
    if unknown_classes:
        raise ValueError(
            f"class_weight contains {quoted(unknown_classes[0])}, which is not a class of y. Use "
            f"only the classes {listed([*map(quoted, class_names)], 12, ', ')}."
        )
    zero_classes = [name for name in class_names if not class_weight.get(name, 1.0)]
    if zero_classes:
        raise ValueError(
            f"class_weight is 0 for class {quoted(zero_classes[0])}. Use positive weights, or "
            "remove the rows of this class."
        )


def check_sample_domain(sample_domain: Any, n_samples: int, kernel: Any = "auto") -> Labels:
    """Check sample_domain: labels of one sortable type, or continuous descriptors (theory 6.3).

    Descriptors are a 2-D numeric array, or 1-D floats that are not all whole numbers. None puts
    all rows in one domain.
    """
    if sample_domain is None:
        return Labels(codes=np.zeros(n_samples, dtype=np.intp), names=np.array([0]))
    domains = plain_array(sample_domain, "sample_domain")
    if domains.ndim == 2 and domains.shape[1] == 1 and domains.dtype.kind not in "biuf":
        domains = domains[:, 0]  # a data frame with one column of names
    domains = _check_label_array(as_sortable(domains, "sample_domain"), "sample_domain", n_samples)
    if kernel == "auto":
        kernel = "rbf" if is_continuous(domains) else "delta"
    if kernel == "delta":
        return _categories(domains, "sample_domain", "domain")
    return Labels(values=_floats(domains, "sample_domain"))


def check_sample_weight(sample_weight: Any, n_samples: int) -> Array | None:
    """Return the weights of rows in float64; None if all of them are 1.

    A weight of 2 means that a row occurs twice, and a weight of 0 that it does not occur.
    """
    if sample_weight is None:
        return None
    if is_dask(sample_weight):
        raise TypeError("sample_weight is a Dask collection. Pass sample_weight.compute().")
    weights = to_host(sample_weight) if is_tensor(sample_weight) else sample_weight
    weights = plain_array(weights, "sample_weight")
    if weights.ndim != 1 or len(weights) != n_samples:
        raise ValueError(
            f"sample_weight.shape == {weights.shape}, expected {(n_samples,)}: X has {n_samples} "
            "rows. Pass one weight per row."
        )
    weights = real_numbers(weights, "sample_weight")
    is_invalid = ~(np.isfinite(weights) & (weights >= 0))
    if is_invalid.any():
        row = int(is_invalid.argmax())
        raise ValueError(
            "sample_weight contains negative, missing or infinite entries (the first in row "
            f"{row}: {weights[row]:g}). Pass finite numbers of at least 0."
        )
    refuse_too_large(weights, "sample_weight")
    if not weights.any():
        raise ValueError(
            "sample_weight is zero for all rows. Pass a positive weight for at least one row."
        )
    return None if (weights == 1).all() else weights


def weight_argument(estimator: Any, weights: Array | None) -> dict[str, Array]:
    """Return the argument of ``fit`` that contains weights: empty if they are None."""
    if weights is not None and not has_fit_parameter(estimator, "sample_weight"):
        raise ValueError(
            f"{type(estimator).__name__} does not accept sample_weight. Use another estimator, or "
            "omit sample_weight."
        )
    return {} if weights is None else {"sample_weight": weights}


def rows_with_weight(
    sample_weight: Any, X: Any, *labels: Any, kernel: Any = None
) -> tuple[Any, ...]:
    """Return the checked weights, X and labels of rows whose weight is not zero."""
    weights = check_sample_weight(sample_weight, count_rows(X))
    if weights is None or weights.all():
        return weights, X, *labels
    if isinstance(kernel, str) and kernel == "precomputed":
        raise ValueError(
            'sample_weight contains zeros, which kernel="precomputed" does not support. Remove '
            "these rows, and their columns in the kernel matrix."
        )
    rows = np.flatnonzero(weights)
    for name, values in zip(("y", "sample_domain"), labels, strict=False):
        if values is not None:
            check_length(count_rows(values), name, len(weights))
    kept = (None if values is None else take_rows(values, rows) for values in labels)
    return weights[rows], take_rows(X, rows), *kept


def refuse_masked_targets(y: Any, sample_domain: Any) -> None:
    """Reject labels masked by the library skada: y is -1 exactly where the domain is negative.

    Negative domains with other labels, and a class -1 in other domains, are accepted. Arguments
    that are not one number per row are left to other checks.
    """
    if y is None or sample_domain is None or is_dask(y) or is_dask(sample_domain):
        return
    try:
        targets, domains = (
            np.asarray(to_host(labels)) if is_tensor(labels) else plain_array(labels)
            for labels in (y, sample_domain)
        )
    except (ValueError, TypeError, NotImplementedError):  # other checks reject these
        return
    is_numeric = targets.dtype.kind in "if" and domains.dtype.kind in "if"
    if not is_numeric or targets.ndim != 1 or targets.shape != domains.shape:
        return
    is_negative = domains < 0
    if is_negative.any() and not is_negative.all() and np.array_equal(targets == -1, is_negative):
        raise ValueError(
            f"y is -1 exactly where sample_domain is negative, in {int(is_negative.sum())} of "
            f"{len(domains)} rows. skada masks labels of target domains in this way, and -1 would "
            "be learned as a class. Drop these rows (keep = sample_domain >= 0; fit(X[keep], "
            "y[keep], sample_domain=sample_domain[keep])), or pass their true labels."
        )


def warn_about_domains(estimator: Any, sample_domain: Any, domain: Labels, n_rows: int) -> None:
    """Warn if domain labels are missing, all equal, or all different."""
    if sample_domain is None:
        reason = (
            "sample_domain is missing. Pass it to fit (cross_val_score does not pass groups to "
            "fit; use domain_cross_validate instead)"
        )
    elif domain.n_categories == 1 or (
        domain.codes is None and not (domain.values != domain.values[0]).any()
    ):
        reason = "sample_domain contains only one domain. Add rows from other domains"
    elif domain.codes is not None and 2 < n_rows == domain.n_categories:
        reason = "sample_domain is different in every row. Give rows from one domain the same label"
    else:
        return
    estimator_name = type(estimator).__name__
    warn_caller(f"{estimator_name} learns nothing about domains: {reason}.", NoDomainsWarning)


@contextmanager
def quiet_about_domains() -> Iterator[None]:
    """Suppress warnings about domains, for fits that are part of another fit."""
    with filtered_warnings():
        warnings.simplefilter("ignore", NoDomainsWarning)
        yield


def check_n_components(n_components: int | None, n_samples: int) -> None:
    """Reject more than N - 1 components, the largest rank of N centred rows."""
    if n_components is not None and n_components > n_samples - 1:
        raise ValueError(
            f"n_components must be at most n_samples - 1 = {n_samples - 1}; got {n_components}"
        )


def refuse_masked(values: Any, name: str) -> None:
    """Reject masked entries, whose mask would be ignored."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{name} contains missing values (masked entries). Remove the affected rows."
        )


def refuse_complex(values: Array, name: str) -> None:
    """Reject complex numbers."""
    if values.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: {name} is complex. Pass labels or real numbers."
        )


def real_numbers(values: Any, name: str) -> Array:
    """Return numbers in a new float64 array; reject masked entries, text, dates, and others."""
    array = plain_array(values, name)
    casting: Any = "unsafe" if array.dtype.kind == "O" else "same_kind"
    try:
        return array.astype(np.float64, casting=casting)
    except (TypeError, ValueError):
        kinds = {"c": "complex numbers", "M": "dates", "m": "durations"}
        kind = kinds.get(array.dtype.kind, "text or other objects")
        raise ValueError(f"{name} must contain numbers; got {kind}. Pass real numbers.") from None


def plain_array(values: Any, name: str = "an array of labels") -> Array:
    """Convert lists, data frames, series, categoricals and nullable columns to a NumPy array."""
    refuse_masked(values, name)
    if hasattr(values, "to_numpy") and not type(values).__module__.startswith("pyarrow"):
        has_one_column = hasattr(values, "columns") and values.shape[1] == 1
        values = values.to_numpy()[:, 0] if has_one_column else values.to_numpy()
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must contain one value for each row: {error}") from None
    if isinstance(values, np.ndarray):
        return array.astype(object) if array.dtype.kind == "T" else array
    # In a list with strings, NumPy converts NaN and numbers to strings. It rounds large integers if
    # they do not fit into one integer type or are mixed with floats.
    may_be_rounded = (
        array.dtype.kind == "f" and MAX_EXACT_INTEGER <= np.abs(array).max(initial=0.0) < np.inf
    )
    return np.asarray(values, dtype=object) if may_be_rounded or array.dtype.kind in "US" else array


def label_array(values: Any, name: str) -> Array:
    """Return labels or numbers as an array of one type, without rounding them."""
    return as_sortable(plain_array(values, name), name)


def as_sortable(values: Array, name: str) -> Array:
    """Return labels as an array of one type; reject missing values and mixed types."""
    if values.dtype.kind == "V":
        raise ValueError(f"{name} contains structured records. Pass one string or number per row.")
    if values.dtype.kind in "mM":
        raise ValueError(
            f"{name} contains dates or durations. Convert them to numbers (such as days) to use "
            "them as quantities, or to strings to use them as labels."
        )
    if values.dtype.kind != "O":
        return values
    for value in values.flat:
        if is_missing(value):
            raise ValueError(
                f"{name} contains missing values ({value!r}). Remove the affected rows."
            )
    label_types = {type_of_label(value) for value in values.flat}
    if len(label_types) > 1:
        raise ValueError(
            f"{name} mixes labels of different types ({', '.join(sorted(label_types))}). Use one "
            "type, such as strings."
        )
    if label_types <= {"string", "bytes"}:
        if any(value[-1:] in ("\0", b"\0") for value in values.flat):
            raise ValueError(
                f"{name} contains labels that end with a NUL character, which NumPy drops. "
                "Remove this character."
            )
        return values.astype(str if label_types == {"string"} else bytes)
    if label_types <= {"number"}:
        return _as_numbers(values, name)
    raise ValueError(
        f"unknown label type: {name} contains {label_types.pop()} objects. Use strings or numbers."
    )


def _as_numbers(values: Array, name: str) -> Array:
    """Convert an object array to booleans, integers without rounding, or floats."""
    if all(isinstance(value, bool | np.bool_) for value in values.flat):
        return values.astype(bool)
    integers = [int(value) for value in values.flat if isinstance(value, Integral | np.bool_)]
    if len(integers) < values.size:
        if any(abs(value) > MAX_EXACT_INTEGER and int(float(value)) != value for value in integers):
            raise ValueError(
                f"{name} mixes fractions with integers of more than 53 bits, which would be "
                "rounded. Convert the labels to strings."
            )
        floats = values.astype(np.float64)
        is_exact_integer = (floats == np.round(floats)) & (np.abs(floats) <= MAX_EXACT_INTEGER)
        return floats.astype(np.int64) if is_exact_integer.all() else floats
    for dtype in (np.int64, np.uint64):
        limits = np.iinfo(dtype)
        if all(limits.min <= value <= limits.max for value in integers):
            return values.astype(dtype)
    raise ValueError(f"{name} contains integers of more than 64 bits. Convert them to strings.")


def type_of_label(value: Any) -> str:
    """Return the type of a label: "string", "number", or the name of another type."""
    if isinstance(value, str):
        return "string"
    return "number" if isinstance(value, Real | np.bool_) else type(value).__name__


def is_missing(value: Any) -> bool:
    """Return whether a label is None, NaN or one of pandas' missing values."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def is_continuous(values: Array) -> bool:
    """Return whether values are descriptors, not labels: several columns, or fractions."""
    if values.ndim != 1:
        return True
    return values.dtype.kind == "f" and bool((values != np.round(values)).any())


def too_large(values: Array) -> bool:
    """Return whether squares of these numbers may overflow; missing values are ignored."""
    return bool(np.abs(values).max(initial=0.0, where=~np.isnan(values)) > LARGEST_NUMBER)


def refuse_too_large(values: Array, name: str) -> None:
    """Reject numbers whose squares may overflow."""
    if too_large(values):
        raise ValueError(
            f"{name} contains values beyond {LARGEST_NUMBER:.0e}, whose squares may overflow. "
            f"Rescale {name}."
        )


def _floats(values: Array, name: str) -> Array:
    """Return continuous labels as a 2-D float64 array with one row per sample."""
    if values.dtype.kind not in "biuf":
        values = as_sortable(values, name)
    if values.dtype.kind not in "biuf":
        kernel_argument = "target_kernel" if name == "y" else "domain_kernel"
        raise ValueError(
            f"{name} contains labels ({values.dtype}), but numbers are required. Pass numbers or, "
            f'if the estimator has the argument {kernel_argument}, set it to "auto" or "delta".'
        )
    values = values[:, None] if values.ndim == 1 else values
    values = np.asarray(check_array(values, dtype=np.float64, input_name=name))
    refuse_too_large(values, name)
    return values


#: Prefixes of column types that are not accepted, what the columns contain, and what to do.
_REJECTED_TYPES = {
    ("date", "time", "duration", "period"): ("dates or times", "Convert them to numbers"),
    ("sparse",): ("sparse columns", "Call X.sparse.to_dense()"),
}


def validate_rows(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Check X with :func:`check_is_table` (by default, ``numeric=True``) and ``validate_data``."""
    check_is_table(X, numeric=options.pop("numeric", True))
    refuse_masked(y, "y")
    try:
        return validate_data(estimator, X, y, **options)
    except (TypeError, ValueError) as error:
        if str(error).startswith("Input X contains NaN"):
            estimator_name = type(estimator).__name__
            advice = f"Impute them first: make_pipeline(SimpleImputer(), {estimator_name}())"
            if is_classifier(estimator) or is_regressor(estimator):
                task_suffix = "Classifier" if is_classifier(estimator) else "Regressor"
                advice += f", or use DomainEnsemble{task_suffix}, which accepts them"
            raise ValueError(
                f"Input X contains NaN. {estimator_name} does not accept missing values. {advice}."
            ) from error
        raise


def check_is_table(X: Any, *, numeric: bool = False) -> None:
    """Reject X if it is not an array or a data frame, or if its values would be misinterpreted.

    With ``numeric=True``, dates, times and sparse columns are also rejected.
    """
    is_sequence = hasattr(X, "__len__") and not isinstance(X, str | bytes | dict | set | frozenset)
    if not is_sequence and not hasattr(X, "__array__") and not hasattr(X, "shape"):
        raise TypeError(f"X must be an array or a data frame; got {type(X).__name__}")
    if hasattr(X, "iloc") and X.ndim != 2:
        raise ValueError("X must be 2-dimensional; got a Series. Pass X.to_frame().")
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        raise ValueError(
            "X is a masked array, whose mask would be ignored. Pass X.filled(numpy.nan)."
        )
    if isinstance(X, np.ndarray) and X.dtype.names:
        raise TypeError("X is a structured array. Convert it to a data frame.")
    for prefixes, (description, advice) in _REJECTED_TYPES.items() if numeric else ():
        column_names = [c for c, dtype in _column_types(X) if dtype.lower().startswith(prefixes)]
        if column_names:
            names_text = listed([quoted(str(name)) for name in column_names], 5, ", ")
            raise TypeError(f"X contains {description} ({names_text}). {advice}.")


def _column_types(X: Any) -> list[tuple[Any, str]]:
    """Return the name and type of each column; for an array, one pair with its dtype as name."""
    if hasattr(getattr(X, "schema", None), "types"):  # an Arrow table
        return list(zip(X.schema.names, map(str, X.schema.types), strict=True))
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return list(zip(X.columns, map(str, X.dtypes), strict=True))
    return [(X.dtype, str(X.dtype))] if isinstance(X, np.ndarray) else []


def checked_labels(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return labels as a 1-D array; reject missing and infinite entries."""
    labels = plain_array(values, name)
    if labels.ndim != 1:
        raise ValueError(f"{name} must be 1-D, got shape {labels.shape}. Pass one label per row.")
    if len(labels) == 0:
        raise ValueError(f"{name} is empty. Pass at least one row.")
    refuse_complex(labels, name)
    if labels.dtype.kind == "f" and (n_bad := len(labels) - np.isfinite(labels).sum()):
        raise ValueError(f"{name} has {n_bad} missing or infinite entries. Remove these rows.")
    return as_sortable(labels, name)


def encode_labels(values: ArrayLike, name: str) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Return the integer codes of 1-D labels, and the sorted distinct labels."""
    names, codes = np.unique(checked_labels(values, name), return_inverse=True)
    return codes, names


def check_same_length(a: NDArray[Any], a_name: str, b: NDArray[Any], b_name: str) -> None:
    """Reject arrays of different lengths; the error message contains their names."""
    if a.ndim == 0 or b.ndim == 0 or len(a) != len(b):
        lengths = [len(array) if array.ndim else 0 for array in (a, b)]
        raise ValueError(
            f"{a_name} has {_entries(lengths[0])}, but {b_name} has {lengths[1]}. Pass one entry "
            "per row in both."
        )
