"""How often a policy fails on the robot and in simulation: assumed, or estimated from pairs."""

from __future__ import annotations

from dataclasses import dataclass

from pacbayes_control.bounds.stratified import PairCounts


@dataclass(frozen=True, kw_only=True)
class PairRates:
    """How often a policy fails in simulation, and on the robot in either case."""

    simulated: float  # q, in simulation
    both: float  # a, on the robot where it fails in simulation
    alone: float  # c, on the robot where it succeeds in simulation

    @property
    def failure_rate(self) -> float:
        """On the robot: qa + (1-q)c."""
        return self.robot(self.simulated)

    @property
    def agreement(self) -> float:
        """The probability that robot and simulation both fail, or both succeed."""
        return self.simulated * self.both + (1 - self.simulated) * (1 - self.alone)

    def robot(self, simulated: float) -> float:
        """The failure rate on the robot at another one in simulation."""
        return simulated * self.both + (1 - simulated) * self.alone

    @classmethod
    def assumed(cls, failure_rate: float, agreement: float) -> PairRates:
        """Rates before any trial: simulation is wrong equally often in both cases.

        With d = 1 - agreement, a = 1 - d and c = d. The rate q in simulation is the one with which
        the robot fails as assumed: q(1-d) + (1-q)d = p, so that q = (p - d)/(1 - 2d). There is one
        if the agreement is at least 1 - p, as that of a simulator that never fails, and at least p,
        as that of one that always does.

        Args:
            failure_rate: p, on the robot
            agreement: the probability that robot and simulation both fail, or both succeed

        >>> rates = PairRates.assumed(0.25, 0.9)
        >>> round(rates.simulated, 4), round(rates.both, 4), round(rates.alone, 4)
        (0.1875, 0.9, 0.1)
        """
        if not 0 <= failure_rate <= 1:
            raise ValueError(f"the failure rate {failure_rate} must lie in [0, 1]")
        least = max(failure_rate, 1 - failure_rate)
        if not least - 1e-12 <= agreement <= 1:
            raise ValueError(
                f"an agreement of {agreement:g} must lie in [{least:g}, 1] at a failure rate of "
                f"{failure_rate:g}: {least:g} is that of a simulator with always the same outcome"
            )
        apart = 1 - agreement
        q = (failure_rate - apart) / (1 - 2 * apart) if apart < 0.5 else 0.5
        return cls(simulated=min(max(q, 0.0), 1.0), both=agreement, alone=apart)

    @classmethod
    def estimated(cls, counts: PairCounts, simulated: float) -> PairRates:
        """Rates after some pairs: (k + ½)/(n + 1) in either case.

        Half a failure and half a success are added to each: few pairs would otherwise tell that the
        robot never fails where simulation does not, or always where it does, and a plan for that
        has too few trials.

        Args:
            counts: of failures in the pairs so far
            simulated: the failure rate in simulation, of the further environments

        >>> PairRates.estimated(PairCounts(9, 9, 0, 19), 0.3)
        PairRates(simulated=0.3, both=0.95, alone=0.025)
        """
        rates = [
            (failed + 0.5) / (n + 1)
            for failed, n in ((counts.both, counts.simulated), (counts.alone, counts.other))
        ]
        return cls(simulated=simulated, both=rates[0], alone=rates[1])
