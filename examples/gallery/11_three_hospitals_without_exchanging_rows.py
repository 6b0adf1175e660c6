"""
Three hospitals fit one model without exchanging rows
=====================================================

Three hospitals are not allowed to collect their patient data in one table. They can still fit one
model: each sends a file of sums, and the sums are added. Is this model better at a fourth hospital
than a model fitted at one of the three?
"""

# %%
# Four hospitals
# --------------
#
# The data are included in the package: 13 measurements for 920 patients, with missing values, and
# whether each patient has heart disease. Three hospitals fit a model for the fourth. In practice,
# each table would stay at its hospital.

import tempfile
from functools import reduce
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import domainwise as dw
from domainwise.datasets import load_heart

heart = load_heart()
X, y, hospital = heart.data, heart.target, heart.sample_domain
n_columns = X.shape[1]

# %%
# Round one: agree on scaling, landmarks and gamma
# ------------------------------------------------
#
# Each hospital sends three numbers for each column: how many values are known, their sum, and the
# sum of their squares. All hospitals then subtract the same means, divide by the same standard
# deviations, and replace missing values by 0, the mean.


def send_column_sums(rows):
    """Return counts, sums and sums of squares by column."""
    return np.array([(~np.isnan(rows)).sum(0), np.nansum(rows, 0), np.nansum(rows**2, 0)])


def agree_on_scaling(column_sums):
    """Return means and standard deviations of the rows of all hospitals."""
    count, total, squares = sum(column_sums)
    mean = total / count
    return mean, np.sqrt(squares / count - mean**2)


def scale(rows, mean, deviation):
    """Scale rows in the way that all hospitals have agreed on."""
    return np.where(np.isnan(rows), 0.0, (rows - mean) / deviation)


# %%
# Landmarks and gammas must not be chosen from anyone's rows. Landmarks are drawn from a normal
# distribution, with the same seed everywhere. The distance between two scaled rows (the sum of
# absolute differences) is about the number of columns, from which the gammas follow.

agreed = dw.InvariantRidgeClassifierCV(
    kernels=["laplacian"],
    gammas=[factor / n_columns for factor in (0.1, 0.3, 1)],
    landmarks=np.random.default_rng(0).normal(size=(200, n_columns)),
    class_weight="balanced",
)

# %%
# Round two: exchange files of sums
# ---------------------------------
#
# ``partial_fit`` computes sums over the rows, and ``save`` writes them to a file, whose size does
# not depend on the number of patients. ``merge`` adds the sums of two files. It rejects files with
# other landmarks, gammas or columns.


def fit_together(names, folder):
    """Fit one model in two rounds, and return it with the scaling."""
    scaling = agree_on_scaling([send_column_sums(X[hospital == name]) for name in names])
    for name in names:
        is_own = hospital == name
        own_rows = scale(X[is_own], *scaling)
        model = clone(agreed).partial_fit(own_rows, y[is_own], sample_domain=hospital[is_own])
        dw.save(model, folder / f"{name}.skops")
    files = [dw.load(folder / f"{name}.skops") for name in names]
    return reduce(lambda total, file: total.merge(file), files), scaling


with tempfile.TemporaryDirectory() as folder:
    names = ["cleveland", "hungarian", "va"]
    together, scaling = fit_together(names, Path(folder))
    for name in names:
        size = (Path(folder) / f"{name}.skops").stat().st_size
        print(f"{name:12}{sum(hospital == name):4d} patients, file of {size / 1e6:.1f} MB")

# %%
# The search over candidates, which holds out each hospital in turn, needs only the sums. It runs at
# the first prediction. The result is the same as if all rows had been in one table:

is_source = np.isin(hospital, names)
Z = scale(X, *scaling)
pooled = clone(agreed).fit(Z[is_source], y[is_source], sample_domain=hospital[is_source])
differences = together.decision_function(Z) - pooled.decision_function(Z)
print(f"largest difference between decision values: {np.abs(differences).max():.0e}")

# %%
# Is it worth it?
# ---------------
#
# Each hospital is the new one in turn. We compare the model of the other three with three models
# that were each fitted at one of them, with the same candidates. A single hospital has no domains
# to hold out, so these models are chosen by five-fold cross-validation. The metric is the area
# under the ROC curve.

scores = {}
for new in np.unique(hospital):
    names = [name for name in np.unique(hospital) if name != new]
    with tempfile.TemporaryDirectory() as folder:
        together, scaling = fit_together(names, Path(folder))
    Z, is_new = scale(X, *scaling), hospital == new
    single_models = [
        clone(agreed).set_params(cv=5).fit(Z[hospital == name], y[hospital == name])
        for name in names
    ]
    scores[new] = [
        roc_auc_score(y[is_new], model.decision_function(Z[is_new]))
        for model in (together, *single_models)
    ]

figure, axes = plt.subplots(figsize=(7.2, 2.8), layout="constrained")
for position, values in enumerate(scores.values()):
    first = position == 0
    label = "one hospital" if first else None
    axes.plot(values[1:], [position] * 3, "o", color="#5b8def", label=label)
    label = "three hospitals together" if first else None
    axes.plot(values[0], position, "D", color="#e0533d", label=label)
axes.set_yticks(range(len(scores)), scores)
axes.invert_yaxis()
axes.set_xlabel("area under the ROC curve at the new hospital")
axes.legend()
plt.show()
for new, (score, *singles) in scores.items():
    print(
        f"{new:12} together {score:.2f}, at one hospital {min(singles):.2f} to {max(singles):.2f}"
    )

# %%
# Conclusions
# -----------
#
# - At all four hospitals, the merged model is **better than the worst of the three others and, at
#   three of them, worse than the best one**. A hospital does not know in advance which other
#   hospital it resembles, so a merged model avoids the risk of choosing the wrong one. With so few
#   hospitals, differences of a few hundredths are mostly due to chance.
# - There are **no probabilities**: their calibration needs held-out rows, not sums.
# - **Sums are not anonymous.** They describe how the rows of a hospital are distributed, and with
#   few rows, one can tell whether a person is among them. :doc:`/guide/merge` says how well, and
#   names systems that were made for privacy.
