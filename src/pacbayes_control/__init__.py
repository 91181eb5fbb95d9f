"""Learn a policy for a robot, and a certificate of how it will do where it has never been.

>>> import pacbayes_control as pbc
>>> costs = pbc.Costs([[0, 1], [0, 0], [0, 1]] * 100)
>>> run = pbc.learn_finite(costs, delta=0.01)
>>> run.certificate.bound < 0.05
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pacbayes_control.certificate import Certificate
    from pacbayes_control.costs import Costs, read_costs
    from pacbayes_control.distributions import Categorical
    from pacbayes_control.learn import learn_best, learn_constrained, learn_finite
    from pacbayes_control.rollouts import evaluate, mean_costs
    from pacbayes_control.run import Run
    from pacbayes_control.verification import verify

# Where each public name lives. They are imported when first used, so that importing the package is
# cheap: nobody who wants a bound should wait for a simulator to load.
_HOMES = {
    "Categorical": "distributions",
    "Certificate": "certificate",
    "Costs": "costs",
    "Run": "run",
    "evaluate": "rollouts",
    "learn_best": "learn",
    "learn_constrained": "learn",
    "learn_finite": "learn",
    "mean_costs": "rollouts",
    "read_costs": "costs",
    "verify": "verification",
}

__all__ = [
    "Categorical",
    "Certificate",
    "Costs",
    "Run",
    "evaluate",
    "learn_best",
    "learn_constrained",
    "learn_finite",
    "mean_costs",
    "read_costs",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
