"""How the commands learn: each recipe is a few calls of the library, to put together for others.

vehicle    the paper's vehicle, and tasks of users that have a prior
swing      the paper's drone, and its model as it was fitted
grasping   the paper's arm
recorded   which of them a run was made with
"""
