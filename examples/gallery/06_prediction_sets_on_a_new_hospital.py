"""
Sets calibrated on random rows are too small at a new hospital
==============================================================

A prediction set contains the plausible diagnoses for a patient. With a coverage of 90 %, the set
contains the true diagnosis for nine in ten patients. At a new hospital, sets that were calibrated
on random rows are too small. Sets that were calibrated on held-out hospitals are larger, and their
coverage is correct on average over hospitals, though not at each of them.
"""

# %%
# Three diagnoses at many hospitals
# ---------------------------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from domainwise.selection import DomainConformal

CENTRES = np.array([[0, 0], [2.2, 0], [1.1, 1.9]])


def draw(rng, n_hospitals, n=60):
    """Draw measurements, diagnoses and hospitals; each hospital shifts its measurements."""
    hospital = np.repeat(np.arange(n_hospitals), n)
    diagnosis = rng.integers(3, size=len(hospital))
    shift = rng.normal(scale=0.8, size=(n_hospitals, 2))
    X = CENTRES[diagnosis] + shift[hospital] + rng.normal(scale=0.4, size=(len(hospital), 2))
    return X, diagnosis, hospital


rng = np.random.default_rng(0)
X, diagnosis, hospital = draw(rng, 40, 40)
X_new, diagnosis_new, hospital_new = draw(rng, 200)

# %%
# Two calibrations
# ----------------
# Both calibrations use the same logistic regression. The first uses random folds and treats every
# row as a separate domain, which raises a warning. The second holds out hospitals. With
# ``calibration="split"``, half of the hospitals are used for calibration only, and the coverage is
# guaranteed.

folds = list(KFold(10, shuffle=True, random_state=0).split(X))
by_rows = DomainConformal(LogisticRegression(), cv=folds)
with warnings.catch_warnings(record=True) as caught_warnings:
    warnings.simplefilter("always")
    by_rows.fit(X, diagnosis, sample_domain=np.arange(len(X)))
print(caught_warnings[0].message)
by_hospital = DomainConformal(LogisticRegression(), calibration="split")
by_hospital.fit(X, diagnosis, sample_domain=hospital)
n_hospitals = len(by_hospital.calibration_domains_)
print(f"coverage is {by_hospital.promise_}, from {n_hospitals} calibration hospitals")

# %%
# Two hundred new hospitals
# -------------------------
#
# The histograms show the coverage at each new hospital: the share of its patients whose set
# contains the true diagnosis. Only the average over hospitals is guaranteed. If a hospital's
# measurements are very different from those at the source hospitals, its coverage is much lower.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True, sharey=True)
bins = np.linspace(0, 1, 31)
for axes, (title, model, color) in zip(
    panels,
    (
        ("calibrated on random rows", by_rows, "#c17a1a"),
        ("calibrated on held-out hospitals", by_hospital, "#2a9d8f"),
    ),
    strict=True,
):
    sets = model.predict_set(X_new, coverage=0.9)
    is_covered = sets[np.arange(len(sets)), diagnosis_new]
    coverage = is_covered.reshape(200, -1).mean(axis=1)
    axes.hist(coverage, bins, color=color)
    axes.axvline(0.9, color="#374151", linestyle="--", linewidth=1.2)
    size = sets.sum(axis=1).mean()
    axes.set_title(f"{title}\ncoverage {100 * coverage.mean():.0f} %, {size:.1f} diagnoses per set")
    axes.set_xlabel("coverage at a new hospital")
panels[0].set_ylabel("number of hospitals")
plt.show()

# %%
# What the sets look like
# -----------------------
#
# The figure shows how many diagnoses a set contains, for all values of the two measurements. With
# calibration on held-out hospitals, more sets contain two diagnoses.

grid = np.stack(np.meshgrid(np.linspace(-3, 5, 160), np.linspace(-3, 5, 160)), axis=-1)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True)
for axes, title, model in zip(
    panels, ("random rows", "held-out hospitals"), (by_rows, by_hospital), strict=True
):
    counts = model.predict_set(grid.reshape(-1, 2), coverage=0.9).sum(axis=1).reshape(160, 160)
    colors = ["#4b5563", "#eef2ff", "#c7d2fe", "#818cf8"]
    levels = [-0.5, 0.5, 1.5, 2.5, 3.5]
    contours = axes.contourf(*np.moveaxis(grid, -1, 0), counts, levels=levels, colors=colors)
    for value, color in enumerate(("#e0533d", "#2a9d8f", "#c17a1a")):
        axes.scatter(*X[diagnosis == value].T, s=4, color=color, alpha=0.5, linewidths=0)
    axes.set(title=title, xlim=(-3, 5), ylim=(-3, 5))
bar = figure.colorbar(contours, ax=panels, ticks=[0, 1, 2, 3], shrink=0.8)
bar.set_label("diagnoses in a set")
plt.show()

# %%
# Twenty hospitals are used for calibration here. With K calibration hospitals, no coverage above
# K/(K + 1) can be guaranteed, so a coverage of 90 % needs nine. With three to eight hospitals,
# ``calibration="cv"`` uses an approximate rule. Section 16 of :doc:`/theory` contains the
# derivation, and :doc:`/guide/uncertainty` explains the limits of prediction sets.
