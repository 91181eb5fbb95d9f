"""A plan: settings for learning and certifying, the same in the command line, Python and a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pacbayes_control.certify import statistics
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Budget
from pacbayes_control.certify.files import hash_file
from pacbayes_control.certify.issuing import BETTING
from pacbayes_control.certify.looks import checked_numbers, in_words
from pacbayes_control.certify.parts import parsed_parts
from pacbayes_control.certify.shift import check_statistic
from pacbayes_control.certify.statistics import MEAN, Statistic
from pacbayes_control.certify.tables.pilots import pilot_file
from pacbayes_control.learn.search import SearchSettings
from pacbayes_control.tasks.options import from_values, option, options_of, plain

Method = Literal["occam", "kl", "betting", "kl-maurer", "pinsker", "best"]
Objective = Literal["kl", "kl-maurer", "pinsker", "quadratic", "lambda", "robust-pinsker"]
Certified = Literal["posterior", "draw", "one"]

NOT_KEPT = (
    "is for a list of policies: a search rolls out other policies each time, so that none of its "
    "rollouts can be used for another look"
)
ANOTHER_POSTERIOR = (
    "is for a list of policies: a search would have another posterior, and other rollouts, for "
    "each number of environments"
)
AT_MOST = 10_000  # environments, where they are added until a bound is reached
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
        "The certificate: occam (one policy, the default for a list), kl (PAC-Bayes, a mixture of "
        "policies), betting (the same by bets, for graded costs), kl-maurer and pinsker (looser), "
        "or best (the smaller of kl and occam, paid for). For more than the mean cost of one "
        "policy: --set of=quantile:0.9, or of=cvar:0.1; also in parts of the world, decided on "
        'before any rollout: --set "parts=wind<8,wind>=8".',
    )
    of: str = option(
        "mean",
        statistics.HELP,
        metavar="STATISTIC",
        hidden=True,  # the help of --method tells of it
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
        ".npy), or of a Gaussian over continuous ones (.json). For listed policies, --set "
        "pilot=FILE makes one from their costs in other environments, a table or a run.",
        metavar="NAME|FILE",
    )
    pilot: str | None = option(
        None,
        "Costs of the listed policies in other environments, a table or a run: the prior gives "
        "more weight to those that cost less there.",
        metavar="FILE",
        space="finite",
        hidden=True,  # the help of --prior tells of it
    )
    campaign: str | None = option(
        None,
        "Keep the rollouts of listed policies in this folder, and use those that it has: a later "
        "run may have more environments, and its delta pays for this look at them. To share delta "
        "instead, declare all looks in the first run: --looks 1000,2000. Without a folder, --until "
        "0.1 adds environments until the bound is at most that, and --at-most 5000 ends it.",
        metavar="FOLDER",
        space="finite",
    )
    looks: tuple[int, ...] = option(
        (),
        "Numbers of environments at which the campaign will be looked at: they share delta.",
        metavar="N,N,…",
        space="finite",
        hidden=True,  # the help of --campaign tells of it
    )
    until: float | None = option(
        None,
        "Add environments until the bound of a list of policies is at most this, or there are "
        f"--at-most N, {AT_MOST:,} by default: by bets, which hold for every number at once.",
        metavar="BOUND",
        space="finite",
        hidden=True,  # the help of --campaign tells of it
    )
    at_most: int | None = option(
        None,
        f"Environments for --until to end with, whatever the bound; default {AT_MOST:,}.",
        least=2,
        most=MOST,
        metavar="N",
        space="finite",
        hidden=True,  # likewise
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
    parts: tuple[str, ...] = option(
        (),
        "Parts of the world to certify beside the whole, by what is drawn for an environment: "
        '"wind<8,wind>=8". Each has a portion of delta. Decide before any rollout.',
        metavar="A<X,…",
        space="finite",
        hidden=True,  # the help of --method tells of it
    )
    parts_delta: float | None = option(
        None, "Share of delta for all parts together; default a half.", rare=True
    )
    seed: int = option(0, "Seed of every random stream.", least=0, most=2**64 - 1)
    objective: Objective | None = option(
        None, "Bound to minimise, if not the method's own.", rare=True
    )
    function_delta: float | None = option(
        None,
        "Share of delta for the whole distribution function of the cost of one policy; default a "
        "tenth for quantile and cvar.",
        rare=True,
    )
    unseen: bool = option(
        False,
        "Policies added to a campaign were made without knowledge of its environments and their "
        "costs.",
        rare=True,
        space="finite",
    )
    family: bool = option(
        False,
        "Choose among five prior variances, by a union bound.",
        rare=True,
        space="continuous",
    )
    share: float | None = option(
        None,
        "prior = split: share of the environments that the prior may see; default: the task's.",
        rare=True,
        space="continuous",
    )
    prior_steps: int | None = option(
        None,
        "Steps of the search for a prior; default: the task's.",
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
    # By default the task's, or the library's, which has a small batch if rollouts are slow.
    search: SearchSettings | None = None

    def __post_init__(self) -> None:
        for name, each in options_of(Plan).items():
            each.check(getattr(self, name))
        Budget(self.delta)
        if self.statistic != MEAN and self.method not in (None, "occam"):
            raise ValueError(
                f"method {self.method} certifies a mean alone: of and function_delta are for occam"
            )
        if self.ball is not None:
            Ball.parse(self.ball)
            check_statistic(self.statistic)
        self._check_parts()
        for name in ("sampling_delta", "function_delta", "parts_delta"):
            share = getattr(self, name)
            if share is not None and not 0 < share < self.delta:
                raise ValueError(
                    f"{name} = {share:g} overspends: it must be positive, and leave some of delta "
                    f"= {self.delta:g}"
                )
        for name in ("looks", "unseen"):
            if getattr(self, name) and self.campaign is None:
                raise ValueError(f"{name} is about a campaign: name its folder (--campaign FOLDER)")
        if self.looks and self.environments not in checked_numbers(self.looks):
            raise ValueError(
                f"environments = {self.environments} is not one of the declared looks, "
                f"{in_words(self.looks)}"
            )
        if self.prior is not None and self.pilot is not None:
            raise ValueError("a pilot gives the prior: leave out --prior or --pilot")
        self._check_until()
        if self.family and self.certify != "posterior":
            raise ValueError("a family of priors certifies the posterior: leave out certify")

    def _check_parts(self) -> None:
        """Raise ValueError if a field does not go with `parts`."""
        parsed_parts(self.parts)
        if self.parts_delta is not None and not self.parts:
            raise ValueError("parts_delta is for parts of the world: declare some (--parts)")
        unfit = self.ball is not None or self.until is not None or self.statistic != MEAN
        if self.parts and (unfit or self.method in ("best", BETTING)):
            raise ValueError(
                "parts of the world are for the mean cost by occam, kl, kl-maurer or pinsker: "
                "leave out ball, until, of and function_delta"
            )

    def _check_until(self) -> None:
        """Raise ValueError if a field does not go with `until`."""
        if self.until is None:
            if self.at_most is not None:
                raise ValueError("at_most is for until: say which bound to reach (--until 0.1)")
            return
        if not 0 < self.until < 1:
            raise ValueError(f"until = {self.until:g} must lie strictly between 0 and 1")
        unfit = {
            "environments": "until adds environments: at_most (--at-most) says how many at most",
            "campaign": "until keeps rollouts of its own, covered by one delta: no campaign",
            "of": "until is for the mean cost, by bets: leave out --of",
            "function_delta": "until is for the mean cost, by bets: no function_delta (--set)",
            "objective": "until minimises the bound that it looks at: leave out objective (--set)",
            "ball": "until is for the bound without a shift: leave out --ball; pbc shift adds it",
        }
        for name, words in unfit.items():
            if getattr(self, name) != options_of(Plan)[name].default:
                raise ValueError(words)
        if self.method not in (None, BETTING):
            raise ValueError(
                f"until needs the method betting, which holds for every number of environments "
                f"at once: {self.method} does not"
            )

    @property
    def most_environments(self) -> int:
        """Training environments to draw, all of which may be used."""
        if self.until is None:
            return self.environments
        return AT_MOST if self.at_most is None else self.at_most

    @property
    def statistic(self) -> Statistic:
        """The statistic of the cost that is to be bounded."""
        return Statistic.parse(self.of, self.function_delta)

    @property
    def prior_digest(self) -> str:
        """The file that the prior over a list of policies comes from, by its hash."""
        if self.pilot is not None:
            return f"pilot {hash_file(pilot_file(self.pilot))}"
        return f"prior {hash_file(Path(self.prior))}" if self.prior else "uniform prior"

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
        fields, certify = options_of(Plan), self.certify
        continuous = [name for name, each in fields.items() if each.space == "continuous"]
        searched, sampled = ("family", "objective", "method"), ("draws", "shared_draws")
        single = ("of", "function_delta")
        of_continuous = (  # which fields, where they have no effect, and why; the last one counts
            (("policies", "names", "pilot"), True, "is for a list of policies"),
            (("campaign", "looks", "unseen"), True, NOT_KEPT),
            (("until", "at_most"), True, ANOTHER_POSTERIOR),
            ((*sampled, "sampling_delta"), certify != "posterior", "is for certify = posterior"),
            (searched, certify == "one", "has no use where one of a few is certified"),
            (("candidates",), certify != "one", "is for certify = one"),
            (("method",), certify == "draw", "has no use: one draw has a bound of its own"),
            (("share",), self.prior != "split", "is for prior = split"),
            (single, certify != "one", "is for one policy: use certify = one"),
            (("parts", "parts_delta"), True, "is for a list of policies"),
        )
        unused = dict.fromkeys(continuous, "is for continuous policies: a task with a prior")
        if not finite:
            unused = {name: why for names, idle, why in of_continuous if idle for name in names}
        if finite or certify == "one":
            unused["search"] = "(--steps and its like) has no use where nothing is searched for"
        defaults = {name: each.default for name, each in fields.items()} | {"search": None}
        for name, default in defaults.items():
            if name in unused and getattr(self, name) != default:
                raise ValueError(f"{name} {unused[name]}")
