"""The rows of a site as its plan sees them, less those that must not be told of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.federated.plan import Plan
from domainwise.tables.cells import as_labels, as_numbers, decimal_marks, without
from domainwise.tables.errors import describe_names
from domainwise.tables.features import named_frame
from domainwise.tables.schema import TableError, require_columns, target_column


@dataclass(frozen=True)
class SiteRows:
    """Rows of those cells, a domain and a class, that are large enough.

    Values of a column that too few rows of a domain have are taken for missing.
    """

    site: str
    X: Any  #: features as :meth:`Schema.prepare` has them
    y: Array  #: continuous targets, or codes of classes
    classes: Array  #: codes; zeros for a continuous target
    domains: Array  #: codes
    names: list[str]  #: of domains
    left_out: int  #: rows without target or domain
    withheld: list[str]  #: cells that are too small, in words


def site_rows(frame: Any, plan: Plan, site: str | None) -> SiteRows:
    """Check a table, and leave out what is too small to be told of.

    Both rounds leave out the same rows: of what one tells and the other does not, somebody could
    take the difference.
    """
    schema, least = plan.schema, plan.smallest_cell
    frame = named_frame(frame)
    require_columns([*schema.features, schema.target], list(frame.columns), "the table")
    target = without(frame[schema.target], schema.na)
    mark = decimal_marks({schema.target: target}, [schema.target], schema.decimal)
    target = target_column(target, mark.get(schema.target))
    known, given = target.notna().to_numpy(), None
    if schema.domain in frame.columns:
        given = without(frame[schema.domain], schema.na, words=False)
        known = known & given.notna().to_numpy()
    if not known.any():
        raise TableError("no row has both a target and a domain")
    labels = None if given is None else as_labels(given[known]).astype(str)
    if site is None and (labels is None or len(np.unique(labels)) > 1):
        raise TableError("give the name of the site: its rows are not of one domain with a name")
    site = str(labels[0]) if site is None and labels is not None else str(site)
    names, domains = np.unique(
        np.full(int(known.sum()), site) if labels is None else labels, return_inverse=True
    )
    if plan.classes is None:
        y, classes = as_numbers(target[known], schema.target), np.zeros(len(domains), dtype=int)
    else:
        y = classes = _class_codes(as_labels(target[known]), plan)
    n_classes = len(plan.classes or "-")
    cell = domains * n_classes + classes
    counts = np.bincount(cell)
    withheld = [
        f"domain {str(names[c // n_classes])!r}"
        + ("" if plan.classes is None else f", class {plan.classes[c % n_classes]!r}")
        + f": fewer than {least} rows"
        for c in np.flatnonzero((counts > 0) & (counts < least)).tolist()
    ]
    keep = counts[cell] >= least
    if not keep.any():
        raise TableError(f"every domain and class has fewer than {least} rows: nothing is told")
    rows = np.flatnonzero(known)[keep]
    X = schema.prepare(frame if len(rows) == len(frame) else frame[schema.features].iloc[rows])
    kept, codes = np.unique(domains[keep], return_inverse=True)
    left_out, told = int((~known).sum()), names[kept].tolist()
    for name in schema.numbers:
        values = np.bincount(codes[X[name].notna()], minlength=len(told))
        few = (values > 0) & (values < least)
        if few.any():
            X[name] = X[name].where(~few[codes])
            where = [f"column {name!r} of domain {told[d]!r}" for d in np.flatnonzero(few)]
            withheld += [f"{each}: fewer than {least} values" for each in where]
    return SiteRows(site, X, y[keep], classes[keep], codes, told, left_out, withheld)


def _class_codes(labels: Array, plan: Plan) -> Array:
    known = {str(label): code for code, label in enumerate(plan.classes or ())}
    texts, inverse = np.unique(labels.astype(str), return_inverse=True)
    others = [text for text in texts.tolist() if text not in known]
    if others:
        raise TableError(
            f"the target {plan.schema.target!r} holds {describe_names(others)}, which the plan "
            f"does not have among its classes: {describe_names(known)}"
        )
    return np.array([known[text] for text in texts.tolist()])[inverse]
