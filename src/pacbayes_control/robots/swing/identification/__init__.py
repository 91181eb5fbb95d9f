"""Models of robots from logs of what they did.

swing        the Swing's gains, latency and speed: what is assumed, the fit, and whether it fits
identified   what was found, with intervals
speed        the speed, from positions
logs         logs of flights: read, written, and made up for a drone that is known
settling     the fit for the noise, the noise from the fit, and what it may lack
fitting      the least squares
gusts        two noises, the drone's and the tracker's: a filter that makes both white
mixture      fits under gusts of any strength, weighed
lag          the answer of a lag to commands that are held
residuals    what is left over, and whether it is noise
"""
