"""A plan: settings for learning and certifying, the same in the command line, Python and a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.tasks.options import from_values, option, options_of, plain

Method = Literal["kl", "kl-maurer", "pinsker", "occam", "best"]
Objective = Literal["kl", "kl-maurer", "pinsker", "quadratic", "lambda", "robust-pinsker"]
Certified = Literal["posterior", "draw", "one"]

MOST = 1_000_000_000  # largest number of environments, draws or steps


@dataclass(frozen=True)
class Plan:
    """Settings for learning a policy and certifying it.

    A run holds its plan, and `pbc learn --plan` makes the same run again.
    """

    # The name of an installed task, or MODULE:TASK; None if the task was given in Python.
    task: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the task, by name
    environments: int = option(1000, "Training environments.", least=2, most=MOST)
    delta: float = option(0.01, "Probability that the certificate may be wrong: 1 - confidence.")
    method: Method | None = option(
        None,
        "The certificate: kl (PAC-Bayes, a mixture of policies), kl-maurer and pinsker (the same, "
        "looser), occam (one policy), or best (the smaller of kl and occam, paid for).",
    )
    policies: str | None = option(
        None,
        "Policies, one a row: .npy, or .csv, with names first.",
        metavar="FILE",
        space="own",
    )
    names: tuple[str, ...] = option(
        (),
        "Names of the policies, such as checkpoints, in their order, for the certificate.",
        metavar="A,B,…",
        space="own",
    )
    prior: str | None = option(
        None,
        "A prior of the task, by its name, or a file: of weights of listed policies (.json, .csv, "
        ".npy), or of a Gaussian over continuous ones (.json).",
        metavar="NAME|FILE",
    )
    certify: Certified = option(
        "posterior",
        "Continuous policies: posterior, draw (one policy from it, kept for good) or one (the best "
        "of a few candidates from the prior).",
        space="continuous",
    )
    draws: int | None = option(
        None,
        "Policies for each environment to certify with; default 30,000 rollouts in all.",
        least=1,
        most=MOST,
        space="continuous",
    )
    test_environments: int | None = option(
        None, "New environments to estimate the true cost on; 0 for none.", least=0, most=MOST
    )
    ball: str | None = option(
        None,
        "Certify for every distribution this close to the training's, such as kl:0.08.",
        metavar="DIVERGENCE:B",
    )
    seed: int = option(0, "Seed of every random stream.", least=0, most=2**64 - 1)
    objective: Objective | None = option(
        None, "Bound to minimise, if not the method's own.", rare=True
    )
    family: bool = option(
        False,
        "Choose among five prior variances, by a union bound.",
        rare=True,
        space="continuous",
    )
    share: float = option(
        0.2,
        "prior = split: share of the environments that the prior may see.",
        rare=True,
        space="continuous",
    )
    prior_steps: int = option(
        400,
        "Steps of the search for a prior.",
        rare=True,
        least=1,
        most=MOST,
        space="continuous",
    )
    candidates: int = option(
        1,
        "certify = one: policies to choose from.",
        rare=True,
        least=1,
        most=MOST,
        space="continuous",
    )
    shared_draws: bool = option(
        False,
        "The same draws in every environment, as in the paper.",
        rare=True,
        space="continuous",
    )
    sampling_delta: float | None = option(
        None, "Share of delta for sampling; default a tenth.", rare=True, space="continuous"
    )
    search: SearchSettings | None = None  # by default the task's, or the library's

    def __post_init__(self) -> None:
        for name, each in options_of(Plan).items():
            each.check(getattr(self, name))
        Budget(self.delta)
        if self.ball is not None:
            Ball.parse(self.ball)
        if self.sampling_delta is not None and not 0 < self.sampling_delta < self.delta:
            raise ValueError(
                f"sampling_delta = {self.sampling_delta:g} overspends: it must be positive, and "
                f"leave some of delta = {self.delta:g}"
            )
        if self.family and self.certify != "posterior":
            raise ValueError("a family of priors certifies the posterior: leave out certify")

    # ---- in a file ------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from the defaults, as plain values."""
        search = {"search": plain(self.search)} if self.search else {}
        own = {"options": dict(self.options)} if self.options else {}
        task = {"task": self.task} if self.task else {}
        return task | own | plain(self) | search

    @classmethod
    def from_dict(cls, record: Any) -> Plan:
        """A plan from a file, which may come from an untrusted source."""
        if not isinstance(record, dict):
            raise ValueError("a plan is a record of fields by name")
        rest = dict(record)
        task, options, search = (rest.pop(name, None) for name in ("task", "options", "search"))
        if not isinstance(task, str | None) or not isinstance(options, dict | None):
            raise ValueError("a plan names its task, and the options of it by name")
        found = from_values(cls, rest)
        settings = None if search is None else from_values(SearchSettings, search)
        return replace(found, task=task, options=options or {}, search=settings)

    # ---- what has an effect ---------------------------------------------------------------------

    def check_used(self, finite: bool) -> None:
        """Raise ValueError if a field was set that has no effect: none is ignored silently."""
        unused = _without_effect(self, finite)
        if self.search is not None and (finite or self.certify == "one"):
            unused["search"] = "(--steps and its like) has no use where nothing is searched for"
        for name, default in _defaults().items():
            if name in unused and getattr(self, name) != default:
                raise ValueError(f"{name} {unused[name]}")


def _defaults() -> dict[str, Any]:
    return {name: each.default for name, each in options_of(Plan).items()} | {"search": None}


def _without_effect(plan: Plan, finite: bool) -> dict[str, str]:
    """Fields that have no effect under a plan, and why."""
    fields = options_of(Plan)
    if finite:
        continuous = [name for name, each in fields.items() if each.space == "continuous"]
        return dict.fromkeys(continuous, "is for continuous policies: a task with a prior")
    unused: dict[str, str] = dict.fromkeys(("policies", "names"), "is for a list of policies")
    if plan.certify != "posterior":
        sampled = ("draws", "shared_draws", "sampling_delta")
        unused |= dict.fromkeys(sampled, "is for certify = posterior")
    if plan.certify == "one":
        searched = ("family", "objective", "method")
        unused |= dict.fromkeys(searched, "has no use where one of a few is certified")
    else:
        unused["candidates"] = "is for certify = one"
    if plan.certify == "draw":
        unused["method"] = "has no use: one draw has a bound of its own"
    if plan.prior != "split":
        unused["share"] = "is for prior = split"
    return unused
