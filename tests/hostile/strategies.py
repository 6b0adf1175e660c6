"""Labels and domains of every type, for tests of all estimators."""

import datetime

import numpy as np
from hypothesis import strategies as st

#: Values of one type each; a list of labels is drawn from a few of them.
VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-(2**63), 2**63 - 1),
    "large int": st.integers(2**63, 2**70),
    "float": st.floats(allow_nan=False, allow_infinity=False, width=32),
    "nan": st.just(float("nan")),
    "text": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
    "none": st.none(),
    "date": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=2),
    "tuple": st.tuples(st.integers(0, 2), st.integers(0, 2)),
}
DTYPES = ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "complex128",
          "U3", "S3", "datetime64[D]", "timedelta64[s]", "object"]  # fmt: skip


@st.composite
def labels(draw, n_rows):
    """A list or an array of ``n_rows`` labels: one type, or two of them mixed, and any dtype."""
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True))
    value = st.one_of(*(VALUES[kind] for kind in kinds))
    pool = draw(st.lists(value, min_size=1, max_size=4))
    index = draw(st.lists(st.integers(0, len(pool) - 1), min_size=n_rows, max_size=n_rows))
    given = [pool[i] for i in index]
    container = draw(st.sampled_from(["list", "array", "dtype"]))
    if container == "list":
        return given
    if container == "dtype":
        dtype = draw(st.sampled_from(DTYPES))
        try:
            return np.array(index, dtype=dtype) if dtype != "object" else as_objects(given)
        except (TypeError, ValueError):
            return np.array(index)
    return as_objects(given)


def as_objects(given):
    """An array of just these objects, however they might be combined otherwise."""
    out = np.empty(len(given), dtype=object)
    out[:] = given
    return out
