"""
Pipelines and searches pass on the hospital
===========================================

Every estimator in domainwise is a scikit-learn estimator with one more argument,
``sample_domain``. It is *routed metadata*: pipelines, searches and cross-validation pass it to the
steps that request it, and all estimators in domainwise do.
"""

# %%
# A pipeline
# ----------
# Four hospitals measured 13 values of 920 patients; many are missing. The last step of the pipeline
# needs to know the hospital of each row, to choose its parameters on held-out hospitals.

import matplotlib.pyplot as plt
import sklearn
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import InvariantSVC
from domainwise.datasets import load_heart
from domainwise.selection import LeaveDomainsOut

sklearn.set_config(enable_metadata_routing=True)

heart = load_heart()
X, y, hospital = heart.data, heart.target, heart.sample_domain


def prepared(model):
    """Impute and scale the measurements in front of a model."""
    return make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), model)


svm = prepared(InvariantSVC(gamma=0.02))
svm.fit(X, y, sample_domain=hospital)
print("hospitals in the last step:", *svm[-1].transformer_.domains_)

# %%
# A search on held-out hospitals
# ------------------------------
# ``LeaveDomainsOut`` is a splitter. It receives the hospitals in the same way, so no row of the
# hospital on which a candidate is scored was used to fit it.

grid = {"invariantsvc__domain_weight": [0, 0.1, 1], "invariantsvc__C": [0.1, 1, 10]}
search = GridSearchCV(svm, grid, cv=LeaveDomainsOut(), scoring="balanced_accuracy")
search.fit(X, y, sample_domain=hospital)
print(search.best_params_)

# %%
# The search as a candidate
# -------------------------
# A search is itself an estimator. To compare it with another one, hold out each hospital around
# the whole search: the inner hospitals choose, the outer hospital scores.

models = {"search": search, "logistic regression": prepared(LogisticRegression())}
scores = {
    name: cross_validate(
        model,
        X,
        y,
        cv=LeaveDomainsOut(),
        scoring="balanced_accuracy",
        params={"sample_domain": hospital},
    )["test_score"]
    for name, model in models.items()
}

figure, axes = plt.subplots(figsize=(7.2, 2.4))
for name, values in scores.items():
    axes.plot(values, [name] * len(values), "o", markersize=9, alpha=0.7)
    print(f"{name:20} mean {values.mean():.2f}, worst {values.min():.2f}")
axes.set(xlabel="balanced accuracy at the held-out hospitals", ylim=(-0.5, 1.5))
plt.show()

# %%
# With four hospitals, such a difference is mostly chance. :func:`domainwise.evaluate` makes this
# comparison for several methods, and says when a difference may be due to chance.
