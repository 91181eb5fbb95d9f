"""Links of trials to videos and logs, from a file that may hold anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pacbayes_control.certify.trials import Trials

LISTED = 200  # trials in a table


class LinkedTrial(NamedTuple):
    """One trial with a link."""

    policy: str
    environment: str
    cost: float
    link: str


def target(link: str) -> str | None:
    """The address that a link may lead to: http, https or a relative path; None for any other.

    Backslashes and unprintable characters are refused, since browsers repair such addresses.

    >>> target("https://example.org/7.mp4"), target("videos/7.mp4")
    ('https://example.org/7.mp4', 'videos/7.mp4')
    >>> [target(link) for link in ("javascript:alert(1)", "data:,x", "file:///x", "//x.org", "/x")]
    [None, None, None, None, None]
    """
    if not link.isprintable() or link != link.strip() or "\\" in link:
        return None
    if re.match(r"https?://[^/\s]", link, re.IGNORECASE):
        return link if " " not in link else None
    first, _, _ = link.partition("/")
    relative = bool(first) and link[0] not in "#?" and ":" not in first
    return link if relative else None


def linked_trials(
    trials: Trials, policies: Sequence[int], most: int = LISTED
) -> tuple[list[LinkedTrial], int]:
    """Trials with links, in the order of these policies, failures first; and how many more."""
    if not trials.links:
        return [], 0
    place = np.full(len(trials.policies), len(trials.policies))
    place[list(policies)] = np.arange(len(policies))
    order = np.lexsort((-trials.costs, place[trials.policy]))
    wanted = set(policies)
    found = [int(n) for n in order if trials.links[n] and int(trials.policy[n]) in wanted]
    rows = [
        LinkedTrial(
            trials.policies[trials.policy[n]],
            trials.environments[trials.environment[n]],
            float(trials.costs[n]),
            trials.links[n],
        )
        for n in found[:most]
    ]
    return rows, len(found) - len(rows)
