"""Class shares in new domains, estimated without labels."""

import numpy as np
import pytest

from domainwise.selection import adapt_class_shares


def two_gaussians(share, n=4000, seed=0):
    """Rows from two classes, and their probabilities for equal class shares."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    x = rng.standard_normal(n) + 2 * y
    p = 1 / (1 + np.exp(-(2 * x - 2)))
    return np.column_stack([1 - p, p]), x, y


def test_shares_are_estimated_if_only_shares_differ():
    p, x, _ = two_gaussians(0.1)
    adapted = adapt_class_shares(p, [0.5, 0.5], prior_rows=0)
    assert abs(adapted[:, 1].mean() - 0.1) < 0.02
    exact = 0.1 * np.exp(2 * x - 2) / (0.9 + 0.1 * np.exp(2 * x - 2))
    assert np.abs(adapted[:, 1] - exact).max() < 0.06


def test_each_domain_has_its_own_shares_and_few_rows_change_little():
    small, large = two_gaussians(0.1, n=3)[0], two_gaussians(0.9)[0]
    domains = ["few"] * 3 + ["many"] * len(large)
    adapted = adapt_class_shares(np.vstack([small, large]), [0.5, 0.5], domains)
    np.testing.assert_allclose(adapted[:3], small, atol=0.15)
    np.testing.assert_allclose(adapted[3:], adapt_class_shares(large, [0.5, 0.5]))
    np.testing.assert_allclose(adapted.sum(axis=1), 1.0)


def test_permuting_classes_permutes_columns():
    p, _, _ = two_gaussians(0.3, n=100)
    shares = np.array([0.7, 0.3])
    adapted = adapt_class_shares(p[:, ::-1], shares[::-1])
    np.testing.assert_allclose(adapted[:, ::-1], adapt_class_shares(p, shares))


@pytest.mark.parametrize(("shares", "rows"), [([0.5], 1), ([1.0, 0.0], 1), ([0.5, 0.5], -1)])
def test_invalid_shares_are_errors(shares, rows):
    with pytest.raises(ValueError, match=r"shares must|prior_rows must be at least 0; got -1"):
        adapt_class_shares([[0.5, 0.5]], shares, prior_rows=rows)


@pytest.mark.parametrize("row", [[-0.5, 1.5], [0.0, 0.0], [np.nan, 0.5]])
def test_rows_that_are_not_probabilities_are_errors(row):
    with pytest.raises(ValueError, match="probabilities must have shape"):
        adapt_class_shares([[0.5, 0.5], row], [0.5, 0.5])
