"""Learning: from costs to a posterior and its certificate."""

from pacbayes_control.learn.compare import Comparison, compare
from pacbayes_control.learn.finite import learn_best, learn_finite, learn_tilted
from pacbayes_control.learn.gaussian import (
    certify_draw,
    learn_draw,
    learn_family,
    learn_gaussian,
    learn_one,
)
from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.planned import learn_task
from pacbayes_control.learn.priors import (
    GaussianPrior,
    Pretraining,
    imitate,
    pretrain_prior,
    set_aside,
)
from pacbayes_control.learn.relative_entropy import learn_constrained
from pacbayes_control.learn.search import GaussianSearch, SearchSettings
from pacbayes_control.learn.training import SearchStopped

__all__ = [
    "Comparison",
    "GaussianPrior",
    "GaussianSearch",
    "Plan",
    "Pretraining",
    "SearchSettings",
    "SearchStopped",
    "certify_draw",
    "compare",
    "imitate",
    "learn_best",
    "learn_constrained",
    "learn_draw",
    "learn_family",
    "learn_finite",
    "learn_gaussian",
    "learn_one",
    "learn_task",
    "learn_tilted",
    "pretrain_prior",
    "set_aside",
]
