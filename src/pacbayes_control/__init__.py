"""Learn a policy for a robot, and a certificate of how it will do where it has never been.

Costs, evaluate, mean_costs     what each policy cost in each environment
read_campaign                   the same from a CSV or NumPy file
learn_finite, learn_best,       choose a posterior over finitely many policies, and certify it
learn_constrained, compare
Run, Certificate, Categorical   what they return
verify                          check a run without trusting whoever computed it
AlteredRun, InvalidCertificate  what verify raises

>>> import pacbayes_control as pbc
>>> costs = pbc.Costs([[0, 1], [0, 0], [0, 1]] * 100)
>>> run = pbc.learn_finite(costs, delta=0.01)
>>> run.certificate.bound < 0.05
True
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pacbayes_control.certificate import Certificate
    from pacbayes_control.costs import Costs
    from pacbayes_control.distributions import Categorical
    from pacbayes_control.learn import compare, learn_best, learn_constrained, learn_finite
    from pacbayes_control.reading import read_campaign
    from pacbayes_control.rollouts import evaluate, mean_costs
    from pacbayes_control.run import AlteredRun, Run
    from pacbayes_control.verification import InvalidCertificate, verify

# Where each public name lives. They are imported when first used, so that importing the package is
# cheap: nobody who wants a bound should wait for a simulator to load.
_HOMES = {
    "AlteredRun": "run",
    "Categorical": "distributions",
    "Certificate": "certificate",
    "Costs": "costs",
    "InvalidCertificate": "verification",
    "Run": "run",
    "compare": "learn",
    "evaluate": "rollouts",
    "learn_best": "learn",
    "learn_constrained": "learn",
    "learn_finite": "learn",
    "mean_costs": "rollouts",
    "read_campaign": "reading",
    "verify": "verification",
}

__all__ = [
    "AlteredRun",
    "Categorical",
    "Certificate",
    "Costs",
    "InvalidCertificate",
    "Run",
    "compare",
    "evaluate",
    "learn_best",
    "learn_constrained",
    "learn_finite",
    "mean_costs",
    "read_campaign",
    "verify",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
