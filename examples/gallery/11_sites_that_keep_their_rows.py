"""
Sites that keep their rows
==========================

Six hospitals may not put their patients into one file. They fit one model all the same, by
exchanging sums: two small files each, whose size does not depend on how many patients there are.
What does a new hospital gain by that, against a model of one hospital alone?
"""

# %%
# Hospitals
# ---------
#
# Illness shows in two markers, in the same way everywhere; each hospital measures a little
# differently. In practice each of these tables lies on a machine of its own.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise.federated import DisclosureError, Plan, fit, merge, moments, statistics

rng = np.random.default_rng(0)


def patients(name, n=300):
    """The table of one hospital."""
    ill = rng.random(n) < rng.uniform(0.25, 0.5)
    level = rng.normal(scale=1.0, size=2)
    marker_a = 1.8 * ill + level[0] + rng.normal(size=n)
    marker_b = -1.2 * ill + level[1] + rng.normal(size=n)
    told = np.where(ill, "yes", "no")
    return pd.DataFrame({"marker_a": marker_a, "marker_b": marker_b, "site": name, "ill": told})


hospitals = {name: patients(name) for name in ("north", "east", "south", "west", "lake", "hill")}

# %%
# Two rounds
# ----------
#
# The coordinator makes a plan from a few rows that are made up: columns, target, kernels. Every
# hospital answers with counts, means and means of blocks of values; these become the common
# preprocessing, and from the counts follows how many columns of features may be sent without
# disclosing single patients. Then every hospital answers with the moments of these columns, and
# from these alone the model is chosen, leaving each hospital out in turn, and fitted.

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
# Thirty hospitals that had no part in it. Each is predicted by the model from the sums of six,
# and by a logistic regression of each of the six alone.


def right(predicted, rows):
    """Share of patients whose illness is told rightly."""
    return np.mean(np.asarray(predicted) == rows["ill"].to_numpy())


MARKERS = ["marker_a", "marker_b"]
alone = {
    name: make_pipeline(StandardScaler(), LogisticRegression()).fit(rows[MARKERS], rows["ill"])
    for name, rows in hospitals.items()
}
new = [patients("new") for _ in range(30)]
together = [right(model.predictions(model.schema.prepare(t))["prediction"], t) for t in new]
single = {name: [right(each.predict(t[MARKERS]), t) for t in new] for name, each in alone.items()}

figure, axes = plt.subplots(figsize=(7.2, 3.4))
groups = {"sums of all six": together, **{f"{name} alone": s for name, s in single.items()}}
for number, scores in enumerate(groups.values()):
    colour = "#e0533d" if number == 0 else "#5b8def"
    spread = np.linspace(-0.2, 0.2, len(scores))
    axes.scatter(scores, -number + spread, s=14, color=colour, alpha=0.6, linewidths=0)
    axes.plot([np.mean(scores)] * 2, [-number - 0.3, -number + 0.3], color="#374151", linewidth=2)
axes.set_yticks(-np.arange(len(groups)), groups)
axes.set_xlabel("share predicted rightly in each of thirty new hospitals; bar: mean")
plt.show()
for title, summary in {"on average": np.mean, "in the hospital served worst": np.min}.items():
    each = [summary(scores) for scores in single.values()]
    alone_too = f"one alone {min(each):.2f} to {max(each):.2f}"
    print(f"{title}: six together {summary(together):.2f}, {alone_too}")

# %%
# One hospital alone is a lottery: whose level happens to lie in the middle does well elsewhere,
# and nobody knows beforehand whose that is. Six together come out among the better tickets
# without drawing one. Each candidate is fitted to sums that are those of all rows in one place,
# to ten digits.
