"""The verdict of a comparison, recomputed from its trials by code of its own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.files import has_type
from pacbayes_control.certify.trials import Trials
from pacbayes_control.verify.intervals import InvalidCertificate, require
from pacbayes_control.verify.trials import UNIT, log_e_from_below, log_e_path_from_below

FIELDS = {"a": str, "b": str, "alpha": float, "margin": float, "in_order": bool, "untried": bool}
FIELDS |= {"verdict": str, "difference": list[float], "pairs": int}


def check_comparison(record: Mapping[str, Any], trials: Trials) -> None:
    """Raise InvalidCertificate unless the trials prove the verdict and the limits of a record."""
    for name, kind in FIELDS.items():
        require(has_type(record.get(name), kind), f"the comparison has no valid {name}")
    alpha, margin, limits = record["alpha"], record["margin"], record["difference"]
    possible = 0 < alpha < 1 and 0 <= margin < 1 and len(limits) == 2
    require(possible, "the comparison has impossible settings")
    low, high = limits
    d, together = _differences(trials, record["a"], record["b"])
    require(len(d) == record["pairs"], "the comparison is about another number of pairs")
    every = together if record["in_order"] else 0
    needed = math.log(2 / alpha) * (1 + UNIT)
    proven = low <= -1 or _proves(d, low, needed, every)
    require(proven, f"the lower limit {low:.6g} of the difference is not proven by the trials")
    proven = high >= 1 or _proves(-d, -high, needed, every)
    require(proven, f"the upper limit {high:.6g} of the difference is not proven by the trials")
    decided = "better" if low > margin else "worse" if high < -margin else "undecided"
    if low > high:  # looks on the way contradict each other
        decided = "undecided"
    require(record["verdict"] == decided, f"the verdict is {decided} by the limits")


def _proves(differences: NDArray, limit: float, needed: float, every: int) -> bool:
    """Whether the e-value against "the mean is at most the limit" is as large as needed."""
    if not len(differences):
        return False
    outcomes, mean = (1 + differences) / 2, math.nextafter((1 + limit) / 2, 2.0)
    if every:
        path = log_e_path_from_below(outcomes, mean)[every - 1 :: every]
        return bool(len(path) and path.max() >= needed)
    return log_e_from_below(outcomes, mean) >= needed


def _differences(trials: Trials, a: str, b: str) -> tuple[NDArray[np.float64], int]:
    """The cost of B less that of A in each pair, and the number of pairs in a round."""
    if a not in trials.policies or b not in trials.policies or a == b:
        raise InvalidCertificate("the comparison is about policies without trials")
    rows: dict[str, list[int]] = {a: [], b: []}
    for number, policy in enumerate(trials.policy):
        if trials.policies[policy] in rows:
            rows[trials.policies[policy]].append(number)
    where = trials.environment.tolist()
    in_b = {where[number]: number for number in rows[b]}
    pairs = [(number, in_b[where[number]]) for number in rows[a] if where[number] in in_b]
    task = [0] * len(trials.environments) if trials.task is None else trials.task.tolist()
    if not (trials.shared and pairs):
        pairs = []
        for one in sorted(set(task)):
            mine = [[n for n in rows[name] if task[where[n]] == one] for name in (a, b)]
            pairs += list(zip(*mine, strict=False))
    pairs.sort(key=max)
    by_task: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for pair in pairs:
        by_task[task[where[pair[0]]]].append(pair)
    together = max(1, len(trials.tasks))
    rounds = min((len(by_task[one]) for one in range(together)), default=0)
    if trials.task is not None:
        pairs = [by_task[one][number] for number in range(rounds) for one in range(together)]
    differences = [trials.costs[second] - trials.costs[first] for first, second in pairs]
    return np.array(differences, float), together
