"""Gram operators of torch tensors: fused products on CUDA, blocked ones anywhere (theory 8.1).

Importing its modules imports torch; the rest of domainwise does so only when a tensor is passed.
"""
