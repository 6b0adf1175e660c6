"""
Reading an evaluation
=====================

You have data from four hospitals. Which model should you use at a fifth one, and what score can you
expect there? :func:`~domainwise.evaluate` holds out each hospital in turn and chooses all
parameters on the others. This example explains its results.
"""

# %%
# Four hospitals
# --------------
#
# The table contains 13 measurements for 920 patients with and without heart disease (UCI). The
# figure shows medians and quartiles of some measurements at each hospital. Cholesterol is 0 for
# every patient in Switzerland, which means that it was not measured there.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt

from domainwise import check_shift, evaluate
from domainwise.datasets import load_heart
from domainwise.plots import CalibrationDisplay, DomainScoresDisplay, ShiftDisplay

heart = load_heart(as_frame=True).frame
measurements = heart[["age", "trestbps", "chol", "thalach", "oldpeak"]]
ShiftDisplay.from_features(measurements, heart["domain"])
plt.show()

# %%
# The comparison
# --------------
#
# We compare only a few methods, so that this example runs in seconds. All methods get the same
# columns, preprocessed with statistics from the source hospitals only. ``mean`` is the mean score
# over held-out hospitals, and ``low`` and ``high`` are the limits of its confidence interval.
# ``worst`` is the lowest score at a single hospital.

evaluation = evaluate(
    heart,
    "label",
    "domain",
    methods=["constant", "linear", "boosting", "invariantridge"],
    progress=False,
)
columns = ["method", "mean", "low", "high", "worst", "worst_domain"]
evaluation.table()[columns].round(3)

# %%
# The verdict
# -----------
# The verdict states the recommended method, the score to expect at the next hospital, and the
# confidence. The score range is for *one* new hospital, not for the mean over hospitals.

print(evaluation.verdict())

# %%
# Hospital by hospital
# --------------------
# The mean over hospitals does not show how a model performs at an individual hospital. Look at the
# worst hospital, and check whether all methods fail at the same hospital.

predictions = evaluation.predictions_
rows_by_method = dict(tuple(predictions.sort_values("row").groupby("method", sort=False)))
best_rows = rows_by_method[evaluation.best_]
DomainScoresDisplay.from_predictions(
    best_rows["target"].to_numpy(),
    {name: rows["prediction"].to_numpy() for name, rows in rows_by_method.items()},
    best_rows["domain"].to_numpy(),
    highlight=[evaluation.best_],
)
plt.show()

# %%
# Are the probabilities calibrated?
# ---------------------------------
#
# The evaluation stores all predictions for held-out hospitals, so you can examine them further. For
# example: of the patients with a given predicted probability, how many are ill? In Switzerland, far
# more are ill than the model predicts, because nearly all patients there are ill. A few labels from
# the new hospital correct this (:doc:`/guide/labels`).

CalibrationDisplay.from_predictions(
    best_rows["target"].to_numpy(),
    best_rows["probability_1"].to_numpy(),
    best_rows["domain"].to_numpy(),
    n_bins=5,
)
plt.show()

# %%
# From the evaluation to a model
# ------------------------------
#
# ``fit`` chooses parameters on all hospitals and fits the model to all rows. The model includes the
# preprocessing, so it accepts new tables as they are, and :func:`~domainwise.check_shift` reports
# how they differ from the source hospitals. In this example, a hospital records blood pressure in
# kPa instead of mmHg.

model = evaluation.fit()
new_table = heart[heart["domain"] == "cleveland"].drop(columns=["domain", "label"])
new_table = new_table.assign(trestbps=new_table["trestbps"] / 7.5)
print(model.predict(new_table)[:5])
for finding in check_shift(model, new_table):
    print(finding)

# %%
# ``evaluation.report("page.html")`` writes the results as an HTML page (:doc:`/guide/report`). If
# the table is a file, one command is enough: ``domainwise evaluate hospitals.csv --target label
# --domain domain``.
