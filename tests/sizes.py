"""How large a test is: what needs minutes by nature is smaller in `make test` than in full.

`make test-full` and `make test-fast` set PBC_TEST_SIZE. A test at its small size must still tell a
right bound from a wrong one: the broken variants beside it are counted with the same number.
"""

from __future__ import annotations

import os
from typing import TypeVar

FULL = os.environ.get("PBC_TEST_SIZE") == "full"
FAST = os.environ.get("PBC_TEST_SIZE") == "fast"

Size = TypeVar("Size")


def sized(small: Size, full: Size) -> Size:
    """The size for `make test`, or the one for `make test-full`.

    >>> sized(400, full=4000) in (400, 4000)
    True
    """
    return full if FULL else small
