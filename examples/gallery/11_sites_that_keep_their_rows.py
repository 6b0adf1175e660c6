"""
Sites that keep their rows
==========================

Eight hospitals may not put their patients into one file. They can still fit one model together, by
exchanging sums: two small files each, whose size does not depend on the number of patients. What
does a new hospital gain from that, compared with a model of one hospital alone?
"""

# %%
# Hospitals
# ---------
#
# Three markers show illness in the same way everywhere. Two others are related to it differently
# at each hospital: a local habit. In practice each of these tables is on a machine of its own.

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


def patients(name, n=400):
    """The table of one hospital."""
    ill = rng.random(n) < 0.4
    effects = [0.8, 0.8, 0.8, *rng.normal(scale=1.5, size=2)]
    values = {m: e * ill + rng.normal(size=n) for m, e in zip(MARKERS, effects, strict=True)}
    return pd.DataFrame({**values, "site": name, "ill": np.where(ill, "yes", "no")})


names = ("north", "east", "south", "west", "lake", "hill", "moor", "bay")
hospitals = {name: patients(name) for name in names}

# %%
# Two rounds
# ----------
#
# The coordinator makes a plan from a few rows that are made up: columns, target, kernels. Every
# hospital answers with counts, means and means of blocks of values; these become the common
# preprocessing, and from the counts follows how many columns of features may be sent without
# disclosing single patients. Then every hospital answers with the moments of these columns. From
# these alone the model is chosen, with each hospital held out in turn, and fitted.

plan = Plan.of_table(patients("nowhere", 60), target="ill", domain="site")
merged = merge(plan, [statistics(rows, plan, site=name) for name, rows in hospitals.items()])
second = {name: moments(rows, merged, site=name) for name, rows in hospitals.items()}
model = fit(merged, second.values())
print(*second["north"].words(), sep="\n")

# %%
# How much leaves a hospital
# --------------------------
#
# The file of the second round, for more and more patients. It holds sums of features by class,
# and no row: at most half as many numbers as the patients have values. A hospital with too few
# patients is refused. What could be inferred from a file is described in :doc:`/federated`.

with tempfile.TemporaryDirectory() as folder:
    for n in (100, 1_000, 3_000):
        path = Path(folder) / f"{n}.npz"
        try:
            moments(patients("late", n), merged, site="late").save(path)
            print(f"{n:>6} patients: {path.stat().st_size / 1000:.0f} kB")
        except DisclosureError as error:
            print(f"{n:>6} patients: {error}")

# %%
# What a new hospital gains
# -------------------------
#
# Thirty hospitals that took no part. Each is predicted by the model from the sums of eight, and by
# a logistic regression of each of the eight alone.


def accuracy(predicted, rows):
    """Share of patients that are classified correctly."""
    return np.mean(np.asarray(predicted) == rows["ill"].to_numpy())


alone = {name: LogisticRegression().fit(r[MARKERS], r["ill"]) for name, r in hospitals.items()}
new = [patients("new") for _ in range(30)]
scores = {
    "sums of all eight": [
        accuracy(model.predictions(model.schema.prepare(rows))["prediction"], rows) for rows in new
    ]
}
for name, single in alone.items():
    scores[f"{name} alone"] = [accuracy(single.predict(rows[MARKERS]), rows) for rows in new]

figure, axes = plt.subplots(figsize=(7.2, 3.8))
for number, values in enumerate(scores.values()):
    colour = "#e0533d" if number == 0 else "#5b8def"
    spread = np.linspace(-0.2, 0.2, len(values))
    axes.scatter(values, -number + spread, s=14, color=colour, alpha=0.6, linewidths=0)
    axes.plot([np.mean(values)] * 2, [-number - 0.3, -number + 0.3], color="#374151", linewidth=2)
axes.set_yticks(-np.arange(len(scores)), scores)
axes.set_xlabel("accuracy at each of thirty new hospitals (dots) and their mean (line)")
plt.show()
for name, values in scores.items():
    print(f"{name:18} accuracy: mean {np.mean(values):.2f}, worst hospital {min(values):.2f}")

# %%
# A hospital alone cannot know which of its relations are local habits. Eight together can: the
# candidate is chosen by holding each hospital out in turn, from the sums alone. The sums are those
# of all rows in one place, to ten digits, so nothing is lost by keeping rows where they are,
# except that the safe default sends fewer columns (:doc:`/federated`).
