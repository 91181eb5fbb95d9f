"""JSON files of evaluation harnesses: read with limits, and told apart by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pacbayes_control.certify.files import LARGEST_JSON, existing_file, parse_json
from pacbayes_control.trials.logs.rows import shown_name


def parse_log(path: Path) -> dict[str, Any]:
    """The object in a JSON file; NaN, which Python writes, is read as None."""
    existing_file(path)
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"{shown_name(path)} is larger than {LARGEST_JSON >> 20} MiB: split it")
    record = parse_json(path.read_bytes(), shown_name(path), nan_as_none=True)
    if not isinstance(record, dict):
        raise ValueError(
            f"{shown_name(path)} is no log of an evaluation: it holds no JSON object; for a table, "
            "write one object a line, as .jsonl"
        )
    return record


def kind_of_json(record: dict[str, Any]) -> Literal["lerobot", "vla-eval"] | None:
    """The program that wrote a log; None if it is not known.

    >>> kind_of_json({"per_episode": []}), kind_of_json({"a": 1})
    ('lerobot', None)
    """
    if "per_episode" in record or "per_task" in record:
        return "lerobot"
    if isinstance(record.get("tasks"), list) and "benchmark" in record:
        return "vla-eval"
    return None
