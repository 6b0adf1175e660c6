"""
A Gaussian process that does not trust the batch
================================================

DCM's penalty on differences between domains can be written as a kernel. Any kernel machine can use
this kernel, even if it is not part of this library. Here we use it in a Gaussian process and look
at the uncertainty of the predictions.
"""

# %%
# Batches of sensors
# ------------------
#
# A signal depends on ``x``. Each batch of sensors has a temperature, which is recorded, and an
# offset, which is not. With only seven batches, the temperature happens to be correlated with the
# offset, and a flexible model learns this relation.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, WhiteKernel
from sklearn.pipeline import make_pipeline

from domainwise import InvariantFeatures


def draw(rng, n_batches, n=25):
    """Draw ``n`` rows (x and temperature), signals and batch numbers for each batch."""
    batch = np.repeat(np.arange(n_batches), n)
    temperature = rng.uniform(-2, 2, n_batches)[batch] + 0.05 * rng.normal(size=len(batch))
    x = rng.uniform(-3, 3, len(batch))
    offset = rng.normal(scale=0.6, size=n_batches)[batch]
    signal = np.sin(1.5 * x) + offset + 0.1 * rng.normal(size=len(batch))
    return np.column_stack([x, temperature]), signal, batch


# %%
# One process, two kernels
# ------------------------
# A Gaussian process with a dot product of features is a Gaussian process with the kernel that these
# features represent. ``InvariantFeatures`` with all rows as landmarks represents its kernel
# exactly; ``domain_weight=0`` gives the standard kernel. The process estimates the variances of the
# signal and of the noise from the data. A large signal variance could outweigh any finite penalty,
# so we use an infinite weight.


def make_process(domain_weight):
    """Create a Gaussian process with a penalty on differences between batches."""
    kernel = ConstantKernel(10) * DotProduct(0, sigma_0_bounds="fixed") + WhiteKernel(0.1)
    return make_pipeline(
        InvariantFeatures(n_landmarks=1.0, gamma=0.5, domain_weight=domain_weight),
        GaussianProcessRegressor(kernel, normalize_y=True),
    )


rng = np.random.default_rng(3)
X, signal, batch = draw(rng, 7)
models = {"standard kernel": make_process(0.0), "invariant kernel": make_process(np.inf)}
for model in models.values():
    model.fit(X, signal, invariantfeatures__sample_domain=batch)
X_new, signal_new, batch_new = draw(rng, 3)

# %%
# New batches
# -----------
#
# Each panel shows a new batch. The line is the prediction along ``x`` at the batch's temperature,
# and the band extends two standard deviations of a new measurement to each side. With the standard
# kernel, the process infers an offset from the temperature and is too certain of it. With the
# invariant kernel, it does not predict an offset, and its band is wide enough for the differences
# between batches.

figure, panels = plt.subplots(2, 3, figsize=(9.5, 5), sharex=True, sharey=True)
line = np.linspace(-3, 3, 120)
for row, (title, model) in zip(panels, models.items(), strict=True):
    for number, axes in enumerate(row):
        in_batch = batch_new == number
        points = np.column_stack([line, np.full(120, X_new[in_batch, 1].mean())])
        mean, deviation = model.predict(points, return_std=True)
        axes.fill_between(line, mean - 2 * deviation, mean + 2 * deviation, alpha=0.2, linewidth=0)
        axes.plot(line, mean, linewidth=1.8)
        axes.scatter(X_new[in_batch, 0], signal_new[in_batch], s=12, color="#e0533d", zorder=3)
        if row is panels[0]:
            axes.set_title(f"new batch {number + 1}")
    row[0].set_ylabel(title, fontweight="bold")
for axes in panels[1]:
    axes.set_xlabel("x")
plt.show()

# %%
# Thirty new batches
# ------------------

X_new, signal_new, batch_new = draw(rng, 30)
for title, model in models.items():
    mean, deviation = model.predict(X_new, return_std=True)
    rmse = np.sqrt(np.mean((signal_new - mean) ** 2))
    coverage = 100 * np.mean(np.abs(signal_new - mean) < 2 * deviation)
    print(f"{title:17} RMSE {rmse:.2f}, coverage of the band {coverage:.0f} % (nominal: 95 %)")

# %%
# The process with the invariant kernel does not know the offset of a new batch either, but it does
# not infer one from the temperature, and its uncertainty includes the unknown offset. The same
# pipeline works with a support vector machine, ridge regression or logistic regression; see
# :doc:`/invariant`.
