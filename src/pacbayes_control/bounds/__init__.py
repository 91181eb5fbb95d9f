"""Numbers in, a certified number out: divergences, their inverses, and the theorems."""

from pacbayes_control.bounds.kl import kl_bernoulli as kl_bernoulli
from pacbayes_control.bounds.kl import kl_beta as kl_beta
from pacbayes_control.bounds.kl import kl_categorical as kl_categorical
from pacbayes_control.bounds.kl import kl_gaussian as kl_gaussian
from pacbayes_control.bounds.kl import kl_inverse as kl_inverse
from pacbayes_control.bounds.kl import kl_inverse_lower as kl_inverse_lower
from pacbayes_control.bounds.theorems import chernoff_kl_holdout as chernoff_kl_holdout
from pacbayes_control.bounds.theorems import clopper_pearson as clopper_pearson
from pacbayes_control.bounds.theorems import fresh_draws as fresh_draws
from pacbayes_control.bounds.theorems import langford_caruana as langford_caruana
from pacbayes_control.bounds.theorems import log_xi as log_xi
from pacbayes_control.bounds.theorems import maurer as maurer
from pacbayes_control.bounds.theorems import maurer_xi as maurer_xi
from pacbayes_control.bounds.theorems import mcallester_pinsker as mcallester_pinsker
from pacbayes_control.bounds.theorems import occam_exact_tail as occam_exact_tail
from pacbayes_control.bounds.theorems import occam_kl as occam_kl
from pacbayes_control.bounds.theorems import quadratic as quadratic
from pacbayes_control.bounds.theorems import shared_draws as shared_draws
from pacbayes_control.bounds.theorems import single_draw as single_draw
from pacbayes_control.bounds.theorems import thiemann as thiemann
