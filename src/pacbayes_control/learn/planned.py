"""Carrying out a plan: from a task to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify import looks, priors
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import HeldOutEstimate
from pacbayes_control.certify.costs import MOST_ROWS, Costs
from pacbayes_control.certify.distributions import Categorical, DiagonalGaussian
from pacbayes_control.certify.files import read_json
from pacbayes_control.certify.issuing import budget_for
from pacbayes_control.certify.parts import parsed_parts
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.tables.campaigns import read_policies, read_prior
from pacbayes_control.certify.tables.pilots import read_pilot
from pacbayes_control.learn import gaussian, until
from pacbayes_control.learn.finite import (
    checked_method,
    learn_best,
    learn_finite,
    learn_in_parts,
)
from pacbayes_control.learn.plan import Plan
from pacbayes_control.learn.priors import GaussianPrior, scaled
from pacbayes_control.learn.search import SearchSettings, saved_settings
from pacbayes_control.learn.training import check_estimator, rollout_rate
from pacbayes_control.rollouts import (
    Execution,
    RolloutError,
    estimate_true_cost,
    evaluate,
    manifest,
)
from pacbayes_control.rollouts.evaluation import checked_policies, described_by
from pacbayes_control.rollouts.growing import GrowingCosts
from pacbayes_control.tasks import Environments, Task, as_task
from pacbayes_control.tasks.environments import generator, in_a_line
from pacbayes_control.tasks.registry import installed_tasks, load_task

FAMILY = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # factors of a prior's variances, fixed in advance
STEPS = 200  # of a search, if neither the plan nor the task has settings for it
SECONDS = 600.0  # that such a search should take, about, if a user's own task is slow
FEWEST = 2  # environments a step then, at least: as many rollouts as certifying takes


def learn_task(
    task: Task | str, plan: Plan | None = None, execution: Execution | None = None
) -> Run[Any]:
    """Learn a policy for a task as a plan says, and certify it. The run holds the plan.

    The policy is chosen from the plan's policies, or else from the task's `policies`. If neither
    has any, a distribution over continuous policies is learnt, from the plan's prior or the task's.

    Args:
        task: an object, the name of an installed task, or MODULE:TASK
        plan: what to learn; a field that has no effect on this task is an error
        execution: where and how

    >>> from pacbayes_control.tasks.demo import Stopping
    >>> learn_task(Stopping(), Plan(environments=50)).certificate.policies
    5
    """
    plan, execution = plan or Plan(), execution or Execution()
    if isinstance(task, str):
        plan = replace(plan, task=task)
        task = load_task(task, plan.options)
    task = as_task(task)
    if plan.test_environments is None:
        plan = replace(plan, test_environments=task.test_environments)
    try:
        train = task.environments(plan.most_environments, stream="train", seed=plan.seed)
        new = None
        if plan.test_environments:
            new = task.environments(plan.test_environments, stream="test", seed=plan.seed)
    except Exception as error:  # a user's task may raise anything
        raise ValueError(
            f"task {task.name} cannot draw environments: {in_a_line(error)}"
        ) from error
    run = learn_on(task, train, plan, execution)
    if new is not None:
        # without retries: the estimate would be conditioned on success
        how = Execution(execution.workers, progress=execution.progress, title="test rollouts")
        how = replace(how, rollout_timeout=execution.rollout_timeout, device=execution.device)
        try:
            cost = estimate_true_cost(task, run, new, how)
        except RolloutError as error:
            raise ValueError(f"{error}; --test-environments 0 does without the estimate") from error
        estimate = HeldOutEstimate(cost, len(new), new.stream, new.seed)
        run = replace(run, certificate=replace(run.certificate, test_estimate=estimate))
    return run if run.plan else replace(run, plan=plan.to_dict())


def learn_on(
    task: Task, environments: Environments, plan: Plan, execution: Execution | None = None
) -> Run[Any]:
    """As `learn_task`, on given environments and without an estimate of the true cost."""
    task, execution = as_task(task), execution or Execution()
    ball = Ball.parse(plan.ball) if plan.ball is not None else None
    listed = task.policies is not None or plan.policies is not None
    plan.check_used(finite=listed)
    learn = _learn_listed if listed else _learn_continuous
    run: Run[Any] = learn(task, environments, plan, execution)
    return under_shift(run, ball) if ball else run


def warn_of_faults(task: Task, policies: Any, execution: Execution) -> None:
    """Try a task that no package has installed, and so no author has checked, before learning."""
    from pacbayes_control.rollouts.conformance import refuse_broken

    trying = replace(execution, store=None, title="trying the task")
    trying.tell(0, 1, "a few rollouts, to see whether it keeps its promises")
    warning = refuse_broken(task, checked_policies(task, policies), execution)
    trying.tell(1, 1)
    execution.warn(warning)


# ---- finitely many policies ---------------------------------------------------------------------


def _learn_listed(
    task: Task, train: Environments, plan: Plan, execution: Execution
) -> Run[Categorical]:
    policies, names = task.policies, task.policy_names
    if plan.policies is not None:
        policies, names = read_policies(Path(plan.policies))
    names = list(plan.names or names)
    check_listed(plan)
    prior = listed_prior(checked_policies(task, policies), names, train, plan)
    rollouts = _keeping_rollouts(task, plan, replace(execution, title="training rollouts"))
    store = None if rollouts.store is None else Path(rollouts.store)
    growing = GrowingCosts(task, np.asarray(policies), train, names, rollouts)
    if plan.until is not None:
        until.check_store(growing, plan)
    elif store is not None:  # what no delta can pay for is refused before it is rolled out
        manifest.check_uncovered(store)
        _next_look(manifest.known_looks(store), len(train), np.asarray(policies), plan, store)
    _check_parts(task, train, plan, execution)
    if plan.task not in installed_tasks() and not (store and store.exists()):
        warn_of_faults(task, policies, execution)
    if plan.until is not None:
        return until.learn_until(growing, plan, prior)
    costs = evaluate(task, policies, train, names, execution=rollouts)
    priors.prior_for(costs, prior)  # only for its errors: such a prior should not cost a look
    if store is not None:
        costs = _looked_at(costs, plan, store)
    return learn_from_costs(costs, plan, prior)


def check_listed(plan: Plan) -> None:
    """Raise ValueError if the method of a plan for listed policies has no such objective."""
    if plan.method != "best":
        checked_method(plan.method, plan.objective, plan.statistic)
    elif plan.objective:
        raise ValueError("best takes no objective: it minimises each method's own bound")


def _check_parts(task: Task, train: Environments, plan: Plan, execution: Execution) -> None:
    """Raise ValueError if environments have no such parts: a wrong name is noticed at once.

    A warning for one with too few environments, such as by a misspelt word.
    """
    if not plan.parts:
        return
    if len(train) > MOST_ROWS:
        raise ValueError(f"parts of the world are for at most {MOST_ROWS:,} environments")
    described = described_by(task, train)
    for part in parsed_parts(plan.parts):
        inside = int(part.holds(described).sum())
        if inside < 2:
            execution.warn(
                f"the part {part} has {inside} of the {len(train):,} environments: it will have no "
                "bound below 1"
            )


def learn_from_costs(costs: Costs, plan: Plan, prior: Categorical | None) -> Run[Categorical]:
    """The run of a plan on the costs of listed policies."""
    if plan.method == "best":
        return learn_best(costs, plan.delta, prior=prior)
    chosen: Any = {"method": plan.method, "objective": plan.objective, "prior": prior}
    if plan.parts:
        return learn_in_parts(costs, plan.parts, plan.delta, share=plan.parts_delta, **chosen)
    return learn_finite(costs, plan.delta, of=plan.statistic, **chosen)


def listed_prior(
    policies: NDArray, names: list[str], train: Environments, plan: Plan
) -> Categorical | None:
    """The prior that a plan's file gives to listed policies; None for the uniform one."""
    listed = names or len(policies)
    if plan.prior is not None:
        if not Path(plan.prior).is_file():
            raise FileNotFoundError(
                f"there is no prior {plan.prior}: over listed policies it is a file of weights"
            )
        prior = read_prior(Path(plan.prior), listed)
    elif plan.pilot is not None:
        prior = read_pilot(plan.pilot, listed, parameters=policies)
    else:
        return None
    if any(train.range.overlaps(part) for part in prior.seen or ()):
        raise ValueError(
            f"{plan.prior or plan.pilot} was learnt from some of these environments: it cannot be "
            "the prior"
        )
    return prior


def _keeping_rollouts(task: Task, plan: Plan, execution: Execution) -> Execution:
    """The same execution, with the folder where rollouts of listed policies are kept."""
    if plan.campaign is not None:
        rollouts = replace(execution, store=plan.campaign, policies_unseen=plan.unseen)
        return replace(rollouts, declared_looks=plan.looks)
    if plan.task in installed_tasks() and task.uses_all_cores:
        return replace(execution, store=None)  # fast: keeping rollouts would take longer
    return execution.keeping("rollouts")


def _looked_at(costs: Costs, plan: Plan, store: Path) -> Costs:
    """The costs of a campaign, once this look at them is recorded in its folder.

    It is recorded before a bound is computed: a look that nobody pays for would be a free choice.
    """
    policies = costs.parameters
    assert policies is not None
    look, entries = _next_look(costs.origin, costs.environments, policies, plan, store)
    costs = costs.with_origin(**entries)
    budget_for(costs, plan.delta)  # only for its errors
    method = plan.method
    if method != "best":
        method = checked_method(method, plan.objective, plan.statistic)
    way = f"method {method}, objective {plan.objective or method}, {plan.prior_digest}"
    way += "" if plan.of == "mean" else f", of {plan.of}"
    way += f", parts {plan.parts!r} at {plan.parts_delta}" if plan.parts else ""
    way += "" if plan.function_delta is None else f", function_delta {plan.function_delta!r}"
    manifest.record_look(store, look, way, looks.looks_from(costs.origin.get("looks", [])))
    return costs


def _next_look(
    known: Mapping[str, object], environments: int, policies: NDArray, plan: Plan, store: Path
) -> tuple[looks.Look, dict[str, Any]]:
    """The look that a plan is about to take at a campaign, and what its costs' origin is to tell.

    Args:
        known: the campaign's looks and declared looks, as in the origin of its costs
        environments: of this look
        policies: of this look, one per row
        plan: looks, unseen and delta
        store: the campaign's folder
    """
    declared = looks.declared_looks(known)
    if plan.looks and declared not in ((), plan.looks):
        numbers = looks.in_words(declared)
        raise ValueError(f"the looks at {store} were declared as {numbers}: they stay so")
    late, declared = not declared, declared or plan.looks
    delta, digest = plan.delta / max(1, len(declared)), looks.list_digest(policies)
    for name in ("parts_delta", "function_delta"):
        spent = getattr(plan, name)
        if spent is not None and spent >= delta:
            raise ValueError(
                f"{name} = {spent:g} overspends: it must leave some of the {delta:g} of this look"
            )
    look = looks.Look(environments, digest, len(policies), delta)
    before = looks.looks_from(known.get("looks", []))
    if plan.looks and late and before:
        raise ValueError(f"{store} was looked at before: looks are declared before the first one")
    *earlier, _ = so_far = looks.looks_until(known, look)
    unseen = plan.unseen and any(x.count < look.count for x in earlier)
    fault = looks.describe_fault(so_far, declared, policies, unseen=unseen)
    if fault:
        raise ValueError(fault)
    entries = {"looks": [asdict(x) for x in earlier], "declared_looks": list(declared)}
    return look, {name: entry or None for name, entry in (entries | {looks.UNSEEN: unseen}).items()}


# ---- continuous policies ------------------------------------------------------------------------


def usual_search(task: Task, prior: str | None) -> SearchSettings:
    """How to search from a prior, where nothing else is said: as the task does, or as we do."""
    return _search_of(task, prior) or SearchSettings(steps=STEPS)


def _search_of(task: Task, prior: str | None) -> SearchSettings | None:
    """The task's own settings for a search from a prior, if it has some."""
    return task.search_from(prior or next(iter(task.priors), None))


def fitting_search(
    task: Task, prior: GaussianPrior, n: int, plan: Plan, execution: Execution
) -> SearchSettings:
    """The usual settings of the library; with fewer environments a step if rollouts are slow.

    For tasks that are not installed only: figures of the others are the same on every machine. A
    search that was begun goes on with its settings.

    Args:
        task: to be rolled out a few times, in environments that are used for nothing else
        prior: of the policies that are rolled out
        n: training environments
        plan: seed, and whether several priors are searched from
        execution: where and how
    """
    usual, searches = SearchSettings(steps=STEPS), len(FAMILY) if plan.family else 1
    if {plan.task, task.name}.intersection(installed_tasks()):
        return usual
    begun = execution.keeping("search-0" if plan.family else "search").store
    if begun is not None and Path(begun).exists():
        saved = saved_settings(Path(begun)) or usual
        return saved if replace(saved, batch=None) == usual else usual
    try:
        rate = rollout_rate(task, prior.distribution, plan.seed, execution)
    except ValueError:  # the search will meet the fault too, and say at which step
        return usual
    affordable = max(FEWEST, rate * SECONDS / (searches * usual.steps * 2 * usual.pairs))
    batch = 2 ** round(log2(affordable))  # mostly the same when it is measured again
    if affordable >= n or batch >= n:
        return usual
    execution.warn(
        f"rollouts are slow, {rate:.3g} a second: the search uses {batch:,} of the {n:,} "
        "environments in each step; --batch, --steps and --pairs set another size"
    )
    return replace(usual, batch=batch)


def _learn_continuous(
    task: Task, train: Environments, plan: Plan, execution: Execution
) -> Run[Any]:
    if plan.search is None and plan.certify != "one":
        plan = replace(plan, search=_search_of(task, plan.prior))
    if execution.allow_code_change:
        raise ValueError("allow_code_change is for a list of policies: a search begins again")
    if plan.certify == "posterior":
        # only for its errors
        gaussian.split_budget(plan.delta, plan.method or "kl", plan.sampling_delta)
    check_estimator(task, plan.search, plan.objective)
    learning = replace(execution, title="learning the prior")
    prior, counted = prior_for(task, train, plan, learning)
    if task.parameters is not None and len(prior.distribution) != task.parameters:
        raise ValueError(
            f"the prior has {len(prior.distribution)} parameters: the policies of {task.name} need "
            f"{task.parameters} parameters each"
        )
    prior.check_unseen(counted)
    if plan.task not in installed_tasks() and not _begun(execution):
        few = prior.distribution.sample(generator(0, "conformance", of="policies"), 3)
        warn_of_faults(task, few, execution)
    learning = replace(execution, title="learning the posterior")
    if plan.certify == "one":  # without a search
        return gaussian.learn_one(task, counted, prior, plan, learning)
    ready = task.prepared(counted, execution)
    if plan.search is None:
        fitting = fitting_search(ready, prior, len(counted), plan, execution)
        plan = replace(plan, search=fitting)
    if plan.certify == "draw":
        run = gaussian.learn_draw(ready, counted, prior, plan, learning)
    else:
        family = scaled(prior, FAMILY) if plan.family else [prior]
        run = gaussian.learn_family(ready, counted, family, plan, learning)
    return replace(run, plan=plan.to_dict())  # with the search, to repeat it


def _begun(execution: Execution) -> bool:
    """Whether an earlier call has left files to continue from."""
    if execution.store is None:
        return False
    store = Path(execution.store)
    return any(path.name.startswith(f"{store.name}.") for path in store.absolute().parent.iterdir())


def prior_for(
    task: Task, environments: Environments, plan: Plan, execution: Execution
) -> tuple[GaussianPrior, Environments]:
    """The prior that a plan names, and the environments that the bound may count."""
    name = plan.prior or (next(iter(task.priors), None) if task.prior is None else None)
    if name is not None and name in task.priors:
        return task.learn_prior(name, environments, plan, execution)
    if plan.prior_steps != Plan.prior_steps:
        raise ValueError("prior_steps is for priors that are learnt on the spot")
    if name is not None:
        if Path(name).suffix not in ("", ".json"):
            hint = f"; {task.prior_hint}" if task.prior_hint else ""
            raise ValueError(f"{name}: a prior over continuous policies is a .json file{hint}")
        if not Path(name).is_file():
            known = f"choose {', '.join(task.priors)}, or " if task.priors else ""
            raise FileNotFoundError(f"there is no prior {name!r}: {known}give a file")
        record = read_json(Path(name))
        given = DiagonalGaussian.from_record(record, f"prior in {name}")
        return GaussianPrior(given, str(record.get("origin", f"from {name}"))), environments
    if isinstance(task.prior, GaussianPrior):
        return task.prior, environments
    if not isinstance(task.prior, DiagonalGaussian):
        raise ValueError(
            f"the task {task.name} has neither policies nor a prior: give --policies or --prior "
            "a file, or the task an attribute of that name"
        )
    return GaussianPrior(task.prior, f"that of the task {task.name}"), environments
