"""The invariant kernel: DCM's penalty on differences between domains, for any kernel machine.

DCM penalizes functions whose means differ between domains. The squared norm of a function plus this
penalty is the function's squared norm for another kernel, the invariant kernel (theory 12).
:class:`InvariantKernel` evaluates this kernel, :class:`InvariantFeatures` computes its Nystrom
features for many rows, and :class:`InvariantSVC` and :class:`InvariantSVR` are SVMs that use it.
"""

from domainwise.estimators.invariant.kernel import InvariantFeatures, InvariantKernel
from domainwise.estimators.invariant.machines import InvariantSVC, InvariantSVR

__all__ = ["InvariantFeatures", "InvariantKernel", "InvariantSVC", "InvariantSVR"]
