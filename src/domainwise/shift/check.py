"""Report how new rows differ from the source domains that a model was fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import bdtrc, chdtri
from sklearn import config_context
from sklearn.pipeline import Pipeline

from domainwise.arrays import ArrayLike, Label, MaybeArray
from domainwise.shift.watch import CLIP, ShiftStatistics, ShiftWatch

#: Probability of a false alarm about distance, or about missing values in any column.
FALSE_ALARM_RATE = 0.01
#: Missing values are reported if their share exceeds that in every source domain by more than this.
MISSING_EXCESS = 0.1
#: Share of values that lie outside the range of the source domains by chance.
OUT_OF_RANGE_RATE = 0.005
#: Negative logarithm of the probability that a mean exceeds its Bernstein bound.
BERNSTEIN_LOG = 8.0


@dataclass(frozen=True)
class Finding:
    """A difference between new rows and all source domains.

    Attributes
    ----------
    kind : {"missing", "range", "level", "category", "distance"}
        What differs; see :func:`check_shift`.
    words : str
        A sentence that describes the difference.
    column : str or None
        The affected column; None if ``kind`` is "distance".
    domain : object
        Domain of the rows; None if it is unknown.
    numbers : dict
        The numbers in ``words``.
    """

    kind: str
    words: str
    column: str | None = None
    domain: Label | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the sentence, preceded by the domain if it is known."""
        return self.words if self.domain is None else f"{self.domain}: {self.words}"

    def as_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return asdict(self)


def check_shift(model: object, X: ArrayLike, sample_domain: MaybeArray = None) -> list[Finding]:
    r"""Report how new rows differ from all source domains of a model.

    - ``missing``: a column has no values, or its share of missing values exceeds the share in every
      source domain significantly, and by more than ten percentage points.
    - ``range``: in significantly more than 0.5 % of the rows, the value lies outside the range of
      all source domains by more than a tenth of the width of this range.
    - ``level``: the mean of a column lies outside the range of its means in the source domains. The
      difference, corrected for chance, exceeds the width of this range, the standard deviation
      within source domains, and a tenth of the range of values.
    - ``category``: a text column has values that occur in no source domain.
    - ``distance``: the rows are farther from every source domain than source domains are from each
      other; see Notes.

    Predictions are not changed.

    Parameters
    ----------
    model : Pipeline, TableModel or ShiftWatch
        A fitted model. A pipeline must contain a :class:`ShiftWatch`, as the models from
        ``domainwise fit`` do.
    X : array-like or data frame of shape (n_rows, n_features)
        New rows, in the form that the model expects.
    sample_domain : array-like of shape (n_rows,), default=None
        The domain of each row. Each domain is checked separately, or all rows together if None.

    Returns
    -------
    findings : list of Finding
        Differences, grouped by domain; an empty list if no shift is detected.

    See Also
    --------
    ShiftWatch : The pipeline step that stores statistics of the source domains.
    plots.ShiftDisplay : The same comparison as a figure.

    Notes
    -----
    The distance between two sets of rows is the distance between their kernel means, at most
    :math:`\sqrt 2`, for an RBF kernel of standardized numbers with ``gamma="median"``. It is
    computed in the span of random landmarks: at most 100, and at most :math:`n_d / 3` for a source
    domain of :math:`n_d` rows. Source domains with fewer than 20 rows are pooled. The kernel mean
    of :math:`n` rows varies by chance: its squared distance from a source domain, divided by
    :math:`v_d (1/n + 1/n_d)`, is approximately :math:`\chi^2_f / f`. Here, :math:`v_d` is the total
    variance of the domain's rows in this space (but at least the median :math:`v` of all source
    domains, because the variance of few rows is uncertain), and :math:`f` is the effective number
    of directions in which they vary. The 99 % quantile of this distribution is subtracted from the
    squared distance. The remaining distance is reported if it exceeds

    .. math:: \max\Big(\big(1 + \tfrac{1}{D - 1}\big) \max_d \min_{e \ne d} r_{de},\
       \tfrac18 \sqrt v\Big)

    for every source domain, where :math:`r_{de}` are the distances between the :math:`D` source
    domains, corrected for chance. With one source domain, the usual distance is unknown, and the
    bound is half of :math:`\sqrt v`. Distances between pooled domains can increase the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise import ShiftWatch, check_shift
    >>> watch = ShiftWatch().fit(np.linspace(0, 1, 100)[:, None])
    >>> print(*check_shift(watch, np.full((20, 1), np.nan)), sep="\n")
    'x0' is missing in all 20 rows, but in no row of the source domains
    """
    return findings(*statistics_of_rows(model, X, sample_domain))


@config_context(transform_output="default")
def statistics_of_rows(
    model: Any, X: Any, sample_domain: Any = None
) -> tuple[ShiftWatch, dict[Any, ShiftStatistics]]:
    """Return the ShiftWatch of a model, and statistics of new rows by domain."""
    if hasattr(model, "schema"):  # a TableModel, whose frames may have a domain column
        schema, frame = model.schema, X
        X = schema.prepare(frame)
        if sample_domain is None and schema.domain in frame.columns:
            sample_domain = frame[schema.domain]
        model = model.pipeline
    watch, earlier_steps = find_watch(model)
    if watch is None:
        raise ValueError(
            f"{type(model).__name__} stores no statistics of its source domains. Fit a pipeline "
            "whose first step is ShiftWatch()."
        )
    X = X if earlier_steps is None else earlier_steps.transform(X)
    return watch, watch.summarize(X, sample_domain)


def find_watch(model: Any) -> tuple[ShiftWatch | None, Any]:
    """Return the first ShiftWatch of a pipeline and the steps before it, or None for either."""
    if isinstance(model, ShiftWatch):
        return model, None
    for i, (_, step) in enumerate(getattr(model, "steps", ())):
        if isinstance(step, ShiftWatch):
            return step, Pipeline(model.steps[:i]) if i else None
    return None, None


def findings(watch: ShiftWatch, statistics_by_domain: dict[Any, ShiftStatistics]) -> list[Finding]:
    """Compare statistics of new rows with those of the source domains, domain by domain."""
    all_findings: list[Finding] = []
    for domain, statistics in statistics_by_domain.items():
        if statistics.totals[0]:
            domain_findings = list(_missing_and_range(watch, statistics))
            domain_findings += _levels(watch, statistics, {f.column for f in domain_findings})
            domain_findings += [*_categories(watch, statistics), *_distance(watch, statistics)]
            all_findings += [replace(f, domain=domain) for f in domain_findings]
    return all_findings


def _missing_and_range(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield findings about missing values, and about values outside the source domains' range."""
    source_sums, new_sums = watch.split_totals(watch.totals_), watch.split_totals(statistics.totals)
    n, column_indices = int(new_sums["rows"][0]), watch.numeric_ + watch.categorical_
    max_shares = (source_sums["missing"] / source_sums["rows"]).max(axis=0)
    # Shares of few rows are uncertain: add one missing and one present value to each domain.
    smoothed_shares = ((source_sums["missing"] + 1) / (source_sums["rows"] + 2)).max(axis=0)
    max_p = FALSE_ALARM_RATE / max(len(column_indices), 1)
    for j, name in enumerate(watch.columns_[i] for i in column_indices):
        n_missing, max_share = int(new_sums["missing"][j]), float(max_shares[j])
        share = n_missing / n
        is_empty = n_missing == n and max_share**n < max_p
        is_larger = share > max_share + MISSING_EXCESS
        if is_empty or (is_larger and bdtrc(n_missing - 1, n, smoothed_shares[j]) < max_p):
            rows_text = f"all {n} rows" if is_empty else f"{100 * share:.0f} % of {n} rows"
            bound_text = f"at most {100 * max_share:.0f} % of the rows of any source domain"
            words = f"{name!r} is missing in {rows_text}, but in "
            words += bound_text if max_share else "no row of the source domains"
            numbers = {"share": share, "sources": max_share, "rows": n}
            yield Finding("missing", words, name, numbers=numbers)
        n_outside = int(new_sums["beyond"][j]) if j < len(watch.numeric_) else 0
        if n_outside and bdtrc(n_outside - 1, n - n_missing, OUT_OF_RANGE_RATE) <= FALSE_ALARM_RATE:
            low, high = float(statistics.lowest[j]), float(statistics.highest[j])
            source_low, source_high = float(watch.lowest_[j]), float(watch.highest_[j])
            numbers = {"rows": n_outside, "lowest": low, "highest": high}
            numbers |= {"least": source_low, "most": source_high}
            words = (
                f"{name!r} ranges from {low:.4g} to {high:.4g}; {n_outside} of {n - n_missing} "
                "rows are outside the range of all source domains, "
                f"{source_low:.4g} to {source_high:.4g}"
            )
            yield Finding("range", words, name, numbers=numbers)


def _levels(
    watch: ShiftWatch, statistics: ShiftStatistics, reported_columns: set[str | None]
) -> Iterator[Finding]:
    """Yield findings about the means of columns that are not in ``reported_columns``."""
    moments, new_sums = watch.moments(watch.totals_), watch.split_totals(statistics.totals)
    counts = (new_sums["rows"] - new_sums["missing"]).astype(int)
    source_means = np.where(moments.count > 0, moments.mean, np.nan)
    deviations = np.sqrt(moments.squares.sum(axis=0) / np.maximum(moments.count.sum(axis=0), 1))
    widths = np.minimum((watch.highest_ - watch.lowest_) / watch.scale_, CLIP)
    for j, i in enumerate(watch.numeric_):
        name, count = watch.columns_[i], counts[j]
        if name in reported_columns or not count or np.isnan(source_means[:, j]).all():
            continue
        mean = new_sums["level"][j] / count
        low, high = np.nanmin(source_means[:, j]), np.nanmax(source_means[:, j])
        error = np.sqrt(2 * BERNSTEIN_LOG / count) * deviations[j]
        error += BERNSTEIN_LOG * widths[j] / (3 * count)  # Bernstein bound for the mean
        threshold = max(high - low, deviations[j], 0.1 * widths[j], 1e-9)
        if max(low - mean, mean - high) - error > threshold:
            scale, offset = watch.scale_[j], watch.mean_[j]
            mean, low, high = (float(offset + scale * z) for z in (mean, low, high))
            usual_means = f"{low:.4g} to {high:.4g}" if high > low else f"{low:.4g}"
            words = f"the mean of {name!r} is {mean:.4g}, but {usual_means} in the source domains"
            yield Finding("level", words, name, numbers={"mean": mean, "least": low, "most": high})


def _categories(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield findings about text columns with values that occur in no source domain."""
    new_sums = watch.split_totals(statistics.totals)
    for i, count in zip(watch.categorical_, new_sums["unknown"].astype(int), strict=True):
        if count:
            name = watch.columns_[i]
            examples = ", ".join(repr(value) for value in statistics.examples[name])
            subject = "1 row has" if count == 1 else f"{count} rows have"
            words = f"{subject} a value of {name!r} that occurs in no source domain: {examples}"
            numbers: dict[str, float] = {"rows": int(count), "of": int(new_sums["rows"][0])}
            yield Finding("category", words, name, numbers=numbers)


def _distance(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield a finding if the rows are farther from all source domains than usual."""
    source_sums, new_sums = watch.split_totals(watch.totals_), watch.split_totals(statistics.totals)
    kernel_sums, n = source_sums["kernel"], int(new_sums["rows"][0])
    n_features = np.full(len(kernel_sums), kernel_sums.shape[1])
    n_features = n_features if watch.n_features_ is None else np.asarray(watch.n_features_)
    indices, feature_indices = np.flatnonzero(n_features), np.arange(kernel_sums.shape[1])
    if not len(indices) or not watch.numeric_:
        return
    counts, n_features = source_sums["rows"][indices, 0], n_features[indices]
    means, freedom = kernel_sums[indices] / counts[:, None], watch.freedom_[indices]
    variance = np.maximum(source_sums["norms"][indices, 0] / counts - (means**2).sum(axis=1), 0.0)
    typical_deviation = float(np.sqrt(np.median(variance)))
    usual_distance = typical_deviation / 2
    if len(means) > 1:  # the largest distance from a source domain to the nearest other one
        is_shared = feature_indices < np.minimum(n_features[:, None], n_features)[..., None]
        squared_gaps = ((means[:, None] - means) ** 2 * is_shared).sum(axis=2)
        squared_gaps -= (variance / counts)[:, None] + variance / counts
        np.fill_diagonal(squared_gaps, np.inf)
        max_gap = float(np.sqrt(max(squared_gaps.min(axis=1).max(), 0.0)))
        usual_distance = max((1 + 1 / (len(means) - 1)) * max_gap, typical_deviation / 8)
    usual_distance = max(usual_distance, watch.pooled_distance_)
    variance = np.maximum(variance, np.median(variance))  # that of few rows is uncertain
    noise = variance * (1 / n + 1 / counts) * chdtri(freedom, FALSE_ALARM_RATE) / freedom
    is_used = feature_indices < n_features[:, None]
    squared_distances = (is_used * (new_sums["kernel"] / n - means) ** 2).sum(axis=1)
    nearest = int(np.argmin(squared_distances - noise))
    if squared_distances[nearest] - noise[nearest] > usual_distance**2:
        distance = float(np.sqrt(squared_distances[nearest]))
        name = watch.sources_[indices[nearest]]
        phrase = f"nearest source domain ({name})" if len(counts) > 1 else "source domain"
        words = f"the distance of the rows from the {phrase} is {distance:.2f}; distances up to "
        words += f"{usual_distance:.2f} are usual"
        yield Finding("distance", words, numbers={"distance": distance, "usual": usual_distance})
