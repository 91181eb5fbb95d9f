"""The command `pbc`.

Each module holds a few commands. What they run is imported inside them: `pbc --help` should not
wait for a simulator.
"""

from pacbayes_control.cli import (
    certifying,
    checking,
    deploying,
    experiments,
    flying,
    identifying,
    learning,
    pretraining,
    reporting,
    signing,
    verifying,
)
from pacbayes_control.cli.app import app, main

__all__ = [
    "app",
    "certifying",
    "checking",
    "deploying",
    "experiments",
    "flying",
    "identifying",
    "learning",
    "main",
    "pretraining",
    "reporting",
    "signing",
    "verifying",
]
