"""evaluate(): every method on every domain that was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domainwise.evaluation.gather import gather
from domainwise.evaluation.jobs import MethodJob, Row, can_score
from domainwise.evaluation.problem import Problem, make_problem, outer_splits
from domainwise.evaluation.projection import project_domains
from domainwise.evaluation.result import Evaluation
from domainwise.jobs.progress import progress_bar
from domainwise.jobs.runner import Progress, run_jobs
from domainwise.models.method import Method
from domainwise.models.registry import choose_methods

#: Arguments of other libraries, and what they are called here.
_MEANT = {
    "groups": "the domain of each row is sample_domain",
    "metric": "what is measured is scoring",
    "metrics": "what is measured is scoring",
    "estimators": "what is compared is methods",
    "models": "what is compared is methods",
    "domain": "the domain of each row is sample_domain",
    "domains": "the domain of each row is sample_domain",
    "seed": "the seed is random_state",
}


class _Memory:
    """Rows kept as they come."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def append(self, rows: list[Row]) -> None:
        """Take the rows of one job."""
        self.rows += rows


def evaluate(
    X: Any,
    y: Any,
    sample_domain: Any,
    *,
    methods: Any = None,
    task: str = "auto",
    scoring: Any = None,
    cv: Any = None,
    inner_cv: Any = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    progress: bool | Progress = True,
    max_rows: int | str | None = "auto",
    pos_label: Any = None,
    prepare: bool = True,
    **unknown: Any,
) -> Evaluation:
    """Find out which method holds up on unseen domains, and how much is lost there.

    Each domain is left out in turn, in groups of domains where there are more than ten. Each
    method is fitted on the other domains, with parameters chosen by leaving *these* out in turn;
    preprocessing is fitted on them, too. Nothing sees the left-out domain before it is scored.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        Numbers, or a data frame with numeric and categorical columns; NaN is missing.
    y : array-like of shape (n_samples,) or str
        Classes or a continuous target; or the name of its column in the data frame.
    sample_domain : array-like of shape (n_samples,) or str
        The domain of each row: site, patient, well; or the name of its column.
    methods : list, default=None
        Some of "constant", "svm", "linear", "boosting", "kpca", "coir", "dica", "dcm", "fastdcm",
        "dcmcv", "invariant", "invariantridge"; None is all of them. A method of your own is a pair
        ``(name, estimator)``, or with values to choose from ``(name, estimator, grid)``: any
        estimator or pipeline of scikit-learn. It gets targets as they are, and ``sample_domain``
        in ``fit`` if it asks for it.
    task : {"auto", "classification", "regression"}, default="auto"
        "auto" takes text and whole numbers with at most 20 values for classes.
    scoring : str or callable, default=None
        A scikit-learn scorer. None is accuracy for classes of about the same size, balanced
        accuracy for others, and RMSE for a continuous target.
    cv : splitter or iterable, default=None
        Outer splits; no domain may be on both sides of one. None leaves out one domain at a time
        up to ten domains, and deals more of them into ten groups.
    inner_cv : splitter, default=None
        Splits of the sources that parameters are chosen by, with domains as groups; None leaves
        out one at a time up to five source domains, and deals more of them into five groups
        (``LeaveDomainsOut()`` is slower and leaves out one at a time in any case). With a single
        source domain folds of its rows are used.
    n_jobs : int, default=None
        Worker processes; the result does not depend on it.
    random_state : int, default=0
        Seed of every random choice.
    progress : bool or callable, default=True
        Whether to show a progress bar (needs Rich, and a terminal), or what to call with the cost
        and the rows of each finished job.
    max_rows : int, "auto" or None, default="auto"
        Rows drawn, evenly from the domains, where there are more; "auto" is 2,000, None takes all.
        Beyond 5,000 source rows projections use landmarks.
    pos_label : object, default=None
        Of two classes the one that scores such as F1 are about; None is the second.
    prepare : bool, default=True
        Whether methods of your own get rows as numbers, prepared like those of all others; False
        gives them the rows of X as they are.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> from domainwise import evaluate
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(n_domains=3, n_per_domain=30, random_state=0)
    >>> found = evaluate(data.data, data.target, data.sample_domain, methods=["constant", "linear"])
    >>> sorted(found.scores)
    ['constant', 'linear']
    """
    for name in unknown:
        meant = _MEANT.get(name)
        hint = "" if meant is None else f"; {meant}"
        raise TypeError(f"evaluate() has no argument {name!r}{hint}")
    X, y, sample_domain = _columns(X, y, sample_domain)
    source = make_problem(
        X,
        y,
        sample_domain,
        task=task,
        scoring=scoring,
        max_rows=None,
        random_state=random_state,
        pos_label=pos_label,
    )
    found = compare_methods(
        source.drawn(max_rows),
        choose_methods(methods, prepare=prepare),
        cv=cv,
        inner_cv=inner_cv,
        n_jobs=n_jobs,
        progress=progress,
    )
    found.source, found.inner_cv = source, inner_cv
    return found


def _columns(X: Any, y: Any, sample_domain: Any) -> tuple[Any, Any, Any]:
    """Take columns that are named out of a data frame."""
    named = {}
    for argument, given in (("y", y), ("sample_domain", sample_domain)):
        if not isinstance(given, str):
            continue
        if not hasattr(X, "columns"):
            raise ValueError(f"{argument}={given!r} names a column, but X is no data frame")
        if given not in X.columns:
            raise ValueError(
                f"{argument}={given!r} is no column of X, which has "
                f"{', '.join(str(name) for name in X.columns)}"
            )
        named[argument] = given
    if not named:
        return X, y, sample_domain
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if "y" in named:
        y = X[named["y"]]
    if "sample_domain" in named:
        sample_domain = X[named["sample_domain"]]
    return X.drop(columns=list(dict.fromkeys(named.values()))), y, sample_domain


def compare_methods(
    problem: Problem,
    methods: Sequence[Method],
    *,
    cv: Any = None,
    inner_cv: Any = None,
    inside: bool = True,
    n_jobs: int | None = None,
    progress: bool | Progress = True,
) -> Evaluation:
    """Run methods on all splits of a problem; ``inside`` adds the reference inside domains."""
    for method in methods:
        method.check_task(problem.classification)
    able = [method for method in methods if can_score(method, problem)]
    if not able:
        raise ValueError(f"no chosen method gives what {problem.measure.name} needs")
    splits = outer_splits(problem, cv)
    jobs = [
        MethodJob(problem, method, split, number, inner_cv, inside)
        for number, split in enumerate(splits)
        for method in able
    ]
    found = _Memory()
    cost = sum(job.cost for job in jobs)
    with progress_bar(progress, cost, len(jobs), "methods on left-out domains") as report:
        run_jobs(jobs, found, n_jobs=n_jobs or 1, progress=report)
    order = {method.key: place for place, method in enumerate(able)}
    rows = sorted(found.rows, key=lambda row: (row["split"], order[row["method"]]))
    left_out = {
        method.key: f"gives no probabilities, which {problem.measure.name} needs"
        for method in methods
        if method not in able
    }
    result = gather(problem, able, rows, left_out)
    best = next((result.key for result in result.results if result.kind == "projection"), None)
    if inside and best is not None:
        method = next(method for method in able if method.key == best)
        result.projection = project_domains(problem, method, splits, rows, result.worst_domain)
    return result
