"""
Reading an evaluation
=====================

Four hospitals. Which model would you take to a fifth, and what would it score there?
:func:`~domainwise.evaluate` holds out every hospital in turn and chooses all parameters on the
others. This page reads its answer.
"""

# %%
# Four hospitals
# --------------
#
# Heart disease (UCI): 920 patients, 13 measurements. The figure shows medians and quartiles of some
# measurements at each hospital. Cholesterol is 0 for every patient in Switzerland, which means that
# nobody measured it.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt

from domainwise import check_shift, evaluate
from domainwise.datasets import load_heart
from domainwise.plots import CalibrationByDomainDisplay, DomainScoresDisplay, ShiftDisplay

heart = load_heart(as_frame=True).frame
measured = heart[["age", "trestbps", "chol", "thalach", "oldpeak"]]
ShiftDisplay.from_features(measured, heart["domain"])
plt.show()

# %%
# The comparison
# --------------
#
# A few methods are enough for a page that is built in seconds. All methods get the same columns,
# prepared with statistics of the source hospitals only. ``mean`` is the mean over held-out
# hospitals, with an interval for that mean from ``low`` to ``high``; ``worst`` is the hospital with
# the lowest score.

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
# The answer
# ----------
#
# Which method to take, what to expect at the next hospital, and how certain that is. The range is
# for *one* new hospital.

print(evaluation.verdict())

# %%
# Hospital by hospital
# --------------------
#
# The mean is not what happens to you: one hospital does. Look at the worst one, and at whether
# methods fail at the same place.

predictions = evaluation.predictions_
by_method = dict(tuple(predictions.sort_values("row").groupby("method", sort=False)))
of_best = by_method[evaluation.best_]
DomainScoresDisplay.from_predictions(
    of_best["target"].to_numpy(),
    {name: rows["prediction"].to_numpy() for name, rows in by_method.items()},
    of_best["domain"].to_numpy(),
    highlight=[evaluation.best_],
)
plt.show()

# %%
# Are its probabilities right?
# ----------------------------
#
# The evaluation stores every prediction for a held-out hospital, so you can ask other questions of
# it. Here: how many patients with a given probability are ill? In Switzerland far more are than the
# model expects, because nearly all patients there are ill. Labels from the new hospital correct
# that (:doc:`/guide/labels`).

CalibrationByDomainDisplay.from_predictions(
    of_best["target"].to_numpy(),
    of_best["probability_1"].to_numpy(),
    of_best["domain"].to_numpy(),
    n_bins=5,
)
plt.show()

# %%
# From the evaluation to a model
# ------------------------------
#
# ``fit`` chooses parameters on all hospitals and fits to all rows. The model accepts new tables as
# they are, and :func:`~domainwise.check_shift` reports how they differ from the sources. Here a
# hospital records blood pressure in kPa instead of mmHg.

model = evaluation.fit()
new = heart[heart["domain"] == "cleveland"].drop(columns=["domain", "label"])
new = new.assign(trestbps=new["trestbps"] / 7.5)
print(model.predict(new)[:5])
for finding in check_shift(model, new):
    print(finding)

# %%
# ``evaluation.report("page.html")`` writes the answer as one page (:doc:`/guide/report`). From a
# file it is one command: ``domainwise evaluate hospitals.csv --target label --domain domain``.
