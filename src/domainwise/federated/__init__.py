"""Federated learning: one model from several sites that do not share rows.

The coordinator creates a :class:`Plan`. Every site computes :func:`statistics`, from which
:func:`merge` creates the second-round plan. With this plan, every site computes
:func:`moments`, from which :func:`fit` fits a model. Only these files leave a site.
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
