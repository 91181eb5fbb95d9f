"""The model of the Swing, fitted to logs of its flights.

swing          the fit of gains, latency and speed: assumptions, and the tests of the model
identified     its result, with intervals, and the task with gains as they were fitted
speed          the speed, from positions
logs           logs of flights: read, checked and written
synthetic      logs of a simulated drone whose model is known
weighted_fit   the fit and its noise, estimated in turn, the fits under gusts of any strength, each
               weighted by its likelihood, and the effects that the model may lack
fitting        the response of a lag to commands that are held, and the least squares
noises         gusts and the tracker's noise: a filter that makes both white, tests of residuals
"""
