"""
Ten labels help where the share of ill patients differs
=======================================================

A model for heart disease is used at a hospital that it was not trained on. After a week, the
outcomes of ten patients are known. How much do these labels improve the model? Here, each of four
real hospitals is the new hospital in turn. At one of them, labels help a lot. At two of them, a few
labels make the model slightly worse. The source hospitals alone do not show which is the case.
"""

# %%
# Four hospitals
# --------------
#
# The data are included in the package: 13 measurements for 920 patients, with missing values, and
# whether each patient has heart disease. The hospitals differ most in the share of patients who are
# ill.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import SiteAdapter
from domainwise.datasets import load_heart

heart = load_heart()
X, y, hospital = heart.data, heart.target, heart.sample_domain
names = np.unique(hospital)
for name in names:
    ill = y[hospital == name]
    print(f"{name:12}{len(ill):4d} patients, {100 * ill.mean():.0f} % ill")

# %%
# A model that can be adapted
# ---------------------------
#
# :class:`~domainwise.SiteAdapter` accepts any estimator, here a scikit-learn pipeline. ``fit``
# holds out each source hospital in turn and measures how much the hospitals differ. ``adapt`` then
# returns a copy for a new site, corrected with labels from this site. We score the probabilities by
# their log loss (smaller is better), because labels mainly correct the level of the probabilities.

estimator = make_pipeline(
    SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(C=0.1)
)
models = {}
for name in names:
    is_source = hospital != name
    model = SiteAdapter(estimator, scoring="neg_log_loss")
    models[name] = model.fit(X[is_source], y[is_source], sample_domain=hospital[is_source])

# %%
# Labels for randomly drawn patients
# ----------------------------------
#
# At each new hospital, we draw 5, 10, 20 and 50 patients at random and adapt the model with their
# labels. This is repeated eight times. The log loss is computed on the remaining patients, who are
# the same for all numbers of labels.

COUNTS, DRAWS = (0, 5, 10, 20, 50), 8
rng = np.random.default_rng(0)
losses = {}
for name, model in models.items():
    rows = np.flatnonzero(hospital == name)
    losses[name] = np.empty((DRAWS, len(COUNTS)))
    for draw in range(DRAWS):
        order = rng.permutation(rows)
        scored_rows = order[max(COUNTS) :]
        for j, n_labels in enumerate(COUNTS):
            labelled_rows = order[:n_labels]
            adapted = model
            if n_labels:
                adapted = model.adapt(X[labelled_rows], y[labelled_rows])
            probabilities = adapted.predict_proba(X[scored_rows])
            losses[name][draw, j] = log_loss(y[scored_rows], probabilities)

# %%
# Observed and predicted
# ----------------------
#
# ``label_gain_`` predicts the score from the three source hospitals, before any label is collected.
# Each thin line is one draw of labels. Three source hospitals are too few for prediction intervals.

figure, panels = plt.subplots(
    1, 4, figsize=(11, 3.6), sharex=True, sharey=True, layout="constrained"
)
for axes, (name, observed) in zip(panels, losses.items(), strict=True):
    expected = models[name].label_gain_
    axes.plot(COUNTS, -expected["score"], "s--", color="#5b8def", markersize=4, label="predicted")
    axes.plot(COUNTS, observed.T, color="#e0533d", alpha=0.25, linewidth=0.8)
    axes.plot(COUNTS, observed.mean(axis=0), "o-", color="#e0533d", markersize=5, label="observed")
    axes.set(title=name, xticks=COUNTS, xlabel="labels", ylim=(0.2, 1.0))
panels[0].set_ylabel("log loss (smaller is better)")
panels[0].legend(loc="upper right")
plt.show()

for name, observed in losses.items():
    gains = observed[:, [0]] - observed
    for n_labels in (10, 50):
        gain = gains[:, COUNTS.index(n_labels)]
        error = gain.std(ddof=1) / np.sqrt(DRAWS)
        print(
            f"{name:12} {n_labels} labels change the log loss by {-gain.mean():+.3f} ± {error:.3f}"
        )

# %%
# Much of this is explained by the share of ill patients. Without labels, the mean predicted
# probability can be far from the share of patients who are ill at the new hospital. Labels correct
# this difference.

for name, model in models.items():
    is_new = hospital == name
    predicted, observed = model.predict_proba(X[is_new])[:, 1].mean(), y[is_new].mean()
    print(f"{name:12} predicted {100 * predicted:.0f} % ill, observed {100 * observed:.0f} % ill")

# %%
# Conclusions
# -----------
# - In **Switzerland**, nearly all patients are ill, unlike at the source hospitals, and the
#   predicted share is far too low. Ten labels correct much of this, and fifty labels still more.
#   At the **Hungarian** hospital, the predicted share is too high, and labels
#   improve the log loss a little.
# - At **Cleveland and VA**, the predicted share is already correct. Ten labels only add noise, and
#   the log loss is slightly higher than without labels. With fifty labels, this effect is smaller.
#   An average over the four hospitals would hide it.
# - **The predicted gain is uncertain.** Three source hospitals provide little information about the
#   fourth, and are too few for a prediction interval. No other hospital is
#   similar to Switzerland, so no gain is predicted there. ``label_gain_`` predicts the average gain
#   over domains that are similar to the source domains, not the gain at a single new domain.
#
# :doc:`/guide/labels` describes the method and when labels help.
