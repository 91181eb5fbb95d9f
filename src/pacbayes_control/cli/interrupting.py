"""Ctrl-C in the command: one line and exit code 130, at any moment.

Only light modules are imported here, because the command imports this module first.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130  # the exit code
BUG = 70  # of an error of the program itself: 1 is a verdict
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


class Interruption:
    """The handler of SIGINT.

    While a command works, the first Ctrl-C is a KeyboardInterrupt, so that the command can stop its
    workers. A second one, or one while modules are loaded or the interpreter shuts down, ends the
    process at once: an exception there would be shown as a traceback, or be lost.
    """

    working = False  # whether a command runs, which can stop its workers
    came = False
    told = False  # whether the line was printed

    def install(self) -> None:
        """Handle SIGINT from now on, unless the process was started to ignore it."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self)
            sys.unraisablehook = self._unraisable

    def __call__(self, *_: object) -> None:
        """Raise KeyboardInterrupt, or end the process."""
        first, self.came = not self.came, True
        if not (first and self.working):
            self.end()
        raise KeyboardInterrupt

    def end(self) -> None:
        """Print the line, and end the process at once."""
        if os.isatty(2):
            os.write(2, SHOW_CURSOR)
        if not self.told:
            os.write(2, b"pbc: interrupted\n")
        os._exit(INTERRUPTED)

    def _unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """End the process also if KeyboardInterrupt was raised in a finaliser, which loses it."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            self.end()
        sys.__unraisablehook__(lost)


interruption = Interruption()
