"""Records of where costs come from, as draws for a certificate have them."""

from __future__ import annotations

CERTIFYING: dict[str, object] = {"policies": {"stream": "certify", "seed": 0}}
SINGLE_DRAW: dict[str, object] = {"policies": {"stream": "single draw", "seed": 0}}
