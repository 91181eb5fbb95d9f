"""Numbers in, a certified number out: divergences, their inverses, and the theorems."""

from pacbayes_control.bounds.kl import (
    kl_bernoulli,
    kl_beta,
    kl_categorical,
    kl_gaussian,
    kl_inverse,
    kl_inverse_lower,
)
from pacbayes_control.bounds.sampling import fresh_draws, langford_caruana, shared_draws
from pacbayes_control.bounds.theorems import (
    chernoff_kl_holdout,
    clopper_pearson,
    log_xi,
    maurer,
    maurer_xi,
    mcallester_pinsker,
    occam_exact_tail,
    occam_kl,
    quadratic,
    single_draw,
    thiemann,
)

__all__ = [
    "chernoff_kl_holdout",
    "clopper_pearson",
    "fresh_draws",
    "kl_bernoulli",
    "kl_beta",
    "kl_categorical",
    "kl_gaussian",
    "kl_inverse",
    "kl_inverse_lower",
    "langford_caruana",
    "log_xi",
    "maurer",
    "maurer_xi",
    "mcallester_pinsker",
    "occam_exact_tail",
    "occam_kl",
    "quadratic",
    "shared_draws",
    "single_draw",
    "thiemann",
]
