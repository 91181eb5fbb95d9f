"""How many trials in the same environments until two policies can be told apart: exact.

A pair of trials in one environment decides for a side if only the other policy fails. After w such
pairs for the first policy and l for the second, the e-value of "the first is not better" is
E(w, l) = Σⱼ wⱼ (1+uⱼ)^w (1-uⱼ)^l, and E(l, w) that of the other direction. The comparison ends
when either reaches 2/α. For m = w + l discordant pairs E grows with w, so that it has ended for the
first policy from some number of wins on, and for the second by symmetry: a dynamic programme over m
and w gives the distribution of m at the end, and the binomial distribution that of the trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pacbayes_control.bounds.anytime import MARGIN, SHARES, STAKES
from pacbayes_control.bounds.kl import Floats
from pacbayes_control.bounds.theorems import check_delta
from pacbayes_control.trials.plans.environments import at_most

MOST_DISCORDANT = 100_000  # pairs that are followed: two seconds
UNDECIDED = 1e-12  # probability that is not followed further


@dataclass(frozen=True)
class TrialsToTellApart:
    """Trials of each policy until a comparison is decided."""

    trials: int  # of each policy, after which it is decided with enough probability
    decided: float  # that probability
    mean: float | None  # of trials of each policy until it is decided; None if it is not known
    wrong: float  # probability that it is decided for the worse policy


def trials_to_tell_apart(
    rate_a: float,
    rate_b: float,
    *,
    alpha: float = 0.05,
    power: float = 0.9,
    both_fail: float | None = None,
) -> TrialsToTellApart:
    """Trials of two policies in the same environments until it is decided which fails less.

    The comparison is looked at after every pair, and ends when an e-value reaches 2/alpha.

    Args:
        rate_a: failure rate of one policy, as assumed
        rate_b: failure rate of the other
        alpha: probability of a wrong decision, half of it for each direction
        power: the least probability that it is decided
        both_fail: probability that both fail in an environment; default: independently of each
            other, as if environments were equally hard. If policies fail in the same environments,
            fewer trials are needed.

    >>> trials_to_tell_apart(0.1, 0.4).trials, trials_to_tell_apart(0.1, 0.4, both_fail=0.1).trials
    (70, 29)
    """
    a_wins, b_wins = _discordant(rate_a, rate_b, both_fail)
    check_delta(alpha, "alpha")
    check_delta(power, "power")
    better, worse = max(a_wins, b_wins), min(a_wins, b_wins)
    share = better + worse  # of pairs that are discordant
    _check_size(better / share, alpha, f"failure rates of {rate_a:g} and {rate_b:g}")
    right, wrong = _decisions(better / share, alpha)
    left = np.maximum(1 - np.cumsum(right + wrong), 0)  # undecided after 0, 1, … discordant pairs
    if left[-1] > 1 - power:
        raise ValueError(_too_close(f"failure rates of {rate_a:g} and {rate_b:g}"))
    low, high = 0, 1
    while _undecided(high, share, left) > 1 - power:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        enough = _undecided(middle, share, left) <= 1 - power
        low, high = (low, middle) if enough else (middle, high)
    mean = float(np.sum(left)) / share if left[-1] < 10 * UNDECIDED else None
    return TrialsToTellApart(high, 1 - _undecided(high, share, left), mean, float(wrong.sum()))


def _discordant(rate_a: float, rate_b: float, both_fail: float | None) -> tuple[float, float]:
    """The probabilities that only b fails, and that only a fails."""
    for rate in (rate_a, rate_b):
        if not 0 <= rate <= 1:
            raise ValueError(f"the failure rate {rate} must lie in [0, 1]")
    if rate_a == rate_b:
        raise ValueError(f"both failure rates are {rate_a:g}: no number of trials tells them apart")
    both = rate_a * rate_b if both_fail is None else both_fail
    least, most = max(0.0, rate_a + rate_b - 1), min(rate_a, rate_b)
    if not least - 1e-12 <= both <= most + 1e-12:
        raise ValueError(
            f"both_fail = {both}: at failure rates of {rate_a:g} and {rate_b:g} both fail with a "
            f"probability from {least:g} to {most:g}"
        )
    return max(rate_b - both, 0.0), max(rate_a - both, 0.0)


def _decisions(win: float, alpha: float) -> tuple[Floats, Floats]:
    """Probabilities of being decided rightly and wrongly at each number of discordant pairs.

    win: probability that a discordant pair is for the better policy
    """
    with np.errstate(divide="ignore"):
        up, down = np.log1p(STAKES), np.log1p(-STAKES)
    goal, logs = math.log(2 / alpha) + MARGIN, np.log(SHARES)
    right, wrong = np.zeros(MOST_DISCORDANT + 1), np.zeros(MOST_DISCORDANT + 1)
    # Undecided states after m pairs: wins from m - needed + 1 to needed - 1, where `needed` wins
    # decide. With one pair more as many decide, or one more: then neither end is decided.
    inside, needed = np.ones(1), 1
    for m in range(1, MOST_DISCORDANT + 1):
        inside = np.append(inside * (1 - win), 0.0) + np.append(0.0, inside * win)
        losses = m - needed
        e_value = logs + needed * up + (losses * down if losses else 0.0)
        if losses >= 0 and np.logaddexp.reduce(e_value) >= goal:
            wrong[m], right[m] = inside[0], inside[-1]
            inside = inside[1:-1]
            if inside.sum() < UNDECIDED:
                return right[: m + 1], wrong[: m + 1]
        else:
            needed += 1
    return right, wrong


def _undecided(trials: int, share: float, left: Floats) -> float:
    """The probability that it is undecided after so many trials of each policy."""
    spread = 12 * math.sqrt(trials * share * (1 - share)) + 60  # beyond, less than 10⁻²⁰
    first, last = max(0, int(trials * share - spread)), min(trials, int(trials * share + spread))
    chances = np.diff(at_most(np.arange(first - 1, last + 1), trials, share))
    return float(chances @ left[np.minimum(np.arange(first, last + 1), len(left) - 1)])


def _check_size(win: float, alpha: float, rates: str) -> None:
    """An error if far more discordant pairs are needed than are followed."""
    with np.errstate(divide="ignore"):
        growth = win * np.log1p(STAKES) + ((1 - win) * np.log1p(-STAKES) if win < 1 else 0.0)
    pairs = (math.log(2 / alpha) - np.log(SHARES)) / np.maximum(growth, 1e-99)
    if pairs.min() > MOST_DISCORDANT:
        raise ValueError(_too_close(rates))


def _too_close(rates: str) -> str:
    return (
        f"{rates} are too close: to tell them apart takes more than {MOST_DISCORDANT:,} "
        "environments in which only one policy fails"
    )
