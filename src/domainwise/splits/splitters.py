"""Splits that leave whole domains out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from domainwise.arrays import Array, ArrayLike, MaybeArray, Seed
from domainwise.checks.arguments import check_arguments
from domainwise.checks.inputs import check_sample_domain, count_rows


@dataclass(eq=False, repr=False)
class LeaveDomainsOut(BaseCrossValidator):
    """Leave whole domains out of training, and test on them.

    Parameters
    ----------
    n_test_domains : int, default=1
        Domains in each test set.
    n_repeats : int, default=None
        None tests each domain once, in ``ceil(T / n_test_domains)`` splits. A number draws that
        many test sets at random, without repetition inside a set.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws; None is a fixed one, so that every call of ``split`` gives the same
        folds. With ``n_repeats=None`` and test sets of several domains, an int shuffles the domains
        before they are dealt out; None keeps their sorted order.
    max_splits : int, default=None
        Splits at most: where there would be more, more domains are left out together.

    Notes
    -----
    The domains reach :meth:`split` as ``groups``; with metadata routing they are taken from
    ``sample_domain``, so that ``cross_validate(..., params={"sample_domain": d})`` needs nothing
    else.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.selection import LeaveDomainsOut
    >>> domains = np.array(["a", "a", "b", "c"])
    >>> for train, test in LeaveDomainsOut().split(np.zeros((4, 1)), groups=domains):
    ...     print(domains[test])
    ['a' 'a']
    ['b']
    ['c']
    """

    n_test_domains: int = 1
    n_repeats: int | None = None
    random_state: Seed = None
    max_splits: int | None = None

    __metadata_request__split = {"groups": "sample_domain"}

    def get_n_splits(
        self, X: MaybeArray = None, y: MaybeArray = None, groups: MaybeArray = None
    ) -> int:
        """Return the number of splits.

        Parameters
        ----------
        X, y : ignored
        groups : array-like of shape (n_samples,)
            The domain of each row.
        """
        return len(self._test_sets(self._codes(groups)[1]))

    def split(
        self, X: ArrayLike, y: MaybeArray = None, groups: MaybeArray = None
    ) -> Iterator[tuple[Array, Array]]:
        """Yield training and test rows of each split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
            But for its length.
        groups : array-like of shape (n_samples,)
            The domain of each row.
        """
        codes, n_domains = self._codes(groups)
        for name, given in (("groups", codes), ("y", y)):
            if given is not None and count_rows(given) != count_rows(X):
                raise ValueError(
                    f"{name} has {count_rows(given)} entries but X has {count_rows(X)} rows"
                )
        for test_domains in self._test_sets(n_domains):
            test = np.isin(codes, test_domains)
            yield np.flatnonzero(~test), np.flatnonzero(test)

    @property
    def shuffle(self) -> bool:
        """Whether calls of :meth:`split` differ; searches that need the same folds ask for it."""
        return isinstance(self.random_state, np.random.RandomState)

    def _codes(self, groups: Any) -> tuple[Array, int]:
        if groups is None:
            raise ValueError("LeaveDomainsOut needs the domain of each row as groups")
        domains = check_sample_domain(groups, count_rows(groups), "delta")
        return domains.codes, domains.n_categories

    def _test_sets(self, n_domains: int) -> list[Array]:
        check_arguments("LeaveDomainsOut", **vars(self))
        n_test, repeats, most = int(self.n_test_domains), self.n_repeats, self.max_splits
        if most is not None and most < (1 if repeats else 2):
            raise ValueError(
                f"max_splits={most} must be at least 2: something has to be trained on"
            )
        if n_domains <= n_test:
            raise ValueError(
                f"n_test_domains={n_test} leaves nothing to train on: there "
                f"{'is 1 domain' if n_domains == 1 else f'are {n_domains} domains'}"
            )
        rng = check_random_state(0 if self.random_state is None else self.random_state)
        if repeats is not None:
            draws = repeats if most is None else min(repeats, most)
            return [rng.choice(n_domains, n_test, replace=False) for _ in range(draws)]
        splits = -(-n_domains // n_test)
        splits = splits if most is None else min(splits, most)
        shuffle = splits < n_domains and self.random_state is not None
        order = rng.permutation(n_domains) if shuffle else np.arange(n_domains)
        return np.array_split(order, splits)
