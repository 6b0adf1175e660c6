"""
The invariant kernel in a Gaussian process
==========================================

DCM's penalty on differences between domains is a norm, and a norm belongs to a kernel. So any
kernel machine can use it, also one that is not part of this library: here a Gaussian process with
its uncertainty.
"""

# %%
# Batches of a sensor
# -------------------
#
# A signal depends on ``x``. Each batch of sensors has a temperature, which is recorded as well,
# and an offset, which is not. With only seven batches the temperature
# seems to explain the offset, by chance, and a flexible model believes it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel
from sklearn.pipeline import make_pipeline

from domainwise import InvariantFeatures


def draw(rng, batches, n=25):
    """Rows (x and temperature), signal and batch."""
    batch = np.repeat(np.arange(batches), n)
    temperature = rng.uniform(-2, 2, batches)[batch] + 0.05 * rng.normal(size=len(batch))
    x = rng.uniform(-3, 3, len(batch))
    offset = rng.normal(scale=0.6, size=batches)[batch]
    signal = np.sin(1.5 * x) + offset + 0.1 * rng.normal(size=len(batch))
    return np.column_stack([x, temperature]), signal, batch


# %%
# One process, two kernels
# ------------------------
#
# scikit-learn's Gaussian process with a dot product on features is a process with the kernel behind
# these features. ``InvariantFeatures`` with all rows as landmarks represents its kernel exactly;
# ``domain_weight=0`` is the plain kernel. The process learns the variance of the signal and of the
# noise from the data. A larger variance could outweigh any finite penalty, so the weight is
# infinite here.


def process(domain_weight):
    """A Gaussian process with a penalty on differences between batches."""
    kernel = ConstantKernel(10) * DotProduct(0, sigma_0_bounds="fixed") + WhiteKernel(0.1)
    return make_pipeline(
        InvariantFeatures(n_landmarks=1.0, gamma=0.5, domain_weight=domain_weight),
        GaussianProcessRegressor(kernel, normalize_y=True),
    )


rng = np.random.default_rng(3)
X, signal, batch = draw(rng, 7)
plain, invariant = process(0.0), process(np.inf)
for model in (plain, invariant):
    model.fit(X, signal, invariantfeatures__sample_domain=batch)
X_new, signal_new, batch_new = draw(rng, 3)

# %%
# New batches
# -----------
#
# Each panel is a new batch. The line is the prediction along ``x`` at the batch's temperature,
# the band two standard deviations of a new measurement. The plain process is certain of an
# offset that it has inferred from the temperature. The other leaves the offset open: its band is as
# wide as batches differ.

figure, panels = plt.subplots(2, 3, figsize=(9.5, 5), sharex=True, sharey=True)
line = np.linspace(-3, 3, 120)
for row, (title, model) in zip(
    panels, {"plain kernel": plain, "invariant kernel": invariant}.items(), strict=True
):
    for number, axes in enumerate(row):
        rows = batch_new == number
        at = np.column_stack([line, np.full(120, X_new[rows, 1].mean())])
        mean, deviation = model.predict(at, return_std=True)
        axes.fill_between(line, mean - 2 * deviation, mean + 2 * deviation, alpha=0.2, linewidth=0)
        axes.plot(line, mean, linewidth=1.8)
        axes.scatter(X_new[rows, 0], signal_new[rows], s=12, color="#e0533d", zorder=3)
        if row is panels[0]:
            axes.set_title(f"new batch {number + 1}")
    row[0].set_ylabel(title, fontweight="bold")
for axes in panels[1]:
    axes.set_xlabel("x")
plt.show()

# %%
# Over thirty new batches
# -----------------------

X_new, signal_new, batch_new = draw(rng, 30)
for title, model in {"plain kernel": plain, "invariant kernel": invariant}.items():
    mean, deviation = model.predict(X_new, return_std=True)
    error = np.sqrt(np.mean((signal_new - mean) ** 2))
    covered = np.mean(np.abs(signal_new - mean) < 2 * deviation)
    print(f"{title:17} RMSE {error:.2f}, within two deviations {covered:.0%} (correct: 95 %)")

# %%
# The invariant process cannot know the offset of a new batch either, but it does not invent one,
# and its uncertainty says so. The same two lines make a support vector machine, a kernel ridge or a
# logistic regression invariant; see :doc:`/invariant`.
