"""How a log was read, in a line."""

from __future__ import annotations

from collections.abc import Sequence

from pacbayes_control.certify.trials import Trials


def understood(trials: Trials, files: str, told_by: str, notes: Sequence[str]) -> str:
    """The numbers of policies, environments and trials, the scoring, and everything left out.

    Args:
        trials: the record, complete but for this line.
        files: the file, or the number of files.
        told_by: what tells environments apart, such as: column “seed”.
        notes: choices that were made, and trials that were left out.
    """
    clauses = [
        f"{files}: {_size(trials, told_by)}",
        *([trials.outcome] if trials.outcome else []),
        *notes,
        _gaps(trials),
    ]
    return "; ".join(clauses)


def _size(trials: Trials, told_by: str) -> str:
    policies = _count(len(trials.policies), "policy", "policies")
    environments = _count(len(trials.environments), "environment", "environments")
    tasks = f" of {_count(len(trials.tasks), 'task', 'tasks')}" if trials.tasks else ""
    told = f" ({told_by})" if told_by else ""
    number = _count(len(trials), "trial", "trials")
    if trials.shared:
        return f"{policies} × {environments}{tasks}{told}, {number}"
    return f"{policies}, {number}{tasks}, each in an environment of its own{told}"


def _gaps(trials: Trials) -> str:
    """How far the numbers of trials differ, and how many pairs have none."""
    if not len(trials):
        return "no trials yet"
    counts = trials.counts
    pairs = len(trials.policies) * len(trials.environments)
    clauses = []
    if counts.min() < counts.max():
        clauses.append(f"{counts.min()} to {counts.max()} trials a policy")
    if trials.shared and len(trials) < pairs:
        clauses.append(f"{pairs - len(trials)} of {pairs} pairs of policy and environment missing")
    return ", ".join(clauses) or "nothing is missing"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
