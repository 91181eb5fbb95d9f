"""`python -m pacbayes_control` is `pbc`.

Nothing is imported before Ctrl-C is handled: the commands take a moment to load.
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
