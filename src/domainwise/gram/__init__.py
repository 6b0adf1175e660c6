"""Gram operators: ways to multiply and solve with a centred Gram matrix (theory 8.1)."""

from domainwise.gram.dense import DenseGram
from domainwise.gram.iterative import StreamedGram
from domainwise.methods.contract import Gram

__all__ = ["DenseGram", "Gram", "StreamedGram"]
