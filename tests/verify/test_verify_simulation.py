"""Runs with simulation beside trials on the robot: verified, and refused if a forger altered them.

A forger writes consistent files: every hash, seal and sentence is made anew.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from pacbayes_control.bounds.paired import SimulatedMean, paired_anytime, paired_betting
from pacbayes_control.bounds.stratified import (
    PairCounts,
    failure_limits,
    likelihood_limit,
    stratified_exact_tail,
)
from pacbayes_control.certify.balls import Ball
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.files import hash_file, json_bytes, read_json, seal, sha256
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.shift import under_shift
from pacbayes_control.certify.simulated import chance_of_difference, with_simulation
from pacbayes_control.certify.simulation import Simulation
from pacbayes_control.certify.trials import Trials
from pacbayes_control.learn import learn_finite
from pacbayes_control.trials.choosing import OTHERS, choose
from pacbayes_control.verify import InvalidCertificate, verify
from pacbayes_control.verify.intervals import iv, set_precision
from pacbayes_control.verify.pairs import pairs_condition, proven_by_pairs
from pacbayes_control.verify.strata import Strata

TRIALS, FURTHER = 60, 1500
KINDS = ("binary", "graded", "binary, anytime", "graded, anytime", "several")


def tables(kind: str, seed: int = 8) -> list[Costs]:
    """Costs of two policies on the robot, in simulation of the same and of further rooms."""
    rng = np.random.default_rng(seed)
    simulated = (rng.random((TRIALS + FURTHER, 2)) < [0.3, 0.5]).astype(float)
    robot = np.where(rng.random((TRIALS, 2)) < 0.97, simulated[:TRIALS], 1 - simulated[:TRIALS])
    if kind.startswith("graded"):
        robot, simulated = 0.8 * robot + 0.1 * rng.random(robot.shape), 0.9 * simulated
    sites = [f"room {i}" for i in range(TRIALS + FURTHER)]
    parts = (robot, 0), (simulated[:TRIALS], 0), (simulated[TRIALS:], TRIALS)
    return [Costs(v, ["a", "b"], sites=sites[i : i + len(v)]) for v, i in parts]


def made(kind: str, seed: int = 8) -> Run[Categorical]:
    costs = tables(kind, seed)
    if kind == "several":
        return learn_finite(with_simulation(*costs), 0.05)
    trials = [Trials.from_costs(c.values, c.names, c.sites, graded=None) for c in costs]
    stopping = "anytime" if kind.endswith("anytime") else "fixed"
    robot, same, more = trials
    return choose(robot, 0.05, stopping=stopping, simulated=(same, more)).run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("simulation")
    return {kind: made(kind).save(folder / kind.replace(", ", "-")) for kind in KINDS}


@pytest.fixture
def copied(runs: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda kind: Path(shutil.copytree(runs[kind], tmp_path / "run"))


# ---- honest runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_is_verified_and_its_claims_are_told(runs: dict[str, Path], kind: str):
    found = verify(runs[kind])
    assert found.recomputed <= found.certificate.bound <= found.recomputed + 1e-3
    told = "\n".join(found.told)
    assert "the further environments are drawn like those of the trials, and are others" in told
    assert "one simulation, which was not chosen or tuned by these trials, gave all costs" in told
    assert "which have no names" not in told


def test_further_environments_without_names_are_told(tmp_path: Path):
    robot, same, more = tables("several")
    run = learn_finite(with_simulation(robot, same, Costs(more.values, ["a", "b"])))
    told = verify(run.save(tmp_path / "run")).told
    assert "that no environment is twice among the further ones, which have no names" in told


@pytest.mark.parametrize(("trials", "further"), [(1000, 100_000), (5001, 20_000)])
def test_many_pairs_that_agree_are_verified(tmp_path: Path, trials: int, further: int):
    simulated = np.random.default_rng(0).random((trials + further, 1)) < 0.3
    joined = with_simulation(simulated[:trials], simulated[:trials], simulated[trials:])
    run = learn_finite(joined)
    assert run.certificate.simulation is not None
    assert (run.certificate.simulation.equivalent_trials or 0) > 5000
    assert verify(run.save(tmp_path / "run")).recomputed <= run.certificate.bound


def test_costs_in_simulation_that_hardly_vary_are_verified(tmp_path: Path):
    rng = np.random.default_rng(0)
    simulated = 1e-200 * (rng.random((540, 1)) < 0.5)
    joined = with_simulation(0.5 * rng.random((40, 1)), simulated[:40], simulated[40:])
    run = learn_finite(joined)
    assert run.certificate.simulation is not None
    assert run.certificate.simulation.correlation is None
    verify(run.save(tmp_path / "run"))


def test_a_bound_at_any_time_does_not_depend_on_the_order_of_the_log():
    bounds = []
    for order in (np.arange(TRIALS), tables("binary")[0].values[:, 0].argsort(kind="stable")):
        robot, same, more = tables("binary")
        rows = Costs(robot.values[order], robot.names, sites=[robot.sites[i] for i in order])
        trials = [Trials.from_costs(c.values, c.names, c.sites) for c in (rows, same, more)]
        found = choose(trials[0], stopping="anytime", simulated=(trials[1], trials[2]))
        bounds.append(found.run.certificate.bound)
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-12)


def test_trials_that_may_be_stopped_at_any_time_need_further_environments_of_their_own():
    robot, same, more = tables("binary")
    both = Costs(
        np.concatenate([same.values, more.values]), same.names, sites=(*same.sites, *more.sites)
    )
    trials = [Trials.from_costs(c.values, c.names, c.sites) for c in (robot, both)]
    assert choose(trials[0], simulated=(trials[1], None)).run.certificate.simulation is not None
    with pytest.raises(ValueError, match="whose number is fixed in advance: --more-simulated"):
        choose(trials[0], stopping="anytime", simulated=(trials[1], None))


def test_a_shift_of_a_run_is_verified(runs: dict[str, Path], tmp_path: Path):
    shifted = under_shift(Run.load(runs["several"]), Ball("kl", 0.05))
    found = verify(shifted.save(tmp_path / "run"))
    assert found.certificate.bound > verify(runs["several"]).certificate.bound


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_small_run_is_verified(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    trials, further = data.draw(st.integers(2, 12)), data.draw(st.integers(2, 30))
    policies = data.draw(st.integers(1, 3))
    cost = st.floats(0, 1) if data.draw(st.booleans()) else st.sampled_from([0.0, 1.0])
    values = st.lists(cost, min_size=policies, max_size=policies)
    robot, same, more = (
        np.array(data.draw(st.lists(values, min_size=n, max_size=n)))
        for n in (trials, trials, further)
    )
    likely = all(chance_of_difference(*each) >= 0.001 for each in zip(same.T, more.T, strict=True))
    assume(likely)
    costs = with_simulation(robot, same, more)
    delta = data.draw(st.sampled_from([0.9, 0.05, 1e-9]))
    run = learn_finite(costs, delta)
    assert (
        verify(run.save(tmp_path_factory.mktemp("run") / "run")).recomputed <= run.certificate.bound
    )


# ---- the same numbers by other code --------------------------------------------------------------


@pytest.mark.parametrize("counts", [(9, 2, 1, 18), (0, 0, 0, 12), (0, 3, 0, 0), (4, 0, 0, 9)])
def test_the_exact_bound_is_proven_and_hardly_more(counts: tuple[int, int, int, int]):
    set_precision()
    both, spared, alone, none = counts
    limits = failure_limits(300, 1000, 0.005)
    pairs = PairCounts(both, both + spared, alone, alone + none)
    bound = stratified_exact_tail(pairs, limits, 0.045)
    strata = Strata(counts, limits, iv.mpf(0.045))
    assert strata.proves(iv.mpf(bound))
    assert not strata.proves(iv.mpf(bound * (1 - 1e-3)))


def test_ranks_and_probabilities_agree_with_other_computations():
    set_precision()
    strata = Strata((9, 3, 2, 26), (0.28, 0.32), iv.mpf(0.045))
    both, alone = (grid.ravel().astype(float) for grid in np.mgrid[0:13, 0:29])
    for q in (0.28, 0.32):
        expected = likelihood_limit(both, alone, (12, 28), q, 0.045)
        np.testing.assert_allclose(strata._likely(both, alone, q), expected, atol=1e-11)
    a, c = np.array([0.0, 0.3, 0.95, 1.0]), np.array([0.2, 0.0, 0.4, 1.0])
    first: Any = stats.binom(12, a[:, None])
    second: Any = stats.binom(28, c[:, None])
    expected = np.sum(first.pmf(np.arange(13)) * second.cdf(strata.most), axis=1)
    np.testing.assert_allclose(strata._probability(a, c), expected, rtol=1e-11, atol=1e-300)


def test_bets_are_recomputed_with_the_same_shares_of_the_simulation():
    set_precision()
    rng = np.random.default_rng(0)
    f, more = rng.random(200), rng.random(5000)
    y = np.clip(f + 0.1 * rng.standard_normal(200), 0, 1)
    known = SimulatedMean(float(more.mean()), float(more.var()), 0.52)
    guide = known.mean, known.variance
    bound = paired_betting(y, f, known, 0.01)
    found = proven_by_pairs(y, f, guide, (0.52, iv.mpf(0.01), bound))
    assert found <= bound <= found * 1.001
    test = pairs_condition(y, f, 0.52, iv.mpf(0.01))
    anytime = paired_anytime(y, f, known, 0.01)
    assert test(iv.mpf(anytime))
    assert not test(iv.mpf(anytime - 1e-4))


# ---- forged runs --------------------------------------------------------------------------------


def reseal(folder: Path) -> None:
    manifest = read_json(folder / "manifest.json")
    names = sorted(path.name for path in folder.iterdir() if path.name != "manifest.json")
    manifest["files"] = {name: hash_file(folder / name) for name in names}
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


def forge(folder: Path, **changes: Any) -> None:
    """Change the certificate, or fields of its simulation, with its sentence and every hash."""
    record = read_json(folder / "certificate.json")
    inner = {name: changes.pop(name) for name in [*changes] if name in (record["simulation"] or {})}
    if inner:
        record["simulation"] = {**record["simulation"], **inner}
    record |= changes
    record["sentence"] = Certificate.from_dict(record).sentence
    (folder / "certificate.json").write_bytes(json_bytes(record))
    reseal(folder)


def with_files(run: Run[Categorical], **changes: Any) -> Run[Categorical]:
    """The same certificate, about other files in simulation."""
    simulation = run.costs.simulation
    assert simulation is not None
    costs = run.costs.with_simulation(dataclasses.replace(simulation, **changes))
    hashes = {**run.certificate.hashes, **costs.digests}
    certificate = dataclasses.replace(run.certificate, hashes=hashes)
    return dataclasses.replace(run, costs=costs, certificate=certificate)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_that_is_a_little_smaller_is_refused(copied: Callable[[str], Path], kind: str):
    folder = copied(kind)
    bound = read_json(folder / "certificate.json")["bound"]
    forge(folder, bound=bound * (1 - 2e-3), equivalent_trials=None)
    with pytest.raises(InvalidCertificate, match="below what"):
        verify(folder)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("several", {"budget": {"occam": 0.05}}, "paid for by δ, or absent"),
        ("several", {"budget": {"occam": 0.049, "simulation": 0.002}}, "overspends"),
        ("several", {"simulation": None}, "whether there is simulation beside the trials"),
        ("several", {"low": 0.28}, "limits in simulation are not proven"),
        ("several", {"high": 0.28}, "limits in simulation are not proven"),
        ("graded", {"high": 0.25}, "limits in simulation are not proven"),
        ("binary, anytime", {"high": 0.28}, "limits in simulation are not proven"),
        ("several", {"low": 5e-324, "bound": 0.001, "equivalent_trials": None}, "is below what"),
        ("several", {"low": 1e-310, "bound": 0.01, "equivalent_trials": None}, "is below what"),
        ("several", {"incidents": {"retries": 2}}, "incidents of the rollouts in simulation"),
        ("several", {"low": None}, "are not those of the method"),
        ("graded", {"low": 0.1}, "are not those of the method"),
        ("several", {"environments": 2000}, "the environments of the simulation is not as stated"),
        ("several", {"cost": 0.29}, "the cost of the simulation is not as stated"),
        ("several", {"cost_of_pairs": 0.29}, "the cost_of_pairs of the simulation is not"),
        ("several", {"agreement": 1.0}, "the agreement of the simulation is not as stated"),
        ("several", {"correlation": 0.99}, "the correlation of the simulation is not as stated"),
        ("several", {"correlation": None}, "the correlation of the simulation is not as stated"),
        ("several", {"bound_without": 0.6}, "the bound without simulation is not 0.6"),
        ("graded", {"bound_without": 0.6}, "the bound without simulation is not 0.6"),
        ("binary, anytime", {"bound_without": 0.6}, "the bound without simulation is not 0.6"),
        ("several", {"equivalent_trials": 5000.0}, "the equivalent trials are not as stated"),
        ("graded", {"equivalent_trials": 5000.0}, "the equivalent trials are not as stated"),
        ("binary, anytime", {"equivalent_trials": 9e3}, "the equivalent trials are not as stated"),
        ("several", {"prior": "uniform over all policies"}, "the prior is called"),
        ("binary", {"budget": {"occam": 0.0225, "simulation": 0.0275}}, "pay for the choice"),
        (
            "binary",
            {"budget": {"occam": 0.0255, "simulation": 0.0005, OTHERS: 0.024}},
            "does not pay for the choice",
        ),
        ("several", {"of": "quantile:0.9"}, "is for the mean cost of one listed policy"),
    ],
)
def test_a_forged_certificate_is_refused(
    copied: Callable[[str], Path], kind: str, changes: dict[str, Any], message: str
):
    folder = copied(kind)
    forge(folder, **changes)
    with pytest.raises(InvalidCertificate, match=message):
        verify(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"agreement": 1.5},
        {"high": -0.1},
        {"low": 0.9},
        {"correlation": 2.0},
        {"environments": 0},
        {"equivalent_trials": -3.0},
        {"equivalent_trials": 1e18},
        {"incidents": {"retries": -1}},
        {"incidents": {"luck": 1}},
        {"cost": float("nan")},
        {"simulation": {}},
        {"simulation": "yes"},
    ],
)
def test_impossible_figures_of_a_simulation_are_refused(
    runs: dict[str, Path], changes: dict[str, Any]
):
    record = read_json(runs["several"] / "certificate.json")
    record["simulation"] = (
        changes["simulation"] if "simulation" in changes else {**record["simulation"], **changes}
    )
    with pytest.raises(ValueError, match=r"certificate\.json is not a certificate: .*simulation"):
        Certificate.from_dict(record)


def test_an_environment_of_the_trials_among_the_further_ones_is_refused(
    runs: dict[str, Path], tmp_path: Path
):
    run = Run.load(runs["several"])
    assert run.costs.simulation is not None
    more = run.costs.simulation.more
    twice = Costs(more.values, more.names, more.origin, sites=["ROOM 3", *more.sites[1:]])
    forged = with_files(run, more=twice)
    with pytest.raises(InvalidCertificate, match=r"not say that it was learnt|among the further"):
        verify(forged.save(tmp_path / "run"))


def test_further_environments_that_differ_are_refused(runs: dict[str, Path], tmp_path: Path):
    run = Run.load(runs["graded"])
    assert run.costs.simulation is not None
    more = run.costs.simulation.more
    easier = Costs(more.values * 0.5, more.names, more.origin, sites=more.sites)
    with pytest.raises(InvalidCertificate, match="they are not drawn alike"):
        verify(with_files(run, more=easier).save(tmp_path / "run"))


def test_pairs_that_agree_better_than_is_stated_are_refused(runs: dict[str, Path], tmp_path: Path):
    run = Run.load(runs["several"])
    copied = with_files(run, pairs=run.costs.values)
    with pytest.raises(InvalidCertificate, match="of the simulation is not as stated"):
        verify(copied.save(tmp_path / "run"))


def test_a_prior_that_is_not_from_the_simulation_is_refused(runs: dict[str, Path], tmp_path: Path):
    run = Run.load(runs["several"])
    prior = Categorical([1.0, 0.0], seen=run.prior.seen, rows=run.prior.rows)
    hashes = {**run.certificate.hashes, "prior": sha256(prior.to_bytes())}
    certificate = dataclasses.replace(run.certificate, hashes=hashes, kl=0.0)
    forged = dataclasses.replace(run, prior=prior, certificate=certificate)
    with pytest.raises(InvalidCertificate, match="the prior is not from simulation of 1,500"):
        verify(forged.save(tmp_path / "run"))


def rewrite(folder: Path, name: str, values: Any) -> None:
    np.save(folder / name, values, allow_pickle=False)
    reseal(folder)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("simulated.npy", np.zeros((TRIALS, 3)), "not of the same policies"),
        ("simulated.npy", np.zeros((TRIALS - 1, 2)), "not one cost in simulation for each"),
        ("simulated.npy", np.full((TRIALS, 2), np.nan), "is NaN"),
        ("simulated.npy", np.full((TRIALS, 2), 2.0), r"outside \[0, 1\]"),
        ("simulated.npy", np.zeros(TRIALS), "two dimensions"),
        ("more_simulated.npy", np.full((FURTHER, 2), "x"), "not numbers"),
        ("more_simulated.npy", np.zeros((FURTHER, 3)), "not of the same policies"),
        ("more_simulated.npy", np.zeros((3, 2)), "1500 names for 3 environments"),
        ("more_simulated.npy", np.zeros((0, 2)), "empty"),
    ],
)
def test_impossible_costs_in_simulation_are_refused(
    copied: Callable[[str], Path], name: str, values: Any, message: str
):
    folder = copied("several")
    rewrite(folder, name, values)
    with pytest.raises(ValueError, match=message):
        verify(folder)


@pytest.mark.parametrize(
    "facts",
    [{}, [], {"origins": {}, "sites": []}, {"origins": {"pairs": {}, "more": 3}, "sites": []}],
)
def test_a_record_of_the_simulation_that_may_hold_anything_is_refused(
    copied: Callable[[str], Path], facts: Any
):
    folder = copied("several")
    (folder / "simulation.json").write_bytes(json_bytes(facts))
    reseal(folder)
    with pytest.raises(ValueError, match=r"simulation\.json"):
        verify(folder)


@pytest.mark.parametrize("name", ["simulated.npy", "more_simulated.npy"])
def test_a_run_without_one_of_its_files_is_refused(copied: Callable[[str], Path], name: str):
    folder = copied("several")
    (folder / name).unlink()
    reseal(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        verify(folder)


def test_files_of_a_simulation_beside_a_certificate_without_one_are_refused(tmp_path: Path):
    costs = tables("several")
    run = learn_finite(costs[0], 0.05)
    joined = with_simulation(*costs)
    hashes = {**run.certificate.hashes, **joined.digests}
    certificate = dataclasses.replace(run.certificate, hashes=hashes)
    forged = dataclasses.replace(run, costs=joined, certificate=certificate)
    with pytest.raises(InvalidCertificate, match="whether there is simulation beside the trials"):
        verify(forged.save(tmp_path / "run"))


def test_simulation_of_another_run_is_refused(runs: dict[str, Path], tmp_path: Path):
    run, other = Run.load(runs["several"]), with_simulation(*tables("several", seed=5))
    assert isinstance(other.simulation, Simulation)
    swapped = dataclasses.replace(run, costs=run.costs.with_simulation(other.simulation))
    with pytest.raises(InvalidCertificate, match="the hash differs"):
        verify(swapped.save(tmp_path / "run"))
