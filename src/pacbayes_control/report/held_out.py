"""The estimate on environments that were used for nothing else, and how it stands to the bound."""

from __future__ import annotations

from math import sqrt

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.text import interval_ends, round_up

LEVEL = 0.05  # of the interval around the estimate, half of it at either end
WHOLE = 1e-6  # a number of failures that is this near to a whole one is


def held_out_failures(c: Certificate) -> int | None:
    """Failures of one policy in the test environments; None unless each succeeds or fails.

    The mean cost of a mixture is an average in each environment: it counts no failures.
    """
    estimate = c.test_estimate
    if estimate is None or c.policy is None or not c.success_or_failure:
        return None
    failures = estimate.cost * estimate.environments
    return round(failures) if abs(failures - round(failures)) < WHOLE else None


def held_out_interval(failures: int, environments: int) -> tuple[float, float]:
    """The exact 95 % interval of Clopper and Pearson for a failure probability.

    >>> [round(end, 4) for end in held_out_interval(2, 20)]
    [0.0123, 0.317]
    """
    high = clopper_pearson(failures, environments, LEVEL / 2)
    low = 1 - clopper_pearson(environments - failures, environments, LEVEL / 2)
    return float(low), float(high)


def held_out_error(c: Certificate) -> str:
    """The uncertainty of the estimate in words, from nothing but the certificate.

    The variance of a cost in [0, 1] with mean r is r(1 - r) at most.
    """
    estimate = c.test_estimate
    if estimate is None:
        return ""
    n, failures = estimate.environments, held_out_failures(c)
    if failures is None:
        variance = max(0.0, estimate.cost * (1 - estimate.cost)) / max(1, n - 1)
        return f"standard error at most {round_up(sqrt(variance))}"
    ends = " to ".join(interval_ends(*held_out_interval(failures, n)))
    return f"{failures:,} failures; 95 % interval {ends}"


def held_out_words(c: Certificate) -> str:
    """The estimate, its uncertainty where it is known, and whether it is above the bound."""
    estimate = c.test_estimate
    if estimate is None:
        return ""
    said = f"{estimate.cost:.4f} on {estimate.environments:,} environments that it has never seen"
    said += f" ({held_out_error(c)})"
    failures, low, high = held_out_failures(c), 0.0, 1.0
    if failures is not None:
        low, high = held_out_interval(failures, estimate.environments)
    if c.of != "mean":
        return f"{said}. It is of the mean cost, which the bound is not on."
    bound = c.bound_on_training
    name = f"the bound{'' if c.ball is None else ' without a shift'} of {round_up(bound)}"
    if estimate.cost <= bound:
        return f"{said}: below {name}{', as is its interval' if high <= bound else ''}."
    if low > bound:
        return (
            f"{said}: above {name}, by more than chance explains. Do not rely on the bound before "
            "it is known why."
        )
    return f"{said}: above {name}. Chance alone may explain this, or the promise may be wrong."
