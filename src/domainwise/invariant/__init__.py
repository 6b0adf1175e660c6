"""The invariant kernel: DCM's penalty on differences between domains, in any kernel machine.

The denominator of DCM, ``||f||^2 + w f'P_d f``, is the squared norm of another kernel (theory
12). :class:`InvariantKernel` evaluates it for any machine that accepts a precomputed kernel,
:class:`InvariantFeatures` gives its Nystrom features for linear machines and many rows, and
:class:`InvariantSVC` and :class:`InvariantSVR` are support vector machines with it.
"""

from domainwise.invariant.kernel import InvariantFeatures, InvariantKernel
from domainwise.invariant.machines import InvariantSVC, InvariantSVR

__all__ = ["InvariantFeatures", "InvariantKernel", "InvariantSVC", "InvariantSVR"]
