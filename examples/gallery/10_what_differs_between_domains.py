"""
What differs between domains
============================

Before you fit a model, look at how the source domains differ. Before you use the model, check
whether the new domain is similar to them. This example does both.
"""

# %%
# Five wells and a new well
# -------------------------
#
# Four quantities are logged in each of five wells. The rock types are the same in all wells, but
# the tools differ a little. The sixth well was logged by another company: its gamma ray values are
# in a different unit, and its porosity was not recorded for half of the depth.

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


def log_well(n, offset):
    """Draw n rows and rock types for a well; the offset of its tools is in units of SPREAD."""
    rock = rng.integers(3, size=n)
    values = CENTRES[rock] + SPREAD * (offset + rng.normal(size=(n, 4)))
    return pd.DataFrame(values, columns=COLUMNS), np.array(["sand", "silt", "shale"])[rock]


wells = [log_well(150, rng.normal(scale=0.7, size=4)) for _ in range(5)]
X = pd.concat([frame for frame, _ in wells], ignore_index=True)
rock = np.concatenate([rocks for _, rocks in wells])
well = np.repeat(["A", "B", "C", "D", "E"], 150)

new, new_rock = log_well(150, rng.normal(scale=0.7, size=4))
new["gamma_ray"] = 8 + 0.12 * new["gamma_ray"]
new.loc[new.index[:75], "porosity"] = np.nan

# %%
# Feature by feature
# ------------------
#
# The figure shows medians and quartiles of every log in every well, in standard deviations of the
# source wells. Wells A to E are similar. The new well F is not.

all_wells = np.concatenate([well, np.full(150, "F")])
ShiftDisplay.from_features(pd.concat([X, new], ignore_index=True), all_wells, new=["F"])
plt.show()

# %%
# A shift check
# -------------
#
# A ``ShiftWatch`` as the first step of a pipeline stores statistics of the source wells, and
# ``check_shift`` compares new rows with them. It reports differences that are larger than those
# between source wells.

model = make_pipeline(ShiftWatch(), SimpleImputer(), StandardScaler(), LinearDiscriminantAnalysis())
model.fit(X, rock, shiftwatch__sample_domain=well)
for finding in check_shift(model, new):
    print(f"{finding.kind}: {finding}")
print(f"accuracy with the wrong unit: {model.score(new, new_rock):.2f}")

# %%
# The unit can be corrected. Half of the porosity values are still missing; somebody who knows the
# wells has to decide what to do about that.

corrected = new.assign(gamma_ray=(new["gamma_ray"] - 8) / 0.12)
for finding in check_shift(model, corrected):
    print(f"{finding.kind}: {finding}")
print(f"accuracy with the unit corrected: {model.score(corrected, new_rock):.2f}")

# %%
# All features at once
# --------------------
# The figure shows two components of DCM, which vary with the rock type but little with the well.
# With the unit corrected, the rows from the new well lie among the other rows.

projection = make_pipeline(SimpleImputer(), StandardScaler(), DCM(ridge=0.1, domain_weight=0.1))
projection.fit(X, rock, dcm__sample_domain=well)
components = projection.transform(pd.concat([X, corrected], ignore_index=True))
figure, panels = plt.subplots(1, 2, figsize=(9, 4))
rocks = np.concatenate([rock, new_rock])
display = DomainMapDisplay.from_predictions(
    components, all_wells, y=rocks, ax=panels[0], highlight=["F"]
)
display.plot(panels[1], color_by="target")
plt.show()
