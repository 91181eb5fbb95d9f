"""A certificate against what happened in deployment: is the promise still holding out there?

Each outcome is the cost of one mission, in an environment of its own, of what the certificate
names: for a posterior, a policy drawn afresh. If new environments are drawn as promised, the
expected cost of each is at most the bound b, whatever came before, but for the probability δ that
the certificate is wrong. A bettor who stakes against that can multiply her wealth by 1/α with
probability at most α, however long she plays: so if she does, costs exceed the bound, and the world
is not as promised; this conclusion is wrong with probability at most δ + α.
"""

from pacbayes_control.deploy.monitor.reports import Promise, Report, shown
from pacbayes_control.deploy.monitor.watching import Monitor

__all__ = ["Monitor", "Promise", "Report", "shown"]
