"""The paper's Swing drone in a netted area (Section 8)."""

from pacbayes_control.tasks.swing.environments import Net
from pacbayes_control.tasks.swing.gains import DrawnGains, WorstGains
from pacbayes_control.tasks.swing.simulator import Swing

__all__ = ["DrawnGains", "Net", "Swing", "WorstGains"]
