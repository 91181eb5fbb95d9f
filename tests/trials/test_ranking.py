"""All pairs of policies: what is certified, with one probability of error for all of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pacbayes_control.certify.trials import Trials
from pacbayes_control.trials.comparing import compare
from pacbayes_control.trials.ranking import _cliques, holm, rank
from recorded_trials import paired
from sizes import sized


def trials_of(table: np.ndarray) -> Trials:
    environments, policies = table.shape
    where, whose = np.divmod(np.arange(table.size), policies)
    return Trials(
        policies=tuple(f"p{i}" for i in range(policies)),
        policy=whose,
        environments=tuple(f"s{i}" for i in range(environments)),
        environment=where,
        costs=table.ravel().astype(float),
        graded=False,
        outcome="success",
        unit="seed",
        shared=True,
    )


def drawn(rates: list[float], environments: int, seed: int) -> Trials:
    rng = np.random.default_rng(seed)
    return trials_of((rng.random((environments, len(rates))) < rates).astype(float))


def test_the_order_is_by_mean_cost_and_groups_are_what_is_not_told_apart():
    found = rank(drawn([0.9, 0.05, 0.5, 0.06], 100, 0))
    assert found.policies[2:] == ("p2", "p0")
    assert found.means.tolist() == sorted(found.means)
    assert found.ranks == [(1, 2), (1, 2), (3, 3), (4, 4)]
    assert found.groups == ((0, 1), (2,), (3,))
    best = " or ".join(found.policies[:2])
    assert found.sentence.startswith("With confidence 95 %, the best is among"), best
    assert "5 of 6 pairs can be told apart" in found.sentence


def test_a_clear_winner_is_the_best():
    found = rank(drawn([0.5, 0.02, 0.5], 80, 1))
    assert found.sentence.startswith("With confidence 95 %, “p1” is the best;")
    record = found.to_dict()
    assert record["policies"][0]["better_than"] == list(found.policies[1:])
    assert record["e_values"][0][1] > 6 / 0.05


def test_two_policies_need_no_less_than_a_comparison():
    for seed in range(20):
        trials = drawn([0.3, 0.6], 40, seed)
        verdict = compare(trials, "p0", "p1").verdict
        certified = bool(rank(trials).better.any())
        assert certified == (verdict != "undecided")  # both need 2/α in one of two directions


def test_holms_rule_is_that_of_ordered_p_values():
    rng = np.random.default_rng(0)
    for _ in range(200):
        log_e = rng.normal(3, 3, (4, 4))
        rejected = holm(log_e, 0.05)
        pairs = [(i, j) for i, j in itertools.product(range(4), repeat=2) if i != j]
        p_values = sorted((float(np.exp(-log_e[pair])), pair) for pair in pairs)
        expected = set()
        for number, (p, pair) in enumerate(p_values):
            if p > 0.05 / (12 - number):
                break
            expected.add(pair)
        assert {tuple(pair) for pair in np.argwhere(rejected).tolist()} == expected


def test_equal_policies_are_rarely_told_apart_and_without_holm_often():
    draws, wrong, each = sized(150, full=3000), 0, 0
    for seed in range(draws):
        found = rank(drawn([0.3] * 10, 60, seed), in_order=True)
        wrong += bool(found.better.any())
        each += bool((found.log_e >= np.log(2 / 0.05)).any())
    assert wrong <= 0.05 * draws + 3 * np.sqrt(0.05 * 0.95 * draws)
    assert each > 0.1 * draws  # at the level of one pair each


def test_what_was_decided_on_the_way_counts_in_random_order_alone():
    table = np.zeros((60, 2))
    table[:10, 1] = 1  # the first ten environments are all that differ in this direction
    table[10:60, 0] = np.arange(50) % 5 == 0
    trials = trials_of(table)
    assert not rank(trials).better.any()
    assert rank(trials, in_order=True).better.any()


def test_missing_pairs_are_asked_for():
    trials = drawn([0.2, 0.8, 0.5], 20, 3)
    keep = np.ones(60, bool)
    keep[4] = False  # p1 in s1
    short = Trials(
        **{
            **vars(trials),
            "policy": trials.policy[keep],
            "environment": trials.environment[keep],
            "costs": trials.costs[keep],
        }
    )
    with pytest.raises(ValueError, match="have no partner: say --missing untried"):
        rank(short)
    assert rank(short, untried=True).pairs.min(where=~np.eye(3, dtype=bool), initial=99) == 19


def test_one_policy_and_too_many_are_refused():
    with pytest.raises(ValueError, match="one policy cannot be ranked"):
        rank(drawn([0.5], 10, 0))
    with pytest.raises(ValueError, match="101 policies are too many"):
        rank(drawn([0.5] * 101, 2, 0))


def test_groups_are_all_largest_sets_of_neighbours():
    rng = np.random.default_rng(2)
    for _ in range(30):
        near = np.triu(rng.random((7, 7)) < 0.5, 1)
        near |= near.T
        found = set(_cliques([set(np.flatnonzero(row).tolist()) for row in near]))
        subsets = [
            nodes
            for size in range(1, 8)
            for nodes in itertools.combinations(range(7), size)
            if all(near[i, j] for i, j in itertools.combinations(nodes, 2))
        ]
        largest = {s for s in subsets if not any(set(s) < set(other) for other in subsets)}
        assert found == largest


def test_contradicting_looks_on_the_way_tell_nothing_apart():
    """Act is better at first, and worse in the end: the order was not random."""
    ranking = rank(paired([[0, 1]] * 8 + [[1, 0]] * 80), in_order=True)
    assert not ranking.better.any()
    assert "0 of 1 pairs" in ranking.sentence
