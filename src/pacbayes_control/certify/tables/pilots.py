"""Reading a pilot: the costs of the policies in other environments, which give them a prior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.costs import Costs
from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.priors import pilot_prior
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.tables.campaigns import TEXT, read_campaign
from pacbayes_control.certify.text import quoted


def read_pilot(
    path: str | Path,
    policies: Sequence[str] | int,
    *,
    parameters: NDArray | None = None,
    header: bool | None = None,
    graded: bool | None = None,
) -> Categorical:
    """The prior of `pilot_prior` for policies whose costs in other environments are in a file.

    Args:
        path: a table of costs, as `read_campaign` reads it; or the folder of a run, or `costs.npy`
            in it, whose manifest tells which environments these are
        policies: the names of the policies, or their number if they have no names; if the pilot
            has names too, its columns may have another order
        parameters: of the policies, one row each, if they are known
        header: as for `read_campaign`, if the table is text
        graded: as for `read_campaign`
    """
    pilot, file = _pilot_costs(Path(path), header, graded), Path(path).name
    names = [] if isinstance(policies, int) else list(policies)
    count = policies if isinstance(policies, int) else len(names)
    if pilot.policies != count:
        raise ValueError(f"{file} has costs of {pilot.policies} policies, and there are {count}")
    order = list(range(count))
    if names and pilot.names:
        differing = sorted({*names} ^ {*pilot.names})
        if differing:
            raise ValueError(
                f"{quoted(differing[0])} is a policy of one table and not of the other: name the "
                f"policies of {file} as in the costs"
            )
        order = [pilot.names.index(name) for name in names]
    own = None if pilot.parameters is None else pilot.parameters[order]
    if own is not None and parameters is not None and not np.array_equal(own, parameters):
        raise ValueError(f"{file} has costs of other policies: their parameters differ")
    in_order = Costs(
        pilot.values[:, order],  # equal rows are looked for, and must have the same columns
        names or pilot.names,
        pilot.origin,
        parameters=own if parameters is None else parameters,
        draws=pilot.draws,
        sites=pilot.sites,
    )
    return pilot_prior(in_order)


def pilot_file(path: str | Path) -> Path:
    """The file with a pilot's costs: the path itself, or `costs.npy` in the folder of a run."""
    path = Path(path)
    return path / "costs.npy" if path.is_dir() else path


def _pilot_costs(path: Path, header: bool | None, graded: bool | None) -> Costs:
    file = pilot_file(path)
    if file.name == "costs.npy" and file.with_name("certificate.json").is_file():
        return Run.load(file.parent).costs
    if path.is_dir():
        raise ValueError(f"{path} is not the folder of a run: give a run, or a table of costs")
    text = path.suffix.lower() in TEXT
    table = read_campaign(path, header=header if text else None, graded=graded)
    if table.prior is not None:
        raise ValueError(f"{path.name} has a prior of its own: a pilot has costs only")
    return table.costs
