"""`python -m pacbayes_control` is `pbc`.

The handler of Ctrl-C is installed before the commands are imported, which takes a moment.
"""

from pacbayes_control.cli.interrupting import interruption


def main() -> None:
    """Run `pbc`."""
    interruption.install()
    from pacbayes_control.cli.commands import main as run

    try:
        interruption.working = True
        run()
    except KeyboardInterrupt:
        interruption.end()
    finally:
        interruption.working = False


if __name__ == "__main__":
    main()
