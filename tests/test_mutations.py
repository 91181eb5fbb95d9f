"""The mutants that `make mutants` draws: the same for a seed, and each a change of the source."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from mutations import ROOT, draw, mutants_of


@pytest.mark.slow
def test_a_seed_gives_the_same_mutants_and_another_seed_others():
    assert draw(20, seed=3) == draw(20, seed=3) != draw(20, seed=4)


@pytest.mark.slow
def test_every_mutant_is_a_programme_that_does_something_else():
    for mutant in draw(40, seed=5):
        before = ast.parse((ROOT / mutant.file).read_text())
        assert ast.dump(ast.parse(mutant.applied(ROOT))) != ast.dump(before), mutant


@pytest.mark.slow
def test_a_mutant_of_other_source_is_refused():
    mutant = replace(draw(1, seed=6)[0], before="no such text")
    with pytest.raises(SystemExit, match="the source there is another now"):
        mutant.applied(ROOT)


def test_kernels_are_mutated_and_what_only_speaks_is_not():
    kernel = ROOT / "src/pacbayes_control/robots/planar/kernel.py"
    changed = {mutant.before for mutant in mutants_of(kernel)}
    assert "dx * cos + dy * sin" in changed
    assert not any(text.startswith(('"""', "f'", 'f"')) for text in changed)
