from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from cvxpy.error import SolverError
from scipy.optimize import LinearConstraint

from pacbayes_control.bounds import mcallester_pinsker
from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.learn import compare_methods, learn_constrained, relative_entropy
from pacbayes_control.learn.gibbs import minimise
from pacbayes_control.learn.relative_entropy import Programmes, solve_programmes


def pinsker(raw: np.ndarray, means: np.ndarray, prior: Categorical, n: int) -> float:
    p = Categorical.project(raw)
    return float(mcallester_pinsker(p.probabilities @ means, p.kl(prior), n, 0.01))


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["clarabel", "scs"])
@pytest.mark.parametrize("n", [100, 2000])
def test_the_papers_programmes_agree_with_the_gibbs_path(solver: str, n: int):
    rng = np.random.default_rng(n)
    means, prior = rng.beta(2, 6, 20), Categorical(rng.dirichlet(np.full(20, 5.0)))
    exact = pinsker(
        minimise(means, n, prior, delta=0.01, objective="pinsker").probabilities, means, prior, n
    )
    solved = pinsker(
        solve_programmes(Programmes(means, n, prior, 0.01), solver=solver), means, prior, n
    )
    assert exact <= solved + 1e-12  # never worse
    assert solved - exact < 2e-4  # and close: λ runs over a grid of a hundred values


@pytest.mark.slow
def test_constraints_are_kept_and_cost_something(binary_costs: Costs):
    cautious = LinearConstraint([0, 1, 0, 1, 0, 0], 0.2)
    free = learn_constrained(binary_costs)
    held = learn_constrained(binary_costs, constraints=[cautious])
    p = held.posterior.probabilities
    assert p[1] + p[3] >= 0.2 - 1e-6
    assert free.certificate.bound < held.certificate.bound


def test_the_certificate_tells_the_constraints(binary_costs: Costs):
    costs = Costs(binary_costs.values, names=list("abcdef"))
    limits = [LinearConstraint([0, 1, 0, 1, 0, 0], 0.2), LinearConstraint([0, 0, 2, 0, 0, 0], 0, 1)]
    certificate = learn_constrained(costs, constraints=limits).certificate
    assert [str(constraint) for constraint in certificate.constraints] == [
        "at least 0.2 on “b”, “d”",
        "at least 0 and at most 1 on 2 “c”",
    ]


def test_upper_limits_and_several_rows_are_kept(binary_costs: Costs):
    limits = LinearConstraint(np.eye(6), 0.0, 0.4)
    p = learn_constrained(binary_costs, constraints=[limits]).posterior.probabilities
    assert p.max() <= 0.4 + 1e-6


def test_a_prior_with_zeros_keeps_them(binary_costs: Costs):
    prior = [0.5, 0.25, 0.0, 0.25, 0.0, 0.0]
    p = learn_constrained(binary_costs, prior=prior).posterior.probabilities
    assert np.all(p[[2, 4, 5]] == 0)


def test_the_certificate_comes_from_the_projected_posterior(
    binary_costs: Costs, monkeypatch: pytest.MonkeyPatch
):
    # A solver that returns garbage near a distribution cannot make the certificate lie.
    raw = np.array([-1e-3, 0.2, 0.8002, 1e-7, -1e-9, 1e-3])
    monkeypatch.setattr(relative_entropy, "solve_programmes", lambda *_, **__: raw)
    run = learn_constrained(binary_costs)
    p = np.clip(raw, 0, None) / np.clip(raw, 0, None).sum()
    assert np.allclose(run.posterior.probabilities, p, rtol=1e-12)
    assert np.isclose(run.certificate.empirical_cost, p @ binary_costs.means, rtol=1e-12)
    assert np.isclose(run.certificate.kl, np.sum(p[p > 0] * np.log(6 * p[p > 0])), rtol=1e-12)


def test_a_solvers_answer_that_breaks_a_constraint_is_refused(
    binary_costs: Costs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relative_entropy, "solve_programmes", lambda *_, **__: np.eye(6)[2])
    with pytest.raises(ValueError, match=r"violates constraint 0 by 0.2"):
        learn_constrained(binary_costs, constraints=[LinearConstraint([1, 0, 0, 0, 0, 0], 0.2)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"solver": "magic"},
            "solver 'magic' is unknown, not installed or unable .* choose from .*clarabel",
        ),
        ({"solver": "osqp"}, "unable to solve relative entropy programmes"),
        ({"method": "occam"}, "takes no constraints"),
        ({"constraints": [LinearConstraint([1, 1], 0.2)]}, "2 coefficients for 6 policies"),
        ({"constraints": [LinearConstraint(np.ones(6), 2.0)]}, "found no distribution"),
        ({"delta": 2.0}, "strictly between 0 and 1"),
    ],
)
def test_bad_options_get_a_clear_error(binary_costs: Costs, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        learn_constrained(binary_costs, **options)


def test_a_missing_extra_says_what_to_type(binary_costs: Costs, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relative_entropy, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'pacbayes-control\[cvx\]'"):
        learn_constrained(binary_costs)


def test_a_failing_solver_is_named(binary_costs: Costs, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise SolverError("licence expired")

    monkeypatch.setattr(cvxpy.Problem, "solve", fail)
    with pytest.raises(ValueError, match=r"clarabel found no distribution .*licence expired"):
        learn_constrained(binary_costs)


# ---- side by side -------------------------------------------------------------------------------


def test_every_method_is_compared_and_the_one_chosen_in_advance_counts(binary_costs: Costs):
    comparison = compare_methods(binary_costs, method="occam")
    methods = [run.certificate.method for run in comparison.runs]
    assert methods == ["occam", "kl", "kl-maurer", "pinsker", "betting"]
    assert comparison.chosen.certificate.method == "occam"


def test_best_is_never_one_of_the_full_price_certificates(binary_costs: Costs):
    comparison = compare_methods(binary_costs, method="best")
    assert comparison.chosen.certificate.bound > min(r.certificate.bound for r in comparison.runs)


def test_constraints_leave_the_methods_for_distributions(binary_costs: Costs):
    limit = LinearConstraint([1, 0, 0, 0, 0, 0], 0.2)
    comparison = compare_methods(binary_costs, constraints=[limit])
    assert [run.certificate.method for run in comparison.runs] == ["kl", "kl-maurer", "pinsker"]
    with pytest.raises(ValueError, match="takes no constraints"):
        compare_methods(binary_costs, method="occam", constraints=[limit])


@pytest.mark.slow
def test_a_solver_without_constraints_takes_the_papers_route(binary_costs: Costs):
    exact, solved = compare_methods(binary_costs), compare_methods(binary_costs, solver="scs")
    assert [run.certificate.method for run in solved.runs] == [
        "occam",
        "kl",
        "kl-maurer",
        "pinsker",
        "betting",
    ]
    for ours, theirs in zip(exact.runs, solved.runs, strict=True):
        assert ours.certificate.bound <= theirs.certificate.bound + 1e-12
    assert solved.chosen.certificate.objective == "pinsker"
