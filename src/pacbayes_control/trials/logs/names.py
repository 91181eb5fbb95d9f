"""Names of policies, tasks and environments: unique, printable, and each in one spelling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pacbayes_control.certify.tables.costs import is_summary
from pacbayes_control.certify.text import as_number, quoted
from pacbayes_control.trials.logs.rows import Log

LONGEST = 300  # characters of a name
STEPS = "checkpoints"  # the folder with the checkpoints of a training run


def check_names(logs: Sequence[Log]) -> None:
    """An error for a name that cannot be shown, is that of a summary, or has two spellings."""
    for role, many in (("policy", "policies"), ("task", "tasks"), ("environment", "environments")):
        seen: dict[str, tuple[str, str]] = {}  # by key: the first spelling, and where it is
        known: set[str] = set()
        for log in logs:
            for row in log.rows:
                name = getattr(row, role)
                if name is None or name in known:
                    continue
                known.add(name)
                where = log.where(row)
                _check_name(name, role, where)
                first, place = seen.setdefault(spelling_key(name), (name, where))
                if first != name:
                    raise ValueError(
                        f"{where}: the {role} {quoted(name)} is {quoted(first)} in {place}: write "
                        f"one name in one way, or rename {many} that differ"
                    )


def _check_name(name: str, role: str, where: str) -> None:
    if not name.strip():
        raise ValueError(f"{where}: the {role} has an empty name")
    if not name.isprintable():
        raise ValueError(f"{where}: the {role} {quoted(name)} has characters that cannot be shown")
    if len(name) > LONGEST:
        raise ValueError(
            f"{where}: the {role} {quoted(name)} has {len(name)} characters: at most {LONGEST}"
        )
    if is_summary(name):
        raise ValueError(
            f"{where}: the {role} {quoted(name)} is a summary of other rows: remove it, or rename "
            "it if it is not"
        )


def spelling_key(name: str) -> str:
    """The same for spellings of one name: without case, spaces and punctuation, but for numbers.

    >>> spelling_key("ACT large") == spelling_key("act_large"), spelling_key("1") == "1.0"
    (True, False)
    >>> spelling_key("pi 0.5") == spelling_key("pi-05"), spelling_key("1.0") == spelling_key("01")
    (False, True)
    """
    number = as_number(name)
    if number is not None:
        return f"number {number:.17g}"
    text = re.sub(r"(?<=\de)-(?=\d)", "−", name.casefold())  # the exponent in 1e-3
    text = re.sub(r"(?<![0-9a-z])-(?=\.?\d)", "−", text)  # the sign in (0.1, -0.2)
    text = re.sub(r"(?<=\d)[\s_\-.,:;/'\"()\[\]]+(?=\d)", "·", text)  # as in 0.5, which is not 05
    return re.sub(r"[\s_\-.,:;/'\"()\[\]]+", "", text)


def names_from_folders(paths: Sequence[Path]) -> list[str]:
    """A name for each file, from the folders that it lies in.

    It is the name of the folder, RUN/STEPS below a folder `checkpoints`, or the parts of the path
    that differ, if folders have the same name.

    >>> names_from_folders([Path("/eval/act/eval_info.json"), Path("/eval/pi0/eval_info.json")])
    ['act', 'pi0']
    >>> names_from_folders([Path("/act/eval/eval_info.json"), Path("/pi0/eval/eval_info.json")])
    ['act', 'pi0']
    """
    folders = [path.absolute().parent.parts for path in paths]
    short = [_checkpoint(parts) or parts[-1] for parts in folders]
    if len(set(short)) == len(short):
        return [_cleaned(name) for name in short]
    deepest = max(map(len, folders))
    for depth in range(1, deepest + 1):
        ends = [parts[-depth:] for parts in folders]
        if len(set(ends)) == len(ends):
            break
    else:
        raise ValueError(f"{paths[0]} is given twice")
    padded = [("",) * (depth - len(end)) + end for end in ends]
    differing = [i for i in range(depth) if len({end[i] for end in padded}) > 1]
    return [_cleaned("/".join(end[i] for i in differing if end[i])) for end in padded]


def _checkpoint(parts: Sequence[str]) -> str | None:
    """RUN/STEPS of a path RUN/checkpoints/STEPS/…; None for other paths."""
    for at in range(len(parts) - 2, 0, -1):
        if parts[at] == STEPS:
            return f"{parts[at - 1]}/{parts[at + 1]}"
    return None


def _cleaned(name: str) -> str:
    """A folder's name; undecodable bytes in it are shown as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
