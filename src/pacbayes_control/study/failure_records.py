"""What was found of failures as files: a table of all environments, and a record for JSON."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

import numpy as np

from pacbayes_control.certify.text import printable
from pacbayes_control.study.bins import Pair
from pacbayes_control.study.failures import CONFIDENCE, MEANING, Failures


def to_csv(failures: Failures) -> bytes:
    """Every environment, the hardest first: its number, name, cost and parameters."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    own = ["environment", *(["name"] if failures.names else []), "cost"]
    drawn = [f"{name} (drawn)" if name in own else name for name in failures.described]
    writer.writerow([*own, *map(_inert, drawn)])
    for i in failures.hardest.tolist():
        name = [_inert(failures.names[i])] if failures.names else []
        row = [_inert(values[i].item()) for values in failures.described.values()]
        writer.writerow([i, *name, repr(float(failures.costs[i])), *row])
    return file.getvalue().encode()


def _inert(value: Any) -> Any:
    """A value for a table; a word that a spreadsheet would take for a formula is marked as text."""
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(("=", "+", "-", "@")) else printable(value)


def to_record(failures: Failures) -> dict[str, Any]:
    """The same as plain values for JSON, with bins, pairs and the ranking."""
    return {
        "certified": False,
        "meaning": MEANING,
        "confidence": CONFIDENCE,
        "too_little": failures.too_little or None,
        "notes": list(failures.notes),
        "ranking": asdict(failures.ranking) if failures.ranking else None,
        "bins": {name: [asdict(b) for b in bins] for name, bins in failures.bins.items()},
        "pairs": [_pair_record(pair) for pair in failures.pairs],
        "environments": [
            {
                "environment": i,
                "name": failures.names[i] if failures.names else None,
                "cost": float(failures.costs[i]),
                "parameters": {n: plain_value(v[i]) for n, v in failures.described.items()},
            }
            for i in failures.hardest.tolist()
        ],
    }


def _pair_record(pair: Pair) -> dict[str, Any]:
    return {
        "across": {"parameter": pair.across.name, "groups": list(pair.across.labels)},
        "down": {"parameter": pair.down.name, "groups": list(pair.down.labels)},
        "means": [[plain_value(cell) for cell in row] for row in pair.means],
        "low": [[plain_value(cell) for cell in row] for row in pair.low],
        "high": [[plain_value(cell) for cell in row] for row in pair.high],
        "environments": pair.environments.tolist(),
    }


def plain_value(value: Any) -> Any:
    """A number or a word for JSON, which has no NaN and no infinity: None for these."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not np.isfinite(plain) else plain
