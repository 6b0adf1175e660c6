"""The invariant kernel: DCM's penalty on differences between domains, for any kernel machine.

The denominator of DCM, ``||f||^2 + w f'P_d f``, is the squared norm of f for another kernel, the
invariant kernel (theory 12). :class:`InvariantKernel` evaluates it for any machine that accepts a
precomputed kernel, :class:`InvariantFeatures` computes its Nystrom features for linear models and
many rows, and :class:`InvariantSVC` and :class:`InvariantSVR` are SVMs with this kernel.
"""

from domainwise.invariant.kernel import InvariantFeatures, InvariantKernel
from domainwise.invariant.machines import InvariantSVC, InvariantSVR

__all__ = ["InvariantFeatures", "InvariantKernel", "InvariantSVC", "InvariantSVR"]
