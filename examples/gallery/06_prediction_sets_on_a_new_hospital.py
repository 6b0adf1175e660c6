"""
Sets calibrated on random rows are too small at a new hospital
==============================================================

A prediction set contains the plausible diagnoses for a patient. With a coverage of 90 %, the set
contains the true diagnosis for nine in ten patients. At a new hospital, sets that were calibrated
on random rows are too small. Sets that were calibrated on held-out hospitals are larger, and their
coverage is at least 90 % on average over hospitals, though not at each of them.
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

models = {"calibrated on random rows": by_rows, "calibrated on held-out hospitals": by_hospital}
coverages, sizes = {}, {}
for title, model in models.items():
    sets = model.predict_set(X_new, coverage=0.9)
    is_covered = sets[np.arange(len(sets)), diagnosis_new]
    coverages[title] = is_covered.reshape(200, -1).mean(axis=1)
    sizes[title] = sets.sum(axis=1)
    print(f"{title:33} coverage {100 * coverages[title].mean():.0f} %")

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True, sharey=True)
for axes, (title, coverage) in zip(panels, coverages.items(), strict=True):
    axes.hist(coverage, np.linspace(0, 1, 31))
    axes.axvline(0.9, color="#848e9a", linestyle="--")
    axes.set(title=title, xlabel="coverage at a new hospital", ylabel="number of hospitals")
plt.show()

# %%
# What the sets look like
# -----------------------
#
# With calibration on held-out hospitals, more sets contain two or three diagnoses: the measurements
# of such a patient do not tell them apart, if the hospital is unknown.

for title, counts in sizes.items():
    shares = 100 * np.bincount(counts, minlength=4) / len(counts)
    print(f"{title:33}", ", ".join(f"{k}: {share:.0f} %" for k, share in enumerate(shares)))

# %%
# Twenty hospitals are used for calibration here. With T calibration hospitals, no coverage above
# T/(T + 1) can be guaranteed, so a coverage of 90 % needs nine. ``calibration="cv"`` uses all
# hospitals, from three on, and an approximate rule. Section 16 of :doc:`/theory` contains the
# derivation, and :doc:`/guide/uncertainty` explains the limits of prediction sets.
