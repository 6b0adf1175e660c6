"""Gram operators, which multiply by a centred Gram matrix or its inverse (theory 8.1)."""

from domainwise.gram.dense import DenseGram
from domainwise.gram.iterative import StreamedGram
from domainwise.methods.contract import Gram

__all__ = ["DenseGram", "Gram", "StreamedGram"]
