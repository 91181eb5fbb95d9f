"""Learning: from costs to a posterior and its certificate."""

from pacbayes_control.learn.compare import Comparison, compare
from pacbayes_control.learn.finite import learn_best, learn_finite
from pacbayes_control.learn.relative_entropy import learn_constrained

__all__ = ["Comparison", "compare", "learn_best", "learn_constrained", "learn_finite"]
