"""
Prediction sets on a new hospital
=================================

A prediction set holds the classes that a patient may have; at 90 % nine of ten patients have
theirs in it. Calibrated on random rows such sets hold what they promise in the hospitals they
know, and not in the next one. Calibrated on hospitals left out they are larger, and right on
average over hospitals. Not in each of them.
"""

# %%
# Hospitals, three diagnoses
# --------------------------

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from domainwise.selection import DomainConformal

CENTRES = np.array([[0, 0], [2.2, 0], [1.1, 1.9]])


def draw(rng, n_hospitals, n=60):
    """Measurements, diagnoses and hospitals; every hospital measures a little differently."""
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
#
# Both are the same logistic regression, and the same rule for sets. The first takes rows as they
# come: each is a domain of its own, dealt at random. The second leaves hospitals out; with
# ``calibration="split"`` half of them serve nothing but calibration, and the coverage is
# guaranteed. The library has a word to say about the first.

folds = list(KFold(10, shuffle=True, random_state=0).split(X))
by_rows = DomainConformal(LogisticRegression(), cv=folds)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    by_rows.fit(X, diagnosis, sample_domain=np.arange(len(X)))
print(said[0].message)
by_hospital = DomainConformal(LogisticRegression(), calibration="split")
by_hospital.fit(X, diagnosis, sample_domain=hospital)
print(by_hospital.promise_, "from", len(by_hospital.calibration_domains_), "hospitals")

# %%
# Two hundred new hospitals
# -------------------------
#
# The share of patients whose diagnosis is in their set, for each hospital. The average is what is
# promised; a hospital that measures very differently is covered far less, and no promise is made
# about it.

figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True, sharey=True)
bins = np.linspace(0, 1, 31)
for axes, (title, model, colour) in zip(
    panels,
    (
        ("calibrated on random rows", by_rows, "#d9902f"),
        ("calibrated on hospitals left out", by_hospital, "#2a9d8f"),
    ),
    strict=True,
):
    sets = model.predict_set(X_new, coverage=0.9)
    inside = sets[np.arange(len(sets)), diagnosis_new]
    coverage = inside.reshape(200, -1).mean(axis=1)
    axes.hist(coverage, bins, color=colour)
    axes.axvline(0.9, color="#374151", linestyle="--", linewidth=1.2)
    size = sets.sum(axis=1).mean()
    axes.set_title(f"{title}\n{inside.mean():.0%} of patients, {size:.1f} diagnoses in a set")
    axes.set_xlabel("share of a hospital's patients in their set")
panels[0].set_ylabel("hospitals")
plt.show()

# %%
# What the sets look like
# -----------------------
#
# The number of diagnoses in a set, over the plane of measurements. With hospitals left out one
# has to admit more often that two diagnoses are possible.

grid = np.stack(np.meshgrid(np.linspace(-3, 5, 160), np.linspace(-3, 5, 160)), axis=-1)
figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True)
for axes, title, model in zip(
    panels, ("random rows", "hospitals left out"), (by_rows, by_hospital), strict=True
):
    counts = model.predict_set(grid.reshape(-1, 2), coverage=0.9).sum(axis=1).reshape(160, 160)
    colours = ["#4b5563", "#eef2ff", "#c7d2fe", "#818cf8"]
    levels = [-0.5, 0.5, 1.5, 2.5, 3.5]
    drawn = axes.contourf(*np.moveaxis(grid, -1, 0), counts, levels=levels, colors=colours)
    for value, colour in enumerate(("#e0533d", "#2a9d8f", "#d9902f")):
        axes.scatter(*X[diagnosis == value].T, s=4, color=colour, alpha=0.5, linewidths=0)
    axes.set(title=title, xlim=(-3, 5), ylim=(-3, 5))
bar = figure.colorbar(drawn, ax=panels, ticks=[0, 1, 2, 3], shrink=0.8)
bar.set_label("diagnoses in a set")
plt.show()

# %%
# Twenty hospitals calibrate here. With K of them nothing beyond K/(K + 1) can be promised: nine
# are the fewest for 90 %, and with so few sets are larger than they would have to be. How it is
# derived is in :doc:`/theory`, section 16, and :doc:`/guide/uncertainty` says what to know before
# one trusts a set.
