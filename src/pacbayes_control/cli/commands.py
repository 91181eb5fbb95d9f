"""All commands: importing this module registers them."""

from pacbayes_control.cli import (  # noqa: F401 - each adds its commands to the application
    certifying,
    deciding,
    deploying,
    evaluating,
    exporting,
    failing,
    learning,
    planning,
    reporting,
    reproducing,
    rolling_out,
    sweeping,
    verifying,
)
from pacbayes_control.cli.app import app, main

__all__ = ["app", "main"]
