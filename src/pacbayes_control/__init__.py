"""Learn a policy for a robot, and certify how well it does in new environments.

Costs, evaluate, mean_costs,    the cost of each policy in each environment
sample_costs, RolloutError
read_campaign                   the same from a CSV or NumPy file
check_task                      whether your task meets the requirements of a certificate
learn_finite, learn_best,       choose a posterior over finitely many policies, and certify it
learn_constrained, compare
learn_gaussian, learn_family    the same over continuous policies
learn_task, load_task           the same for a task by its name
Plan, SearchSettings,           settings: what to learn, how to search, where to roll out
Execution
learn_one, certify_draw         one policy from a continuous class
GaussianPrior, pretrain_prior,  priors over continuous policies
set_aside, imitate
Run, Certificate, Categorical,  their results
DiagonalGaussian
under_shift, learn_tilted,      a certificate for every distribution in a ball
curve
Ball, ball_between,             how large the ball is: assumed, known, or estimated
ball_of_samples
Monitor, Promise                a certificate compared with the outcomes of a deployment
verify                          check a run without trusting its author
sign, check_signature           sign a run with an SSH key, and check the signature
DeployedPolicy                  the certified policy of a run, on the robot
AlteredRun, InvalidCertificate  errors of verify
InvalidSignature                error of check_signature
SearchStopped                   error of a search that met a cost outside [0, 1]

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
        Plan,
        SearchSettings,
        SearchStopped,
        certify_draw,
        compare,
        imitate,
        learn_best,
        learn_constrained,
        learn_family,
        learn_finite,
        learn_gaussian,
        learn_one,
        learn_task,
        learn_tilted,
        pretrain_prior,
        set_aside,
    )
    from pacbayes_control.rollouts import (
        Execution,
        RolloutError,
        evaluate,
        mean_costs,
        sample_costs,
    )
    from pacbayes_control.rollouts.conformance import check_task
    from pacbayes_control.tasks.loading import load_task
    from pacbayes_control.verify import InvalidCertificate, verify
    from pacbayes_control.verify.signing import InvalidSignature, check_signature, sign

# Where each public name lives. They are imported when first used, so that importing the package is
# cheap: computing a bound should not need to load a simulator.
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
    "Execution": "rollouts",
    "Monitor": "deploy.monitor",
    "Plan": "learn",
    "Promise": "deploy.monitor",
    "RolloutError": "rollouts",
    "Run": "certify.run",
    "SearchStopped": "learn",
    "SearchSettings": "learn",
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
    "pretrain_prior": "learn",
    "learn_family": "learn",
    "learn_finite": "learn",
    "learn_gaussian": "learn",
    "learn_one": "learn",
    "learn_task": "learn",
    "learn_tilted": "learn",
    "load_task": "tasks.loading",
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
    "Execution",
    "GaussianPrior",
    "InvalidCertificate",
    "InvalidSignature",
    "Monitor",
    "Plan",
    "Promise",
    "RolloutError",
    "Run",
    "SearchSettings",
    "SearchStopped",
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
    "learn_family",
    "learn_finite",
    "learn_gaussian",
    "learn_one",
    "learn_task",
    "learn_tilted",
    "load_task",
    "mean_costs",
    "pretrain_prior",
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
