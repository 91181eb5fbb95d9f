"""Evaluation logs for tests, as the programs that write them do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as parquet

PLAIN = "policy,environment,success\nact,a,1\nact,b,0\npi0,a,1\npi0,b,1\n"


def write(path: Path, content: str | bytes | dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def evaluation(successes: Sequence[bool | None], seeds: Sequence[int] | None = None) -> dict:
    """An `eval_info.json` of one task."""
    episodes = [
        {
            "episode_ix": i,
            "sum_reward": 10.0 * bool(s),
            "max_reward": float(bool(s)),
            "success": s,
            "seed": seeds[i] if seeds else None,
        }
        for i, s in enumerate(successes)
    ]
    rate = 100 * np.mean([bool(s) for s in successes]) if successes else float("nan")
    return {
        "per_episode": episodes,
        "aggregated": {"avg_sum_reward": 1.0, "pc_success": float(rate), "eval_s": 3.0},
        "video_paths": ["videos/eval_episode_0.mp4"],
    }


def evaluation_of_tasks(tasks: dict[str, Sequence[bool]]) -> dict:
    """An `eval_info.json` of several tasks."""
    entries = [
        {
            "task_group": "libero",
            "task_id": int(name),
            "metrics": {
                "sum_rewards": [float(s) for s in successes],
                "max_rewards": [float(s) for s in successes],
                "successes": list(successes),
                "video_paths": [],
            },
        }
        for name, successes in tasks.items()
    ]
    every = [s for successes in tasks.values() for s in successes]
    overall = {"pc_success": 100 * sum(every) / len(every), "n_episodes": len(every)}
    return {"per_task": entries, "per_group": {}, "overall": overall}


def vla_result(
    tasks: dict[str, Sequence[dict[str, Any]]], benchmark: str = "libero", seed: int | None = 7
) -> dict:
    """A result of vla-eval."""
    entries = [
        {"task": task, "episodes": [{"episode_id": i, **e} for i, e in enumerate(episodes)]}
        for task, episodes in tasks.items()
    ]
    record = {"benchmark": benchmark, "config": {}, "metric_keys": {"success": "mean"}}
    return {**record, **({} if seed is None else {"seed": seed}), "tasks": entries}


def done(success: bool, **more: Any) -> dict[str, Any]:
    return {"metrics": {"success": success}, "steps": 10, **more}


def write_parquet(path: Path, columns: dict[str, list]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path)
    return path


def write_workbook(path: Path, sheets: dict[str, list[list]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.worksheets[0])
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def write_dataset(folder: Path, episodes: Sequence[Sequence[float | bool]], column: str) -> Path:
    """A LeRobotDataset with these values of one column, frame by frame."""
    frames = [(number, value) for number, values in enumerate(episodes) for value in values]
    columns = {"episode_index": [n for n, _ in frames], column: [v for _, v in frames]}
    columns["task_index"] = [0] * len(frames)
    write_parquet(folder / "data" / "chunk-000" / "file-000.parquet", columns)
    write_parquet(folder / "meta" / "tasks.parquet", {"task_index": [0], "task": ["stack"]})
    write(folder / "meta" / "info.json", {"total_episodes": len(episodes)})
    return folder
