"""
The ensemble with and without context
=====================================

If rows of a new domain come together, each can be compared with the others, without a single label.
The ensemble predicts in both ways: ``predict(X)`` takes rows one by one, ``predict(X,
sample_domain=...)`` uses the other rows of their domain. How much does that gain, and how many rows
does it take?
"""

# %%
# Laboratories with levels of their own
# -------------------------------------
#
# The class depends on how a sample compares with the others of its laboratory. Laboratories differ
# in level and in spread. Ten are sources, twelve are new.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from domainwise import DomainEnsembleClassifier


def draw(rng, n_labs, n):
    """Rows, classes and laboratories."""
    lab = np.repeat(np.arange(n_labs), n)
    level = rng.normal(scale=1.2, size=(n_labs, 3))
    spread = np.exp(rng.normal(scale=0.4, size=(n_labs, 3)))
    inside = rng.normal(size=(len(lab), 3))
    y = inside[:, 1] + 0.5 * inside[:, 2] > np.sin(2 * inside[:, 0]) + 0.3 * rng.normal(
        size=len(lab)
    )
    return level[lab] + spread[lab] * inside, y.astype(int), lab


rng = np.random.default_rng(0)
X, y, lab = draw(rng, 10, 40)
X_new, y_new, lab_new = draw(rng, 12, 100)

# %%
# What the ensemble expects
# -------------------------
#
# The ensemble holds out each laboratory in turn, so it has an expected score for a new one, for
# both ways of predicting. Two kinds of members are enough for this page.

model = DomainEnsembleClassifier(["linear", "invariant_ridge"], random_state=0)
model.fit(X, y, sample_domain=lab)
for title, (mean, low, high) in {
    "rows one by one": model.expected_score_,
    "with their laboratory": model.context_expected_score_,
}.items():
    print(f"{title:30} expected accuracy {mean:.2f} ({low:.2f} to {high:.2f})")

# %%
# What is observed
# ----------------

alone = model.predict(X_new) == y_new
together = model.predict(X_new, sample_domain=lab_new) == y_new
by_lab = np.array(
    [[right[lab_new == name].mean() for name in range(12)] for right in (alone, together)]
)
print(f"one by one {alone.mean():.2f}, together {together.mean():.2f} on twelve new laboratories")

order = np.argsort(by_lab[0])
figure, axes = plt.subplots(figsize=(7.2, 3.2))
axes.vlines(range(12), *np.sort(by_lab[:, order], axis=0), color="#9ca3af", linewidth=1.5, zorder=1)
for scores, title, colour in zip(
    by_lab[:, order], ("rows one by one", "together"), ("#5b8def", "#e0533d"), strict=True
):
    axes.scatter(range(12), scores, s=45, color=colour, label=title, zorder=2)
axes.set(
    xlabel="new laboratories, in order of the first", ylabel="accuracy", xticks=[], ylim=(0.4, 1)
)
axes.legend(loc="lower right", ncols=2)
plt.show()

# %%
# How many rows does it take?
# ---------------------------
#
# Rows of each new laboratory come in batches of one size. Statistics of two rows are noise, so
# small batches are predicted nearly row by row, and a batch of one row exactly so. Batches that
# look unlike every source are predicted row by row, with a warning that is silenced here.

warnings.simplefilter("ignore", UserWarning)

sizes = [1, 2, 5, 10, 20, 50, 100]
place = np.tile(np.arange(100), 12)
scores = []
for size in sizes:
    batches = lab_new * 1000 + place // size
    scores.append(np.mean(model.predict(X_new, sample_domain=batches) == y_new))

figure, axes = plt.subplots(figsize=(7.2, 3.2))
axes.plot(sizes, scores, "o-", color="#e0533d", label="together, in batches of this size")
axes.axhline(alone.mean(), color="#5b8def", linestyle="--", label="rows one by one")
axes.set(xscale="log", xlabel="rows of a new laboratory at hand", ylabel="accuracy")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# When context misleads
# ---------------------
#
# A batch must look like its whole laboratory. If somebody sends positive samples only, their mean
# is not the laboratory's mean, and compared with each other they look like a mixture of both
# classes.

positive = y_new == 1
predicted = model.predict(X_new[positive], sample_domain=lab_new[positive])
print(f"recall of positive samples, whole laboratories:      {together[positive].mean():.2f}")
print(f"recall of positive samples, sent without the others: {np.mean(predicted == 1):.2f}")

# %%
# A guard predicts a batch row by row if its statistics or predicted class shares are unlike those
# of every source. A selection can still look ordinary. So give the ensemble all rows of a domain,
# or predict row by row.
