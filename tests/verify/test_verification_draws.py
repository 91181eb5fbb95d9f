"""Whether certificates of graded draws, bounded by bets, are verified, and forged ones refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pacbayes_control.bounds import fresh_draws
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.files import json_bytes, seal
from pacbayes_control.certify.run import Run
from pacbayes_control.learn import Plan
from pacbayes_control.learn.gaussian import certify_posterior, split_budget
from pacbayes_control.learn.priors import GaussianPrior
from pacbayes_control.rollouts.again import roll_out_again
from pacbayes_control.tasks.demo import Stopping
from pacbayes_control.verify import InvalidCertificate, verify

NOT_PROVEN = "which these draws do not support"


class Missing(Stopping):
    """The cost is the distance from the mark, and declared to be graded."""

    name = "missing"
    graded = True

    def costs(self, policies: Any, environments: Any, *_: Any) -> Any:
        """How far each policy misses the mark."""
        marks = environments.arrays()["mark"][:, None]
        return np.minimum(np.abs(policies[..., 0] - marks), 1.0)


class NotDeclared(Missing):
    name = "not declared"
    graded = None


def certified(task: Any = Missing, draws: int = 20, *, shared: bool = False, n: int = 80) -> Run:
    task = task()
    environments = task.environments(n, stream="train")
    prior, plan = GaussianPrior.of(task.prior), Plan(draws=draws, shared_draws=shared)
    budget = split_budget(0.05, "kl")
    return certify_posterior(task, environments, prior, task.prior, budget=budget, plan=plan)


def forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the certificate, and every hash with it, as a careful forger would."""
    record = json.loads((folder / "certificate.json").read_text())
    manifest = json.loads((folder / "manifest.json").read_text())
    costs = hashlib.sha256((folder / "costs.npy").read_bytes()).hexdigest()
    record["hashes"]["costs"] = manifest["files"]["costs.npy"] = costs
    change(record)
    sentence = Certificate.from_dict(record).sentence
    (folder / "certificate.json").write_bytes(json_bytes({**record, "sentence": sentence}))
    digest = hashlib.sha256((folder / "certificate.json").read_bytes()).hexdigest()
    manifest["files"]["certificate.json"] = digest
    manifest["seal"] = seal(manifest)
    (folder / "manifest.json").write_bytes(json_bytes(manifest))


@pytest.mark.parametrize("draws", [1, 2, 20])
def test_a_run_of_a_graded_task_is_bounded_by_bets_and_verified(tmp_path: Path, draws: int):
    run = certified(draws=draws)
    c = run.certificate
    assert (c.graded, c.grid, c.draws, c.environments) == (True, 8192, draws, 80)
    assert c.training_cost_bound is not None
    chernoff = fresh_draws(c.empirical_cost, 80 * draws, c.budget["sampling"])
    assert c.empirical_cost < c.training_cost_bound < float(chernoff)
    verification = verify(run.save(tmp_path / "run"))
    assert verification.recomputed == pytest.approx(c.bound, abs=1e-9)
    assert not any("names of the sites" in claim for claim in verification.told)


def test_its_rollouts_can_be_run_again():
    run, task = certified(), Missing()
    again = roll_out_again(run, task, task.environments(80, stream="train"), count=30)
    assert (again.tried, again.different) == (30, 0)


@pytest.mark.parametrize(("task", "shared"), [(NotDeclared, False), (Missing, True)])
def test_draws_of_other_kinds_keep_chernoff_s_bound(tmp_path: Path, task: Any, shared: bool):
    run = certified(task, shared=shared)
    c, independent = run.certificate, 20 if shared else 20 * 80
    assert c.grid is None
    expected = float(fresh_draws(c.empirical_cost, independent, c.budget["sampling"]))
    assert c.training_cost_bound == pytest.approx(expected, rel=1e-9)
    verify(run.save(tmp_path / "run"))


def test_a_training_cost_one_candidate_lower_is_refused(tmp_path: Path):
    run = certified()
    folder, stated = run.save(tmp_path / "run"), run.certificate.training_cost_bound
    assert stated is not None
    for lower in (stated - 1e-12, ((round(np.sqrt(stated) * 8192) - 1) / 8192) ** 2):
        forge(folder, lambda record, low=lower: record.update(training_cost_bound=low))
        with pytest.raises(InvalidCertificate, match=NOT_PROVEN):
            verify(folder)


@pytest.mark.parametrize("grid", [None, 4096])
def test_bets_on_another_grid_are_refused(tmp_path: Path, grid: int | None):
    folder = certified().save(tmp_path / "run")
    forge(folder, lambda record: record.update(grid=grid))
    with pytest.raises(InvalidCertificate, match="on a grid of 8192 candidates"):
        verify(folder)


def test_bets_are_refused_where_nothing_declares_graded_costs(tmp_path: Path):
    folder, by_bets = certified(NotDeclared).save(tmp_path / "run"), certified().certificate
    forge(
        folder,
        lambda record: record.update(grid=8192, training_cost_bound=by_bets.training_cost_bound),
    )
    with pytest.raises(InvalidCertificate, match="on a grid of 8192 candidates"):
        verify(folder)
    forge(folder, lambda record: record.update(graded=True))
    with pytest.raises(InvalidCertificate, match="wrong about whether costs are graded"):
        verify(folder)


def test_draws_in_another_order_than_that_of_the_stream_are_other_costs(tmp_path: Path):
    """Easy draws first would be a choice by the costs: the table is the one that was hashed."""
    run = certified()
    folder = run.save(tmp_path / "run")
    easy_first = run.costs.values[:, np.argsort(run.costs.means)]
    np.save(folder / "costs.npy", np.ascontiguousarray(easy_first))
    with pytest.raises(ValueError, match=r"costs\.npy was altered"):
        verify(folder)
    # A forger who also rewrites all hashes is found by running rollouts again.
    forge(folder, lambda _: None)
    task, forged = Missing(), Run.load(folder)
    again = roll_out_again(forged, task, task.environments(80, stream="train"), count=30)
    assert again.different > 20
