"""
An evaluation gives a range, not a number
=========================================

How good will a model for heart disease be at a fifth hospital? ``evaluate`` holds out each of four
hospitals in turn. Its answer is a range, because hospitals differ, and a list of problems in the
table that matter more than the choice of a method.
"""

# %%
# Three methods at four hospitals
# -------------------------------

import matplotlib.pyplot as plt

from domainwise import evaluate
from domainwise.datasets import load_heart
from domainwise.plots import ForestDisplay

heart = load_heart(as_frame=True).frame  # 920 patients; columns "label" and "domain"
methods = ["constant", "linear", "invariantridge"]
evaluation = evaluate(heart, "label", "domain", methods=methods, progress=False)
columns = ["method", "mean", "low", "high", "worst", "worst_domain"]
print(evaluation.table()[columns].round(3).to_string(index=False))

# %%
# The answer
# ----------
# The recommended method is the best one, or a simpler one that is about as good.

answer = evaluation.answer
print(f"{answer.take}: {answer.reason}")
print(f"Expect {answer.expect}")
print(f"Confidence: {answer.certainty}. {answer.certain}")

# %%
# The range
# ---------
# Squares are the scores at the held-out hospitals, with 95 % intervals. The bar is the range of the
# true score at one new hospital. It is wide, because four hospitals say little about a fifth.

pooled = evaluation.between_sites()
sites = pooled.table.set_index("domain")
ForestDisplay.from_scores(
    sites["score"].to_dict(), sites["error"].to_dict(), scale="logit", label="balanced accuracy"
)
plt.show()

# %%
# Problems in the table
# ---------------------
# Cholesterol is 0 wherever it was not measured, and some columns are missing at whole hospitals.
# Correcting such problems can change the scores more than another method does.

for fault in answer.faults:
    print(f"- {fault['problem']}\n  {fault['action']}")

# %%
# What differs between sites
# --------------------------
# ``between_sites`` separates differences between hospitals from chance: τ is the standard deviation
# of the true scores, on the scale of their log-odds.

low, high = pooled.tau_interval
print(f"tau {pooled.tau:.2f}, 90 % interval {low:.2f} to {high:.2f}; they differ: {pooled.differ}")

# %%
# ``evaluation.report("report.html")`` writes all of this to a page, which :doc:`/guide/report`
# explains, and ``evaluation.fit()`` fits the recommended method to all rows.
