"""
A million rows with FastDCM
===========================

The exact method needs all rows at once, and its time grows with their square. ``FastDCM`` reads
every row once, batch by batch, and stores only sums, so its memory does not grow with the number of
rows. New domains may appear in any batch.
"""

# %%
# A stream of batches
# -------------------
#
# Each batch is one site with 50,000 rows of ten features. Two directions separate the three
# classes, in the same way everywhere; each site adds a shift of its own.

import time

import matplotlib.pyplot as plt
import numpy as np

from domainwise import FastDCM

rng = np.random.default_rng(0)
N_BATCHES, N_ROWS, N_FEATURES = 20, 50_000, 10
ANGLES = 2 * np.pi * np.arange(3) / 3
CENTRES = np.zeros((3, N_FEATURES))
CENTRES[:, :2] = 1.6 * np.column_stack([np.cos(ANGLES), np.sin(ANGLES)])


def draw(site):
    """Rows and classes of one site."""
    y = rng.integers(3, size=N_ROWS)
    shift = rng.normal(scale=0.8, size=N_FEATURES)
    X = rng.standard_normal((N_ROWS, N_FEATURES), dtype=np.float32)
    return X + (CENTRES[y] + shift).astype(np.float32), y


# %%
# One pass
# --------
#
# Landmarks come from the first batch. The model can be used after each batch; we look at it three
# times. The weight of domains multiplies a sum over rows, like ``C`` of a support vector machine:
# what is moderate for a thousand rows is large for a million, so it is small here.

model = FastDCM(n_landmarks=150, domain_weight=1e-5, random_state=0)
X_test, y_test = draw(-1)  # of a site that is not in the stream
seconds, seen = 0.0, 0
snapshots = {}
for site in range(N_BATCHES):
    X, y = draw(site)
    started = time.perf_counter()
    model.partial_fit(X, y, sample_domain=np.full(N_ROWS, site))
    seconds += time.perf_counter() - started
    seen += N_ROWS
    if site in (0, 4, N_BATCHES - 1):
        snapshots[seen] = model.transform(X_test[:4000])
print(f"{seen:,} rows of {len(model.domains_)} sites in {seconds:.1f} s")
print(f"stored: {model.landmarks_.shape[0]} landmarks and their sums, for any number of rows")

# %%
# What the components show
# ------------------------
#
# Rows of a new site, after 50,000 rows of one site, 250,000 of five, and a million of twenty. Signs
# and order of components are arbitrary, so the triangle turns. The problem is easy: the classes are
# separated after one site. The other sites show which directions are valid everywhere.

figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.4))
for axes, (rows, Z) in zip(panels, snapshots.items(), strict=True):
    for value in range(3):
        axes.scatter(*Z[y_test[:4000] == value, :2].T, s=3, alpha=0.35, linewidths=0)
    axes.set(title=f"after {rows:,} rows", xticks=[], yticks=[], xlabel="component 1")
panels[0].set_ylabel("component 2")
plt.show()

# %%
# The sums are those of all rows: one fit to the million at once, with the same landmarks, gives
# the same components up to rounding. From files, or from a cluster,
# :func:`domainwise.distributed.fit_parquet` does the same; :doc:`/benchmarks/FAST_FAMILY`
# compares the cost of a pass with scikit-learn's ``Nystroem``.
