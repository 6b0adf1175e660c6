"""Gram operators, which multiply by a centred Gram matrix or its inverse (theory 8.1)."""

from domainwise.algebra.gram.dense import DenseGram
from domainwise.algebra.gram.iterative import StreamedGram
from domainwise.algebra.methods.contract import Gram

__all__ = ["DenseGram", "Gram", "StreamedGram"]
