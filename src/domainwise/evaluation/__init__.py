"""Compares methods on held-out domains, and estimates their scores on an unseen domain."""

from domainwise.evaluation.evaluate import evaluate
from domainwise.evaluation.evaluation import Evaluation

__all__ = ["Evaluation", "evaluate"]
