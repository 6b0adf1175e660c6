"""
What differs between domains
============================

Before a model is fitted it is worth a look at how domains differ, and before it is used, at
whether the new one is like them. Two pictures and a few sentences do both.
"""

# %%
# Wells, and a new one
# --------------------
#
# Five wells have four logs each. Rock types are the same everywhere; tools differ a little from
# well to well. The sixth well was logged by another company: its gamma ray is in other units, and
# its porosity was not recorded for half of the depth.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import DCM, ShiftWatch, check_shift
from domainwise.plots import DomainMapDisplay, ShiftDisplay

rng = np.random.default_rng(1)
COLUMNS = ["gamma_ray", "resistivity", "density", "porosity"]
CENTRES = np.array([[60, 2.0, 2.4, 0.20], [90, 1.4, 2.6, 0.10], [110, 0.8, 2.5, 0.05]])
SPREAD = np.array([12, 0.35, 0.08, 0.03])


def log(n, offset):
    """Logs and rock types of n rows of a well whose tools are off by so many spreads."""
    rock = rng.integers(3, size=n)
    values = CENTRES[rock] + SPREAD * (offset + rng.normal(size=(n, 4)))
    return pd.DataFrame(values, columns=COLUMNS), np.array(["sand", "silt", "shale"])[rock]


wells = [log(150, rng.normal(scale=0.7, size=4)) for _ in range(5)]
X = pd.concat([frame for frame, _ in wells], ignore_index=True)
rock = np.concatenate([rocks for _, rocks in wells])
well = np.repeat(["A", "B", "C", "D", "E"], 150)

new, new_rock = log(150, rng.normal(scale=0.7, size=4))
new["gamma_ray"] = 8 + 0.12 * new["gamma_ray"]
new.loc[new.index[:75], "porosity"] = np.nan

# %%
# Feature by feature
# ------------------
#
# Medians and quartiles of every log in every well, in deviations of the sources. Wells A to E lie
# beside each other; the sixth does not.

both, where = pd.concat([X, new], ignore_index=True), np.concatenate([well, np.full(150, "F")])
ShiftDisplay.from_features(both, where, new=["F"])
plt.show()

# %%
# In words
# --------
#
# A ``ShiftWatch`` in front of a model keeps a summary of the sources, and ``check_shift``
# compares new rows with it. It knows how far wells lie apart, and speaks of what goes beyond
# that.

model = make_pipeline(ShiftWatch(), SimpleImputer(), StandardScaler(), LinearDiscriminantAnalysis())
model.fit(X, rock, shiftwatch__sample_domain=well)
for finding in check_shift(model, new):
    print(f"{finding.kind}: {finding}")
print(f"right as it is: {model.score(new, new_rock):.2f}")

# %%
# The unit can be mended. What stays strange is that porosity is missing, and that is for somebody
# to decide who knows the wells.

mended = new.assign(gamma_ray=(new["gamma_ray"] - 8) / 0.12)
for finding in check_shift(model, mended):
    print(f"{finding.kind}: {finding}")
print(f"right with the unit mended: {model.score(mended, new_rock):.2f}")

# %%
# All features at once
# --------------------
#
# Rows on a map: two components of DCM, which vary with rock type and pay for varying with the
# well. Dots of the new well, its unit mended, lie among those of the others.

projection = make_pipeline(SimpleImputer(), StandardScaler(), DCM(ridge=0.1, domain_weight=0.1))
projection.fit(X, rock, dcm__sample_domain=well)
both = pd.concat([X, mended], ignore_index=True)
figure, panels = plt.subplots(1, 2, figsize=(9, 4))
rocks = np.concatenate([rock, new_rock])
display = DomainMapDisplay.from_predictions(
    projection.transform(both), where, y=rocks, ax=panels[0], highlight=["F"]
)
display.plot(panels[1], color_by="target")
plt.show()
