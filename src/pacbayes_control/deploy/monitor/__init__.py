"""A certificate against the outcomes of a deployment: does the bound still hold?

Each outcome is the cost of one mission, in a new environment, of the certified policy; for a
posterior, of a policy drawn afresh. If new environments are drawn as the certificate says, the
expected cost of each, given the earlier ones, is at most the bound b, except with the probability δ
that the certificate is wrong. A test martingale against this hypothesis (`bounds.sequential`)
starts at 1 and reaches 1/α with probability at most α, for any number of outcomes. If it does reach
1/α, the costs exceed the bound, and the environments are not as the certificate says; this
conclusion is wrong with probability at most δ + α.

For the certificate of a quantile c an outcome counts as 1 if its cost is above c, and as 0 if not;
b is the share of environments that may cost more.
"""

from pacbayes_control.deploy.monitor.reports import Promise, Report
from pacbayes_control.deploy.monitor.watching import Monitor

__all__ = ["Monitor", "Promise", "Report"]
