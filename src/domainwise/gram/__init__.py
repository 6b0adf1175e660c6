"""Gram operators: ways to multiply and solve with a centred Gram matrix (DESIGN 3)."""

from domainwise.gram.base import Gram
from domainwise.gram.dense import DenseGram
from domainwise.gram.streamed import StreamedGram

__all__ = ["DenseGram", "Gram", "StreamedGram"]
