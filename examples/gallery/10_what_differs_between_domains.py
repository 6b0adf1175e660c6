"""
A wrong unit shows before any outcome is known
==============================================

A hospital sends new rows, and one column is in another unit. The predictions look normal. A model
that stores statistics of its source hospitals can report the difference at once.
"""

# %%
# Three hospitals and a new one
# -----------------------------
# The fourth hospital reports blood pressure (``trestbps``) in kPa instead of mmHg.

import matplotlib.pyplot as plt
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import ShiftWatch, check_shift
from domainwise.datasets import load_heart
from domainwise.plots import ShiftDisplay

COLUMNS = ["age", "trestbps", "chol", "thalach", "oldpeak"]
frame = load_heart(as_frame=True).frame
is_new = frame["domain"] == "cleveland"
X, y, hospital = frame[COLUMNS], frame["label"], frame["domain"]
wrong = X[is_new].assign(trestbps=X["trestbps"] / 7.5)

# %%
# A shift check
# -------------
# ``ShiftWatch`` is the first step of the pipeline. It stores statistics, but no row.

model = make_pipeline(
    ShiftWatch(), SimpleImputer(), StandardScaler(), LogisticRegression(class_weight="balanced")
)
model.fit(X[~is_new], y[~is_new], shiftwatch__sample_domain=hospital[~is_new])
for title, rows in {"in kPa": wrong, "in mmHg": X[is_new]}.items():
    print(f"{title}: accuracy {model.score(rows, y[is_new]):.2f}")
    for finding in check_shift(model, rows):
        print(f"  {finding.kind}: {finding}")

# %%
# By luck, the accuracy is the same with both units: this model hardly uses the blood pressure.
#
# Feature by feature
# ------------------
# The figure shows medians and quartiles by hospital, in standard deviations of the source
# hospitals. The new hospital is far away in one column only. Cholesterol is 0 at some hospitals,
# where it was not measured.

rows = X.where(~is_new, wrong)
ShiftDisplay.from_features(rows, hospital, new=["cleveland"])
plt.show()

# %%
# Without outcomes, nobody can compute the accuracy at the new hospital. The check needs none. It
# reports differences that are larger than those between the source hospitals, and it is part of
# every model that ``domainwise fit`` writes (:doc:`/guide/shift`).
