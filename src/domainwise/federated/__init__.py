"""Sites that keep their rows: one model fitted from the sums of each.

The coordinator makes a :class:`Plan`. From it every site computes :func:`statistics`, which
:func:`merge` turns into the plan of the second round, and then :func:`moments`, from which
:func:`fit` makes a model. Nothing but these files leaves a site.
"""

from domainwise.federated.disclosure import DisclosureError
from domainwise.federated.files import SiteFile, SiteFileError
from domainwise.federated.first_round import merge, statistics
from domainwise.federated.fit import fit
from domainwise.federated.plan import Plan, PlanError
from domainwise.federated.second_round import moments

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
