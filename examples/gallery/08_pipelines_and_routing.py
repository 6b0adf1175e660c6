"""
Pipelines and routing
=====================

Everything here is a scikit-learn estimator with one more argument, ``sample_domain``. It is
*routed metadata*: switch routing on, and a pipeline, a search or a cross-validation hands it to
whoever asks for it. Estimators of this library ask by default, so that there is nothing to
declare.
"""

# %%
# A pipeline
# ----------

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import DomainContext, InvariantFeatures, InvariantKernel
from domainwise.selection import LeaveDomainsOut, domain_cross_validate

sklearn.set_config(enable_metadata_routing=True)

rng = np.random.default_rng(0)
shop = np.repeat(np.arange(9), 60)
inside = rng.normal(size=(540, 4))
X = inside + rng.normal(scale=[1.5, 0.3, 1.5, 0.3], size=(9, 4))[shop]
y = np.where(inside[:, 0] + inside[:, 1] + 0.5 * rng.normal(size=540) > 0, "buys", "leaves")

model = make_pipeline(StandardScaler(), InvariantFeatures(domain_weight=1), LogisticRegression())
model.fit(X, y, sample_domain=shop)
print(model)

# %%
# scikit-learn's own tools
# ------------------------
#
# ``cross_validate`` and ``GridSearchCV`` take the domains by ``params`` or as a keyword;
# ``LeaveDomainsOut`` asks for the same argument as its groups, so that one mention is enough for
# the splitter and the model.

scores = cross_validate(model, X, y, params={"sample_domain": shop}, cv=LeaveDomainsOut())
print(f"shops left out: {scores['test_score'].mean():.2f}")

search = GridSearchCV(
    make_pipeline(StandardScaler(), InvariantKernel(), SVC(kernel="precomputed")),
    {"invariantkernel__domain_weight": [0, 0.1, 1, 10], "svc__C": [0.1, 1, 10]},
    cv=LeaveDomainsOut(),
)
search.fit(X, y, sample_domain=shop)
print(search.best_params_, f"{search.best_score_:.2f}")

# %%
# Some columns, and rows in context
# ---------------------------------
#
# Transformers can be put to some columns only, and a model whose ``predict`` takes
# ``sample_domain`` gets it there, too: ``DomainContext`` then sees each row relative to its shop.

in_context = make_pipeline(
    make_column_transformer((DomainContext(), [0, 2]), ("passthrough", [1, 3])),
    LogisticRegression(),
)
right = []
for train, test in LeaveDomainsOut().split(X, y, groups=shop):
    in_context.fit(X[train], y[train], sample_domain=shop[train])
    right.append(np.mean(in_context.predict(X[test], sample_domain=shop[test]) == y[test]))

# %%
# Shop by shop
# ------------
#
# ``domain_cross_validate`` is for when the domains are the point: it leaves each out and returns
# a score by name. (It predicts rows one by one; for the model in context the loop above had the
# rows of a shop together.)

models = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "invariant features": model,
    "SVM, invariant kernel": search.best_estimator_,
}
scores = {name: domain_cross_validate(each, X, y, shop).scores for name, each in models.items()}
scores["columns 0 and 2 in context"] = np.array(right)

figure, axes = plt.subplots(figsize=(7.4, 3))
for number, (name, values) in enumerate(scores.items()):
    axes.scatter(values, np.full(9, -number) + np.linspace(-0.15, 0.15, 9), s=22, alpha=0.7)
    axes.plot([values.mean()] * 2, [-number - 0.3, -number + 0.3], color="#374151", linewidth=2)
    print(f"{name:28} mean {values.mean():.2f}, worst {values.min():.2f}")
axes.set_yticks(-np.arange(len(scores)), scores)
axes.set_xlabel("accuracy on each shop when it was left out; bar: mean")
plt.show()

# %%
# Shops differ in level here, and the rule is about what is high *for a shop*: no function of a
# row alone can know that, whatever it pays, and the search says so by choosing little of it. Of
# your own estimators those that take ``sample_domain`` in ``fit`` ask for it with
# ``set_fit_request(sample_domain=True)``; the others are left alone.
