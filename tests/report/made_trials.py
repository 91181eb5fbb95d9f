"""Trials for tests of pages, made without a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pacbayes_control.certify.trials import Trials

ATTACK = "</script><img src=x onerror=alert(1)>"
HARMLESS = ("https://example.org/1.mp4", "HTTP://example.org/2", "videos/run 3.mp4", "4.mp4")
HOSTILE = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    " javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "file:///etc/passwd",
    "vbscript:x",
    "//evil.example/x",
    "/\\evil.example",
    "\\\\evil.example",
    "/etc/passwd",
    'https://x.org/" onclick="alert(1)',
    "https:alert",
    "#top",
    "?x",
)


def made(
    costs: Sequence[Sequence[float | None]],
    policies: Sequence[str] = (),
    *,
    tasks: int = 0,
    shared: bool = True,
    links: Sequence[str] = (),
    unit: str = "scene",
) -> Trials:
    """Trials from rows of costs by environment and policy; None where one was not tried.

    Args:
        costs: a row for each environment
        policies: names; by default a, b and so on
        tasks: of a fixed list, to which environments belong in turn; 0 without one
        shared: whether a row is one environment, or one for each policy
        links: repeated for as many trials as there are
        unit: the kind of environment
    """
    names = tuple(policies) or tuple("abcdefgh"[: len(costs[0])])
    cells = [(e, p, c) for e, row in enumerate(costs) for p, c in enumerate(row) if c is not None]
    where, policy, values = (np.array(column) for column in zip(*cells, strict=True))
    if not shared:
        where = np.arange(len(cells))
    count = int(where.max()) + 1
    per_row = 1 if shared else len(costs[0])
    task = np.arange(count) // per_row % tasks if tasks else None
    return Trials(
        policies=names,
        policy=policy,
        environments=tuple(f"{unit} {i}" for i in range(count)),
        environment=where,
        costs=values.astype(float),
        graded=bool(np.any((values > 0) & (values < 1))),
        outcome="1 if it fails",
        unit=unit,
        shared=shared,
        tasks=tuple(f"task {i}" for i in range(tasks)),
        task=task,
        links=tuple(links[i % len(links)] for i in range(len(cells))) if links else (),
        sources={"folder/trials.csv": "0" * 64},
        understood="trials.csv: one row a trial",
    )


def random(
    rates: Sequence[float], environments: int, *, graded: bool = False, **options: object
) -> Trials:
    """Trials that fail at these rates, or cost as much on average."""
    rng = np.random.default_rng(7)
    drawn = rng.random((environments, len(rates)))
    costs = np.clip(np.array(rates) + 0.3 * (drawn - 0.5), 0, 1) if graded else drawn < rates
    return made(costs.astype(float).tolist(), **options)  # type: ignore[arg-type]


def attacked(trials: Trials) -> Trials:
    """The same with an attack in every text."""
    return replace(
        trials,
        policies=tuple(f"{name} {ATTACK}" for name in trials.policies),
        environments=tuple(f"{name} {ATTACK}" for name in trials.environments),
        tasks=tuple(f"{name} {ATTACK}" for name in trials.tasks),
        outcome=f"{trials.outcome} {ATTACK}",
        unit=f"{trials.unit} {ATTACK}",
        understood=f"read {ATTACK}",
        sources={f"log {ATTACK}": "0" * 64},
    )
