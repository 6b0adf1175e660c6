r"""The paper's algorithms as it states them, on given kernel matrices: slow, dense, independent.

They exist to check the estimators against and to rerun the paper's tables. Nothing here shares
code with the estimators.

Matrices are laid out as in the paper: ``K_x[i, j] = k(x_i, x_j)``, and a kernel between training
points and new ones has the **training points as rows**, ``K_z[i, j] = k(x_i, z_j)``. Projected
points are returned one per row. Kernels are given uncentred; every function centres them with the
training means, since the paper assumes feature maps of zero mean. ``K_x``, ``K_y`` and ``K_d`` are
those of the points, the targets and the domains, ``epsilon`` is the positive regulariser of the
label kernels, and ``domain_weight`` the factor w of the domain term: 1 in the paper, 0 for COIR.
Eigenvalues are real in exact arithmetic; of those that rounding makes complex beyond 1e-8 relative
the real part is kept, with a RuntimeWarning.

Where the paper's text cannot be run as printed (theory 10.1):

* Algorithm 1's pencil is singular once K_x is centred, and LAPACK's QZ then returns spurious
  leading values; it is restricted to the range of K_x.
* Algorithm 2 inverts W_y and W_d, which are singular for delta kernels: pseudo-inverses stand in.
* Its step 6 multiplies an m x N by an M x N_T matrix; the Nystroem extension of a new point is
  :math:`\tilde B^\top C_x \tilde W_x K_z`.
* It adds :math:`N\epsilon I` on the right side, which Algorithm 1 does not have, so with M = N the
  two differ; directions with eigenvalue 1 become ordered by variance.
"""

from domainwise.reference.algorithms import (
    ReferenceResult,
    algorithm1,
    algorithm2,
    algorithm2_stable,
    dica_original,
    project,
)

__all__ = [
    "ReferenceResult",
    "algorithm1",
    "algorithm2",
    "algorithm2_stable",
    "dica_original",
    "project",
]
