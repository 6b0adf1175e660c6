"""Sites that keep their rows: one model fitted from the sums of each.

Whoever leads makes a :class:`Plan`. Every site makes :func:`statistics` by it, which :func:`merge`
turns into the plan of the second round, and then :func:`moments`, which :func:`fit` turns into a
model. Nothing but these files leaves a site.
"""

from domainwise.federated.disclosure import DisclosureError
from domainwise.federated.files import SiteFile, SiteFileError
from domainwise.federated.fit import fit
from domainwise.federated.plan import Plan, PlanError
from domainwise.federated.rounds import merge, moments, statistics

__all__ = [
    "DisclosureError",
    "Plan",
    "PlanError",
    "SiteFile",
    "SiteFileError",
    "fit",
    "merge",
    "moments",
    "statistics",
]
