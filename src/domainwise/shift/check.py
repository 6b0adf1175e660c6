"""What is strange about new rows, beside the sources that a model was fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.special import bdtrc, chdtri
from sklearn.pipeline import Pipeline

from domainwise.arrays import ArrayLike, Label, MaybeArray
from domainwise.shift.watch import CLIP, ShiftWatch, View

#: Chance of a finding about missing values, in any column, or about distance, where nothing is.
CHANCE = 0.01
#: A share of missing values counts if it exceeds that of all sources by this much.
MISSING_EXCESS = 0.1
#: Share of values that may lie beyond the sources' range by chance.
BEYOND = 0.005
#: Logarithm of the chance that a mean lies off by more than Bernstein's bound.
BERNSTEIN = 8.0


@dataclass(frozen=True)
class Finding:
    """Something about new rows that no source had.

    Attributes
    ----------
    kind : {"missing", "range", "level", "category", "distance"}
    words : str
        What was found.
    column : str or None
        None where it is about rows as a whole.
    domain : object
        Domain of the rows; None where it is not known.
    numbers : dict
        The figures in ``words``.
    """

    kind: str
    words: str
    column: str | None = None
    domain: Label | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """The words, after the domain."""
        return self.words if self.domain is None else f"{self.domain}: {self.words}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def check_shift(model: object, X: ArrayLike, sample_domain: MaybeArray = None) -> list[Finding]:
    r"""Say what new rows have that no source of a model had.

    - ``missing``: a column has no values, or is missing by ten per cent of rows more, and more
      than chance allows, than in any source.
    - ``range``: values lie beyond all sources' by a tenth of their range, in more rows than one
      in 200 by chance.
    - ``level``: a column's mean lies outside those of all sources by more than these are apart,
      more than a deviation inside sources or a tenth of the range, and more than chance allows.
    - ``category``: values of a column of text that no source had.
    - ``distance``: see Notes.

    It changes nothing: a prediction for such rows is what it would have been.

    Parameters
    ----------
    model : Pipeline, TableModel or ShiftWatch
        Fitted. A pipeline has a :class:`ShiftWatch`; those of ``domainwise fit`` do.
    X : array-like or data frame of shape (n_rows, n_features)
        New rows, as the model takes them.
    sample_domain : array-like of shape (n_rows,), default=None
        The domain of each row. Each is checked by itself; None checks all rows together.

    Returns
    -------
    findings : list of Finding
        Domain by domain; empty where nothing is strange.

    Notes
    -----
    The distance of two sets of rows is that of their kernel means, at most :math:`\sqrt 2`: of
    an RBF kernel of median width on standardised numbers, as far as a hundred landmarks span its
    space. The mean of :math:`n` rows of a source with :math:`n_d` rows lies off by chance: its
    squared distance, over :math:`v_d (1/n + 1/n_d)`, is close to :math:`\chi^2_f / f`, with the
    total variance :math:`v_d` of the source's rows in that space and its effective number of
    directions :math:`f`. What exceeds the upper per cent of this law has to be more than

    .. math:: \max\Big(\big(1 + \tfrac{1}{D - 1}\big) \max_d \min_{e \ne d} r_{de},\
       \tfrac18 \sqrt v\Big)

    for all sources, where :math:`r_{de}` are the distances of the :math:`D` sources from each
    other, less chance: what was left out would have been as far from the rest. With one source
    nobody knows how far apart domains are, and half of :math:`\sqrt v` is allowed for.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import ShiftWatch, check_shift
    >>> watch = ShiftWatch().fit(np.linspace(0, 1, 100)[:, None])
    >>> print(*check_shift(watch, np.full((20, 1), np.nan)), sep="\n")
    'x0' is missing in all 20 rows; sources lack at most 0 %
    """
    return findings(*seen(model, X, sample_domain))


def seen(model: Any, X: Any, sample_domain: Any = None) -> tuple[ShiftWatch, dict[Any, View]]:
    """What a model keeps of its sources, and what it sees of new rows, by domain."""
    if hasattr(model, "schema"):  # a TableModel, whose frames have a column of domains
        schema, frame = model.schema, X
        X = schema.prepare(frame)
        if sample_domain is None and schema.domain in frame.columns:
            sample_domain = frame[schema.domain]
        model = model.pipeline
    watch, before = find_watch(model)
    if watch is None:
        raise ValueError(
            f"{type(model).__name__} keeps no summary of its sources: fit a pipeline that begins "
            "with ShiftWatch()"
        )
    return watch, watch.look(X if before is None else before.transform(X), sample_domain)


def find_watch(model: Any) -> tuple[ShiftWatch | None, Any]:
    """Find the first ShiftWatch in a pipeline and the steps before it; None where there is none."""
    if isinstance(model, ShiftWatch):
        return model, None
    for i, (_, step) in enumerate(getattr(model, "steps", ())):
        if isinstance(step, ShiftWatch):
            return step, Pipeline(model.steps[:i]) if i else None
    return None, None


def findings(watch: ShiftWatch, views: dict[Any, View]) -> list[Finding]:
    """Judge what was seen of new rows, domain by domain."""
    sources = watch.parts(watch.totals_)
    return [
        Finding(kind, words, column, domain, numbers)
        for domain, view in views.items()
        if view.totals[0]
        for kind, words, column, numbers in _judge(watch, sources, view)
    ]


_Found = tuple[str, str, str | None, dict[str, float]]


def _judge(watch: ShiftWatch, sources: dict[str, Any], view: View) -> Iterator[_Found]:
    new = watch.parts(view.totals)
    n = int(new["rows"][0])
    shown = set()
    for found in _columns(watch, sources, new, view, n):
        shown.add(found[2])
        yield found
    if watch.numeric_:
        yield from _levels(watch, sources, new, n, shown)
    for j, count in enumerate(new["unknown"].astype(int)):
        name = watch.columns_[watch.categorical_[j]]
        if count:
            values = ", ".join(repr(value) for value in view.examples[name])
            words = f"{count} rows have a value of {name!r} that the model does not know: {values}"
            yield "category", words, name, {"rows": int(count), "of": n}
    if watch.numeric_:
        yield from _distance(watch, sources, new, n)


def _columns(
    watch: ShiftWatch, sources: dict[str, Any], new: dict[str, Any], view: View, n: int
) -> Iterator[_Found]:
    """Columns that are missing, or beyond the sources' range."""
    names = [watch.columns_[i] for i in (*watch.numeric_, *watch.categorical_)]
    lacking = (sources["missing"] / sources["rows"]).max(axis=0)
    # With one row added to either side no source is sure of its share.
    likely = ((sources["missing"] + 1) / (sources["rows"] + 2)).max(axis=0)
    rare = CHANCE / len(names)
    for j, name in enumerate(names):
        gaps, usual = int(new["missing"][j]), float(lacking[j])
        share = gaps / n
        gone = gaps == n and usual**n < rare
        if gone or (share > usual + MISSING_EXCESS and bdtrc(gaps - 1, n, likely[j]) < rare):
            where = f"all {n} rows" if gone else f"{100 * share:.0f} % of {n} rows"
            words = f"{name!r} is missing in {where}; sources lack at most {100 * usual:.0f} %"
            yield "missing", words, name, {"share": share, "sources": usual, "rows": n}
        if j < len(watch.numeric_) and gaps < n:
            beyond = int(new["beyond"][j])
            if beyond and bdtrc(beyond - 1, n - gaps, BEYOND) <= CHANCE:
                ends = [view.lowest[j], view.highest[j], watch.lowest_[j], watch.highest_[j]]
                low, high, least, most = (float(end) for end in ends)
                words = (
                    f"{name!r} is {low:.4g} to {high:.4g}, in {beyond} of {n - gaps} rows beyond "
                    f"what any source had, {least:.4g} to {most:.4g}"
                )
                figures = {"rows": beyond, "lowest": low, "highest": high}
                yield "range", words, name, {**figures, "least": least, "most": most}


def _levels(
    watch: ShiftWatch, sources: dict[str, Any], new: dict[str, Any], n: int, shown: set[str | None]
) -> Iterator[_Found]:
    """Columns whose mean is off those of all sources."""
    p = len(watch.numeric_)
    there = sources["rows"] - sources["missing"][:, :p]
    centres = np.where(there > 0, sources["level"] / np.maximum(there, 1), np.nan)
    squares = np.maximum(sources["spread"] - np.maximum(there, 1) * np.nan_to_num(centres) ** 2, 0)
    deviation = np.sqrt(squares.sum(axis=0) / np.maximum(there.sum(axis=0), 1))
    width = np.minimum((watch.highest_ - watch.lowest_) / watch.scale_, CLIP)
    for j in range(p):
        name, count = watch.columns_[watch.numeric_[j]], n - int(new["missing"][j])
        if name in shown or not count or np.isnan(centres[:, j]).all():
            continue
        mean = new["level"][j] / count
        low, high = np.nanmin(centres[:, j]), np.nanmax(centres[:, j])
        error = np.sqrt(2 * BERNSTEIN / count) * deviation[j] + BERNSTEIN * width[j] / (3 * count)
        outside = max(low - mean, mean - high) - error
        if outside > max(high - low, deviation[j], 0.1 * width[j], 1e-9):
            m, a, b = (float(watch.mean_[j] + watch.scale_[j] * v) for v in (mean, low, high))
            numbers = {"mean": m, "least": a, "most": b}
            usual = (
                f"those of sources {a:.4g} to {b:.4g}" if b > a else f"that of the source {a:.4g}"
            )
            yield "level", f"{name!r} has the mean {m:.4g}, {usual}", name, numbers


def _distance(
    watch: ShiftWatch, sources: dict[str, Any], new: dict[str, Any], n: int
) -> Iterator[_Found]:
    """Rows that lie farther from all sources than these from each other."""
    rows = sources["rows"][:, 0]
    means = sources["kernel"] / rows[:, None]
    variance = np.maximum(sources["norms"][:, 0] / rows - (means**2).sum(axis=1), 0.0)
    usual = _usual(means, variance / rows, float(np.median(variance)))
    # Few rows of a source know little of its spread.
    variance = np.maximum(variance, np.median(variance))
    noise = variance * (1 / n + 1 / rows) * chdtri(watch.freedom_, CHANCE) / watch.freedom_
    squared = ((new["kernel"] / n - means) ** 2).sum(axis=1)
    nearest = int(np.argmin(squared - noise))
    if squared[nearest] - noise[nearest] > usual**2:
        distance = float(np.sqrt(squared[nearest]))
        which = f"nearest source, {watch.sources_[nearest]}" if len(rows) > 1 else "source"
        words = f"the rows lie {distance:.2f} from the {which}; up to {usual:.2f} is usual"
        yield "distance", words, None, {"distance": distance, "usual": usual}


def _usual(means: Any, noise: Any, variance: float) -> float:
    """How far a domain may lie from the nearest source, as sources do."""
    if len(means) < 2:
        return float(np.sqrt(variance)) / 2
    squared = ((means[:, None] - means) ** 2).sum(axis=2) - noise[:, None] - noise
    np.fill_diagonal(squared, np.inf)
    farthest = float(np.sqrt(max(squared.min(axis=1).max(), 0.0)))
    return max((1 + 1 / (len(means) - 1)) * farthest, float(np.sqrt(variance)) / 8)
