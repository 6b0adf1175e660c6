"""
Sites that do not share their rows
==================================

Eight hospitals are not allowed to collect their patient data in one table. They can still fit one
model together: each sends two small files of sums, whose size does not depend on the number of
patients. How much better is this model at a new hospital than a model fitted at one hospital?
"""

# %%
# Eight hospitals
# ---------------
#
# Three markers indicate illness in the same way at all hospitals. The relation of two other markers
# to illness differs between hospitals. In practice, each table would stay on a machine at its
# hospital.

# sphinx_gallery_thumbnail_number = 1
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from domainwise.federated import DisclosureError, Plan, fit, merge, moments, statistics

rng = np.random.default_rng(0)
MARKERS = [f"marker_{letter}" for letter in "abcde"]


def make_patients(name, n=400):
    """Draw a table for one hospital."""
    ill = rng.random(n) < 0.4
    effects = [0.8, 0.8, 0.8, *rng.normal(scale=1.5, size=2)]
    values = {m: e * ill + rng.normal(size=n) for m, e in zip(MARKERS, effects, strict=True)}
    return pd.DataFrame({**values, "site": name, "ill": np.where(ill, "yes", "no")})


names = ("north", "east", "south", "west", "lake", "hill", "moor", "bay")
hospitals = {name: make_patients(name) for name in names}

# %%
# Two rounds
# ----------
# The coordinator creates a plan from a few made-up rows: columns, target, kernels. In the first
# round, every hospital sends counts, means, and means of blocks of values. From them, the
# coordinator computes the common preprocessing, and how many columns of features may be sent
# without disclosing individual patients. In the second round, every hospital sends the moments of
# these columns. From these moments alone, the coordinator chooses a model by holding out each
# hospital in turn, and fits it.

plan = Plan.of_table(make_patients("made up", 60), target="ill", domain="site")
merged = merge(plan, [statistics(rows, plan, site=name) for name, rows in hospitals.items()])
second_round = {name: moments(rows, merged, site=name) for name, rows in hospitals.items()}
model = fit(merged, second_round.values())
print(*second_round["north"].describe(), sep="\n")

# %%
# What leaves a hospital
# ----------------------
# We print the size of a second-round file for 100, 1,000 and 3,000 patients. The file contains sums
# of features by class, but no rows, and it has at most half as many numbers as the table. If a
# hospital has too few patients, the file is not written. :doc:`/federated` describes what could be
# inferred from a file.

with tempfile.TemporaryDirectory() as folder:
    for n in (100, 1_000, 3_000):
        path = Path(folder) / f"{n}.npz"
        try:
            moments(make_patients("ninth", n), merged, site="ninth").save(path)
            print(f"{n:>6} patients: {path.stat().st_size / 1000:.0f} kB")
        except DisclosureError as error:
            print(f"{n:>6} patients: {error}")

# %%
# Accuracy at new hospitals
# -------------------------
# Thirty new hospitals did not take part. We predict their patients with the federated model from
# all eight hospitals, and with eight logistic regressions, each fitted at one hospital.


def accuracy(predicted, rows):
    """Return the share of patients who are classified correctly."""
    return np.mean(np.asarray(predicted) == rows["ill"].to_numpy())


single_models = {
    name: LogisticRegression().fit(rows[MARKERS], rows["ill"]) for name, rows in hospitals.items()
}
new = [make_patients("new") for _ in range(30)]
scores = {
    "all eight together": [
        accuracy(model.predictions(model.schema.prepare(rows))["prediction"], rows) for rows in new
    ]
}
for name, single in single_models.items():
    scores[f"{name} only"] = [accuracy(single.predict(rows[MARKERS]), rows) for rows in new]

figure, axes = plt.subplots(figsize=(7.2, 3.8))
for number, values in enumerate(scores.values()):
    color = "#e0533d" if number == 0 else "#5b8def"
    spread = np.linspace(-0.2, 0.2, len(values))
    axes.scatter(values, -number + spread, s=14, color=color, alpha=0.6, linewidths=0)
    axes.plot([np.mean(values)] * 2, [-number - 0.3, -number + 0.3], color="#374151", linewidth=2)
axes.set_yticks(-np.arange(len(scores)), scores)
axes.set_xlabel("accuracy at each of thirty new hospitals (dots) and their mean (line)")
plt.show()
for name, values in scores.items():
    print(f"{name:18} accuracy: mean {np.mean(values):.2f}, worst hospital {min(values):.2f}")

# %%
# Data from one hospital do not show which relations are valid only there. Data from eight hospitals
# do: the best candidate is chosen by holding out each hospital in turn, from the sums alone. To ten
# digits, the sums are the same as if all rows were in one place. The main disadvantage of not
# sharing rows is that the default settings limit the number of columns (:doc:`/federated`).
