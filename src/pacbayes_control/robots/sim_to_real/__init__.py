"""How many trials of a robot in reality simulation replaces, shown without a robot.

pairs        the robots, and their rollouts in reality and in simulation
bounds       with simulation and without it, and their means over draws of the trials
pictures     of the bounds, and a table
experiment   `pbc reproduce sim-to-real`
"""
