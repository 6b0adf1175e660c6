"""The default grids of all searches: what is tried where the user names nothing."""

from __future__ import annotations

import numpy as np

#: DCMCV: gammas times the median rule, ridges, and domain weights.
DCM_GAMMAS = (0.25, 1.0, 4.0)
DCM_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, np.inf)
DCM_WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)
