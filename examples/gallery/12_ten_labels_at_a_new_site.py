"""
Ten labels at a new site
========================

A model for heart disease goes to a hospital that it was not trained on. After a week, the outcomes
of ten patients are known. Are they worth collecting? Here each of four real hospitals is the new
one in turn. At one of them labels help a great deal, at two of them they do harm at first, and the
source hospitals alone cannot predict which is the case.
"""

# %%
# Four hospitals
# --------------
#
# The data are part of the package: 920 patients, 13 measurements with missing values, and whether
# the patient has heart disease. The hospitals differ most in one respect: the share of patients who
# are ill.

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
    print(f"{name:12}{np.sum(hospital == name):4d} patients, {y[hospital == name].mean():.0%} ill")

# %%
# A model that can be adapted
# ---------------------------
#
# :class:`~domainwise.SiteAdapter` takes any estimator, here a plain pipeline. ``fit`` holds every
# source hospital out in turn, and learns how much hospitals differ. ``adapt`` then returns a copy
# for a site, corrected by the site's labels. The score is the log loss of the probabilities, as
# their level is what labels can correct; smaller is better.

estimator = make_pipeline(
    SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(C=0.1)
)
models = {}
for name in names:
    known = hospital != name
    model = SiteAdapter(estimator, scoring="neg_log_loss")
    models[name] = model.fit(X[known], y[known], sample_domain=hospital[known])

# %%
# Random labels, eight times
# --------------------------
#
# From each new hospital, 5, 10, 20 and 50 patients are drawn at random and adapt the model. The
# loss is that of the other patients, and the same patients are scored with and without labels.

COUNTS, DRAWS, MOST = (0, 5, 10, 20, 50), 8, 50
rng = np.random.default_rng(0)
losses = {}
for name, model in models.items():
    rows = np.flatnonzero(hospital == name)
    losses[name] = np.empty((DRAWS, len(COUNTS)))
    for draw in range(DRAWS):
        order = rng.permutation(rows)
        rest = order[MOST:]
        for j, n_labels in enumerate(COUNTS):
            labelled = order[:n_labels]
            site = model.adapt(X[labelled], y[labelled]) if n_labels else model
            losses[name][draw, j] = log_loss(y[rest], site.predict_proba(X[rest]))

# %%
# Observed and predicted
# ----------------------
#
# ``label_gain_`` is the prediction, made from the three source hospitals before any label is
# collected; the shaded band is its interval. Thin lines are single draws of labels.

figure, panels = plt.subplots(1, 4, figsize=(11, 3.6), sharex=True, sharey=True)
for axes, (name, observed) in zip(panels, losses.items(), strict=True):
    expected = models[name].label_gain_
    axes.fill_between(
        COUNTS, -expected["high"], -expected["low"], color="#5b8def", alpha=0.15, linewidth=0
    )
    axes.plot(COUNTS, -expected["score"], "s--", color="#5b8def", markersize=4, label="predicted")
    axes.plot(COUNTS, observed.T, color="#e0533d", alpha=0.25, linewidth=0.8)
    axes.plot(COUNTS, observed.mean(axis=0), "o-", color="#e0533d", markersize=5, label="observed")
    axes.set(title=name, xticks=COUNTS, xlabel="labels", ylim=(0.2, 1.0))
panels[0].set_ylabel("log loss (smaller is better)")
panels[0].legend(loc="upper right")
figure.tight_layout()
plt.show()

for name, observed in losses.items():
    gains = observed[:, [0]] - observed
    for n_labels in (10, 50):
        gain = gains[:, COUNTS.index(n_labels)]
        error = gain.std(ddof=1) / np.sqrt(DRAWS)
        print(f"{name:12} {n_labels} labels lower the loss by {gain.mean():+.3f} ± {error:.3f}")

# %%
# The level explains much of this. Without labels, the model predicts a share of patients who are
# ill; the observed share is what labels correct it towards.

for name, model in models.items():
    new = hospital == name
    share = model.predict_proba(X[new])[:, 1].mean()
    print(f"{name:12} predicted {share:.0%} ill, observed {y[new].mean():.0%}")

# %%
# What to make of it
# ------------------
#
# - **Switzerland**, where nearly everybody is ill, is unlike the sources: the predicted share is
#   far too low. Ten labels correct much of that, and fifty more than halve the loss. At the
#   **Hungarian** hospital the predicted share is too high, and labels help a little.
# - At **Cleveland and VA** the share is right already. Ten labels add the chance of who happened to
#   be drawn, and the loss is slightly higher than without; with fifty labels this is nearly gone.
#   An average over the four hospitals would hide it.
# - **The prediction is vague.** Three source hospitals say little about the fourth: the bands are
#   wide, two of them beyond the picture. The sources of Switzerland do not include a hospital like
#   it, and predict no gain. ``label_gain_`` is an average over domains like the sources, not a
#   statement about a single new one.
#
# :doc:`/guide/labels` describes the method, and when labels are worth collecting.
