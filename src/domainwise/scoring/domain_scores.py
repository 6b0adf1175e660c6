"""Scores on domains that were left out, one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn import config_context
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import cross_validate

from domainwise.arrays import Array, ArrayLike, CrossValidator, Estimator, Label, Scoring
from domainwise.checks.arguments import check_arguments
from domainwise.checks.inputs import check_sample_domain, count_rows, refuse_no_rows, take_rows
from domainwise.checks.warn import warn_caller
from domainwise.scoring.measures import check_task
from domainwise.splits.splitters import LeaveDomainsOut


@dataclass(frozen=True)
class DomainScores:
    """How well an estimator does on domains it has not seen; larger is better.

    Attributes
    ----------
    domains : ndarray of shape (n_domains,)
        Domains that were tested, sorted.
    scores : ndarray of shape (n_domains,)
        Score of each, the mean over the splits in which it was tested; NaN where it is not
        defined, and left out of the summaries below.
    fit_times : ndarray of shape (n_splits,)
        Seconds of each fit.
    """

    domains: Array
    scores: Array
    fit_times: Array

    @property
    def mean(self) -> float:
        """Mean over domains, each counting once."""
        return float(np.nanmean(self.scores))

    @property
    def std(self) -> float:
        """Standard deviation over domains."""
        defined = self.scores[~np.isnan(self.scores)]
        return float(np.std(defined, ddof=1)) if len(defined) > 1 else 0.0

    @property
    def worst(self) -> float:
        """Score on the worst domain."""
        return float(np.nanmin(self.scores))

    @property
    def worst_domain(self) -> Label:
        """The domain with the worst score."""
        return self.domains[int(np.nanargmin(self.scores))]

    def per_domain(self) -> dict[Label, float]:
        """Return the score of each domain."""
        return dict(zip(self.domains.tolist(), self.scores.tolist(), strict=True))

    def __repr__(self) -> str:
        return (
            f"DomainScores(mean={self.mean:.3f}, worst={self.worst:.3f} on "
            f"{self.worst_domain!s}, std={self.std:.3f}, n_domains={len(self.domains)})"
        )


def domain_cross_validate(
    estimator: Estimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_domain: ArrayLike,
    *,
    cv: CrossValidator = None,
    scoring: Scoring = None,
    n_jobs: int | None = None,
) -> DomainScores:
    """Score an estimator on each domain with that domain left out of training.

    Works for any estimator: ``sample_domain`` reaches those that ask for it, inside pipelines and
    searches too.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    sample_domain : array-like of shape (n_samples,)
        The domain of each row.
    cv : splitter, default=None
        None leaves one domain out at a time. A splitter of scikit-learn that takes groups needs
        ``set_split_request(groups="sample_domain")``.
    scoring : str or callable, default=None
        A scikit-learn scorer; None is the estimator's own score.
    n_jobs : int, default=None
        Splits fitted at a time.

    Returns
    -------
    DomainScores

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> from domainwise import DCM
    >>> from domainwise.datasets import make_synthetic
    >>> from domainwise.selection import domain_cross_validate
    >>> data = make_synthetic(n_domains=4, random_state=0)
    >>> result = domain_cross_validate(
    ...     make_pipeline(DCM(), SVC()), data.data, data.target, data.sample_domain
    ... )
    >>> result.domains
    array([0, 1, 2, 3])
    """
    check_arguments("domain_cross_validate", n_jobs=n_jobs)
    check_task(scoring, is_classifier(estimator))
    refuse_no_rows(X)
    domains = check_sample_domain(sample_domain, count_rows(X), "delta")
    with config_context(enable_metadata_routing=True):
        done = cross_validate(
            estimator,
            X,
            y,
            cv=LeaveDomainsOut() if cv is None else cv,
            scoring=scoring,
            n_jobs=n_jobs,
            params={"sample_domain": sample_domain},
            return_estimator=True,
            return_indices=True,
            error_score="raise",
        )
        scorer = check_scoring(estimator, scoring=scoring)
        found: dict[int, list[float]] = {}
        for fitted, test in zip(done["estimator"], done["indices"]["test"], strict=True):
            for code in np.unique(domains.codes[test]):
                rows = test[domains.codes[test] == code]
                score = scorer(fitted, take_rows(X, rows), take_rows(y, rows))
                found.setdefault(int(code), []).append(float(score))
    tested = sorted(found)
    scores = np.array([np.mean(found[code]) for code in tested])
    _check_defined(domains.names[tested], scores)
    return DomainScores(domains.names[tested], scores, done["fit_time"])


def _check_defined(domains: Array, scores: Array) -> None:
    """Say for which domains there is no score; refuse if there is none at all."""
    undefined = ", ".join(str(domain) for domain in domains[np.isnan(scores)])
    if not undefined:
        return
    why = "(is there one class only?)"
    if np.isnan(scores).all():
        raise ValueError(f"the score is not defined on any domain {why}: choose another scoring")
    warn_caller(f"the score is not defined on domain {undefined} {why}, left out of mean and worst")
