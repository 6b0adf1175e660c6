"""
Pipelines and routing
=====================

Every estimator in domainwise is a scikit-learn estimator with one more argument,
``sample_domain``. It is *routed metadata*: if you enable metadata routing, pipelines, searches and
cross-validation pass it to the steps that request it. All estimators in domainwise request it by
default.
"""

# %%
# A pipeline
# ----------
#
# Nine shops record four features of each visit. The levels of two features differ strongly between
# shops. Whether a visitor buys something depends on values that are high *for this shop*.

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import DomainContext
from domainwise.selection import LeaveDomainsOut

sklearn.set_config(enable_metadata_routing=True)

rng = np.random.default_rng(0)
shop = np.repeat(np.arange(9), 60)
relative = rng.normal(size=(540, 4))
X = relative + rng.normal(scale=[1.5, 0.3, 1.5, 0.3], size=(9, 4))[shop]
y = np.where(relative[:, 0] + relative[:, 1] + 0.5 * rng.normal(size=540) > 0, "buys", "leaves")

logistic = make_pipeline(StandardScaler(), LogisticRegression())
context = make_pipeline(DomainContext(), StandardScaler(), LogisticRegression())
context.fit(X, y, sample_domain=shop)  # the pipeline passes sample_domain to DomainContext
print(context.predict(X[:3], sample_domain=shop[:3]))

# %%
# Cross-validation and searches
# -----------------------------
# Pass domains to ``cross_validate`` in ``params``, and to ``GridSearchCV.fit`` as a keyword
# argument. ``LeaveDomainsOut`` requests the same argument, so you pass it only once for the
# splitter and the model.

scores = cross_validate(logistic, X, y, params={"sample_domain": shop}, cv=LeaveDomainsOut())
print(f"logistic regression at held-out shops: accuracy {scores['test_score'].mean():.2f}")

search = GridSearchCV(
    logistic, {"logisticregression__C": [0.01, 0.1, 1, 10]}, cv=LeaveDomainsOut()
).fit(X, y, sample_domain=shop)
print(search.best_params_, f"accuracy {search.best_score_:.2f}")

# %%
# Context for some columns only
# -----------------------------
#
# Routing also reaches a transformer that is applied to some of the columns. Here we add context
# only for the two columns whose levels differ strongly between shops.

two_columns = make_pipeline(
    make_column_transformer((DomainContext(), [0, 2]), ("passthrough", [1, 3])),
    LogisticRegression(),
)

# %%
# Shop by shop
# ------------
# All rows from the held-out shop are predicted together, so that each row can be compared with the
# others.

models = {
    "logistic regression": (logistic, False),
    "context for all columns": (context, True),
    "context for two columns": (two_columns, True),
}
accuracy = {name: [] for name in models}
for train, test in LeaveDomainsOut().split(X, y, groups=shop):
    for name, (model, use_shop) in models.items():
        model.fit(X[train], y[train], **({"sample_domain": shop[train]} if use_shop else {}))
        predictions = model.predict(X[test], **({"sample_domain": shop[test]} if use_shop else {}))
        accuracy[name].append(np.mean(predictions == y[test]))

figure, axes = plt.subplots(figsize=(7.4, 2.6))
for number, (name, values) in enumerate(accuracy.items()):
    axes.scatter(values, np.full(9, -number) + np.linspace(-0.15, 0.15, 9), s=22, alpha=0.7)
    axes.plot([np.mean(values)] * 2, [-number - 0.3, -number + 0.3], color="#374151", linewidth=2)
    print(f"{name:24} accuracy: mean {np.mean(values):.2f}, worst shop {min(values):.2f}")
axes.set_yticks(-np.arange(len(accuracy)), accuracy)
axes.set_xlabel("accuracy at each held-out shop (dots) and their mean (line)")
plt.show()

# %%
# If your own estimator has an argument ``sample_domain`` in ``fit``, request it with
# ``set_fit_request(sample_domain=True)``. Estimators that do not request it do not receive it.
# :doc:`The guide </guide/context>` explains what context assumes about a batch.
