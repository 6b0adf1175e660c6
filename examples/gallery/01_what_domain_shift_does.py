"""
Random folds promise too much
=============================

Cross-validation with random folds says how good a model is for *other patients of the same
hospitals*. A model is usually needed for *another hospital*, where it is worse. Four hospitals show
by how much.
"""

# %%
# Four hospitals
# --------------
# The data are included in the package: 13 measurements of 920 patients, some of them missing, and
# whether a patient has heart disease.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import KFold, cross_val_score

from domainwise.datasets import load_heart
from domainwise.selection import domain_cross_validate

heart = load_heart()
X, y, hospital = heart.data, heart.target, heart.sample_domain
for name in np.unique(hospital):
    ill = y[hospital == name]
    print(f"{name:12}{len(ill):4d} patients, {100 * ill.mean():.0f} % ill")

# %%
# Two questions, two numbers
# --------------------------
# The model is the same. Only the rows on which it is scored differ: random rows of all hospitals,
# or all rows of a hospital that it was not fitted to.

model = HistGradientBoostingClassifier(random_state=0)
folds = KFold(10, shuffle=True, random_state=0)
same_hospitals = cross_val_score(model, X, y, cv=folds).mean()
another_hospital = domain_cross_validate(model, X, y, hospital)
print(f"accuracy for other patients of the same hospitals: {same_hospitals:.2f}")
print(f"accuracy at another hospital:                      {another_hospital.mean:.2f}")

# %%
# Hospital by hospital
# --------------------

figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.barh(another_hospital.domains, another_hospital.scores, height=0.5)
axes.axvline(same_hospitals, color="#c2402b")
axes.set(xlabel="accuracy at the held-out hospital; line: random folds", xlim=(0.5, 0.9))
plt.show()

# %%
# At every hospital, the accuracy is lower than random folds promise. The hospitals differ in the
# share of ill patients and in how they measure, and random folds let a model learn these
# differences. :func:`domainwise.evaluate` holds out hospitals for every method that it compares,
# and estimates the range for one new hospital.
