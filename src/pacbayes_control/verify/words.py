"""Whether the words of a certificate are borne out by its files, and which can only be believed."""

from __future__ import annotations

import numpy as np

from pacbayes_control.certify.certificate import FORMAT, Constraint
from pacbayes_control.certify.costs import UNIFORM, UNIFORM_OVER_ALL, seen_by
from pacbayes_control.certify.distributions import Categorical, Seen, merged_ranges
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import quoted
from pacbayes_control.verify.intervals import InvalidCertificate

FEASIBLE = 1e-5  # how far a posterior may be from its constraints: a solver's tolerance
KEPT_STREAMS = {"single-draw": "single draw"}  # of the policies; "certify" for other draws
OBJECTIVES = ("kl", "kl-maurer", "pinsker", "quadratic", "lambda", "robust-pinsker")


def check_words(run: Run) -> None:
    """Raise where something that a certificate says is not so in its files."""
    _check_origin(run)
    _check_streams(run)
    _check_seen(run)
    _check_objective(run)
    if isinstance(run.prior, Categorical):
        _check_prior(run)
        _check_constraints(run)
    elif run.certificate.constraints:
        raise InvalidCertificate("constraints belong to finitely many policies")


def taken_as_told(run: Run) -> tuple[str, ...]:
    """What no file of a run can prove, in words: a reader has to believe it, or to ask."""
    c, origin = run.certificate, run.costs.origin
    told = [f"that the costs in costs.npy are those of the rollouts, as {_source(run)}"]
    if c.format < FORMAT:
        told.insert(0, f"all that format {c.format} does not record, as what the prior has seen")
    told.append(f"which robot, policies and environments these are{_names(run)}")
    if c.cost_rule:
        told.append(f"what a rollout costs: {quoted(c.cost_rule, 200)}")
    if c.distribution:
        told.append(f"how environments are drawn: {quoted(c.distribution, 200)}")
    if not c.prior.startswith("uniform"):
        told.append(f"where the prior came from: {quoted(c.prior, 200)}")
    told.append("that prior, policies, method and delta were chosen before the costs were seen")
    if c.objective != c.method:
        told.append(f"that the posterior was chosen to minimise {quoted(c.objective)}")
    if run.costs.draws and "policies" not in origin:
        told.append("that the policies were drawn for this certificate alone")
    if c.incidents:
        told.append(f"how the rollouts went: {'; '.join(c.incident_words)}")
    elif "stream" in origin:
        told.append("that no rollout was run again or left out")
    if c.constraints and not isinstance(c.constraints[0], Constraint):
        told.append("the constraints, which its format states in words alone")
    if c.ball is not None:
        told.append(f"that the world shifts by no more than {c.ball}")
    if c.test_estimate is not None:
        told.append("the estimate on unseen environments")
    told.append("the versions of what computed the costs" + (" and the date" * bool(run.created)))
    return tuple(told)


def _names(run: Run) -> str:
    named = {"policies": run.costs.names, "sites": run.costs.sites}
    kinds = [kind for kind, names in named.items() if names]
    return f", and the names of {' and '.join(kinds)}" if kinds else ""


def _source(run: Run) -> str:
    origin = run.costs.origin
    if "stream" in origin:
        return f"stream {quoted(str(origin['stream']))} gives them (see --again)"
    if "sha256" in origin:
        return f"{quoted(str(origin.get('file')))} gives them (see --costs)"
    return "they were recorded"


def _check_origin(run: Run) -> None:
    """The record of where the costs came from, against the costs and the certificate."""
    c, origin = run.certificate, run.costs.origin
    try:
        incidents, mine, _ = run.costs.incidents, run.costs.range, run.costs.policies_seen
    except ValueError as error:
        raise InvalidCertificate(str(error)) from None
    if dict(c.incidents) != incidents:
        raise InvalidCertificate("the certificate is wrong about incidents of the rollouts")
    if mine and not 0 <= mine.start < mine.stop < 2**62:
        raise InvalidCertificate("the origin of the costs names environments that cannot be")
    if mine and mine.stop - mine.start != c.environments:
        raise InvalidCertificate(
            f"the costs are of {c.environments} environments, and their origin names "
            f"{mine.stop - mine.start}"
        )
    if "rows" in origin and origin["rows"] != c.environments:
        raise InvalidCertificate("the costs have another number of rows than the file they are of")
    for name in ("cost_rule", "distribution") if c.format >= 4 else ():
        if getattr(c, name) != origin.get(name):
            raise InvalidCertificate(f"the certificate is wrong about the {name} of the costs")
    estimate = c.test_estimate
    if estimate is not None:
        unseen = Seen(estimate.stream, estimate.seed, 0, estimate.environments)
        seen = [*([mine] if mine else []), *(run.posterior.seen or ())]
        if any(unseen.overlaps(part) for part in seen):
            raise InvalidCertificate("the estimate is on environments that were seen in training")
    simulators = origin.get("versions", {})
    if not isinstance(simulators, dict) or not simulators.items() <= dict(c.versions).items():
        raise InvalidCertificate("the certificate is wrong about versions")


def _check_streams(run: Run) -> None:
    """Policies that were drawn come from the stream that is kept for certificates."""
    c, record = run.certificate, run.costs.origin.get("policies")
    if isinstance(run.posterior, Categorical) or (c.format < 4 and record is None):
        return
    stream = record.get("stream") if isinstance(record, dict) else None
    if stream != KEPT_STREAMS.get(c.method, "certify"):
        raise InvalidCertificate(
            f"the policies were drawn from the stream {stream!r}, not from the one that is kept "
            "for certificates"
        )
    if c.format >= 4 and record.get("posterior") != run.posterior.parameters_digest:  # type: ignore[union-attr]
        raise InvalidCertificate("the policies were not drawn from the posterior of this run")


def _check_seen(run: Run) -> None:
    """Neither the prior nor a part of every policy depends on environments that are counted."""
    c, costs, mine = run.certificate, run.costs, run.costs.range
    used = [*(run.prior.seen or ()), *costs.policies_seen]
    told_by_rows = isinstance(run.prior, Categorical) and not costs.policies_seen
    if used and mine is None and not told_by_rows:
        raise InvalidCertificate("the costs do not tell their environments, and the prior saw some")
    if mine and any(mine.overlaps(part) for part in used):
        raise InvalidCertificate("the prior has seen environments that the bound counts")
    if isinstance(run.prior, Categorical) and run.prior.seen is not None:
        overlap = seen_by(run.prior, costs)
        if overlap:
            raise InvalidCertificate(overlap)
    elif c.format >= 4 and run.prior.seen is None:
        raise InvalidCertificate("the prior does not say which environments it has seen")
    if c.format >= 4 and not _tells_what_it_saw(run):
        raise InvalidCertificate("the posterior does not say that it was learnt from these costs")
    same = [r for r in merged_ranges(used) if mine and r[:2] == mine[:2]]
    if c.set_aside != sum(r.stop - r.start for r in same):
        raise InvalidCertificate(
            f"{c.set_aside} environments are said to be set aside, and the prior has seen others"
        )


def _tells_what_it_saw(run: Run) -> bool:
    """Whether the posterior lists the environments that it was learnt from, as far as it must."""
    mine, posterior = run.costs.range, run.posterior
    if mine and not any(
        part[:2] == mine[:2] and part.start <= mine.start and mine.stop <= part.stop
        for part in posterior.seen or ()
    ):
        return False
    return not isinstance(posterior, Categorical) or posterior.rows >= run.costs.rows_told


def _check_objective(run: Run) -> None:
    c = run.certificate
    known = (c.method,) if c.method in ("occam", "tilted") else OBJECTIVES
    if c.objective not in known:
        raise InvalidCertificate(f"the objective {quoted(c.objective)} is not one of {c.method}")


def _check_prior(run: Run) -> None:
    """A prior that is said to be uniform is."""
    words = run.certificate.prior
    if not words.casefold().startswith("uniform"):
        return
    p, parameters = run.prior.probabilities, run.costs.parameters
    candidates = [Categorical.uniform(len(p))]
    if words == UNIFORM and parameters is not None:
        candidates.append(Categorical.uniform_over_distinct(parameters))
    if words not in (UNIFORM, UNIFORM_OVER_ALL) or not any(
        np.allclose(p, uniform.probabilities, rtol=1e-12, atol=0) for uniform in candidates
    ):
        raise InvalidCertificate(f"the prior is called {quoted(words)}, and it is not")


def _check_constraints(run: Run) -> None:
    """The posterior meets every constraint, and its words are those of its numbers."""
    p = run.posterior.probabilities
    for number, constraint in enumerate(run.certificate.constraints):
        if not isinstance(constraint, Constraint):
            continue
        weights = {int(j): weight for j, weight in constraint.weights.items()}
        if not weights or max(weights) >= len(p):
            raise InvalidCertificate(f"constraint {number} is about policies that do not exist")
        limits = constraint.lower, constraint.upper
        if Constraint.of(weights, *limits, name_of=run.costs.name).words != constraint.words:
            raise InvalidCertificate(
                f"the words of constraint {number} are not those of its limits"
            )
        share = sum(weight * float(p[j]) for j, weight in weights.items())
        low, high = constraint.lower, constraint.upper
        if (low is not None and share < low - FEASIBLE) or (
            high is not None and share > high + FEASIBLE
        ):
            raise InvalidCertificate(f"the posterior breaks the constraint {constraint.words}")
