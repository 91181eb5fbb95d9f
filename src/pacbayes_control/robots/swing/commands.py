"""`pbc swing`: commands of this robot alone."""

import typer

from pacbayes_control.robots.swing.flying import fly
from pacbayes_control.robots.swing.identifying import identify

app = typer.Typer()
app.command()(identify)
app.command()(fly)
