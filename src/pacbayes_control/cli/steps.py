"""What `pbc learn` does, in turn: a task, its environments, the learning, and what is left over."""

from __future__ import annotations

import glob
import shutil
from pathlib import Path
from typing import Any


def vehicle_for(policy: str, wheel_slip: float, range_noise: float) -> Any:
    """The vehicle with a class of policies."""
    from pacbayes_control.robots import Vehicle
    from pacbayes_control.robots.vehicle.recipe import CONTROLLERS

    controller = {} if policy == "grid" else {"controller": CONTROLLERS[policy]}
    return Vehicle(wheel_slip=wheel_slip, range_noise=range_noise, **controller)


def swing_for(model: Path | None, gains: str, range_noise: float) -> Any:
    """The Swing, with a model that was fitted where one is given."""
    from dataclasses import replace

    from pacbayes_control.robots.swing.recipe import read_model, swing_of

    task = swing_of(read_model(model) if model else None, gains)
    return replace(task, range_noise=range_noise)


def drawn(task: Any, n: int, stream: str, seed: int) -> Any:
    """Environments of whatever task somebody brings."""
    try:
        return task.environments(n, stream=stream, seed=seed)
    except Exception as error:
        from pacbayes_control.tasks.environments import in_a_line

        raise ValueError(f"task {task.name} draws no environments: {in_a_line(error)}") from error


def candidates_of(task: Any, file: Path | None) -> tuple[Any, list[str]]:
    """The policies to choose from, and their names where they have some."""
    from pacbayes_control.certify.tables.campaigns import read_policies

    if file:
        return read_policies(file)
    return task.policies, list(task.policy_names)


def learn_listed(
    task: Any,
    policies: Any,
    names: list[str],
    train: Any,
    delta: float,
    method: str | None,
    objective: str | None,
    prior: str | None,
    executor: Any,
    checkpoint: Path,
    retries: int = 0,
    allow_code_change: bool = False,
) -> Any:
    """Choose among finitely many policies."""
    from pacbayes_control.certify.tables.campaigns import read_prior
    from pacbayes_control.learn import learn_best, learn_finite
    from pacbayes_control.learn.finite import check_method, usual_method
    from pacbayes_control.report.terminal import bar, warn
    from pacbayes_control.rollouts import evaluate
    from pacbayes_control.rollouts.conformance import refuse_broken
    from pacbayes_control.rollouts.evaluation import checked_policies

    if method == "best" and objective:
        raise ValueError("best takes no objective: it minimises each method's own bound")
    if method != "best":
        check_method(method or usual_method(len(policies)), objective)
    weights = read_prior(Path(prior), names or len(policies)) if prior else None
    if weights and any(train.range.overlaps(part) for part in weights.seen or ()):
        raise ValueError(f"{prior} was learnt from some of these environments: it is no prior")
    out = None if task.uses_all_cores else Path(f"{checkpoint}.rollouts")
    if out is not None and not out.exists():
        warn(refuse_broken(task, checked_policies(task, policies), executor, retries))
    with bar("training rollouts", len(train) * len(policies)) as progress:
        costs = evaluate(
            task,
            policies,
            train,
            names,
            progress,
            executor=executor,
            out=out,
            retries=retries,
            allow_code_change=allow_code_change,
        )
    if method == "best":
        return learn_best(costs, delta, weights)
    return learn_finite(costs, delta, method, objective, weights)


def learn_continuous(task: Any, train: Any, recipe: Any, executor: Any, checkpoint: Path) -> Any:
    """Search for a distribution over infinitely many."""
    from pacbayes_control.report.terminal import warn, watch
    from pacbayes_control.robots.vehicle.recipe import OWN, learn_from, learn_vehicle, own_prior
    from pacbayes_control.rollouts import spread
    from pacbayes_control.rollouts.conformance import refuse_broken
    from pacbayes_control.rollouts.evaluation import checked_policies
    from pacbayes_control.tasks.environments import generator

    with watch() as watching, spread(task, executor) as spread_task:
        if recipe.policy != OWN:
            return learn_vehicle(task, train, recipe, checkpoint, watching)
        prior = own_prior(task, recipe.prior)
        if not list(checkpoint.parent.glob(f"{glob.escape(checkpoint.name)}.*")):
            few = prior.distribution.sample(generator(0, "conformance", of="policies"), 3)
            warn(refuse_broken(task, checked_policies(task, few), executor, recipe.retries))
        return learn_from(prior, spread_task, train, recipe, checkpoint, watching)


def estimated(run: Any, task: Any, environments: Any, progress: Any, executor: Any) -> Any:
    """The same run, whose certificate also tells an estimate on environments never seen.

    No rollout of it may be run again: the estimate would be one of those that do not fail.
    """
    from dataclasses import replace

    from pacbayes_control.certify.certificate import HeldOutEstimate
    from pacbayes_control.rollouts import RolloutError, estimate_true_cost

    try:
        cost = estimate_true_cost(task, run, environments, progress, executor)
    except RolloutError as error:
        raise ValueError(f"{error}; --test-environments 0 does without the estimate") from error
    estimate = HeldOutEstimate(cost, len(environments), environments.stream, environments.seed)
    return replace(run, certificate=replace(run.certificate, test_estimate=estimate))


def remove(checkpoint: Path) -> None:
    """Delete what was kept on the way to a run."""
    for path in checkpoint.parent.iterdir():
        if path.name.startswith(f"{checkpoint.name}."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
