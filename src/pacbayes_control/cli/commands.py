"""All commands, put together."""

from pacbayes_control.cli import (  # each joins the application
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
