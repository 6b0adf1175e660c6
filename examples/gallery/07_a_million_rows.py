"""
FastDCM reads a million rows once
=================================

The exact method needs all rows at once, and its time grows with the square of their number.
``FastDCM`` reads every row once, batch by batch, and stores only sums, so its memory does not grow
with the number of rows. Any batch may contain new domains.
"""

# %%
# A stream of batches
# -------------------
#
# Each batch is one site with 50,000 rows and ten features. Two directions separate the three
# classes in the same way at all sites, and each site adds a different shift to all its rows.

import time

import matplotlib.pyplot as plt
import numpy as np

from domainwise import FastDCM

rng = np.random.default_rng(0)
N_BATCHES, N_ROWS, N_FEATURES = 20, 50_000, 10
ANGLES = 2 * np.pi * np.arange(3) / 3
CENTRES = np.zeros((3, N_FEATURES))
CENTRES[:, :2] = 1.6 * np.column_stack([np.cos(ANGLES), np.sin(ANGLES)])


def draw_site():
    """Draw the rows and classes of one site."""
    y = rng.integers(3, size=N_ROWS)
    shift = rng.normal(scale=0.8, size=N_FEATURES)
    X = rng.standard_normal((N_ROWS, N_FEATURES), dtype=np.float32)
    return X + (CENTRES[y] + shift).astype(np.float32), y


# %%
# One pass
# --------
#
# The landmarks are chosen from the first batch. The model can be used after each batch; we look at
# it three times. Like ``C`` in a support vector machine, ``domain_weight`` multiplies a sum over
# rows. A weight that is moderate for a thousand rows is large for a million, so we use a small one.

model = FastDCM(n_landmarks=150, domain_weight=1e-5, random_state=0)
X_test, y_test = draw_site()  # a site that is not in the stream
seconds, n_rows = 0.0, 0
snapshots = {}
for site in range(N_BATCHES):
    X, y = draw_site()
    started = time.perf_counter()
    model.partial_fit(X, y, sample_domain=np.full(N_ROWS, site))
    seconds += time.perf_counter() - started
    n_rows += N_ROWS
    if site in (0, 4, N_BATCHES - 1):
        snapshots[n_rows] = model.transform(X_test[:4000])
print(f"{n_rows:,} rows from {len(model.domains_)} sites in {seconds:.1f} s")
print(f"the model stores sums and {len(model.landmarks_)} landmarks, for any number of rows")

# %%
# What the components show
# ------------------------
#
# The figure shows rows from a new site, projected after 50,000 rows from one site, 250,000 rows
# from five sites, and a million rows from twenty sites. The signs and the order of components are
# arbitrary, so the triangle of classes rotates. The problem is easy, and the classes are separated
# after one site. More sites show which directions separate them at every site.

figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.4))
for axes, (rows, Z) in zip(panels, snapshots.items(), strict=True):
    for value in range(3):
        axes.scatter(*Z[y_test[:4000] == value, :2].T, s=3, alpha=0.35, linewidths=0)
    axes.set(title=f"after {rows:,} rows", xticks=[], yticks=[], xlabel="component 1")
panels[0].set_ylabel("component 2")
plt.show()

# %%
# A single fit to all million rows, with the same landmarks, gives the same components up to
# rounding. :func:`domainwise.distributed.fit_parquet` does the same for files, also on a cluster.
# :doc:`A benchmark </benchmarks/SPEED>` compares the time of one pass with that of scikit-learn's
# ``Nystroem``.
