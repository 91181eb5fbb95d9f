"""Evaluations of LeRobot: `eval_info.json`, and trials that were recorded as a LeRobotDataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pacbayes_control.certify.files import has_type
from pacbayes_control.certify.text import quoted
from pacbayes_control.trials.logs.columns import kind_of
from pacbayes_control.trials.logs.jsons import parse_log
from pacbayes_control.trials.logs.names import names_from_folders
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.outcomes import Outcomes, read_outcomes
from pacbayes_control.trials.logs.rows import Log, Row, check_no_columns, shown_name, sources_of
from pacbayes_control.trials.logs.sheets import as_text, read_parquet_columns

METRICS = {"success": "successes", "sum_reward": "sum_rewards", "max_reward": "max_rewards"}
ROUNDED = 0.051  # per cent: what a success rate may differ by because it is rounded


def read_evaluations(paths: Sequence[Path], options: LogOptions) -> list[Log]:
    """Read `eval_info.json` files, one of each checkpoint, which is the policy."""
    return [
        _read_evaluation(path, policy, options)
        for path, policy in zip(paths, names_from_folders(paths), strict=True)
    ]


def _read_evaluation(path: Path, policy: str, options: LogOptions) -> Log:
    file = f"{shown_name(path)} of {quoted(policy)}"
    check_no_columns(file, options, "policy", "environment", "success")
    metric = options.outcome or "success"
    if metric not in METRICS:
        raise ValueError(f"{file}: --outcome {quoted(metric)} must be {', '.join(METRICS)}")
    if not path.stat().st_size:
        raise ValueError(f"the policy {quoted(policy)} has no trials: {shown_name(path)} is empty")
    record = parse_log(path)
    several = isinstance(record.get("per_task"), list)
    entries = _per_task(file, record) if several else _per_episode(file, record)
    if not entries:
        raise ValueError(
            f"the policy {quoted(policy)} has no trials: {shown_name(path)} lists none"
        )
    summary = record.get("overall" if several else "aggregated")
    _check_rate(file, summary, [entry["success"] for entry in entries])
    cells, lines = [as_text(entry[metric]) for entry in entries], range(len(entries))
    outcomes = Outcomes(file, metric, kind_of(metric) or "", cells, lines, "episode")
    costs, scoring = read_outcomes(outcomes, options)
    seeds = [entry["seed"] for entry in entries]
    numbered = all(seed is None for seed in seeds)
    if not numbered and None in seeds:
        raise ValueError(f"{file}, episode {seeds.index(None)}: the seed is missing")
    rows = [
        Row(
            policy,
            as_text(entry["number"] if numbered else entry["seed"]),
            entry["task"],
            cost,
            line,
            entry["link"],
            (str(line),),
        )
        for line, (entry, cost) in enumerate(zip(entries, costs, strict=True))
    ]
    unit, told_by = ("episode", "episode numbers") if numbered else ("seed", "seeds")
    sources = sources_of([path])
    return Log(file, rows, scoring, unit, told_by, numbered, "episode", sources=sources)


def _per_episode(file: str, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    episodes, videos = record.get("per_episode"), _videos(record)
    if not has_type(episodes, list[dict[str, Any]]):
        raise ValueError(f"{file} has no list per_episode or per_task: is it whole?")
    entries = []
    for at, episode in enumerate(episodes or []):
        number, seed = episode.get("episode_ix", at), episode.get("seed")
        if type(number) is not int or not (seed is None or type(seed) is int):
            raise ValueError(f"{file}, episode {at}: episode_ix and seed must be whole numbers")
        link = videos[at] if at < len(videos) else ""
        values = {metric: _scalar(file, at, episode.get(metric)) for metric in METRICS}
        entries.append({**values, "number": number, "seed": seed, "task": None, "link": link})
    numbers = [entry["number"] for entry in entries]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{file}: an episode_ix is repeated: every episode must have its own")
    return entries


def _per_task(file: str, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    seen = set()
    for task in record["per_task"]:
        if not isinstance(task, dict) or not isinstance(task.get("metrics"), dict):
            raise ValueError(f"{file}: an entry of per_task has no metrics: is it whole?")
        name = f"{as_text(task.get('task_group'))}/{as_text(task.get('task_id'))}"
        if name in seen:
            raise ValueError(f"{file}: the task {quoted(name)} is listed twice")
        seen.add(name)
        metrics, videos = task["metrics"], _videos(task["metrics"])
        lists = {metric: metrics.get(many) for metric, many in METRICS.items()}
        lengths = {len(each) for each in lists.values() if isinstance(each, list)}
        if lengths in (set(), {0}):
            raise ValueError(f"{file}: the task {quoted(name)} has no episodes")
        if len(lengths) > 1:
            raise ValueError(f"{file}: the lists of the task {quoted(name)} differ in their length")
        for at in range(lengths.pop()):
            values = {
                metric: _scalar(file, at, each[at]) if isinstance(each, list) else None
                for metric, each in lists.items()
            }
            link = videos[at] if at < len(videos) else ""
            entries.append({**values, "number": at, "seed": None, "task": name, "link": link})
    return entries


def _scalar(file: str, at: int, value: Any) -> Any:
    if isinstance(value, list | dict):
        raise ValueError(f"{file}, episode {at}: a single value was expected, not a list")
    return value


def _videos(record: Mapping[str, Any]) -> list[str]:
    videos = record.get("video_paths")
    if not isinstance(videos, list):
        return []
    return [v if isinstance(v, str) and v.isprintable() else "" for v in videos]


def _check_rate(file: str, summary: Any, successes: Sequence[Any]) -> None:
    """An error if the log's own success rate is not that of its episodes."""
    summary = summary if isinstance(summary, dict) else {}
    number, stated = summary.get("n_episodes"), summary.get("pc_success")
    if type(number) is int and number != len(successes):
        raise ValueError(
            f"{file}: it states {number} episodes, and has {len(successes)}: it was cut off or "
            "edited"
        )
    known = all(isinstance(s, int | float) and s in (0, 1) for s in successes)
    if not isinstance(stated, int | float) or not known:
        return
    found = 100 * sum(successes) / len(successes)
    if abs(stated - found) > ROUNDED:
        raise ValueError(
            f"{file}: it states {stated:g} % successes, and its {len(successes)} episodes have "
            f"{found:.4g} %: it was cut off or edited"
        )


# ---- LeRobotDataset -----------------------------------------------------------------------------


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a LeRobotDataset."""
    return (folder / "meta" / "info.json").is_file() and (folder / "data").is_dir()


def read_datasets(folders: Sequence[Path], options: LogOptions) -> list[Log]:
    """Read datasets, one of each policy: a trial is an episode, and the folder is the policy."""
    names = names_from_folders([folder / "meta" for folder in folders])
    return [_read_dataset(f, name, options) for f, name in zip(folders, names, strict=True)]


def _read_dataset(folder: Path, policy: str, options: LogOptions) -> Log:
    file = f"the dataset {quoted(policy)}"
    check_no_columns(file, options, "policy", "environment", "success")
    info, parts = parse_log(folder / "meta" / "info.json"), sorted(folder.glob("data/**/*.parquet"))
    wanted = ("episode_index", "next.success", "next.reward", "task_index")
    frames: dict[str, list[Any]] = {name: [] for name in wanted}
    for part in parts:
        columns = read_parquet_columns(part, wanted)
        length = len(next(iter(columns.values()), []))
        for name in wanted:
            frames[name] += columns.get(name) or [None] * length
    if not frames["episode_index"]:
        raise ValueError(f"the policy {quoted(policy)} has no trials: {folder.name} has no frames")
    if not all(type(number) is int for number in frames["episode_index"]):
        raise ValueError(f"{file}: every frame needs a whole number in episode_index")
    metric = options.outcome or ("next.success" if any_known(frames["next.success"]) else "")
    metric = metric or ("next.reward" if any_known(frames["next.reward"]) else "")
    if metric not in ("next.success", "next.reward") or not any_known(frames[metric]):
        raise ValueError(f"{file} has no column next.success or next.reward with outcomes")
    values: dict[int, Any] = {}
    for number, value in zip(frames["episode_index"], frames[metric], strict=True):
        before = values.get(number)
        known = [each for each in (before, value) if each is not None]
        values[number] = (any(known) if metric == "next.success" else sum(known)) if known else None
    _check_total(file, info.get("total_episodes"), len(values))
    names = _task_names(folder)
    index = dict(zip(frames["episode_index"], frames["task_index"], strict=True))
    outcomes = Outcomes(
        file, metric, kind_of(metric) or "", [*map(as_text, values.values())], [*values], "episode"
    )
    costs, scoring = read_outcomes(outcomes, options)
    rows = []
    for number, cost in zip(values, costs, strict=True):
        task = None if index[number] is None else names.get(index[number], f"task {index[number]}")
        rows.append(Row(policy, str(number), task, cost, number, cells=(str(number),)))
    sources = sources_of([folder / "meta" / "info.json", *parts])
    told_by = "episode numbers"
    return Log(file, rows, scoring, "episode", told_by, True, "episode", sources=sources)


def any_known(values: Sequence[Any]) -> bool:
    """Whether any value is not None."""
    return any(value is not None for value in values)


def _check_total(file: str, stated: Any, found: int) -> None:
    if type(stated) is int and stated != found:
        raise ValueError(
            f"{file} states {stated} episodes, and its data have {found}: is it whole?"
        )


def _task_names(folder: Path) -> dict[int, str]:
    """The names of the tasks by their numbers, as far as the dataset has them."""
    path = folder / "meta" / "tasks.parquet"
    if not path.is_file():
        return {}
    columns = read_parquet_columns(path)
    numbers = columns.pop("task_index", [])
    names = columns.get("task") or next(iter(columns.values()), [])
    return {n: str(name) for n, name in zip(numbers, names, strict=False) if type(n) is int}
