"""
The other rows of a laboratory improve its predictions
======================================================

If you have many rows from a new domain, each row can be compared with the others, without any
labels. The ensemble can predict with and without this context: ``predict(X)`` predicts rows one by
one, and ``predict(X, sample_domain=...)`` also uses the other rows of the domain. How much does
context improve accuracy, and how many rows does it need?
"""

# %%
# Laboratories with different levels
# ----------------------------------
#
# The class depends on how a sample compares with other samples from the same laboratory.
# Laboratories differ in level and in spread. Ten laboratories are used for training, and twelve are
# new.

import warnings

import matplotlib.pyplot as plt
import numpy as np

from domainwise import DomainEnsembleClassifier


def draw(rng, n_labs, n):
    """Draw ``n`` rows per laboratory; return rows, classes and laboratories."""
    lab = np.repeat(np.arange(n_labs), n)
    level = rng.normal(scale=1.2, size=(n_labs, 3))
    spread = np.exp(rng.normal(scale=0.4, size=(n_labs, 3)))
    relative = rng.normal(size=(len(lab), 3))
    boundary = np.sin(2 * relative[:, 0]) + 0.3 * rng.normal(size=len(lab))
    y = relative[:, 1] + 0.5 * relative[:, 2] > boundary
    return level[lab] + spread[lab] * relative, y.astype(int), lab


rng = np.random.default_rng(0)
X, y, lab = draw(rng, 10, 40)
X_new, y_new, lab_new = draw(rng, 12, 100)

# %%
# Expected accuracy
# -----------------
# The ensemble holds out each laboratory in turn, which gives an expected score for a new laboratory
# with and without context. The score is balanced accuracy; here, both classes are about equally
# frequent. Two kinds of members are enough for this example.

model = DomainEnsembleClassifier(["linear", "invariant_ridge"], random_state=0)
model.fit(X, y, sample_domain=lab)
for title, (mean, low, high) in {
    "rows one by one": model.expected_score_,
    "with context": model.context_expected_score_,
}.items():
    print(f"{title:16} expected {mean:.2f} (95 % confidence interval {low:.2f} to {high:.2f})")

# %%
# Observed accuracy
# -----------------
#
# If a laboratory looks unlike every source laboratory, its rows are predicted one by one, and the
# model says so.

correct_one_by_one = model.predict(X_new) == y_new
with warnings.catch_warnings(record=True) as caught_warnings:
    warnings.simplefilter("always")
    correct_context = model.predict(X_new, sample_domain=lab_new) == y_new
print(*(warning.message for warning in caught_warnings))
accuracies = np.array(
    [
        [correct[lab_new == name].mean() for name in range(12)]
        for correct in (correct_one_by_one, correct_context)
    ]
)
print(f"accuracy at twelve new laboratories, rows one by one: {correct_one_by_one.mean():.2f}")
print(f"accuracy at twelve new laboratories, with context:    {correct_context.mean():.2f}")

accuracies = accuracies[:, np.argsort(accuracies[0])]
figure, axes = plt.subplots(figsize=(7.2, 3.2))
axes.vlines(range(12), *np.sort(accuracies, axis=0), color="#9ca3af", linewidth=1.5, zorder=1)
for scores, title, color in zip(
    accuracies, ("rows one by one", "with context"), ("#5b8def", "#e0533d"), strict=True
):
    axes.scatter(range(12), scores, s=45, color=color, label=title, zorder=2)
axes.set(
    xlabel="new laboratories, sorted by accuracy without context",
    ylabel="accuracy",
    xticks=[],
    ylim=(0.4, 1),
)
axes.legend(loc="lower right", ncols=2)
plt.show()

# %%
# How many rows does context need?
# --------------------------------
#
# We split the rows of each new laboratory into batches of equal size. The statistics of two rows
# are mostly noise, so the predictions for small batches are close to those without context. A batch
# of one row is predicted exactly as without context. If a batch does not look like any source
# laboratory, its rows are predicted one by one, with a warning that is silenced here.

warnings.simplefilter("ignore", UserWarning)

sizes = [1, 2, 5, 10, 20, 50, 100]
position = np.tile(np.arange(100), 12)
scores = []
for size in sizes:
    batches = lab_new * 1000 + position // size
    scores.append(np.mean(model.predict(X_new, sample_domain=batches) == y_new))

figure, axes = plt.subplots(figsize=(7.2, 3.2))
axes.plot(sizes, scores, "o-", color="#e0533d", label="with context, in batches of this size")
axes.axhline(correct_one_by_one.mean(), color="#5b8def", linestyle="--", label="rows one by one")
axes.set(xscale="log", xlabel="rows in a batch", ylabel="accuracy")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.legend()
plt.show()

# %%
# When context misleads
# ---------------------
#
# A batch must be typical of its whole laboratory. If it contains only positive samples, their mean
# differs from the mean of the laboratory, and compared with each other they look like a mixture of
# both classes.

positive = y_new == 1
predictions = model.predict(X_new[positive], sample_domain=lab_new[positive])
print(f"recall of positive samples in whole laboratories:   {correct_context[positive].mean():.2f}")
print(f"recall of positive samples in batches of positives: {np.mean(predictions == 1):.2f}")

# %%
# As a safeguard, the ensemble predicts rows one by one if the statistics of their batch, or the
# class frequencies that it would predict, differ from those of every source laboratory. This does
# not detect every misleading batch. Pass all rows of a domain, or predict rows one by one.
