"""From a table to the ``Bunch`` that every loader returns, and checks of the loaders' options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import cleandoc
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import Bunch

from domainwise.datasets.registry import data_files

F = TypeVar("F", bound=Callable[..., Bunch])


def bunch(
    table: Any,
    features: list[str],
    target: str | list[str],
    name: str,
    *,
    domain: str = "domain",
    as_frame: bool,
) -> Bunch:
    """What every loader returns; a text column becomes indicators, as in ``sex_Female``."""
    import pandas as pd

    table = table.reset_index(drop=True)
    data = pd.get_dummies(table[features]).astype(np.float64)
    labels = _plain(table[target])
    domains = _plain(table[domain]).rename("sample_domain")
    return Bunch(
        data=data if as_frame else data.to_numpy(),
        target=labels if as_frame else _array(labels),
        sample_domain=domains if as_frame else _array(domains),
        feature_names=list(data.columns),
        DESCR=data_files()[name].descr,
        **({"frame": table} if as_frame else {}),
    )


#: What every loader takes and returns.
_SHARED = """\
as_frame : bool, default=False
    Return pandas objects in place of arrays, and the file's rows, text columns as text, as
    ``frame``.

Returns
-------
Bunch
    ``data`` {shape}, ``target``, ``sample_domain`` ({domain}), ``feature_names`` and ``DESCR``,
    which describes all of them; text columns are indicators (``sex_Female``) in ``data``."""


def described(shape: str, domain: str) -> Callable[[F], F]:
    """Put what loaders share into the docstring of one, where it says ``{shared}``."""

    def fill(loader: F) -> F:
        text = _SHARED.format(shape=shape, domain=domain)
        loader.__doc__ = cleandoc(loader.__doc__ or "").replace("{shared}", text)
        return loader

    return fill


def _plain(column: Any) -> Any:
    """Categories as their strings and small integers as int64: nothing surprising downstream."""
    if column.ndim == 2 or column.dtype.kind == "f":
        return column
    return column.astype(np.int64 if column.dtype.kind in "iu" else str)


def _array(column: Any) -> Any:
    values = column.to_numpy()
    # Text as a fixed-width array: sortable, and the same with every pandas version.
    return values if values.dtype.kind in "fiu" else values.astype(str)


def treat_missing(table: Any, features: list[str], missing: str) -> tuple[Any, list[str]]:
    """Keep, or leave out the rows or the columns that have, empty entries."""
    empty = table[features].isna()
    if missing == "drop_rows":
        table = table[~empty.any(axis=1)]
    elif missing == "drop_columns":
        features = [name for name in features if not empty[name].any()]
    if len(table) == 0 or not features:
        raise ValueError(
            f"missing={missing!r} leaves {len(table)} rows and {len(features)} features; choose"
            " other columns or missing='keep'"
        )
    return table, features


def check_choice(value: object, name: str, accepted: Sequence[str]) -> None:
    """An error unless ``value`` is one of those accepted."""
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r}")


def check_subset(values: Sequence[Any], name: str, accepted: Sequence[Any]) -> list[Any]:
    """The values as a list; an error unless there are some and all are accepted."""
    chosen = [values] if isinstance(values, (str, int)) else list(values)
    unknown = [value for value in chosen if value not in accepted]
    if unknown or not chosen:
        raise ValueError(
            f"{name} must hold at least one of {', '.join(map(repr, accepted))}; got {values!r}"
        )
    return chosen
