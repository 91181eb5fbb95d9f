"""`python -m pacbayes_control` is `pbc`.

The handler of Ctrl-C is installed before the commands are imported, which takes a moment.
"""

import sys
from traceback import print_exc

from pacbayes_control.cli.interrupting import BUG, interruption


def main() -> None:
    """Run `pbc`."""
    interruption.install()
    try:
        from pacbayes_control.cli.commands import main as run
    except Exception:  # as of a broken installation: Python would exit with 1, which is a verdict
        print_exc()
        sys.exit(BUG)
    try:
        interruption.working = True
        run()
    except KeyboardInterrupt:
        interruption.end()
    finally:
        interruption.working = False


if __name__ == "__main__":
    main()
