"""Gram operators of torch tensors: fused products on CUDA, blocked ones anywhere (theory 8.1).

Importing this package imports torch; the rest of domainwise does so only when a tensor is passed.
"""

from domainwise.gram.torch.operator import TorchDenseGram, TorchStreamedGram

__all__ = ["TorchDenseGram", "TorchStreamedGram"]
