"""Learn a policy for a robot, and certify how well it does in new environments.

Costs, evaluate, mean_costs,    the cost of each policy in each environment
sample_costs, RolloutError
read_campaign                   the same from a CSV or NumPy file
check_task                      whether your task meets the requirements of a certificate
learn_finite, learn_best,       choose a posterior over finitely many policies, and certify it
learn_constrained,
compare_methods
read_trials, LogOptions, Trials trials from an evaluation log, or from a table of costs
choose, compare, rank           which policy to ship, whether it is better than another, and all
with_simulation                 costs on the robot, beside those in simulation
pilot_prior                     a prior over them, from their costs in other environments
learn_gaussian, learn_family    the same over continuous policies
learn_task, load_task           the same for a task by its name
Plan, SearchSettings,           settings: what to learn, how to search, where to roll out
Execution
learn_one, certify_draw         one policy from a continuous class
GaussianPrior, pretrain_prior,  priors over continuous policies
set_aside, imitate
Run, Certificate, Categorical,  their results
DiagonalGaussian
learn_in_parts                  a certificate for parts of the world, declared beforehand
failures_of, sweep              where a run fails; bound and true cost over many draws
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

if TYPE_CHECKING:  # for editors and type checkers: the same names as in the table below
    from pacbayes_control.certify.balls import Ball as Ball
    from pacbayes_control.certify.balls import ball_between as ball_between
    from pacbayes_control.certify.balls import ball_of_samples as ball_of_samples
    from pacbayes_control.certify.certificate import Certificate as Certificate
    from pacbayes_control.certify.costs import Costs as Costs
    from pacbayes_control.certify.distributions import Categorical as Categorical
    from pacbayes_control.certify.distributions import DiagonalGaussian as DiagonalGaussian
    from pacbayes_control.certify.priors import pilot_prior as pilot_prior
    from pacbayes_control.certify.run import AlteredRun as AlteredRun
    from pacbayes_control.certify.run import Run as Run
    from pacbayes_control.certify.shift import curve as curve
    from pacbayes_control.certify.shift import under_shift as under_shift
    from pacbayes_control.certify.simulated import with_simulation as with_simulation
    from pacbayes_control.certify.tables.campaigns import read_campaign as read_campaign
    from pacbayes_control.certify.trials import Trials as Trials
    from pacbayes_control.deploy.monitor import Monitor as Monitor
    from pacbayes_control.deploy.monitor import Promise as Promise
    from pacbayes_control.deploy.policy import DeployedPolicy as DeployedPolicy
    from pacbayes_control.learn import GaussianPrior as GaussianPrior
    from pacbayes_control.learn import Plan as Plan
    from pacbayes_control.learn import SearchSettings as SearchSettings
    from pacbayes_control.learn import SearchStopped as SearchStopped
    from pacbayes_control.learn import certify_draw as certify_draw
    from pacbayes_control.learn import compare_methods as compare_methods
    from pacbayes_control.learn import imitate as imitate
    from pacbayes_control.learn import learn_best as learn_best
    from pacbayes_control.learn import learn_constrained as learn_constrained
    from pacbayes_control.learn import learn_family as learn_family
    from pacbayes_control.learn import learn_finite as learn_finite
    from pacbayes_control.learn import learn_gaussian as learn_gaussian
    from pacbayes_control.learn import learn_in_parts as learn_in_parts
    from pacbayes_control.learn import learn_one as learn_one
    from pacbayes_control.learn import learn_task as learn_task
    from pacbayes_control.learn import learn_tilted as learn_tilted
    from pacbayes_control.learn import pretrain_prior as pretrain_prior
    from pacbayes_control.learn import set_aside as set_aside
    from pacbayes_control.rollouts import Execution as Execution
    from pacbayes_control.rollouts import RolloutError as RolloutError
    from pacbayes_control.rollouts import evaluate as evaluate
    from pacbayes_control.rollouts import mean_costs as mean_costs
    from pacbayes_control.rollouts import sample_costs as sample_costs
    from pacbayes_control.rollouts.conformance import check_task as check_task
    from pacbayes_control.study.failures import failures_of as failures_of
    from pacbayes_control.study.sweep import sweep as sweep
    from pacbayes_control.tasks.registry import load_task as load_task
    from pacbayes_control.trials.choosing import choose as choose
    from pacbayes_control.trials.comparing import compare as compare
    from pacbayes_control.trials.logs.options import LogOptions as LogOptions
    from pacbayes_control.trials.logs.reading import read_trials as read_trials
    from pacbayes_control.trials.ranking import rank as rank
    from pacbayes_control.verify import InvalidCertificate as InvalidCertificate
    from pacbayes_control.verify import verify as verify
    from pacbayes_control.verify.signing import InvalidSignature as InvalidSignature
    from pacbayes_control.verify.signing import check_signature as check_signature
    from pacbayes_control.verify.signing import sign as sign

# The public names, by the module that has them. They are imported when first used, so that it is
# cheap to import the package: computing a bound should not need to load a simulator.
_PUBLIC = {
    "certify.balls": "Ball ball_between ball_of_samples",
    "certify.certificate": "Certificate",
    "certify.costs": "Costs",
    "certify.distributions": "Categorical DiagonalGaussian",
    "certify.priors": "pilot_prior",
    "certify.run": "AlteredRun Run",
    "certify.shift": "curve under_shift",
    "certify.simulated": "with_simulation",
    "certify.tables.campaigns": "read_campaign",
    "certify.trials": "Trials",
    "deploy.monitor": "Monitor Promise",
    "deploy.policy": "DeployedPolicy",
    "learn": "GaussianPrior Plan SearchSettings SearchStopped certify_draw compare_methods imitate "
    "learn_best learn_constrained learn_family learn_finite learn_gaussian learn_in_parts "
    "learn_one learn_task learn_tilted pretrain_prior set_aside",
    "rollouts": "Execution RolloutError evaluate mean_costs sample_costs",
    "rollouts.conformance": "check_task",
    "study.failures": "failures_of",
    "study.sweep": "sweep",
    "tasks.registry": "load_task",
    "trials.choosing": "choose",
    "trials.comparing": "compare",
    "trials.logs.options": "LogOptions",
    "trials.logs.reading": "read_trials",
    "trials.ranking": "rank",
    "verify": "InvalidCertificate verify",
    "verify.signing": "InvalidSignature check_signature sign",
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
