"""When what a domain is like may be used: not where it gives the class away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from domainwise.arrays import Array

#: Rows of a class in a domain for the class to count as present there.
LEAST_ROWS = 5


def mixed_domains(codes: Array, domains: Array, n_domains: int) -> Array:
    """Domains that hold two classes, or more, with enough rows each.

    Where classes sit in domains of their own, a domain's mean is the class: members that see it
    shine on domains left out of the same make, and fail on one that is mixed.
    """
    table = _counts(domains, n_domains, codes, int(codes.max()) + 1)
    return np.flatnonzero((table >= LEAST_ROWS).sum(axis=1) >= 2)


def _counts(domains: Array, n_domains: int, codes: Array, n_classes: int) -> Array:
    cells = np.bincount(domains * n_classes + codes, minlength=n_domains * n_classes)
    return cells.reshape(n_domains, n_classes)


def class_shares(probabilities: Array, domains: Array, n_domains: int) -> Array:
    """Shares of predicted classes in each domain, of shape (n_domains, n_classes)."""
    table = _counts(domains, n_domains, probabilities.argmax(axis=1), probabilities.shape[1])
    return np.asarray(table / np.maximum(table.sum(axis=1, keepdims=True), 1.0))


@dataclass(frozen=True)
class ShareRange:
    """Shares of predicted classes among source domains that were left out."""

    lowest: Array  #: of each class
    highest: Array
    n_domains: int  #: those they were seen in

    @classmethod
    def of_sources(cls, probabilities: Array, domains: Array, kept: Array) -> ShareRange:
        """From predictions for source domains left out, of those that are ``kept``."""
        shares = class_shares(probabilities, domains, int(kept.max()) + 1)[kept]
        return cls(shares.min(axis=0), shares.max(axis=0), len(kept))

    def left_by(self, shares: Array, counts: Array) -> Array:
        """Domains whose shares lie outside the range.

        Few rows have shares far from the truth, and one more domain may well lie a little outside
        the range of a few: two standard errors, and the mean distance of neighbours in the range,
        are allowed for. ``counts`` are the rows of each domain.
        """
        margin = (self.highest - self.lowest) / max(1, self.n_domains - 1)
        rows = np.maximum(counts, 1)[:, None]

        def error(share: Array) -> Array:
            # With one observation added to either side a share is never 0 or 1.
            likely = (share * rows + 1) / (rows + 2)
            return np.asarray(2 * np.sqrt(likely * (1 - likely) / rows))

        low, high = self.lowest - margin, self.highest + margin
        outside = (shares < low - error(self.lowest)) | (shares > high + error(self.highest))
        return np.asarray(outside.any(axis=1))
