"""The replay within a page: its controls, its introduction, and the data that its script reads."""

from __future__ import annotations

from importlib.resources import files
from string import Template
from typing import Any

from pacbayes_control.certify.distributions import Categorical
from pacbayes_control.certify.run import Run
from pacbayes_control.certify.text import json_text, printable
from pacbayes_control.report.packing import Packed
from pacbayes_control.report.replay import Replay


def player(run: Run[Any], replay: Replay) -> str:
    """The controls of the replay, and the stage for it."""
    threshold = "1" if replay.binary else "½ or more"
    return Template(asset("replay.html")).substitute(
        intro=_introduction(run, replay),
        threshold=threshold,
        alone=" hidden" if len(replay.policies) == 1 else "",
        cost="Cost" if replay.drawn else "Cost recorded",
    )


def _introduction(run: Run[Any], replay: Replay) -> str:
    """Which rollouts there are, and how they differ from what was recorded."""
    rows, columns = replay.costs.shape
    if replay.drawn:
        words = (
            f"Policies of a posterior are drawn, not listed. These {columns} were drawn for this "
            "page alone: they illustrate the promise, and the bound does not rest on them."
        )
    elif run.certificate.policies in (None, columns) and rows == run.costs.environments:
        words = "Every rollout that the certificate counts, rolled out again as it was recorded."
    else:
        words = (
            f"Of {run.costs.environments:,} × {run.costs.policies:,} rollouts, this page has room "
            f"for {replay.pairs:,}, rolled out again as they were recorded."
        )
    if columns < run.costs.policies and not replay.drawn:
        words += f" Kept are the {columns:,} likeliest policies."
    if rows < run.costs.environments:
        words += (
            f" Of the {run.costs.environments:,} environments, the {rows:,} with the highest cost "
            "are here: what you see is worse than the average."
        )
    if 0 < replay.disagreements <= 0.01 * replay.pairs:
        words += (
            f" In {replay.disagreements:,} of {replay.pairs:,} the path ends otherwise than the "
            "recorded cost says, since it is computed more precisely; the text then says so."
        )
    return words + " Grid lines are 1 m apart, and a dashed line shows the way ahead."


def data(run: Run[Any], replay: Replay, packed: Packed) -> str:
    """Everything that the script reads: values as JSON, arrays as deflated text."""
    values = packed.values | {
        "names": [printable(name) for name in _names(run, replay)],
        "sites": [printable(run.costs.sites[i]) for i in replay.environments if run.costs.sites],
        "shares": _shares(run, replay),
        "recorded": not replay.drawn,
        "contactIsFailure": replay.disagreements <= 0.01 * replay.pairs and replay.binary,
    }
    # A name may hold </script>: in JSON, < can be written so that no HTML reader sees it.
    text = json_text(values, indent=None).replace("<", "\\u003c")
    scripts = [f'<script type="application/json" id="replay-values">{text}</script>']
    scripts += [
        f'<script type="application/octet-stream;base64" id="pack-{name}" '
        f'data-kind="{kind}">{array}</script>'
        for name, (kind, array) in packed.arrays.items()
    ]
    return "\n".join(scripts)


def _names(run: Run[Any], replay: Replay) -> list[str]:
    if replay.drawn:
        return [f"draw {j + 1} from the posterior" for j in replay.policies]
    if not isinstance(run.posterior, Categorical):
        return ["the policy that was drawn"]
    return [run.costs.name(int(j)) for j in replay.policies]


def _shares(run: Run[Any], replay: Replay) -> list[float]:
    if not isinstance(run.posterior, Categorical):
        return [1 / len(replay.policies)] * len(replay.policies)
    return [round(float(run.posterior.probabilities[j]), 6) for j in replay.policies]


def asset(name: str) -> str:
    """A file that pages are made of."""
    return files("pacbayes_control.report").joinpath("assets", name).read_text(encoding="utf-8")
