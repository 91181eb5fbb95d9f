"""Results of vla-eval, and `evaluations.npz` of Stable-Baselines3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.certify.files import has_type
from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.columns import kind_of
from pacbayes_control.trials.logs.jsons import parse_log
from pacbayes_control.trials.logs.names import names_from_folders
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.outcomes import Outcomes, read_outcomes
from pacbayes_control.trials.logs.rows import (
    Log,
    Row,
    check_no_columns,
    reason,
    shown_name,
    sources_of,
)
from pacbayes_control.trials.logs.sheets import as_text

# ---- vla-eval -----------------------------------------------------------------------------------


def read_vla_eval(paths: Sequence[Path], options: LogOptions) -> list[Log]:
    """Read results of vla-eval, one file for each benchmark.

    A policy is a folder of results. If a folder has several results of one benchmark, each of its
    files is a policy.
    """
    records = [parse_log(path) for path in paths]
    benchmarks = [as_text(record.get("benchmark")) for record in records]
    homes = Counter((path.parent, name) for path, name in zip(paths, benchmarks, strict=True))
    if max(homes.values()) > 1:
        stems = [path.stem.removesuffix("_aggregate") for path in paths]
        policies = names_from_folders(
            [p.parent / s / "-" for p, s in zip(paths, stems, strict=True)]
        )
    else:
        folders = list(dict.fromkeys(path.parent for path in paths))
        named = dict(zip(folders, names_from_folders([f / "-" for f in folders]), strict=True))
        policies = [named[path.parent] for path in paths]
    several = len(set(benchmarks)) > 1
    return [
        _read_benchmark(path, record, policy, options, f"{benchmark}/" if several else "")
        for path, record, policy, benchmark in zip(
            paths, records, policies, benchmarks, strict=True
        )
    ]


def _read_benchmark(
    path: Path, record: dict[str, Any], policy: str, options: LogOptions, prefix: str
) -> Log:
    file = shown_name(path)
    check_no_columns(file, options, "policy", "environment", "success")
    entries = _episodes(file, record, prefix)
    if not entries:
        raise ValueError(f"the policy {quoted(policy)} has no trials: {file} lists none")
    metric, finished = _metric(file, record, entries, options), []
    finished = [at for at, (_, episode) in enumerate(entries) if not episode.get("failure_reason")]
    cells = [as_text(entries[at][1]["metrics"].get(metric)) for at in finished]
    outcomes = Outcomes(file, metric, kind_of(metric) or "", cells, finished, "episode")
    values, scoring = read_outcomes(outcomes, options)
    costs = dict(zip(finished, values, strict=True))  # an episode that broke off is a failure
    seed = record.get("seed")
    rows = []
    for at, (task, episode) in enumerate(entries):
        number = as_text(episode["episode_id"])
        environment = number if seed is None else f"episode {number}, seed {as_text(seed)}"
        cost, broken = costs.get(at, 1.0), at not in costs
        rows.append(Row(policy, environment, task, cost, at, cells=(str(at),), broken=broken))
    told_by = "episode numbers" if seed is None else "episodes of a seed"
    return Log(
        file,
        rows,
        scoring,
        "episode",
        told_by,
        seed is None,
        "episode",
        sources=sources_of([path]),
    )


def _episodes(file: str, record: dict[str, Any], prefix: str) -> list[tuple[str, dict[str, Any]]]:
    """Each episode with its task."""
    entries, seen = [], set()
    for task in record["tasks"]:
        if not isinstance(task, dict) or not isinstance(task.get("task"), str):
            raise ValueError(f"{file}: an entry of tasks has no name: is the file whole?")
        episodes, name = task.get("episodes") or [], quoted(task["task"])
        if not has_type(episodes, list[dict[str, Any]]):
            raise ValueError(f"{file}: the task {name} has no list of episodes")
        if not episodes or task.get("num_episodes", len(episodes)) != len(episodes):
            stated = as_text(task.get("num_episodes")) or "some"
            raise ValueError(f"{file}: the task {name} has {len(episodes)} episodes, not {stated}")
        for episode in episodes:
            key = (task["task"], as_text(episode.get("episode_id")))
            if not key[1] or not isinstance(episode.get("metrics", {}), dict):
                raise ValueError(
                    f"{file}: an episode of the task {name} has no episode_id or no metrics"
                )
            if key in seen:
                raise ValueError(
                    f"{file}: episode {quoted(key[1])} of the task {name} is listed twice"
                )
            seen.add(key)
            entries.append((prefix + task["task"], {"metrics": {}, **episode}))
    return entries


def _metric(file: str, record: dict[str, Any], entries: Sequence[Any], options: LogOptions) -> str:
    known = {name: None for _, episode in entries for name in episode["metrics"]}
    keys = record.get("metric_keys")
    known |= dict.fromkeys(keys) if isinstance(keys, dict) else {}
    metric = options.outcome or "success"
    if metric not in known:
        listed = ", ".join(quoted(name) for name in known) or "none"
        raise ValueError(
            f"{file} has no metric {quoted(metric)}: say --outcome METRIC, of {listed}"
        )
    return metric


# ---- Stable-Baselines3 --------------------------------------------------------------------------


def read_callbacks(paths: Sequence[Path], options: LogOptions) -> list[Log]:
    """Read `evaluations.npz` files of Stable-Baselines3: each evaluation is a policy."""
    prefixes = [f"{name}, " for name in names_from_folders(paths)] if len(paths) > 1 else [""]
    return [_read_callback(p, name, options) for p, name in zip(paths, prefixes, strict=True)]


def read_arrays(path: Path) -> dict[str, NDArray]:
    """The arrays of an `.npz` file; pickled ones are refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        message = f"{shown_name(path)} cannot be read as NumPy arrays ({reason(error)})"
        raise ValueError(message) from None


def _read_callback(path: Path, prefix: str, options: LogOptions) -> Log:
    file, arrays = shown_name(path), read_arrays(path)
    check_no_columns(file, options, "policy", "environment", "success")
    metric = options.outcome or (
        "successes" if arrays.get("successes", np.empty(0)).size else "results"
    )
    if metric not in ("successes", "results") or metric not in arrays:
        raise ValueError(f"{file} has no array {quoted(metric)}: --outcome is successes or results")
    values, steps = arrays[metric], arrays["timesteps"]
    if values.ndim != 2 or steps.shape != values.shape[:1] or values.dtype.kind not in "biuf":
        raise ValueError(
            f"{file}: {metric} of shape {values.shape} must have one row of numbers for each of "
            f"{steps.size} timesteps"
        )
    if not values.size:
        raise ValueError(f"{file} has no evaluations")
    if len(np.unique(steps)) < len(steps):
        raise ValueError(f"{file}: a timestep is evaluated twice: keep one of the evaluations")
    names = [f"{prefix}{as_text(step)} steps" for step in steps.tolist()]
    episodes, flat = values.shape[1], [as_text(value) for value in values.ravel().tolist()]
    lines = [i // episodes for i in range(values.size)]
    kind = "success" if metric == "successes" else "reward"
    outcomes = Outcomes(file, metric, kind, flat, lines, "evaluation")
    costs, scoring = read_outcomes(outcomes, options)
    rows = [
        Row(
            names[i // episodes],
            str(i % episodes + 1) if options.paired else None,
            None,
            cost,
            i // episodes,
            cells=(str(i),),
        )
        for i, cost in enumerate(costs)
    ]
    told_by, sources = "episode numbers" if options.paired else "", sources_of([path])
    unit = "episode"
    return Log(file, rows, scoring, unit, told_by, True, "evaluation", sources=sources)
