"""Trials on the robot with simulation beside them: joined, refused, certified and kept."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pacbayes_control.bounds import clopper_pearson
from pacbayes_control.bounds.paired import SimulatedMean, paired_anytime, paired_betting
from pacbayes_control.bounds.stratified import (
    PairCounts,
    failure_limits,
    stratified_exact_tail,
)
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.occam import simulated_limits
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.simulated import chance_of_difference, with_simulation
from pacbayes_control.certify.simulation import equivalent_trials, trials_for
from pacbayes_control.learn import (
    compare_methods,
    learn_best,
    learn_finite,
    learn_in_parts,
    learn_tilted,
)

TRIALS, FURTHER = 80, 3000


def outcomes(
    seed: int = 0, policies: int = 1, agreement: float = 0.97
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Failures on the robot, and in simulation of the same environments and of further ones."""
    rng = np.random.default_rng(seed)
    simulated = rng.random((TRIALS + FURTHER, policies)) < np.linspace(0.25, 0.5, policies)
    agrees = rng.random((TRIALS, policies)) < agreement
    return np.where(agrees, simulated[:TRIALS], ~simulated[:TRIALS]), simulated


def graded(seed: int = 0, policies: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    failed, simulated = outcomes(seed, policies)
    noise = np.random.default_rng(seed + 1).random(failed.shape)
    return 0.8 * failed + 0.1 * noise, 0.9 * simulated


def named(values: NDArray[Any], first: int, names: tuple[str, ...] = ()) -> Costs:
    sites = [f"room {i}" for i in range(first, first + len(values))]
    return Costs(values, names, sites=sites)


def of_stream(values: NDArray[Any], start: int, stream: str = "train") -> Costs:
    stop = start + len(values)
    return Costs(values, origin={"stream": stream, "seed": 0, "start": start, "stop": stop})


# ---- joining ------------------------------------------------------------------------------------


def test_rows_of_arrays_are_pairs_in_their_order():
    failed, simulated = outcomes()
    joined = with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:])
    assert joined.simulation is not None
    np.testing.assert_array_equal(joined.simulation.pairs, simulated[:TRIALS])
    np.testing.assert_array_equal(joined.simulation.more.values, simulated[TRIALS:])


def test_environments_of_tables_are_paired_by_their_names_and_policies_by_theirs():
    failed, simulated = outcomes(policies=2)
    order = np.random.default_rng(1).permutation(TRIALS)
    table = Costs(simulated[order][:, ::-1], ["b", "a"], sites=[f"room {i}" for i in order])
    further = named(simulated[TRIALS:], TRIALS, ("a", "b"))
    joined = with_simulation(named(failed, 0, ("a", "b")), table, further)
    assert joined.simulation is not None
    np.testing.assert_array_equal(joined.simulation.pairs, simulated[:TRIALS])
    np.testing.assert_array_equal(joined.simulation.more.values, simulated[TRIALS:])


def test_environments_of_a_table_that_were_not_on_the_robot_are_further_ones():
    failed, simulated = outcomes()
    whole = with_simulation(named(failed, 0), named(simulated, 0))
    parts = with_simulation(
        named(failed, 0), named(simulated[: TRIALS + 9], 0), named(simulated[TRIALS + 9 :], 4000)
    )
    assert whole.simulation is not None
    assert parts.simulation is not None  # whose further environments are those that were given
    np.testing.assert_array_equal(whole.simulation.more.values, simulated[TRIALS:])
    np.testing.assert_array_equal(parts.simulation.more.values, simulated[TRIALS + 9 :])


def test_environments_of_a_stream_are_paired_by_their_range():
    failed, simulated = outcomes()
    joined = with_simulation(of_stream(failed, 0), of_stream(simulated, 0))
    assert joined.simulation is not None
    assert joined.simulation.more.range == ("train", 0, TRIALS, TRIALS + FURTHER)
    other = with_simulation(
        of_stream(failed, 0), of_stream(simulated[:TRIALS], 0), of_stream(simulated[TRIALS:], 9999)
    )
    assert learn_finite(other).certificate.bound == learn_finite(joined).certificate.bound


REAL, SIMULATED = outcomes(policies=2)
SITES = [f"room {i}" for i in range(len(SIMULATED))]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ((REAL, SIMULATED[:70], SIMULATED[80:]), "70 rows in simulation and 80 on the robot are"),
        ((REAL, SIMULATED[:80]), "simulation of the same environments alone does not help"),
        ((REAL, SIMULATED[:80, :1], SIMULATED[80:]), "1 policies are simulated, and 2 were on"),
        ((REAL, Costs(SIMULATED[:80], "ab"), SIMULATED[80:]), "in all tables, or in none"),
        (
            (
                Costs(REAL, sites=SITES[:80]),
                Costs(SIMULATED[:80], "ab", sites=SITES[:80]),
                Costs(SIMULATED[80:, ::-1], "ba"),
            ),
            "name the policies in all tables, or in none",
        ),
        (
            (
                Costs(REAL[:, :1], sites=SITES[:80]),
                Costs(SIMULATED[:80, :1], "a", sites=SITES[:80]),
                Costs(SIMULATED[80:, :1], "b"),
            ),
            "policy “a” is not in all tables",
        ),
        ((Costs(REAL), Costs(SIMULATED[:80]), SIMULATED[80:]), "by the names of environments"),
        ((named(REAL, 0), named(SIMULATED[:80], 5), SIMULATED[80:]), "“room 0” of the robot is"),
        ((named(REAL, 0), SIMULATED[:80], SIMULATED[80:]), "by the names of environments"),
        ((named(REAL, 0), named(SIMULATED[:80], 0), named(SIMULATED[80:], 79)), "among the furth"),
        (
            (named(REAL, 0, ("a", "b")), *(Costs(f, "ac") for f in (SIMULATED, SIMULATED))),
            "policy “b” is not in all tables: it has trials on the robot and is not simulated",
        ),
        ((of_stream(REAL, 0), of_stream(SIMULATED[:80], 7), SIMULATED[80:]), "0 to 80 of stream"),
        (
            (of_stream(REAL, 0), of_stream(SIMULATED[:80], 0), of_stream(SIMULATED[80:], 79)),
            "of stream 'train' are among the further ones, too",
        ),
        ((named(REAL, 0), named(SIMULATED[:81], 0)), "one further environment is not a sample"),
        ((named(REAL, 0), of_stream(SIMULATED[:80], 0), SIMULATED[80:]), "by the names of env"),
        ((REAL, Costs(SIMULATED[:80], draws="fresh"), SIMULATED[80:]), "and neither draws from"),
        ((REAL, SIMULATED[:80], Costs(SIMULATED[:80], origin={"tasks": [0, 1] * 40})), "a fixed"),
        ((REAL, SIMULATED[:80], Costs(SIMULATED[80:], origin={"looks": []})), "a growing campaign"),
        (
            (REAL, SIMULATED[:80], Costs(SIMULATED[80:], origin={"incidents": {"untried": 7}})),
            "7 rollouts in simulation were left out: count them as failures",
        ),
        (
            (REAL, SIMULATED[:80], Costs(SIMULATED[80:], origin={"data_used": [["t", 0, 0, 9]]})),
            "learnt from some of the further environments, or nothing tells",
        ),
        (
            (
                of_stream(REAL, 0),
                of_stream(SIMULATED[:80], 0),
                of_stream(SIMULATED[80:], 80).with_origin(data_used=[["train", 0, 90, 99]]),
            ),
            "policies were learnt from some of the further environments",
        ),
        ((Costs(REAL, draws="fresh"), SIMULATED[:80], SIMULATED[80:]), "and neither draws from"),
        ((Costs(REAL, origin={"tasks": [0, 1] * 40}), SIMULATED[:80], SIMULATED), "a fixed list"),
        ((Costs(REAL, origin={"looks": []}), SIMULATED[:80], SIMULATED), "a growing campaign"),
    ],
)
def test_what_cannot_be_joined_is_refused_in_one_line(tables: tuple[Any, ...], message: str):
    with pytest.raises(ValueError, match=message) as error:
        with_simulation(*tables)
    assert "\n" not in str(error.value)


def test_graded_costs_of_the_same_environments_are_recognised_without_names():
    rng = np.random.default_rng(0)
    simulated = rng.random((500, 1))
    with pytest.raises(ValueError, match="environments of the trials are among the further ones"):
        with_simulation(simulated[:80], simulated[:80], simulated)
    with_simulation(simulated[:80], simulated[:80], simulated[80:])


def test_policies_with_other_parameters_are_refused():
    real = Costs(REAL, parameters=np.eye(2), sites=[f"{i}" for i in range(80)])
    other = Costs(
        SIMULATED, parameters=2 * np.eye(2), sites=[f"{i}" for i in range(len(SIMULATED))]
    )
    with pytest.raises(ValueError, match="their parameters differ"):
        with_simulation(real, other)


def test_an_environment_of_another_spelling_is_not_a_further_one():
    for twice in ("ROOM 3", "room 3 "):
        sites = [twice, *(f"hall {i}" for i in range(FURTHER - 1))]
        with pytest.raises(ValueError, match="“room 3” is among the further ones"):
            with_simulation(
                named(REAL, 0), named(SIMULATED[:80], 0), Costs(SIMULATED[80:], sites=sites)
            )
    sites = ["HALL 3", *(f"hall {i}" for i in range(FURTHER - 1))]
    with pytest.raises(ValueError, match="differ in nothing but capitals or spaces"):
        with_simulation(
            named(REAL, 0), named(SIMULATED[:80], 0), Costs(SIMULATED[80:], sites=sites)
        )


# ---- are the further environments drawn like those of the trials? --------------------------------


def test_further_environments_that_are_easier_are_refused():
    failed, simulated = outcomes()
    easier = np.random.default_rng(3).random((FURTHER, 1)) < 0.05
    with pytest.raises(ValueError, match=r"“policy 0” costs .* not drawn alike, and no bound"):
        with_simulation(failed, simulated[:TRIALS], easier)
    costs, f = graded()
    with pytest.raises(ValueError, match="not drawn alike"):
        with_simulation(costs, f[:TRIALS], f[TRIALS:] * 0.7)


@pytest.mark.parametrize("kind", [outcomes, graded])
def test_environments_that_are_drawn_alike_are_seldom_refused(kind: Any):
    for seed in range(60):
        costs, simulated = kind(seed)
        with_simulation(costs, simulated[:TRIALS], simulated[TRIALS:])


def test_the_chance_of_a_difference_is_that_of_exact_tests():
    f, more = np.repeat([0.0, 1.0], [20, 10]), np.repeat([0.0, 1.0], [900, 100])
    tail: Any = stats.hypergeom(1030, 110, 30)
    exact = sum(tail.pmf(k) for k in range(31) if tail.pmf(k) <= tail.pmf(10) * (1 + 1e-9))
    assert chance_of_difference(f, more) == pytest.approx(exact, rel=1e-6)
    rng = np.random.default_rng(0)
    assert chance_of_difference(rng.random(50), rng.random(500)) > 0.001
    assert chance_of_difference(rng.random(50), rng.random(500) ** 3) < 0.001


# ---- the bound ----------------------------------------------------------------------------------


def test_failures_are_certified_by_the_exact_bound_at_shares_of_delta():
    failed, simulated = outcomes()
    run = learn_finite(with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:]), 0.05)
    c = run.certificate
    assert c.budget == pytest.approx({"simulation": 0.001, "occam": 0.049})
    limits = failure_limits(int(simulated[TRIALS:].sum()), FURTHER, 0.001)
    counts = PairCounts.of(failed[:, 0], simulated[:TRIALS, 0])
    expected = stratified_exact_tail(counts, limits, 0.049)
    assert c.bound == pytest.approx(expected, abs=2**-16)
    use = c.simulation
    assert use is not None
    assert (use.low, use.high) == limits
    assert use.bound_without == pytest.approx(clopper_pearson(int(failed.sum()), TRIALS, 0.05))
    assert use.agreement == pytest.approx(np.mean(failed == simulated[:TRIALS]))
    assert use.correlation == pytest.approx(stats.pearsonr(failed[:, 0], simulated[:TRIALS, 0])[0])


def test_graded_costs_are_certified_by_bets_in_an_order_that_costs_cannot_favour():
    costs, simulated = graded()
    joined = with_simulation(costs, simulated[:TRIALS], simulated[TRIALS:])
    c = learn_finite(joined, 0.05).certificate
    f, more = simulated[:TRIALS, 0], simulated[TRIALS:, 0]
    _, high = simulated_limits(joined, 0, 0.001)
    known = SimulatedMean(float(more.mean()), float(more.var()), high)
    order = joined.order
    assert c.bound == pytest.approx(paired_betting(costs[order, 0], f[order], known, 0.049))
    assert c.simulation is not None
    assert (c.simulation.low, c.simulation.high) == (None, high)
    assert more.mean() < high < more.mean() + 0.1
    assert list(order) != sorted(order)


def test_a_graded_simulation_of_trials_that_succeed_or_fail_counts_as_failure_above_a_half():
    failed, simulated = outcomes()
    rng = np.random.default_rng(5)
    shades = np.where(simulated, 0.51 + 0.4 * rng.random(simulated.shape), 0.5 * simulated)
    joined = with_simulation(failed, shades[:TRIALS], shades[TRIALS:])
    plain = with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:])
    assert learn_finite(joined).certificate.bound == learn_finite(plain).certificate.bound


def test_costs_that_are_declared_as_graded_are_certified_by_bets_even_if_all_are_0_or_1():
    failed, simulated = outcomes()
    sites = [f"{i}" for i in range(TRIALS)]
    real = Costs(failed, origin={"graded": True}, sites=sites)
    joined = with_simulation(real, Costs(simulated[:TRIALS], sites=sites), simulated[TRIALS:])
    c = learn_finite(joined).certificate
    assert c.grid is not None
    assert c.simulation is not None
    assert c.simulation.low is None


def test_the_prior_over_several_policies_comes_from_the_further_environments():
    failed, simulated = outcomes(policies=5)
    joined = with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:])
    run = learn_finite(joined, 0.05)
    p = run.prior.probabilities
    assert run.certificate.prior.startswith("from simulation of 3,000 further environments")
    assert p[0] > 0.5
    assert p.min() >= 0.05 / 5
    other = with_simulation(1 - failed, simulated[:TRIALS], simulated[TRIALS:])
    np.testing.assert_array_equal(learn_finite(other).prior.probabilities, p)
    uniform = learn_finite(joined, 0.05, prior=np.full(5, 0.2)).certificate
    assert uniform.prior == "uniform over all policies"
    assert run.certificate.bound < uniform.bound
    limits = failure_limits(int(simulated[TRIALS:, 0].sum()), FURTHER, 0.001 / 5)
    use = uniform.simulation
    assert use is not None
    assert (use.low, use.high) == limits


def test_the_choice_is_paid_for_with_the_weights_of_the_prior():
    failed, simulated = outcomes(policies=2)
    joined = with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:])
    c = learn_finite(joined, 0.05, prior=[0.5, 0.5]).certificate
    counts = PairCounts.of(failed[:, 0], simulated[:TRIALS, 0])
    limits = failure_limits(int(simulated[TRIALS:, 0].sum()), FURTHER, 0.0005)
    assert c.bound == pytest.approx(stratified_exact_tail(counts, limits, 0.0245), abs=2**-16)


def test_a_simulation_that_is_a_coin_hardly_makes_the_bound_larger():
    ratios = []
    for seed in range(10):
        failed, simulated = outcomes(seed, agreement=0.5)
        c = learn_finite(
            with_simulation(failed, simulated[:TRIALS], simulated[TRIALS:])
        ).certificate
        assert c.simulation is not None
        ratios.append(c.bound / c.simulation.bound_without)
    assert np.mean(ratios) < 1.04


def test_a_good_simulation_is_worth_many_trials_and_the_sentence_says_so():
    failed, simulated = outcomes(2)
    c = learn_finite(with_simulation(failed, simulated[:80], simulated[80:])).certificate
    assert c.simulation is not None
    equivalent = c.simulation.equivalent_trials
    assert equivalent is not None
    assert equivalent > 120
    assert "policy 0 fails on the robot in at most" in c.sentence
    alone = f"about {int(equivalent):,} trials on the robot alone would, instead of 80."
    words = "simulation of these and of 3,000 more made the bound as small as"
    assert c.sentence.endswith(f"; {words} {alone}")
    useless = with_simulation(failed, simulated[100:180], simulated[200:])
    words = "simulation of these and of 2,880 more did not make the bound smaller."
    assert learn_finite(useless).certificate.sentence.endswith(words)


def test_a_bound_that_is_smaller_and_worth_no_more_trials_is_said_to_be_smaller():
    failed, simulated = outcomes(2)
    c = learn_finite(with_simulation(failed, simulated[:80], simulated[80:])).certificate
    assert c.simulation is not None
    use = dataclasses.replace(c.simulation, equivalent_trials=None)
    assert use.words(80, c.bound) == "simulation of these and of 3,000 more made the bound smaller"
    assert use.words(80, use.bound_without).endswith("did not make the bound smaller")


def test_equivalent_trials_are_those_of_the_exact_tail():
    for rate, n in ((0.1, 200), (0.3, 50), (0.5, 1000)):
        bound = float(clopper_pearson(int(rate * n), n, 0.01))
        assert trials_for(rate, bound, 0.01) == pytest.approx(n, rel=1e-6)
    assert trials_for(0.3, 0.3, 0.01) == np.inf
    y, f = np.repeat([0.0, 1.0], [70, 30]), np.repeat([0.0, 1.0], [72, 28])
    assert equivalent_trials(y, f, f, (0.4, 0.4), 0.01) is None
    assert equivalent_trials(y, f, f, (0.4, 0.41), 0.01) == pytest.approx(
        trials_for(PairCounts.of(y, f).estimate(0.28), 0.4, 0.01), rel=1e-3
    )


def test_equivalent_trials_of_graded_costs_go_by_the_square_of_the_excess():
    rng = np.random.default_rng(0)
    f = rng.random(100)
    y = 0.5 * f
    more = np.full(50, f.mean())
    found = equivalent_trials(y, f, more, (y.mean() + 0.02, y.mean() + 0.05), None)
    assert found == pytest.approx(100 * 2.5**2, rel=1e-3)


def test_a_bound_at_any_time_takes_trials_in_their_order():
    from pacbayes_control.certify.occam import simulated_bound

    costs, simulated = graded()
    joined = with_simulation(costs, simulated[:TRIALS], simulated[TRIALS:])
    _, high = simulated_limits(joined, 0, 0.001, anytime=True)
    more = simulated[TRIALS:, 0]
    known = SimulatedMean(float(more.mean()), float(more.var()), high)
    expected = paired_anytime(costs[:, 0], simulated[:TRIALS, 0], known, 0.049)
    assert simulated_bound(joined, 0, (0.049, 0.001), anytime=True) == expected


# ---- what simulation is not joined with ----------------------------------------------------------

JOINED = with_simulation(REAL, SIMULATED[:80], SIMULATED[80:])


@pytest.mark.parametrize(
    "learn",
    [
        lambda: learn_finite(JOINED, method="kl"),
        lambda: learn_finite(JOINED, method="betting"),
        lambda: learn_finite(JOINED, of="quantile:0.9"),
        lambda: learn_best(JOINED),
        lambda: learn_best(JOINED, methods=("occam",)),
        lambda: learn_tilted(JOINED, Ball("kl", 0.05)),
        lambda: compare_methods(JOINED, method="pinsker"),
        lambda: compare_methods(JOINED, solver="clarabel"),
    ],
)
def test_other_methods_than_occam_are_refused(learn: Any):
    with pytest.raises(ValueError, match="simulation joins the mean cost of one policy of a list"):
        learn()


def test_incidents_in_simulation_are_told():
    further = Costs(SIMULATED[80:], origin={"incidents": {"retries": 3}})
    c = learn_finite(with_simulation(REAL, SIMULATED[:80], further)).certificate
    assert c.simulation is not None
    assert c.simulation.incidents == {"retries": 3}
    assert "; in simulation, 3 rollouts count that had failed before they were run" in c.sentence


def test_very_many_pairs_are_certified_by_bets():
    rng = np.random.default_rng(0)
    simulated = rng.random((6000 + 20_000, 1)) < 0.3
    joined = with_simulation(simulated[:6000], simulated[:6000], simulated[6000:])
    c = learn_finite(joined).certificate
    assert c.simulation is not None
    assert c.simulation.low is None
    assert c.bound < 0.33


def test_graded_costs_hold_in_a_ball_by_occam():
    costs, simulated = graded()
    joined = with_simulation(costs, simulated[:TRIALS], simulated[TRIALS:])
    ball = Ball("kl", 0.05)
    found = compare_methods(joined, ball=ball)
    assert [run.certificate.method for run in found.runs] == ["occam"]
    with pytest.raises(ValueError, match="simulation joins the mean cost of one policy"):
        compare_methods(joined, ball=ball, method="tilted")


def test_parts_of_the_world_are_refused():
    wind = np.arange(80) % 10
    real = Costs(REAL, described={"wind": wind}, sites=[f"{i}" for i in range(80)])
    joined = with_simulation(real, Costs(SIMULATED, sites=[f"{i}" for i in range(len(SIMULATED))]))
    with pytest.raises(ValueError, match="simulation joins the mean cost of one policy"):
        learn_in_parts(joined, ["wind<5"])


def test_a_certificate_with_simulation_holds_in_a_ball():
    run = learn_finite(JOINED)
    shifted = under_shift(run, Ball("kl", 0.05)).certificate
    assert shifted.bound_without_shift == run.certificate.bound
    assert shifted.bound > run.certificate.bound
    assert compare_methods(JOINED, ball=Ball("kl", 0.05)).chosen.certificate.bound == shifted.bound


# ---- kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [outcomes, graded])
def test_a_run_keeps_the_costs_in_simulation(tmp_path: Path, kind: Any):
    costs, simulated = kind(policies=2)
    tables = named(costs, 0), named(simulated[:TRIALS], 0), named(simulated[TRIALS:], TRIALS)
    run = learn_finite(with_simulation(*tables))
    again = Run.load(run.save(tmp_path / "run"))
    assert again.certificate == run.certificate
    assert (
        again.costs.digests
        == run.costs.digests
        == {
            name: digest
            for name, digest in run.certificate.hashes.items()
            if name not in ("prior", "posterior")
        }
    )
    assert again.costs.simulation is not None
    np.testing.assert_array_equal(again.costs.simulation.more.values, simulated[TRIALS:])
    assert {"simulated.npy", "more_simulated.npy", "simulation.json"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }


def test_a_run_without_simulation_replaces_one_with_it(tmp_path: Path):
    folder = learn_finite(JOINED).save(tmp_path / "run")
    learn_finite(REAL).save(folder, overwrite=True)
    assert not (folder / "simulated.npy").exists()
    assert Run.load(folder).costs.simulation is None


def test_a_posterior_depends_on_the_further_environments():
    """Their names are in it: as a prior for trials there, it is refused."""
    further = named(SIMULATED[80:], 80)
    run = learn_finite(with_simulation(named(REAL, 0), named(SIMULATED[:80], 0), further))
    there = named(REAL[:40], 85)
    with pytest.raises(
        ValueError, match="the prior was learnt from environments of the same names"
    ):
        learn_finite(there, prior=run.posterior)
    ranges = with_simulation(of_stream(REAL, 0), of_stream(SIMULATED, 0))
    with pytest.raises(ValueError, match="the prior was learnt from some of these environments"):
        learn_finite(of_stream(REAL[:40], 500), prior=learn_finite(ranges).posterior)
