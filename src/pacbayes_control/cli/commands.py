"""All commands: importing this module registers them."""

from pacbayes_control.cli import (  # each adds its commands to the application
    certifying,
    checking,
    deploying,
    learning,
    reporting,
    reproducing,
    signing,
    verifying,
)
from pacbayes_control.cli.app import app, main

__all__ = [
    "app",
    "certifying",
    "checking",
    "deploying",
    "learning",
    "main",
    "reporting",
    "reproducing",
    "signing",
    "verifying",
]
