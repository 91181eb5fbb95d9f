"""`python -m pacbayes_control.cli`."""

from pacbayes_control.cli.app import main

main()
