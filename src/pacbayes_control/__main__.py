"""`python -m pacbayes_control` is `pbc`."""

from pacbayes_control.cli import main

if __name__ == "__main__":
    main()
