"""Answers which method will hold up on the next domain, and how much will be lost there."""

from domainwise.evaluation.evaluate import evaluate
from domainwise.evaluation.evaluation import Evaluation

__all__ = ["Evaluation", "evaluate"]
