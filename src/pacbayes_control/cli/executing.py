"""Where a command's rollouts run, and the progress that it shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pacbayes_control.report.console import progress_bars, warn
from pacbayes_control.tasks import Task
from pacbayes_control.tasks.options import option

if TYPE_CHECKING:
    from pacbayes_control.rollouts import Execution


@dataclass(frozen=True)
class ExecutionOptions:
    """The options of an execution."""

    workers: int | None = option(
        None, "Processes to roll out in; default all cores.", least=1, most=4096
    )
    scheduler: str | None = option(
        None, "Address of a Dask scheduler, to roll out on its cluster.", rare=True
    )
    retries: int = option(
        0,
        "How often a rollout that failed may be run again and still count, where machines fail and "
        "not the task: the certificate tells how many did.",
        rare=True,
        least=0,
    )
    allow_code_change: bool = option(
        False,
        "Go on although the task's code has changed: finished rollouts are kept, and the "
        "certificate tells it.",
        rare=True,
    )


@contextmanager
def executing(
    task: Task, how: ExecutionOptions | int | None = None, store: Path | None = None
) -> Iterator[Execution]:
    """An execution on a cluster, or with a number of workers, by default one for each core."""
    from loky import cpu_count

    from pacbayes_control.rollouts import Execution, cluster, pool

    options = how if isinstance(how, ExecutionOptions) else ExecutionOptions(workers=how)
    if options.workers and options.scheduler:
        raise ValueError("give --workers or a scheduler, not both")
    if options.scheduler:
        workers = cluster(options.scheduler)
    elif options.workers is None and task.uses_all_cores:
        workers = nullcontext()
    else:
        workers = pool(task, options.workers or cpu_count())
    with workers as executor, progress_bars() as tell:
        yield Execution(
            executor,
            store,
            progress=tell,
            warning=warn,
            retries=options.retries,
            allow_code_change=options.allow_code_change,
        )


def remove_store(store: Path) -> None:
    """Delete the checkpoint files of a run that is complete."""
    for path in store.parent.iterdir():
        if path.name.startswith(f"{store.name}."):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
