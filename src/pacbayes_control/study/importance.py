"""How much of the cost each parameter of the environments explains, by a random forest.

The forest is fitted to some of the environments, and predicts the cost in those it has not seen.
The values of one parameter are then exchanged among these at random: the loss in the share of the
cost's variance that is explained (R², for a cost of 0 or 1 from the Brier score) is the
parameter's importance. Columns of noise beside the parameters show what chance alone reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.study.bins import Groups, grouped

INSTALL = "pip install 'pacbayes-control[failures]'"
MOST = 2000  # environments that a forest is fitted to or tested on: the first ones
FOLDS, REPEATS = 5, 2  # each repeat splits the environments anew
SHUFFLES = 1  # of each column, in each fold
NOISES = 10  # columns of noise
ABOVE = 3.0  # standard deviations of the noise columns' importance, above their mean
TREES, LEAF = 50, 5
GROUPS = 4  # of a parameter, where words are compared
TOGETHER = 0.7  # correlation from which on two parameters go together


@dataclass(frozen=True)
class Importance:
    """How much of the cost one parameter explains."""

    name: str
    share: float  # of the cost's variance, lost where its values are exchanged: the mean
    spread: float  # standard deviation of this over the fits
    explains: bool  # more than noise does, and more than its spread


@dataclass(frozen=True)
class Ranking:
    """The parameters, the one that explains most first."""

    parameters: tuple[Importance, ...]
    explained: float  # share of the cost's variance in environments the forest has not seen
    noise: float  # share that columns of noise reach
    environments: int  # that were used: the first ones
    fits: int

    @property
    def useful(self) -> tuple[str, ...]:
        """The parameters that can be told from noise."""
        return tuple(one.name for one in self.parameters if one.explains)

    @property
    def words(self) -> str:
        """How the ranking came about, and how much all parameters explain."""
        if self.explained <= 0:
            told = "it explains nothing of the cost in environments that it has not seen"
        else:
            told = (
                f"all parameters together explain {100 * self.explained:.0f} % of the variance of "
                "the cost (R²)"
            )
        return (
            f"By a random forest, tested on environments that it has not seen: {told}. The fall of "
            "R² is by exchanging the values of one parameter at random; the spread is its standard "
            f"deviation over {self.fits} fits. A parameter explains where its fall is above this "
            f"and above {self.noise:.3f}, which columns of noise reach; of a hundred parameters "
            "without effect, a few get beyond."
        )


def rank(columns: Mapping[str, NDArray], costs: NDArray[np.float64]) -> Ranking:
    """Rank parameters by the share of the cost's variance that they explain.

    The same arguments give the same ranking.

    Args:
        columns: the values of each parameter, numbers or words, (environments,) each
        costs: of the environments, not all equal; (environments,)
    """
    try:
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.inspection import permutation_importance
        from sklearn.metrics import mean_squared_error
        from sklearn.model_selection import KFold
    except ImportError:
        raise ImportError(f"the ranking of parameters needs scikit-learn: {INSTALL}") from None

    costs, rng = costs[:MOST], np.random.default_rng(0)
    table = with_noise([_codes(column[:MOST]) for column in columns.values()], rng)
    variance, drops, errors = float(costs.var()), [], []
    for repeat in range(REPEATS):
        folds = KFold(FOLDS, shuffle=True, random_state=repeat)
        for fit, (seen, unseen) in enumerate(folds.split(table)):
            seed = repeat * FOLDS + fit
            forest = RandomForestRegressor(
                TREES, min_samples_leaf=LEAF, max_features=0.5, random_state=seed
            ).fit(table[seen], costs[seen])
            found: Any = permutation_importance(
                forest,
                table[unseen],
                costs[unseen],
                scoring="neg_mean_squared_error",
                n_repeats=SHUFFLES,
                random_state=seed,
            )
            drops.append(found["importances_mean"] / variance)
            errors.append(mean_squared_error(costs[unseen], forest.predict(table[unseen])))
    explained = 1 - float(np.mean(errors)) / variance
    return ranking_of(list(columns), np.array(drops), explained, len(costs))


def with_noise(columns: Sequence[NDArray], rng: np.random.Generator) -> NDArray[np.float64]:
    """The columns, and the columns of noise: the same values, shuffled; (environments, columns)."""
    noise = [rng.permutation(columns[place % len(columns)]) for place in range(NOISES)]
    return np.column_stack([*columns, *noise]).astype(float)


def together(columns: Mapping[str, NDArray]) -> list[tuple[str, str, float]]:
    """Each two parameters that go together, and how closely, from 0 to 1; the closest first.

    Two of numbers by the size of Spearman's rank correlation, others by Cramér's V of their groups.

    >>> wind = np.arange(40.0)
    >>> together({"wind": wind, "lift": wind**2, "dust": wind % 7})
    [('wind', 'lift', 1.0)]
    """
    from scipy.stats import rankdata

    numbers = [name for name, column in columns.items() if column.dtype.kind in "iuf"]
    words = [name for name in columns if name not in numbers]
    ranks = [rankdata(columns[name][:MOST]) for name in numbers]
    found = np.abs(np.corrcoef(ranks)) if len(ranks) > 1 else np.empty((0, 0))
    close = [
        (numbers[i], numbers[j], round(float(found[i, j]), 4))
        for i, j in np.argwhere(np.triu(found, 1) >= TOGETHER)
    ]
    groups = {name: grouped(name, column[:MOST], GROUPS) for name, column in columns.items()}
    for place, word in enumerate(words):
        for other in (*numbers, *words[:place]):
            share = _association(groups[word], groups[other])
            close += [(word, other, share)] if share >= TOGETHER else []
    return sorted(close, key=lambda pair: -pair[2])


def _association(one: Groups, other: Groups) -> float:
    """Cramér's V of the groups that environments are in."""
    from scipy.stats import contingency

    counts: Any = contingency.crosstab(one.members, other.members).count
    if min(counts.shape) < 2:
        return 0.0
    return round(float(contingency.association(counts, "cramer")), 4)


def _codes(column: NDArray) -> NDArray:
    """Numbers as they are; words by their place in the alphabet."""
    return column if column.dtype.kind in "iuf" else np.unique(column, return_inverse=True)[1]


def ranking_of(
    names: Sequence[str], drops: NDArray, explained: float, environments: int
) -> Ranking:
    """The ranking by the drops of each fit; (fits, parameters and columns of noise)."""
    means, spreads = drops.mean(axis=0), drops.std(axis=0, ddof=1)
    # A parameter without effect is one more such column: few in a hundred are above all of these.
    noises = means[len(names) :]
    noise = max(float(noises.max()), float(noises.mean() + ABOVE * noises.std(ddof=1)), 0.0)
    rows = [
        Importance(
            name, float(mean), float(spread), bool(mean > max(noise, spread) and explained > 0)
        )
        for name, mean, spread in zip(names, means, spreads, strict=False)
    ]
    rows.sort(key=lambda row: -row.share)
    return Ranking(tuple(rows), explained, noise, environments, len(drops))
