"""The paper's robots, each an ordinary task in a folder of its own; loaded when first used.

Vehicle    the car with a depth sensor among cylinders
Swing      the drone, with flights and the identification of its model
Grasping   the arm that looks at an object and grasps it
Planar     the base class for other robots in the plane
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pacbayes_control.robots.grasping import Grasping
    from pacbayes_control.robots.planar import Planar
    from pacbayes_control.robots.swing import Swing
    from pacbayes_control.robots.vehicle import Vehicle

__all__ = ["Grasping", "Planar", "Swing", "Vehicle"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{name.lower()}"), name)
