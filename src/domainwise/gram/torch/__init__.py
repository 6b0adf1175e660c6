"""Gram operators of tensors: fused products on CUDA, products by blocks elsewhere (theory 8.1).

Importing these modules imports torch, so domainwise imports them only when a tensor is passed.
"""
