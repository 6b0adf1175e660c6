"""
What domain shift does to an SVM
================================

Six hospitals take two measurements of each patient. The sum of the two indicates illness. Their
difference depends on the device, and devices differ between hospitals, as does the share of ill
patients. A flexible classifier therefore learns that patients *measured with this device* are
mostly ill, which does not help at the next hospital.
"""

# %%
# Six hospitals
# -------------

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import cross_val_score
from sklearn.svm import SVC

from domainwise import InvariantSVC
from domainwise.selection import domain_cross_validate

rng = np.random.default_rng(0)
DEVICE = np.array([-5, -3, -1, 1, 3, 5])
SHARE_ILL = np.array([0.9, 0.8, 0.1, 0.9, 0.2, 0.1])

hospital = np.repeat(np.arange(6), 80)
ill = (rng.random(480) < SHARE_ILL[hospital]).astype(int)
total = 1.2 * (ill - 0.5) + rng.normal(scale=0.6, size=480)
difference = DEVICE[hospital] + rng.normal(scale=0.5, size=480)
X = np.column_stack([total + difference, total - difference]) / 2

# %%
# Two questions, two numbers
# --------------------------
# Random folds estimate how good an SVM is for *other patients from the same hospitals*. Held-out
# hospitals show how good it is at *another hospital*. The second SVM has a penalty on differences
# between hospitals. ``conditional=True`` compares hospitals within each class, because the shares
# of ill patients differ.

svm = SVC(gamma=0.3)
invariant = InvariantSVC(gamma=0.3, domain_weight=10, conditional=True)

order = rng.permutation(480)
seen_accuracy = cross_val_score(svm, X[order], ill[order], cv=6).mean()
unseen_scores = {
    "SVM": domain_cross_validate(svm, X, ill, hospital),
    "InvariantSVC": domain_cross_validate(invariant, X, ill, hospital),
}
print(f"SVM, random folds: accuracy {seen_accuracy:.2f}")
for name, scores in unseen_scores.items():
    print(f"{name}, held-out hospitals: mean accuracy {scores.mean:.2f}, worst {scores.worst:.2f}")

# %%
# Hospital by hospital
# --------------------

figure, axes = plt.subplots(figsize=(7.2, 3))
for offset, (name, scores) in zip((-0.19, 0.19), unseen_scores.items(), strict=True):
    axes.bar(np.arange(6) + offset, scores.scores, width=0.36, label=f"{name}, held-out hospital")
axes.axhline(seen_accuracy, color="#374151", ls="--", lw=1.2, label="SVM, random folds (mean)")
axes.set(xlabel="held-out hospital", ylabel="accuracy", ylim=(0, 1))
axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, 1.18))
plt.show()

# %%
# What the two models have learned
# --------------------------------
#
# Both models are fitted without the hospital on which the SVM scores worst. The background color
# shows the predicted class. Dots are patients from the source hospitals, and crosses are patients
# from the held-out hospital. The SVM predicts illness wherever a source hospital has many ill
# patients. InvariantSVC follows more closely the sum of the measurements, which indicates illness
# at every hospital.

worst_hospital = unseen_scores["SVM"].worst_domain
is_new = hospital == worst_hospital
svm.fit(X[~is_new], ill[~is_new])
invariant.fit(X[~is_new], ill[~is_new], sample_domain=hospital[~is_new])

BLUE, RED = "#5b8def", "#e0533d"
grid = np.stack(np.meshgrid(np.linspace(-4.5, 4.5, 200), np.linspace(-4.5, 4.5, 200)), axis=-1)
figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharex=True, sharey=True)
for axes, model in zip(panels, (svm, invariant), strict=True):
    regions = model.predict(grid.reshape(-1, 2)).reshape(200, 200)
    axes.contourf(*np.moveaxis(grid, -1, 0), regions, levels=1, colors=[BLUE, RED], alpha=0.18)
    for value, color in ((0, BLUE), (1, RED)):
        source_rows, new_rows = ~is_new & (ill == value), is_new & (ill == value)
        axes.scatter(*X[source_rows].T, s=7, color=color, alpha=0.6, linewidths=0)
        axes.scatter(*X[new_rows].T, s=26, color=color, marker="x", linewidths=1.3)
    accuracy = np.mean(model.predict(X[is_new]) == ill[is_new])
    axes.set(title=f"{type(model).__name__}: accuracy {accuracy:.2f} at hospital {worst_hospital}")
    axes.set_xlabel("first measurement")
panels[0].set_ylabel("second measurement")
plt.show()

# %%
# Trees and nearest neighbours make the same mistake. In this simulated example, the effect is
# large; on real tables it is usually smaller, and sometimes there is none. To find out for your own
# table, compare methods on held-out domains with :func:`domainwise.evaluate`.
