"""References to the theorems that a certificate applies, as BibTeX.

The works are those that the docstrings in `bounds/` name; `assets/references.bib` has each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import pacbayes_control
from pacbayes_control.certify.certificate import Certificate
from pacbayes_control.certify.issuing import SAMPLING
from pacbayes_control.certify.statistics import FUNCTION

PAPER = "majumdar2021pac"
BETS = ("voracek2025star", "waudbysmith2024estimating")
EVIDENCE = ("ville1939etude", "waudbysmith2024estimating")  # of e-values: for comparisons too
METHODS = {
    "kl": ("maurer2004note",),
    "kl-maurer": ("maurer2004note",),
    "pinsker": ("mcallester1999some", "maurer2004note"),
    "betting": ("jang2023tighter",),
    "occam": ("langford2005tutorial",),
    "anytime": EVIDENCE,
    "single-draw": ("rivasplata2020pac", "maurer2004note"),
    "tilted": ("donsker1975asymptotic", "maurer2004note"),
}
SOFTWARE = """@misc{{pacbayes-control,
  author = {{{{The pacbayes-control authors}}}},
  title  = {{{{pacbayes-control}}: Policies for Robots with a Bound on their Cost}},
  note   = {{Version {version}, MIT license}},
  year   = {{2026}}
}}"""


def keys_of(c: Certificate) -> list[str]:
    """The references of a certificate, each once: the theorem of its bound first."""
    return list(dict.fromkeys([*METHODS[c.method], *_further(c)]))


def _further(c: Certificate) -> Iterator[str]:
    """References beside those that every certificate of the method has."""
    if c.method == "occam":
        yield from _of_occam(c)
    if SAMPLING in c.budget:  # the training cost of a Gaussian posterior, from draws
        yield from BETS if c.grid is not None else ("langford2001not", "hoeffding1963probability")
    if c.simulation is not None:
        yield (
            "buehler1957confidence"
            if c.simulation.low is not None
            else "angelopoulos2023prediction"
        )
    if FUNCTION in c.budget:
        yield from ("birnbaum1951one", "massart1990tight")
    if c.ball is not None:
        yield "csiszar1967information"
        yield from () if c.ball.samples is None else ("clopper1934use",)


def _of_occam(c: Certificate) -> Iterator[str]:
    """The bound at each policy's level, which depends on the statistic and on the costs."""
    if c.statistic.kind == "quantile":
        yield "david2003order"
    elif c.statistic.kind == "cvar":
        yield from ("rockafellar2000optimization", *BETS)
    elif c.grid is not None or not c.success_or_failure:
        yield from BETS
    else:
        yield "clopper1934use"
        yield from () if c.tasks is None else ("hoeffding1956distribution",)


def bibtex(keys: list[str]) -> str:
    """Entries of these keys, with the paper first and this software last.

    >>> print(bibtex([]).splitlines()[0])
    @article{majumdar2021pac,
    """
    known = entries()
    software = SOFTWARE.format(version=pacbayes_control.__version__)
    return "\n\n".join([*(known[key] for key in (PAPER, *keys)), software]) + "\n"


@cache
def entries() -> dict[str, str]:
    """All entries by key."""
    text = (files("pacbayes_control.report") / "assets" / "references.bib").read_text("utf-8")
    found = [entry.strip() for entry in re.split(r"\n(?=@)", text)]
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in found}
