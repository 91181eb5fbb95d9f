"""Models of robots from logs of what they did.

swing        the Swing's gains, latency and speed: what is assumed, the fit, and whether it fits
identified   what was found, with intervals
logs         logs of flights: read, written, and made up for a drone that is known
fitting      the least squares
lag          the answer of a lag to commands that are held
residuals    what is left over, and whether it is noise
"""
