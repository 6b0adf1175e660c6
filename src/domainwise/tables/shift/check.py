"""Report how new rows differ from the source domains that a model was fitted to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import bdtrc, chdtri
from sklearn import config_context
from sklearn.pipeline import Pipeline

from domainwise.base.arrays import ArrayLike, Label, MaybeArray
from domainwise.tables.shift.watch import CLIP, ShiftStatistics, ShiftWatch

#: Probability of a false alarm about the distance, missing values or the range of a column.
FALSE_ALARM_RATE = 0.01
#: Missing values are reported if their share exceeds that in every source domain by more than this.
MISSING_EXCESS = 0.1
#: Share of values that may lie outside the range of the source domains by chance.
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

    - ``missing``: a column has no values, or its share of missing values is significantly larger
      than in every source domain, by more than ten percentage points.
    - ``range``: significantly more than 0.5 % of the values lie outside the range of all source
      domains by more than a tenth of the width of this range.
    - ``level``: the mean of a column lies outside the range of its means in the source domains, and
      the difference, corrected for chance, exceeds the width of this range, the standard deviation
      within source domains, and a tenth of the range of values.
    - ``category``: a text column has values that occur in no source domain.
    - ``distance``: the rows are farther from every source domain than source domains are from each
      other; see Notes.

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
    The distance between two sets of rows is the distance between their kernel means for an RBF
    kernel on standardized numbers with ``gamma="median"``; it is at most :math:`\sqrt 2`. It is
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
    return find_shifts(*statistics_of_rows(model, X, sample_domain))


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
    """Return the first ShiftWatch of a pipeline and the steps before it; either may be None."""
    if isinstance(model, ShiftWatch):
        return model, None
    for i, (_, step) in enumerate(getattr(model, "steps", ())):
        if isinstance(step, ShiftWatch):
            return step, Pipeline(model.steps[:i]) if i else None
    return None, None


def find_shifts(watch: ShiftWatch, new_statistics: dict[Any, ShiftStatistics]) -> list[Finding]:
    """Compare statistics of new rows with those of the source domains, domain by domain."""
    findings: list[Finding] = []
    for domain, statistics in new_statistics.items():
        if statistics.totals[0]:
            new_findings = list(_check_missing_and_range(watch, statistics))
            new_findings += _check_levels(watch, statistics, {f.column for f in new_findings})
            new_findings += _check_categories(watch, statistics)
            new_findings += _check_distance(watch, statistics)
            findings += [replace(f, domain=domain) for f in new_findings]
    return findings


def _check_missing_and_range(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield findings about missing values and about values outside the range of the sources."""
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
        has_excess = share > max_share + MISSING_EXCESS
        if is_empty or (has_excess and bdtrc(n_missing - 1, n, smoothed_shares[j]) < max_p):
            rows_text = f"all {n} rows" if is_empty else f"{100 * share:.0f} % of {n} rows"
            bound_text = f"at most {100 * max_share:.0f} % of the rows in any source domain"
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
                "values are outside the range of all source domains, "
                f"{source_low:.4g} to {source_high:.4g}"
            )
            yield Finding("range", words, name, numbers=numbers)


def _check_levels(
    watch: ShiftWatch, statistics: ShiftStatistics, reported_columns: set[str | None]
) -> Iterator[Finding]:
    """Yield findings about the means of columns that are not in ``reported_columns``."""
    moments, new_sums = watch.moments(watch.totals_), watch.split_totals(statistics.totals)
    n_values = (new_sums["rows"] - new_sums["missing"]).astype(int)
    source_means = np.where(moments.count > 0, moments.mean, np.nan)
    deviations = np.sqrt(moments.squares.sum(axis=0) / np.maximum(moments.count.sum(axis=0), 1))
    range_widths = np.minimum((watch.highest_ - watch.lowest_) / watch.scale_, CLIP)
    for j, i in enumerate(watch.numeric_):
        name, n = watch.columns_[i], n_values[j]
        if name in reported_columns or not n or np.isnan(source_means[:, j]).all():
            continue
        mean = new_sums["level"][j] / n
        low, high = np.nanmin(source_means[:, j]), np.nanmax(source_means[:, j])
        error_bound = np.sqrt(2 * BERNSTEIN_LOG / n) * deviations[j]
        error_bound += BERNSTEIN_LOG * range_widths[j] / (3 * n)  # Bernstein bound for the mean
        threshold = max(high - low, deviations[j], 0.1 * range_widths[j], 1e-9)
        if max(low - mean, mean - high) - error_bound > threshold:
            z_scores = np.array([mean, low, high])
            # Rounded, because a mean of zeros would otherwise be shown as 1e-13.
            standardized = np.round(watch.mean_[j] / watch.scale_[j] + z_scores, 12) + 0.0
            mean, low, high = (watch.scale_[j] * standardized).tolist()
            means_text = f"{low:.4g} to {high:.4g}" if high > low else f"{low:.4g}"
            words = f"the mean of {name!r} is {mean:.4g}, but {means_text} in the source domains"
            yield Finding("level", words, name, numbers={"mean": mean, "least": low, "most": high})


def _check_categories(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield findings about text columns with values that occur in no source domain."""
    new_sums = watch.split_totals(statistics.totals)
    for i, n_unknown in zip(watch.categorical_, new_sums["unknown"].astype(int), strict=True):
        if n_unknown:
            name = watch.columns_[i]
            examples = ", ".join(map(repr, statistics.examples[name]))
            subject = "1 row has" if n_unknown == 1 else f"{n_unknown} rows have"
            words = f"{subject} a value of {name!r} that occurs in no source domain: {examples}"
            numbers: dict[str, float] = {"rows": int(n_unknown), "of": int(new_sums["rows"][0])}
            yield Finding("category", words, name, numbers=numbers)


def _check_distance(watch: ShiftWatch, statistics: ShiftStatistics) -> Iterator[Finding]:
    """Yield a finding if the rows are farther from all source domains than usual."""
    source_sums, new_sums = watch.split_totals(watch.totals_), watch.split_totals(statistics.totals)
    kernel_sums, n = source_sums["kernel"], int(new_sums["rows"][0])
    n_features = watch.n_features_
    sources, feature_indices = np.flatnonzero(n_features), np.arange(kernel_sums.shape[1])
    if not len(sources) or not watch.numeric_:
        return
    sizes, n_features = source_sums["rows"][sources, 0], n_features[sources]
    means, freedom = kernel_sums[sources] / sizes[:, None], watch.freedom_[sources]
    variances = np.maximum(source_sums["norms"][sources, 0] / sizes - (means**2).sum(axis=1), 0.0)
    typical_deviation = float(np.sqrt(np.median(variances)))
    usual_distance = typical_deviation / 2
    if len(means) > 1:  # the largest distance from a source domain to the nearest other one
        is_shared_feature = feature_indices < np.minimum(n_features[:, None], n_features)[..., None]
        squared_gaps = ((means[:, None] - means) ** 2 * is_shared_feature).sum(axis=2)
        squared_gaps -= (variances / sizes)[:, None] + variances / sizes
        np.fill_diagonal(squared_gaps, np.inf)
        max_gap = float(np.sqrt(max(squared_gaps.min(axis=1).max(), 0.0)))
        usual_distance = max((1 + 1 / (len(means) - 1)) * max_gap, typical_deviation / 8)
    usual_distance = max(usual_distance, watch.pooled_distance_)
    variances = np.maximum(variances, np.median(variances))  # the variance of few rows is uncertain
    noise_bounds = variances * (1 / n + 1 / sizes) * chdtri(freedom, FALSE_ALARM_RATE) / freedom
    is_used_feature = feature_indices < n_features[:, None]
    squared_distances = (is_used_feature * (new_sums["kernel"] / n - means) ** 2).sum(axis=1)
    nearest_index = int(np.argmin(squared_distances - noise_bounds))
    if squared_distances[nearest_index] - noise_bounds[nearest_index] > usual_distance**2:
        distance = float(np.sqrt(squared_distances[nearest_index]))
        name = watch.sources_[sources[nearest_index]]
        source_text = f"nearest source domain ({name})" if len(sizes) > 1 else "source domain"
        words = f"the distance of the rows from the {source_text} is {distance:.2f}; "
        words += f"distances up to {usual_distance:.2f} are usual"
        yield Finding("distance", words, numbers={"distance": distance, "usual": usual_distance})
