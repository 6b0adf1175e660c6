"""Gram operators of torch tensors: fused products on CUDA, blocked ones anywhere (theory 8.1).

Importing these modules imports torch, so domainwise imports them only when a tensor is passed.
"""
