"""verify(): check a run without trusting whoever, or whatever, computed it.

This package shares none of the arithmetic of the bounds. It reads the files of a run, adds up the
costs exactly, and evaluates each theorem in interval arithmetic with 50 digits, in which every
operation encloses the true result. No inverse is ever computed to decide: that a bound b is valid
is a matter of evaluating kl(r̂‖b), the binomial tail at b, or a divergence at b, once.

runs.py        a run and its certificate, checked
intervals.py   what the theorems are made of
words.py       what the certificate says, against its files; and what can only be believed
shift.py       certificates that hold in a ball of distributions
"""

import sys
from pathlib import Path
from types import ModuleType

from pacbayes_control.verify.intervals import InvalidCertificate
from pacbayes_control.verify.runs import Verification, verify

__all__ = ["InvalidCertificate", "Verification", "verify"]


class _Verify(ModuleType):
    """So that `pacbayes_control.verify(run)` is the function, also once this package is loaded."""

    def __call__(self, folder: str | Path) -> Verification:
        return verify(folder)


sys.modules[__name__].__class__ = _Verify
