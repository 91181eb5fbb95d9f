"""A sweep: bound and true cost against N, δ, the method or any field of a task, over many draws."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pacbayes_control.certify import files
from pacbayes_control.certify.text import confidence_percent, printable, quoted, round_up
from pacbayes_control.learn.plan import Plan
from pacbayes_control.rollouts import Execution
from pacbayes_control.rollouts.failures import RolloutError
from pacbayes_control.study.campaign_slices import Campaign, Outcome, Size
from pacbayes_control.study.sweep_files import FinishedDraws, csv_bytes, description, opened
from pacbayes_control.study.sweep_grid import FIGURES, MOST_CELLS, Cell, Grid

FORMAT = 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,59}")  # of a field
LONGEST = 1000  # characters of a swept value
MEND = (
    "a sweep takes no retries and no change of the code: mend the task, and sweep into another "
    "folder"
)
CHOICE = "To pick a row by this table is a choice that its δ does not pay for."
HEADINGS = ("draws", "bound", "± s.d.", "training cost", "true cost", "± s.e.", "bound too low")


@dataclass(frozen=True)
class Sweep:
    """Figures for each combination of the swept fields: means over draws of the environments.

    Beside the swept fields a row has `draws`; `bound`, `empirical_cost` and `true_cost` with their
    standard deviations over draws, such as `bound_sd`; `true_cost_se`, the standard error of the
    estimate of the true cost, at most; and `below_truth`, the share of draws whose bound is below
    that estimate.
    """

    task: str  # its name
    plan: Plan  # of the fields that are not swept
    swept: tuple[str, ...]  # names of fields
    rows: list[dict[str, Any]]
    test_environments: int
    searched: bool  # whether policies were searched for, and not listed
    rollout_timeout: float | None = None  # seconds after which a rollout was ended and cost 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of each row, in order."""
        return (*self.swept, *FIGURES)

    @property
    def title(self) -> str:
        """The task, and the number of environments and δ where they are not swept."""
        fixed = {"environments": f"N = {self.plan.environments:,}", "delta": self._delta}
        words = [text for name, text in fixed.items() if name not in self.swept]
        return ", ".join([quoted(self.task), *words])

    @property
    def _delta(self) -> str:
        return f"δ = {self.plan.delta:g}"

    @property
    def caption(self) -> str:
        """What the figures are and which guarantee they have."""
        draws = sorted({row["draws"] for row in self.rows})
        counts = f"{draws[0]:,}" if len(draws) == 1 else f"{draws[0]:,} to {draws[-1]:,}"
        confidence = f"at least {confidence_percent(self.plan.delta)}"
        if "delta" in self.swept:
            confidence = "at least 1 - δ"
        also = " and of the policies that certify it" if self.searched else ""
        return (
            f"Means over {counts} independent draws of the training environments (± standard "
            f"deviation). Each bound holds, for its own row, with probability {confidence} over "
            f"the draw of the training environments{also}; the true cost is estimated on "
            f"{self.test_environments:,} environments used for nothing else.{self._ended}"
        )

    @property
    def _ended(self) -> str:
        if self.rollout_timeout is None:
            return ""
        return f" Rollouts that took longer than {self.rollout_timeout:g} s cost 1, the worst."

    def cells(self) -> list[list[str]]:
        """The rows for a reader, under the names of the swept fields and HEADINGS."""
        return [
            [
                *(shown(row[name]) for name in self.swept),
                f"{row['draws']:,}",
                round_up(row["bound"]),
                f"{row['bound_sd']:.4f}" if row["draws"] > 1 else "-",
                f"{row['empirical_cost']:.4f}",
                f"{row['true_cost']:.4f}",
                f"{row['true_cost_se']:.4f}",
                f"{round(row['below_truth'] * row['draws']):,} of {row['draws']:,}",
            ]
            for row in self.rows
        ]

    def table(self) -> str:
        """The table as Markdown."""
        lines = [[*self.swept, *HEADINGS], ["---"] * (len(self.swept) + len(HEADINGS))]
        lines += [[cell.replace("|", r"\|") for cell in row] for row in self.cells()]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    # ---- in a file ------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = {"format": FORMAT, "task": self.task, "plan": self.plan.to_dict()}
        record |= {"swept": list(self.swept), "rows": self.rows, "searched": self.searched}
        record |= {"test_environments": self.test_environments}
        return record | {"rollout_timeout": self.rollout_timeout}

    @classmethod
    def from_dict(cls, record: Any) -> Sweep:
        """A sweep from a file, which may come from an untrusted source."""
        kinds = {"format": int, "task": str, "plan": dict[str, Any], "swept": list[str]}
        kinds |= {"rows": list[dict[str, Any]], "searched": bool, "test_environments": int}
        kinds |= {"rollout_timeout": float | None}
        files.check_record(record, kinds)
        if record["format"] != FORMAT:
            raise ValueError(f"it is of format {record['format']}, not {FORMAT}")
        swept, rows = record["swept"], record["rows"]
        fit = all(NAME.fullmatch(name) and name not in FIGURES for name in swept)
        if not fit or not swept or len({*swept}) < len(swept):
            raise ValueError("its swept fields have no names of fields, one each")
        if not 1 <= len(rows) <= MOST_CELLS or record["test_environments"] < 2:
            raise ValueError("it has no rows, too many, or no test environments")
        timeout = record["rollout_timeout"]
        if timeout is not None and not timeout > 0:
            raise ValueError("its rollout_timeout is no number of seconds")
        for number, row in enumerate(rows):
            _check_row(row, swept, f"rows[{number}]")
        plan = Plan.from_dict(record["plan"])
        facts = record["test_environments"], record["searched"], timeout
        return cls(record["task"], plan, tuple(swept), rows, *facts)


def shown(value: Any) -> str:
    """A value of a swept field, on one line."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(" ".join(printable(str(value)).split()), 60)


def _check_row(row: Mapping[str, Any], swept: Sequence[str], name: str) -> None:
    """Raise ValueError unless a row of a file has the swept fields and the figures, in range."""
    kinds: dict[str, Any] = dict.fromkeys(swept, int | float | bool | str | None)
    files.check_record(row, kinds | dict.fromkeys(FIGURES, float) | {"draws": int}, name)
    if row["draws"] < 1 or not all(0 <= row[figure] <= 1 for figure in FIGURES[1:]):
        raise ValueError(f"{name} has figures outside [0, 1], or no draws")
    if any(isinstance(row[field], str) and len(row[field]) > LONGEST for field in swept):
        raise ValueError(f"{name} has a value of more than {LONGEST:,} characters")


def load_sweep(folder: str | Path) -> Sweep:
    """The sweep in a folder, or in its sweep.json: it may come from an untrusted source."""
    path = Path(folder)
    path = path / "sweep.json" if path.is_dir() else path
    if not path.exists():
        raise FileNotFoundError(f"there is no finished sweep at {folder}")
    try:
        return Sweep.from_dict(files.read_json(path))
    except ValueError as error:
        raise ValueError(f"{path} is no sweep: {error}") from None


# ---- making one ---------------------------------------------------------------------------------


def sweep(
    task: Any,
    plan: Plan | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    folder: str | Path,
    draws: int = 20,
    test_environments: int = 10_000,
    execution: Execution | None = None,
) -> Sweep:
    """Bounds and true costs of every combination of the values of some fields, over many draws.

    Each draw has environments of its own. If policies are listed, each is rolled out once in every
    environment, for all combinations that have the same task. Interrupted, the same call goes on
    where it was.

    Args:
        task: an object, the name of an installed task, or MODULE:TASK
        plan: of the fields that are not swept
        over: values by the name of a field of the plan, of its search or of the task's options, or
            `task.NAME` for an attribute of a task of yours
        folder: for rollouts, finished draws, sweep.json and sweep.csv
        draws: of each combination
        test_environments: on which true costs are estimated
        execution: where and how; without retries

    >>> from tempfile import TemporaryDirectory
    >>> from pacbayes_control.tasks.demo import Stopping
    >>> with TemporaryDirectory() as folder:
    ...     found = sweep(Stopping(), None, {"environments": [50, 200]}, folder=folder, draws=3)
    >>> found.rows[0]["bound"] > found.rows[1]["bound"] > found.rows[1]["true_cost"]
    True
    """
    plan = plan or Plan()
    grid = Grid.of(task, plan, over or {})
    return carry_out(grid, Size(draws, test_environments, plan.seed), Path(folder), execution)


def carry_out(grid: Grid, size: Size, folder: Path, execution: Execution | None = None) -> Sweep:
    """As `sweep`, for a grid that is checked."""
    execution = execution or Execution()
    if execution.retries or execution.allow_code_change:
        raise ValueError("a sweep takes no retries and no change of the code: no row tells of them")
    campaigns = _campaigns(grid, size, folder, execution)
    for cell in grid.cells:
        campaign = campaigns[cell.world]
        if campaign.listed is not None:
            campaign.prior(cell.plan)  # only for its errors, before any rollout
    begun = description(grid, size, [*campaigns.values()], execution)
    with opened(folder, begun) as finished:
        try:
            for number, cell in enumerate(grid.cells):
                _complete(finished, number, campaigns[cell.world], cell)
        except RolloutError as error:
            told = str(error)
            if told.endswith(" to go on"):  # advice for a run
                told = told.rpartition(": ")[0]
            error.args = (f"{told}; {MEND}",)
            raise
        made = _sweep_of(grid, size, campaigns, finished, execution.rollout_timeout)
        files.write_atomic(folder / "sweep.json", files.json_bytes(made.to_dict()))
        files.write_atomic(folder / "sweep.csv", csv_bytes(made.columns, made.rows))
    return made


def _campaigns(
    grid: Grid, size: Size, folder: Path, execution: Execution
) -> dict[tuple[Any, ...], Campaign]:
    """A campaign for each task and list of policies, by what its rollouts depend on."""
    campaigns: dict[tuple[Any, ...], Campaign] = {}
    for cell in grid.cells:
        if cell.world not in campaigns:
            same = [other for other in grid.cells if other.world == cell.world]
            largest = max(other.plan.environments for other in same)
            store = folder / f"rollouts-{len(campaigns)}"
            campaign = Campaign(grid.task(cell), cell.plan, size, largest, store, execution)
            campaigns[cell.world] = campaign
    return campaigns


def _complete(finished: FinishedDraws, number: int, campaign: Campaign, cell: Cell) -> None:
    """Learn from the draws of a cell that are not finished."""
    draws, size = campaign.size.draws, len(finished.outcomes)
    for draw in range(draws):
        if (number, draw) in finished.outcomes:
            continue
        store = finished.store(number, draw)
        if size and campaign.listed is None:  # the task was tried before an earlier draw
            Path(f"{store}.begun").touch()
        finished.add(number, draw, campaign.learn(cell.plan, draw, store))
        size += 1


def _sweep_of(
    grid: Grid,
    size: Size,
    campaigns: Mapping[Any, Campaign],
    finished: FinishedDraws,
    timeout: float | None,
) -> Sweep:
    rows = []
    for number, cell in enumerate(grid.cells):
        outcomes = [finished.outcomes[number, draw] for draw in range(size.draws)]
        rows.append({**cell.values, **figures(outcomes)})
    each = [*campaigns.values()]
    searched = any(campaign.listed is None for campaign in each)
    task = each[0].task.name
    facts = size.test_environments, searched, timeout
    return Sweep(task, grid.plan, tuple(grid.over), rows, *facts)


def figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The FIGURES of a row.

    The draws share their test environments: the standard error of the mean of their estimates is at
    most the mean of their standard errors.
    """
    found: dict[str, Any] = {"draws": len(outcomes)}
    for name in ("bound", "empirical_cost", "true_cost"):
        values = np.array([getattr(one, name) for one in outcomes])
        found[name] = float(values.mean())
        found[f"{name}_sd"] = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    found["true_cost_se"] = float(np.mean([one.true_cost_se for one in outcomes]))
    found["below_truth"] = float(np.mean([one.bound < one.true_cost for one in outcomes]))
    return {name: found[name] for name in FIGURES}
