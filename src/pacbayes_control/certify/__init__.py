"""From costs to a certificate: costs, distributions, the delta budget, issuing, runs, shift."""
