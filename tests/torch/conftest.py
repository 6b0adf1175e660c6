import numpy as np
import pytest


@pytest.fixture
def data():
    """Rows of four shifted domains with two classes: X, y, sample_domain as arrays."""
    rng = np.random.default_rng(0)
    n = 240
    domain = rng.integers(0, 4, n)
    X = rng.standard_normal((n, 5)) + 0.5 * rng.standard_normal((4, 5))[domain]
    y = (X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n) > 0).astype(np.int64)
    return X, y, domain
