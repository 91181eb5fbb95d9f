"""Learning: from costs to a posterior and its certificate."""

from pacbayes_control.learn.finite import MethodComparison as MethodComparison
from pacbayes_control.learn.finite import compare_methods as compare_methods
from pacbayes_control.learn.finite import learn_best as learn_best
from pacbayes_control.learn.finite import learn_finite as learn_finite
from pacbayes_control.learn.finite import learn_in_parts as learn_in_parts
from pacbayes_control.learn.finite import learn_tilted as learn_tilted
from pacbayes_control.learn.gaussian import certify_draw as certify_draw
from pacbayes_control.learn.gaussian import learn_draw as learn_draw
from pacbayes_control.learn.gaussian import learn_family as learn_family
from pacbayes_control.learn.gaussian import learn_gaussian as learn_gaussian
from pacbayes_control.learn.gaussian import learn_one as learn_one
from pacbayes_control.learn.plan import Plan as Plan
from pacbayes_control.learn.planned import learn_task as learn_task
from pacbayes_control.learn.priors import GaussianPrior as GaussianPrior
from pacbayes_control.learn.priors import Pretraining as Pretraining
from pacbayes_control.learn.priors import imitate as imitate
from pacbayes_control.learn.priors import pretrain_prior as pretrain_prior
from pacbayes_control.learn.priors import set_aside as set_aside
from pacbayes_control.learn.relative_entropy import learn_constrained as learn_constrained
from pacbayes_control.learn.search import GaussianSearch as GaussianSearch
from pacbayes_control.learn.search import SearchSettings as SearchSettings
from pacbayes_control.learn.training import SearchStopped as SearchStopped
