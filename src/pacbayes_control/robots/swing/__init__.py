"""The paper's Swing drone in a netted area (Section 8).

simulator, gains   the task
experiment         the paper's experiment
pictures           of flights, and of a fit
commands           `pbc swing`
flight             a certified policy flown, simulated or real
identification     the drone's model from logs of flights

Its names are loaded when first used: the processes that keep a drone in the air start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pacbayes_control.robots.swing.gains import DrawnGains, WorstGains
    from pacbayes_control.robots.swing.simulator import Net, Swing

__all__ = ["DrawnGains", "Net", "Swing", "WorstGains"]

_HOMES = {"DrawnGains": "gains", "Net": "simulator", "Swing": "simulator", "WorstGains": "gains"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
