"""verify(): check a run without trusting the person or the program that computed it.

This package shares no arithmetic with the bounds. It reads the files of a run, adds up the costs
exactly, and evaluates each theorem in interval arithmetic with 50 digits, in which every operation
encloses the true result. No inverse is needed for the verdict: to check a bound b, kl(r̂‖b), the
binomial tail at b, or a divergence at b is evaluated once.

runs.py        verify(): a run and the numbers of its certificate
intervals.py   interval arithmetic for the theorems
words.py       the words of the certificate against its files, and the claims without proof
shift.py       certificates that hold in a ball of distributions
signing.py     signatures with SSH keys
"""

import sys
from pathlib import Path
from types import ModuleType

from pacbayes_control.verify.intervals import InvalidCertificate
from pacbayes_control.verify.runs import Verification, verify

__all__ = ["InvalidCertificate", "Verification", "verify"]


class _Verify(ModuleType):
    """A callable module: `pacbayes_control.verify(run)` works once this package is imported."""

    def __call__(self, folder: str | Path) -> Verification:
        return verify(folder)


sys.modules[__name__].__class__ = _Verify
