"""Learn a policy for a robot, and a certificate of how it will do where it has never been.

Costs, evaluate, mean_costs,    what each policy cost in each environment
sample_costs, RolloutError
check_task                      whether a task of yours keeps what a certificate rests on
read_campaign                   the same from a CSV or NumPy file
learn_finite, learn_best,       choose a posterior over finitely many policies, and certify it
learn_constrained, compare
learn_gaussian, learn_family    the same over continuous policies (Settings: of the search)
learn_one, certify_draw         one policy from a continuous class
GaussianPrior, learn_elsewhere, where a prior over continuous policies may come from
set_aside, imitate
Run, Certificate, Categorical,  what they return
DiagonalGaussian
under_shift, learn_tilted,      a certificate when the world shifts, by a ball of distributions
curve
Ball, ball_between,             how large the ball is: assumed, known, or estimated
ball_of_samples
Monitor, Promise                a certificate against what happened in deployment
verify                          check a run without trusting whoever computed it
sign, check_signature           who vouches for a run, by SSH keys
DeployedPolicy                  what a run certifies, on the robot
AlteredRun, InvalidCertificate  what verify raises
InvalidSignature                what check_signature raises
SearchStopped                   what a search raises that met a cost that is none

>>> import pacbayes_control as pbc
>>> costs = pbc.Costs([[0, 1], [0, 0], [0, 1]] * 100)
>>> run = pbc.learn_finite(costs, delta=0.01)
>>> run.certificate.bound < 0.05
True
"""

from importlib import import_module as _import_module

TYPE_CHECKING = False  # as of `typing`, which takes a moment to load

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pacbayes_control.certify.balls import Ball, ball_between, ball_of_samples
    from pacbayes_control.certify.certificate import Certificate
    from pacbayes_control.certify.costs import Costs
    from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
    from pacbayes_control.certify.run import AlteredRun, Run
    from pacbayes_control.certify.shift import curve, under_shift
    from pacbayes_control.certify.tables.campaigns import read_campaign
    from pacbayes_control.deploy.monitor import Monitor, Promise
    from pacbayes_control.deploy.policy import DeployedPolicy
    from pacbayes_control.learn import (
        GaussianPrior,
        SearchStopped,
        Settings,
        certify_draw,
        compare,
        imitate,
        learn_best,
        learn_constrained,
        learn_elsewhere,
        learn_family,
        learn_finite,
        learn_gaussian,
        learn_one,
        learn_tilted,
        set_aside,
    )
    from pacbayes_control.rollouts import RolloutError, evaluate, mean_costs, sample_costs
    from pacbayes_control.rollouts.conformance import check_task
    from pacbayes_control.verify import InvalidCertificate, verify
    from pacbayes_control.verify.signing import InvalidSignature, check_signature, sign

# Where each public name lives. They are imported when first used, so that importing the package is
# cheap: nobody who wants a bound should wait for a simulator to load.
_HOMES = {
    "AlteredRun": "certify.run",
    "Ball": "certify.balls",
    "Categorical": "certify.distributions",
    "Certificate": "certify.certificate",
    "Costs": "certify.costs",
    "DeployedPolicy": "deploy.policy",
    "DiagonalGaussian": "certify.distributions",
    "GaussianPrior": "learn",
    "InvalidCertificate": "verify",
    "InvalidSignature": "verify.signing",
    "Monitor": "deploy.monitor",
    "Promise": "deploy.monitor",
    "RolloutError": "rollouts",
    "Run": "certify.run",
    "SearchStopped": "learn",
    "Settings": "learn",
    "ball_between": "certify.balls",
    "ball_of_samples": "certify.balls",
    "certify_draw": "learn",
    "check_signature": "verify.signing",
    "check_task": "rollouts.conformance",
    "compare": "learn",
    "curve": "certify.shift",
    "evaluate": "rollouts",
    "imitate": "learn",
    "learn_best": "learn",
    "learn_constrained": "learn",
    "learn_elsewhere": "learn",
    "learn_family": "learn",
    "learn_finite": "learn",
    "learn_gaussian": "learn",
    "learn_one": "learn",
    "learn_tilted": "learn",
    "mean_costs": "rollouts",
    "read_campaign": "certify.tables.campaigns",
    "sample_costs": "rollouts",
    "set_aside": "learn",
    "sign": "verify.signing",
    "under_shift": "certify.shift",
    "verify": "verify",
}

__all__ = [
    "AlteredRun",
    "Ball",
    "Categorical",
    "Certificate",
    "Costs",
    "DeployedPolicy",
    "DiagonalGaussian",
    "GaussianPrior",
    "InvalidCertificate",
    "InvalidSignature",
    "Monitor",
    "Promise",
    "RolloutError",
    "Run",
    "SearchStopped",
    "Settings",
    "ball_between",
    "ball_of_samples",
    "certify_draw",
    "check_signature",
    "check_task",
    "compare",
    "curve",
    "evaluate",
    "imitate",
    "learn_best",
    "learn_constrained",
    "learn_elsewhere",
    "learn_family",
    "learn_finite",
    "learn_gaussian",
    "learn_one",
    "learn_tilted",
    "mean_costs",
    "read_campaign",
    "sample_costs",
    "set_aside",
    "sign",
    "under_shift",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
