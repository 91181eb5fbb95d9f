"""Libraries that only the extra `grasping` installs, loaded when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pacbayes_control.tasks.environments import in_a_line

INSTALL = 'pip install "pacbayes-control[grasping]"'


def needed(library: str, purpose: str) -> Any:
    """A library, or part of one, by its name; where it is missing the error says how to install it.

    >>> needed("json", "an example").dumps([1, 2])
    '[1, 2]'
    """
    try:
        return import_module(library)
    except ImportError:
        name = library.partition(".")[0]
        raise ImportError(f"{purpose} needs {name}, which is missing: {INSTALL}") from None
    except Exception as error:  # such as a setting of MuJoCo's that this machine cannot meet
        words = f"{purpose} needs {library}, which cannot be loaded: {in_a_line(error)}"
        raise ImportError(words) from error
