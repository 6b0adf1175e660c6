"""domainwise: features that carry over to domains nobody has seen yet."""

from domainwise.estimators import COIR, DCM, DICA, KPCA

__version__ = "0.1.0"

__all__ = ["COIR", "DCM", "DICA", "KPCA", "__version__"]
