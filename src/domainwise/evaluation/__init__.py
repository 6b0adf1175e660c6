"""Compares methods on held-out domains, and estimates their scores on an unseen domain."""

from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.run import evaluate

__all__ = ["Evaluation", "evaluate"]
