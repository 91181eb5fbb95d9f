"""Records of where costs come from, as draws for a certificate have them."""

from __future__ import annotations

from pacbayes_control.certify.distributions import DiagonalGaussian


def certifying(posterior: DiagonalGaussian, stream: str = "certify") -> dict[str, object]:
    """Policies that were drawn from a posterior for its certificate."""
    digest = posterior.parameters_digest
    return {"policies": {"stream": stream, "seed": 0, "posterior": digest}}


def single_draw(posterior: DiagonalGaussian) -> dict[str, object]:
    """The one policy that was drawn."""
    return certifying(posterior, "single draw")
