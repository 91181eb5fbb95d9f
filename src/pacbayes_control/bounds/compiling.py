"""Numba kernels that are cached on disk, also if the package and the home are read-only."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config as numba_config

config: Any = numba_config  # its names are made when it is loaded


def compiled_once(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`njit` whose results are cached on disk: beside the source, or in the user's cache folder.

    Where Numba can write to neither, as for a service without a home, they are cached in a
    temporary folder that only this user can write to, or compiled in each process; a line on
    stderr says so.
    """
    if function is None:
        return partial(compiled_once, **options)
    kernel = njit(**options)(function)
    try:
        kernel.enable_caching()
    except RuntimeError:  # no place that Numba knows is writable
        folder, before = _fallback(), config.CACHE_DIR
        if folder is not None:
            try:
                config.CACHE_DIR = str(folder)
                kernel.enable_caching()
            finally:
                config.CACHE_DIR = before
    return kernel


@cache
def _fallback() -> Path | None:
    """The temporary folder, announced once; None where there is no safe one."""
    folder = private_folder()
    place = f"in {folder}" if folder else "nowhere: every process compiles them"
    print(f"pbc: no cache folder is writable: compiled kernels are kept {place}", file=sys.stderr)
    return folder


def private_folder() -> Path | None:
    """A temporary folder that no other user can write to; None where there cannot be one.

    Numba caches code that is loaded and run, so a folder that others could have written to is not
    used.
    """
    if not hasattr(os, "geteuid"):
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"pacbayes-control-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        around, own = folder.parent.stat(), folder.lstat()
    except OSError:
        return None
    shared = around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX
    trusted = around.st_uid in (0, os.geteuid()) and not shared  # no other user can rename it
    private = stat.S_ISDIR(own.st_mode) and own.st_uid == os.geteuid() and not own.st_mode & 0o077
    return folder if trusted and private else None
