"""`pbc plan`: how many trials a promise or a comparison needs, and in which order."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pacbayes_control.certify.files import write_output
from pacbayes_control.certify.text import as_number, quoted
from pacbayes_control.cli import options
from pacbayes_control.cli.app import app
from pacbayes_control.cli.logs import Logs, read_logs, read_simulated
from pacbayes_control.report.console import print_table, say
from pacbayes_control.report.decisions import mean_words
from pacbayes_control.tasks.options import option
from pacbayes_control.trials.logs.options import LogOptions

DECIDE = "The numbers are to be decided on before the trials: adding more until it works voids it."


@dataclass(frozen=True, kw_only=True)
class PlanOptions(LogOptions):
    """A promise or a comparison that is wanted."""

    logs: Logs = None
    bound: float | None = option(None, "The failure rate, or cost, to be promised.")
    failure_rate: float | None = option(None, "The true one, as assumed.")
    tell_apart: str | None = option(
        None,
        "Or the failure rates of two policies to be compared, as assumed, and how often both fail; "
        "by default independently of each other.",
        metavar="P:Q[:BOTH]",
    )
    delta: float = option(0.05, "Probability that the promise or the verdict may be wrong.")
    candidates: int = option(
        1, "Policies to choose from by the same trials.", least=1, most=options.MOST
    )
    power: float = option(0.9, "Probability that the promise or a verdict is reached.")
    agreement: str | None = option(
        None,
        "With --failure-rate: how often robot and simulation both fail, or both succeed, as "
        "assumed, with simulation of the same environments and of FURTHER ones, default 10,000.",
        metavar="SHARE[:FURTHER]",
    )
    simulated: options.SimulatedOption = None
    more_simulated: options.MoreSimulatedOption = None
    schedule: Path | None = option(
        None,
        "Write a schedule of trials in random order, to be filled in: .csv. It needs the names of "
        "--policies A,B,… and --environments A,B,…, or the number of these; --seed makes the same "
        "order again.",
        metavar="FILE",
    )
    policies: str | None = option(
        None, "With --schedule: their names.", metavar="A,B,…", hidden=True
    )
    environments: str | None = option(
        None, "With --schedule: how many, or their names.", metavar="N|A,B,…", hidden=True
    )
    seed: int | None = option(
        None, "With --schedule: of its order; default another one each time.", least=0, hidden=True
    )
    picture: Path | None = option(
        None, "Draw the power against the number of environments.", metavar="FILE"
    )
    json_file: options.JsonFile = None


@app.command()
@options.takes_record
def plan(asked: PlanOptions) -> None:
    """How many environments or trials are needed, exactly; and a schedule to carry them out.

    Before any trial: --bound with --failure-rate. After some: LOGS with --bound. To compare two
    policies: --tell-apart. To carry trials out by hand, in random order: --schedule.

    With simulation, how many trials on the robot: --agreement before any trial, --simulated and
    --more-simulated after some. This is for trials that succeed or fail, not for graded costs.

    Example: pbc plan --bound 0.1 --failure-rate 0.05 --candidates 5
    """
    options.check_outputs(asked.json_file, asked.picture, *map(Path, asked.logs or []))
    options.check_writable(asked.schedule, *map(Path, asked.logs or []))
    options.check_simulated(
        asked.simulated, asked.more_simulated, asked.json_file, asked.picture, asked.schedule
    )
    _check_parts(asked)
    _check_simulation(asked)
    record: dict[str, Any] = {}
    if asked.logs:
        record |= _more_with_simulation(asked) if asked.simulated else _more(asked)
    elif asked.bound is not None:
        record |= _needed(asked) if asked.agreement is None else _needed_with_simulation(asked)
    if asked.tell_apart is not None:
        record |= _apart(asked)
    if asked.schedule is not None:
        record |= _write_schedule(asked)
    options.write_json(asked.json_file, record)


def _check_parts(asked: PlanOptions) -> None:
    """Raise ValueError unless the options ask for something, with all that it needs."""
    if not (asked.bound or asked.tell_apart or asked.schedule):
        raise ValueError(
            "give --bound with --failure-rate or with logs, --tell-apart P:Q, or --schedule FILE"
        )
    if asked.logs and asked.bound is None:
        raise ValueError("to plan more trials than those in the logs, give --bound")
    if asked.logs and asked.failure_rate is not None:
        raise ValueError("--failure-rate is for a plan without trials: leave it out, or the logs")
    if asked.bound is not None and not asked.logs and asked.failure_rate is None:
        raise ValueError("--bound needs --failure-rate, as assumed, or logs with trials so far")
    if asked.failure_rate is not None and asked.bound is None:
        raise ValueError("--failure-rate is for --bound: give both")
    if asked.picture and (asked.logs or asked.bound is None):
        raise ValueError("--picture is for --bound with --failure-rate")
    parts = {"policies": asked.policies, "environments": asked.environments}
    for name, value in parts.items():
        if (value is not None) != (asked.schedule is not None):
            raise ValueError(f"--schedule and --{name} go together")
    if asked.seed is not None and asked.schedule is None:
        raise ValueError("--seed is for --schedule")


def _check_simulation(asked: PlanOptions) -> None:
    """Raise ValueError unless a plan with simulation has all that it needs."""
    if asked.simulated and not asked.logs:
        raise ValueError("--simulated is for logs with trials so far: before any, give --agreement")
    if asked.agreement is not None and asked.failure_rate is None:
        raise ValueError(
            "--agreement is for --bound with --failure-rate, before any trial: with logs, give "
            "--simulated"
        )
    if asked.picture and asked.agreement is not None:
        raise ValueError("--picture is for a plan without simulation: leave out --agreement")


def _needed(asked: PlanOptions) -> dict[str, Any]:
    """The number of environments before any trial."""
    from pacbayes_control.trials.plans.environments import environments_needed, power_curve

    assert asked.bound is not None
    assert asked.failure_rate is not None
    known = {"delta": asked.delta, "candidates": asked.candidates}
    found = environments_needed(asked.bound, asked.failure_rate, power=asked.power, **known)
    n = found.environments
    among = f", chosen among {asked.candidates}," if asked.candidates > 1 else ""
    say(
        f"{n:,} environments or more: a policy that fails in {asked.failure_rate:g} of them{among} "
        f"is then certified at most {asked.bound:g} with probability {found.power:.3f}, at δ = "
        f"{asked.delta:g}: with {found.failures:,} failures or fewer.",
        style="bold",
    )
    shares = np.array([0.25, 0.5, 0.75, 1, 1.5, 2])
    numbers = np.unique(np.maximum(np.rint(n * shares).astype(int), 2))
    powers = power_curve(asked.bound, asked.failure_rate, environments=numbers, **known)
    rows = [(f"{i:,}", f"{p:.3f}") for i, p in zip(numbers, powers, strict=True)]
    print_table("", ("environments", "probability of the promise"), rows)
    say(DECIDE)
    if asked.picture:
        from pacbayes_control.report.trial_plots import draw_power

        rates = (asked.bound, asked.failure_rate)
        draw_power(lambda n: power_curve(*rates, environments=n, **known), found, asked.picture)
        say(f"Picture: {asked.picture}")
    curve = [
        {"environments": int(i), "power": float(p)} for i, p in zip(numbers, powers, strict=True)
    ]
    return {**asdict(found), "curve": curve}


def _more(asked: PlanOptions) -> dict[str, Any]:
    """How many more trials of each policy in the logs."""
    from pacbayes_control.trials.plans.further import more_environments

    trials = read_logs(asked, asked.logs, pairs=False)
    count, records, rows = max(asked.candidates, len(trials.policies)), [], []
    for number, name in enumerate(trials.policies):
        found = more_environments(
            trials.costs[trials.of(number)],
            asked.bound or 0.0,
            delta=asked.delta,
            candidates=count,
            power=asked.power,
        )
        ways = (found.anytime, found.second_look, found.new_alone)
        numbers = ["never" if way is None else f"{way:,}" for way in ways]
        rows.append((name, f"{found.trials:,}", f"{found.mean:.4f}", *numbers))
        total = None if found.anytime is None else found.trials + found.anytime
        records.append({"name": name, **asdict(found), "environments": total})
    ways_told = ("at any time", "second look", "new alone")
    headings = ("policy", "trials", mean_words(trials.graded), *ways_told)
    print_table(f"More trials for a promise of {asked.bound:g}", headings, rows, left=("policy",))
    delta = f"{asked.delta:g}"
    say(f"at any time: by the bound that may be looked at after every trial, δ = {delta}")
    say("(pbc choose --stopping anytime), if trials go on as they did.")
    looks = [f"--delta {asked.delta / k:g} --spent {asked.delta * (2 - 1 / k):g}" for k in (2, 4)]
    say(f"second look, after a first one at δ = {delta}: at all trials, when there are 2, 4, 8, …")
    say(f"times as many, by pbc choose {looks[0]}, {looks[1]}, …")
    say(f"Both looks together may be wrong with probability {2 * asked.delta:g}.")
    say(f"new alone: pbc choose on the new trials of this policy only, at δ = {delta}.")
    say("Adding trials until pbc choose --stopping fixed looks good voids its promise.")
    known = [each["environments"] for each in records if each["environments"] is not None]
    return {"policies": records, "environments": min(known, default=None)}


def _needed_with_simulation(asked: PlanOptions) -> dict[str, Any]:
    """The number of trials on the robot before any trial, with simulation and without."""
    from pacbayes_control.trials.plans.pair_rates import PairRates
    from pacbayes_control.trials.plans.simulated import FURTHER, robot_trials_needed

    assert asked.bound is not None
    assert asked.failure_rate is not None
    agreement, further = _agreement(asked.agreement or "", FURTHER)
    rates = PairRates.assumed(asked.failure_rate, agreement)
    found = robot_trials_needed(
        asked.bound,
        rates,
        further=further,
        delta=asked.delta,
        candidates=asked.candidates,
        power=asked.power,
    )
    among = f", chosen among {asked.candidates}," if asked.candidates > 1 else ""
    say(
        f"About {found.trials:,} trials on the robot, with simulation of the same environments and "
        f"of {further:,} further ones: a policy that fails in {asked.failure_rate:g} of them and "
        f"agrees with simulation in {agreement:g}{among} is then certified at most "
        f"{asked.bound:g} with probability {found.power:.2f}, at δ = {asked.delta:g}.",
        style="bold",
    )
    say(f"Without simulation: {found.without:,}.{_no_gain(found.trials, found.without)}")
    say("Assumed: simulation is wrong as often where it fails as where it succeeds, so that it")
    say(f"fails in {rates.simulated:.3g}.")
    say(DECIDE)
    record = {"environments": found.trials, "without": found.without, "power": found.power}
    record |= {"bound": asked.bound, "failure_rate": asked.failure_rate}
    record |= {"agreement": agreement, "simulated_environments": further}
    return record | {"simulated_failure_rate": rates.simulated}


def _agreement(text: str, usual: int) -> tuple[float, int]:
    """The agreement that is assumed, and the number of further environments."""
    share, _, further = text.partition(":")
    agreement = as_number(share)
    if agreement is None or (further and not (further.isdecimal() and int(further) >= 2)):
        raise ValueError(f"--agreement {text}: give a share, as 0.97, or 0.97:50000 with further")
    return agreement, int(further or usual)


def _more_with_simulation(asked: PlanOptions) -> dict[str, Any]:
    """How many new trials on the robot of each policy in the logs, with simulation and without."""
    from pacbayes_control.trials.choosing import costs_with
    from pacbayes_control.trials.plans.simulated import more_robot_trials

    trials = read_logs(asked, asked.logs, pairs=False)
    simulated = read_simulated(asked)
    count, records, rows, reasons = max(asked.candidates, len(trials.policies)), [], [], []
    for number, name in enumerate(trials.policies):
        costs = costs_with(trials, number, count, simulated)
        if costs is None:
            raise ValueError(f"policy {quoted(name)} has one trial: a plan needs two or more")
        found = more_robot_trials(
            costs, asked.bound or 0.0, delta=asked.delta, candidates=count, power=asked.power
        )
        numbers = (found.more, found.total, found.without)
        cells = ["never" if n is None else f"{n:,}" for n in numbers]
        rates = f"{found.agreement:.3f}", f"{found.rates.failure_rate:.4f}"
        rows.append((name, f"{found.trials:,}", *rates, *cells))
        records.append({"name": name, **found.to_dict()})
        reasons += [f"{quoted(name)}: {found.reasons['more']}"] if found.more is None else []
    headings = ("policy", "trials", "agreement", "failure rate", "more", "in all", "without")
    title = f"More trials on the robot for a promise of {asked.bound:g}, with simulation"
    print_table(title, headings, rows, left=("policy",))
    for reason in reasons:
        say(reason)
    among = "" if count == 1 else f", for {count} policies"
    say(f"more: pbc choose --simulated on the new trials alone, δ = {asked.delta:g}{among}, with")
    say("the same further environments in simulation, reaches it with probability")
    say(f"{asked.power:g}, if robot and simulation go on to agree as they did.")
    say("0: those so far suffice, if their number was decided on before. without: more trials if")
    say("nothing is simulated. The failure rate is estimated from both, with half a failure and")
    say("half a success added where simulation fails, and where it succeeds.")
    say(DECIDE)
    known = [each["with_simulation"]["trials"] for each in records]
    return {"policies": records, "environments": min((n for n in known if n), default=None)}


def _no_gain(trials: int, without: int) -> str:
    """Why simulation makes a plan larger, where it does."""
    if trials < without:
        return ""
    return " Simulation does not help here: a better one might, or more further environments."


def _apart(asked: PlanOptions) -> dict[str, Any]:
    """Trials until two policies can be told apart."""
    from pacbayes_control.trials.plans.telling_apart import trials_to_tell_apart

    rates = [as_number(part) for part in (asked.tell_apart or "").split(":")]
    if len(rates) not in (2, 3) or None in rates:
        raise ValueError(f"--tell-apart {asked.tell_apart}: give two rates as 0.1:0.2")
    first, second, both = (*rates, None)[:3]
    assert first is not None
    assert second is not None
    found = trials_to_tell_apart(
        first, second, alpha=asked.delta, power=asked.power, both_fail=both
    )
    mean = "" if found.mean is None else f", {found.mean:,.0f} on average"
    say(
        f"{found.trials:,} trials of each policy, in the same environments: pbc compare has then "
        f"told them apart with probability {found.decided:.3f}{mean}; it is wrong with probability "
        f"{found.wrong:.2g}.",
        style="bold",
    )
    return {"tell_apart": asdict(found)} | (
        {} if asked.bound is not None else {"environments": found.trials}
    )


def _write_schedule(asked: PlanOptions) -> dict[str, Any]:
    """A schedule of trials as a table to be filled in."""
    from pacbayes_control.trials.plans.schedules import schedule, schedule_csv

    assert asked.schedule is not None
    if asked.schedule.suffix.lower() != ".csv":
        raise ValueError(f"{asked.schedule}: a schedule is a .csv file")
    if asked.schedule.exists():
        raise ValueError(f"{asked.schedule} exists, and may have outcomes: choose another name")
    policies = [name.strip() for name in (asked.policies or "").split(",")]
    named = asked.environments or ""
    environments = int(named) if named.isdecimal() else [name.strip() for name in named.split(",")]
    planned = schedule(policies, environments, seed=asked.seed)
    write_output(asked.schedule, schedule_csv(planned).encode())
    say(f"{asked.schedule}: {len(planned.trials):,} trials in random order, seed {planned.seed}.")
    say("Fill in success, 1 or 0, in this order; pbc compare A B --follow FILE tells when to stop.")
    written = {"schedule": str(asked.schedule), "trials": len(planned.trials)}
    return written | {"seed": planned.seed}
