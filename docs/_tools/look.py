"""Style of the figures in the gallery and the guide."""

from __future__ import annotations

import warnings
from typing import Any


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Set the style of the reports and scikit-learn's defaults, before a script or page runs."""
    import matplotlib.pyplot as plt
    import sklearn
    from cycler import cycler

    from domainwise.evaluation.plots.style import PALETTE

    plt.rcdefaults()
    plt.style.use("domainwise.evaluation.figure")
    plt.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=PALETTE),
            "axes.edgecolor": "#6b7280",
            # The site inverts figures in its dark theme (site.css), so they have no background.
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "savefig.facecolor": "none",
            "figure.constrained_layout.use": True,
            "figure.dpi": 120,
            "figure.figsize": (7.2, 3.6),
            "savefig.dpi": 120,
        }
    )
    sklearn.set_config(enable_metadata_routing=False)
    warnings.simplefilter("default")
