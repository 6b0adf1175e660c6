"""
Reading an evaluation
=====================

``evaluate`` leaves every domain out in turn, chooses all parameters on the others, and says which
method holds up. The answer is a table, a sentence and a page; here is how to read them.
"""

# %%
# A table of patients
# -------------------
#
# Six hospitals. Illness raises two markers; a third is a matter of the device, and one hospital
# writes it in another unit. Age and ward are as they are. A few cells are missing.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score

from domainwise import check_shift, evaluate
from domainwise.plots import CalibrationByDomainDisplay, DomainScoresDisplay, ShiftDisplay

rng = np.random.default_rng(0)
N = 45
names = ["Aachen", "Basel", "Chemnitz", "Dresden", "Essen", "Halle"]
hospital = np.repeat(names, N)
ill = rng.random(len(hospital)) < np.repeat(rng.uniform(0.25, 0.6, 6), N)
device = np.repeat(rng.normal(scale=1.2, size=(6, 3)), N, axis=0)
frame = pd.DataFrame(
    {
        "age": rng.integers(20, 90, len(hospital)),
        "ward": rng.choice(["east", "west"], len(hospital)),
        "marker_a": 1.6 * ill + 0.5 * device[:, 0] + rng.normal(size=len(hospital)),
        "marker_b": 1.2 * ill + 0.5 * device[:, 1] + rng.normal(size=len(hospital)),
        "marker_c": 0.8 * ill + 1.5 * device[:, 2] + rng.normal(size=len(hospital)),
        "hospital": hospital,
        "ill": np.where(ill, "yes", "no"),
    }
)
frame.loc[frame["hospital"] == "Halle", "marker_c"] *= 10
frame.loc[rng.choice(len(frame), 20), "marker_b"] = np.nan
markers = frame[["marker_a", "marker_b", "marker_c"]]
ShiftDisplay.from_features(markers, frame["hospital"])
plt.show()

# %%
# The comparison
# --------------
#
# A few methods are enough for a page that has to be built in seconds; without ``methods`` all of
# them are compared. Columns are prepared for all methods in the same way, on the sources only.
# ``mean`` is over hospitals left out, with an interval from ``low`` to ``high``; ``worst`` is the
# score of the hospital that is hardest, and ``seen`` what random folds would have promised.

found = evaluate(
    frame,
    "ill",
    "hospital",
    methods=["constant", "linear", "svm", "invariantridge"],
    progress=False,
)
columns = ["method", "mean", "low", "high", "worst", "worst_domain", "seen", "p_value"]
found.table()[columns].round(3)

# %%
# The verdict
# -----------
#
# In words, and with how sure one can be of it: *p* is that of a signed-rank test over domains,
# and six domains are few.

print(found.verdict())

# %%
# Domain by domain
# ----------------
#
# The mean is not what happens to you: one hospital does. Look at the worst one, and at whether
# methods fail in the same place.

predictions = found.predictions_
by_method = dict(tuple(predictions.sort_values("row").groupby("method", sort=False)))
of_best = by_method[found.best_]
DomainScoresDisplay.from_predictions(
    of_best["target"].to_numpy(),
    {name: rows["prediction"].to_numpy() for name, rows in by_method.items() if name != "constant"},
    of_best["domain"].to_numpy(),
    metric=balanced_accuracy_score,
    highlight=[found.best_],
)
plt.show()

# %%
# Are its probabilities right?
# ----------------------------
#
# Every prediction for a row of a domain left out is kept, so that other questions can be asked of
# the same evaluation: here, how often patients were ill who had been given a probability for it.
# Most hospitals lie off the diagonal, on one side or the other. On average over them it is about
# right.

probability = of_best["probability_yes"].to_numpy()
CalibrationByDomainDisplay.from_predictions(
    of_best["target"].to_numpy(), probability, of_best["domain"].to_numpy(), n_bins=5
)
plt.show()

# %%
# From the evaluation to a model
# ------------------------------
#
# ``fit`` chooses parameters again, in the same way, on all domains, and fits to all rows. The
# model takes new tables as they are, and :func:`~domainwise.check_shift` says what is strange
# about them.

model = found.fit()
new = frame[frame["hospital"] == "Halle"].drop(columns=["hospital", "ill"])
new = new.assign(marker_a=new["marker_a"] * 100)
print(model.predict(new)[:5])
for finding in check_shift(model, new):
    print(finding)

# %%
# ``found.report("page.html")`` writes the whole answer as one HTML page that loads nothing from
# elsewhere. From a file it is a single command, ``domainwise evaluate patients.csv --target ill
# --domain hospital``.
