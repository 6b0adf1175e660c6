"""Gram operators for tensors: fused products on CUDA, blockwise products elsewhere (theory 8.1).

Importing these modules imports torch, so domainwise imports them only when a tensor is passed.
"""
