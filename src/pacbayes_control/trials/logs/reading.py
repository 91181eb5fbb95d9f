"""Evaluation logs of other programs, read as trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pacbayes_control.certify.trials import Trials
from pacbayes_control.tasks.options import options_of
from pacbayes_control.trials.logs.assembling import assemble
from pacbayes_control.trials.logs.finding import find_logs
from pacbayes_control.trials.logs.harnesses import read_callbacks, read_vla_eval
from pacbayes_control.trials.logs.lerobot import read_datasets, read_evaluations
from pacbayes_control.trials.logs.names import names_from_folders
from pacbayes_control.trials.logs.options import LogOptions
from pacbayes_control.trials.logs.rows import Log
from pacbayes_control.trials.logs.tables import read_array_log, read_table_log

DEFAULTS = LogOptions()


def read_trials(
    logs: Sequence[str | Path],
    options: LogOptions = DEFAULTS,
    *,
    growing: bool = False,
    pairs: bool = True,
) -> Trials:
    r"""Read the trials in evaluation logs; whatever is not clear in them is an error.

    Tables (CSV, TSV, Parquet, XLSX, JSON lines) have one row a trial, with columns for the policy,
    the environment and the outcome, or one row an environment and one column a policy. Logs of
    LeRobot, vla-eval and Stable-Baselines3 are read as these programs write them.

    Args:
        logs: files, folders that are searched for logs, and patterns such as `runs/**/*.csv`.
        options: what the logs do not say themselves.
        growing: whether a table is being written: an incomplete last line is not read yet, and
            fewer than two trials are enough.
        pairs: whether it matters which trials were in the same environment; if not, a log that
            only numbers its trials is not asked about.

    >>> folder = Path(getfixture("tmp_path"))
    >>> lines = "policy,seed,success\nact,1,1\nact,2,0\npi0,1,1\npi0,2,1\n"
    >>> _ = (folder / "trials.csv").write_text(lines)
    >>> trials = read_trials([folder / "trials.csv"])
    >>> trials.policies, trials.table.mean(axis=0).tolist()
    (('act', 'pi0'), [0.5, 0.0])
    >>> print(trials.understood)  # doctest: +NORMALIZE_WHITESPACE
    trials.csv: 2 policies × 2 environments (column “seed”), 4 trials; “success” = 1 is a success;
    nothing is missing
    """
    for name, known in options_of(LogOptions).items():
        known.check(getattr(options, name))
    found = find_logs(logs)
    paths = [*found.tables, *found.arrays]
    names = Counter(path.name for path in paths)
    policies = names_from_folders([path.with_suffix("") / path.name for path in found.tables])
    of = dict(zip(found.tables, policies, strict=True))  # where no column names a policy
    read: list[Log] = []
    for path in paths:
        try:
            if path in found.arrays:
                read.append(read_array_log(path, options))
            else:
                read.append(read_table_log(path, options, growing, of[path]))
        except ValueError as error:
            if names[path.name] > 1:  # files of one name in several folders
                raise ValueError(f"in {path.parent}: {error}") from None
            raise
    read += read_evaluations(found.lerobot, options) if found.lerobot else []
    read += read_datasets(found.datasets, options) if found.datasets else []
    read += read_vla_eval(found.vla_eval, options) if found.vla_eval else []
    read += read_callbacks(found.callbacks, options) if found.callbacks else []
    read[0] = replace(read[0], notes=(*read[0].notes, *found.notes))
    return assemble(read, options, growing=growing, pairs=pairs)
