"""The colours of pictures, the policies they show, and how they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pacbayes_control.certify.distributions import DiagonalGaussian
from pacbayes_control.certify.run import Run
from pacbayes_control.tasks.environments import generator

# Colours that stay apart for colour-blind readers and on paper.
BLUE, ORANGE, GREEN, GREY, DARK = "#0072b2", "#d55e00", "#009e73", "#9a9a9a", "#333333"
STABLE: Any = {
    "svg.hashsalt": "pacbayes-control",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters as letters, which journals ask for
}


def drawn_policies(run: Run[Any], count: int) -> tuple[NDArray, NDArray]:
    """Policies drawn from a run's prior and from its posterior; shapes (count, parameters).

    Where one policy is certified, it stands in place of draws from the posterior.
    """
    rng, single = generator(0, "picture", of="policies"), run.certificate.policy
    if isinstance(run.posterior, DiagonalGaussian):
        before, after = run.prior.sample(rng, count), run.posterior.sample(rng, count)
    else:
        policies = run.costs.parameters
        assert policies is not None
        before = policies[run.prior.sample(rng, count)]
        after = policies[run.posterior.sample(rng, count)]
    if single is not None:
        assert run.costs.parameters is not None
        after = np.repeat(run.costs.parameters[single][None], count, axis=0)
    return before, after


def save_figure(figure: Figure, file: Path | BinaryIO) -> None:
    """Write PNG or PDF if the path says so, else SVG; the same bytes for the same picture."""
    suffix = file.suffix if isinstance(file, Path) else ""
    with rc_context(STABLE):
        if suffix == ".png":
            figure.savefig(file, format="png", dpi=150)
        elif suffix == ".pdf":
            figure.savefig(file, format="pdf", metadata={"CreationDate": None})
        else:
            figure.savefig(file, format="svg", metadata={"Date": None})
