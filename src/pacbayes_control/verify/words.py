"""The words of a certificate, compared with its files, and the claims that no file can prove."""

from __future__ import annotations

import math

import numpy as np

from pacbayes_control.certify import looks
from pacbayes_control.certify.certificate import Certificate, Constraint
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import UNIFORM, UNIFORM_OVER_ALL, describe_overlap
from pacbayes_control.certify.ranges import EnvironmentRange, merged_ranges
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import quoted
from pacbayes_control.certify.trials import LOOKS
from pacbayes_control.verify.intervals import InvalidCertificate, require

NOT_OWN = (looks.EARLIER, looks.OTHER)  # shares of the budget that are not the present look's
FEASIBLE = 1e-5  # the tolerance of constraints, as of a solver
EPISODES = "that the numbers of episodes in an environment do not depend on how they went"
UNFINISHED = "that no trial that had begun is left out, such as a long one that was still running"
OBJECTIVES = ("kl", "kl-maurer", "pinsker", "quadratic", "lambda", "robust-pinsker")


def check_words(run: Run) -> None:
    """Raise if a statement of the certificate contradicts its files."""
    _check_origin(run)
    _check_streams(run)
    _check_seen(run)
    _check_looks(run)
    c = run.certificate
    own = ("occam", "anytime", "tilted", "betting")
    known = (c.method,) if c.method in own else OBJECTIVES
    unknown = f"the objective {quoted(c.objective)} is not one of {c.method}"
    require(c.objective in known, unknown)
    if isinstance(run.prior, Categorical):
        _check_prior(run)
        _check_constraints(run)
    else:
        require(not c.constraints, "constraints belong to finitely many policies")


def claims_without_proof(run: Run) -> tuple[str, ...]:
    """Claims that no file of a run can prove, in words: a reader has to believe them, or to ask."""
    c, origin = run.certificate, run.costs.origin
    drawn = run.costs.draws and "policies" not in origin
    minimised = f"that the posterior was chosen to minimise {quoted(c.objective)}"
    named = {"policies": run.costs.names, "sites": run.costs.sites}
    kinds = [kind for kind, names in named.items() if names]
    names = f", and the names of {' and '.join(kinds)}" if kinds else ""
    by_names = c.grid and c.draws is None and not run.costs.range  # the order of the bets
    what = "" if c.of == "mean" else ", statistic"
    in_words = c.constraints and not isinstance(c.constraints[0], Constraint)
    claims = [
        (c.format < 4, f"all that format {c.format} does not record, as the prior's data"),
        (True, f"that the costs in costs.npy are those of the rollouts, as {_source(run)}"),
        (True, f"which robot, policies and environments these are{names}"),
        (c.cost_rule, f"what a rollout costs: {quoted(c.cost_rule or '', 200)}"),
        (c.success_or_failure, "that trials only succeed or fail"),
        (
            by_names,
            f"that the {'names' if run.costs.sites else 'numbers'} of environments do not "
            "depend on their costs",
        ),
        (c.distribution, f"how environments are drawn: {quoted(c.distribution or '', 200)}"),
        (not c.prior.startswith("uniform"), f"where the prior came from: {quoted(c.prior, 200)}"),
        (
            True,
            f"that prior, policies, method{what} and delta were chosen before the costs were seen",
        ),
        (c.objective != c.method, minimised),
        *_claims_about_looks(c),
        (
            c.candidates is not None,
            f"that at most {c.candidates} policies were ever to be tried in these environments, "
            "however they did",
        ),
        (
            c.candidates is not None and c.tasks is None,
            "that the environments are independent of each other",
        ),
        (
            c.tasks is not None,
            "that trials are independent of each other, also those of the same name in other tasks",
        ),
        (
            c.candidates is not None and c.method != "anytime",
            "that the number of trials was fixed before any was seen",
        ),
        *_claims_about_trials(run),
        (drawn, "that the policies were drawn for this certificate alone"),
        (c.incidents, f"how the rollouts went: {'; '.join(c.incident_words)}"),
        ("stream" in origin and not c.incidents, "that no rollout was run again or left out"),
        (in_words, "the constraints, which its format states in words alone"),
        (c.parts, "that the parts of the world were declared before the costs were seen"),
        (c.parts and "stream" in origin, "that environments.csv is what was drawn (see --again)"),
        (
            c.parts and "stream" not in origin,
            "that environments.csv was known before the rollouts, and does not depend on them",
        ),
        *_claims_about_simulation(run),
        (c.ball is not None, f"that the shift is no larger than {c.ball}"),
        (c.test_estimate is not None, "the estimate on unseen environments"),
        (run.costs.device, f"that rollouts ran on {quoted(run.costs.device, 100)}"),
        (True, "the versions of the software" + (" and the date" * bool(run.created))),
    ]
    return tuple(claim for applies, claim in claims if applies)


def _claims_about_simulation(run: Run) -> list[tuple[object, str]]:
    """Claims about simulation beside trials on the robot, each with whether it applies."""
    simulation, c = run.costs.simulation, run.certificate
    if simulation is None:
        return []
    unnamed = not simulation.more.sites and not simulation.more.range
    return [
        (True, "that the costs are of trials on the robot, and paired with the same environments"),
        (True, "that the further environments are drawn like those of the trials, and are others"),
        (True, "that no policy was learnt or chosen in the further environments"),
        (unnamed, "that no environment is twice among the further ones, which have no names"),
        (c.method == "anytime", "that the number of further environments was fixed in advance"),
        (
            True,
            "that one simulation, which was not chosen or tuned by these trials, gave all costs in "
            "simulation, and that it was to count, at this share of delta, before they were seen",
        ),
    ]


def _claims_about_trials(run: Run) -> list[tuple[object, str]]:
    """Claims about an evaluation log and how it was read, each with whether it applies."""
    trials, spent = run.trials, run.certificate.budget.get(LOOKS)
    if trials is None:
        return []
    return [
        (spent, f"that all other looks at these trials had {spent or 0:g} of δ, planned ones too"),
        (trials.episodes != 1, EPISODES),
        (run.certificate.method == "anytime", UNFINISHED),
        (trials.understood, f"how the log was read: {quoted(trials.understood, 1000)}"),
    ]


def _claims_about_looks(c: Certificate) -> list[tuple[object, str]]:
    """Claims about the looks at a growing campaign, each with whether it applies."""
    numbers = [look.count for look in c.looks]
    chosen = "no number of environments was chosen by costs that were seen before"
    if c.declared_looks:
        chosen = f"{looks.in_words(c.declared_looks)} were declared before any cost was seen"
    return [
        (c.looks, f"that these are all looks at the campaign, and that {chosen}"),
        (
            numbers and min(numbers) < numbers[-1],
            "that policies added after a look were made without knowledge of these environments "
            "and their costs",
        ),
    ]


def _source(run: Run) -> str:
    origin = run.costs.origin
    if "stream" in origin:
        return f"stream {quoted(str(origin['stream']))} gives them (see --again)"
    if "sha256" in origin:
        return f"{quoted(str(origin.get('file')))} gives them (see --costs)"
    return "they were recorded"


def _check_origin(run: Run) -> None:
    """The record of where the costs came from agrees with the costs and the certificate."""
    c, origin = run.certificate, run.costs.origin
    try:
        incidents, mine, _ = run.costs.incidents, run.costs.range, run.costs.policies_seen
        _ = run.costs.graded
        told = ("cost_rule", "distribution") if c.format >= 4 else ()
        words = {name: getattr(run.costs, name) for name in told}
    except ValueError as error:
        raise InvalidCertificate(str(error)) from None
    same = dict(c.incidents) == incidents
    require(same, "the certificate is wrong about incidents of the rollouts")
    if mine:
        possible = 0 <= mine.start < mine.stop < 2**62
        require(possible, "the origin of the costs names an impossible range of environments")
        named = f"their origin names {mine.stop - mine.start}"
        same = mine.stop - mine.start == c.environments
        require(same, f"the costs are of {c.environments} environments, and {named}")
    same = origin.get("rows", c.environments) == c.environments
    require(same, "the costs have another number of rows than the file they are of")
    for name, text in words.items():
        require(getattr(c, name) == text, f"the certificate is wrong about the {name} of the costs")
    estimate = c.test_estimate
    if estimate is not None:
        tested = EnvironmentRange(estimate.stream, estimate.seed, 0, estimate.environments)
        used = [*([mine] if mine else []), *(run.posterior.seen or ())]
        new = not any(tested.overlaps(part) for part in used)
        require(new, "the estimate is on environments that were seen in training")
    simulators = origin.get("versions", {})
    known = isinstance(simulators, dict) and simulators.items() <= dict(c.versions).items()
    require(known, "the certificate is wrong about versions")


def _check_streams(run: Run) -> None:
    """Policies that were drawn come from the stream that is used for certificates only."""
    c, record = run.certificate, run.costs.origin.get("policies")
    if isinstance(run.posterior, Categorical) or (c.format < 4 and record is None):
        return
    policies = record if isinstance(record, dict) else {}
    stream = policies.get("stream")
    require(
        stream == ("single draw" if c.method == "single-draw" else "certify"),
        f"the policies were drawn from the stream {stream!r}, not from the one that is used "
        "for certificates only",
    )
    same = policies.get("posterior") == run.posterior.parameters_digest
    require(c.format < 4 or same, "the policies were not drawn from the posterior of this run")


def _check_seen(run: Run) -> None:
    """Neither the prior nor a shared part of the policies depends on counted environments."""
    c, costs, prior, mine = run.certificate, run.costs, run.prior, run.costs.range
    used, finite = [*(prior.seen or ()), *costs.policies_seen], isinstance(prior, Categorical)
    known = mine is not None or not used or (finite and not costs.policies_seen)
    require(known, "the costs do not record their environments, and the prior depends on some")
    other = not (mine and any(mine.overlaps(part) for part in used))
    require(other, "the prior depends on environments that the bound counts")
    if finite and prior.seen is not None:
        overlap = describe_overlap(prior, costs)
        require(not overlap, overlap)
    if c.format >= 4:
        told = prior.seen is not None
        require(told, "the prior does not say which environments it depends on")
        told = _records_costs(run)
        require(told, "the posterior does not say that it was learnt from these costs")
    same = [r for r in merged_ranges(used) if mine and r[:2] == mine[:2]]
    counted = c.set_aside == sum(r.stop - r.start for r in same)
    wrong = f"{c.set_aside} environments are stated as set aside, and the prior depends on others"
    require(counted, wrong)


def _check_looks(run: Run) -> None:
    """The looks are those of the campaign and the present one, and δ pays for each of them."""
    c, costs, origin = run.certificate, run.costs, run.costs.origin
    budget = c.budget
    own = [share for name, share in budget.items() if name not in (*NOT_OWN, "shift")]
    delta = math.fsum(own)
    present = c.looks[-1] if c.looks else looks.Look.at(costs, delta)
    try:
        declared, known = looks.declared_looks(origin), looks.looks_until(origin, present)
    except ValueError as error:
        raise InvalidCertificate(f"the costs' origin: {error}") from None
    alone = len(known) == 1 and not declared
    same = tuple(c.looks) == (() if alone else known) and tuple(c.declared_looks) == declared
    require(same, "the certificate does not list the looks at the campaign as its costs do")
    paid = {name: budget[name] for name in NOT_OWN if name in budget}
    if alone:
        require(not paid, "the budget has a share for looks that the certificate does not list")
        return
    require(present == looks.Look.at(costs, present.delta), "the present look is at other costs")
    unseen = origin.get(looks.UNSEEN)
    fault = looks.describe_fault(known, declared, costs.parameters, unseen=unseen)
    require(not fault, fault)
    slack, share = 1e-12 * c.delta, present.spent(0)
    require(0 < delta <= share + slack, "the present look spends more than its delta")
    due = {looks.EARLIER: math.fsum(look.spent(share) for look in known[:-1])}
    if declared:
        due = {looks.OTHER: share * (len(declared) - 1)}
    covered = paid.keys() == due.keys() and all(due[name] <= paid[name] + slack for name in due)
    require(covered, "the budget does not pay for the other looks at the campaign")


def _records_costs(run: Run) -> bool:
    """Whether the posterior lists the environments that it was learnt from."""
    mine, posterior = run.costs.range, run.posterior
    if mine and not any(
        part[:2] == mine[:2] and part.start <= mine.start and mine.stop <= part.stop
        for part in posterior.seen or ()
    ):
        return False
    return not isinstance(posterior, Categorical) or posterior.rows >= run.costs.listed_rows


def _check_prior(run: Run) -> None:
    """A prior that is called uniform is uniform."""
    words = run.certificate.prior
    if not words.casefold().startswith("uniform"):
        return
    p, parameters = run.prior.probabilities, run.costs.parameters
    candidates = [Categorical.uniform(len(p))]
    if words == UNIFORM and parameters is not None:
        candidates.append(Categorical.uniform_over_distinct(parameters))
    known = words in (UNIFORM, UNIFORM_OVER_ALL) and any(
        np.allclose(p, uniform.probabilities, rtol=1e-12, atol=0) for uniform in candidates
    )
    require(known, f"the prior is called {quoted(words)}, and it is not")


def _check_constraints(run: Run) -> None:
    """The posterior meets every constraint, and its words are those of its numbers."""
    p = run.posterior.probabilities
    for number, constraint in enumerate(run.certificate.constraints):
        if not isinstance(constraint, Constraint):
            continue
        weights = {int(j): weight for j, weight in constraint.weights.items()}
        known = bool(weights) and max(weights) < len(p)
        require(known, f"constraint {number} is about policies that do not exist")
        low, high = constraint.lower, constraint.upper
        same = Constraint.of(weights, low, high, name_of=run.costs.name).words == constraint.words
        require(same, f"the words of constraint {number} are not those of its limits")
        share = sum(weight * float(p[j]) for j, weight in weights.items())
        met = low is None or share >= low - FEASIBLE
        met = met and (high is None or share <= high + FEASIBLE)
        require(met, f"the posterior breaks the constraint {constraint.words}")
