"""How the commands learn: each recipe is a few calls of the library, to put together for others.

vehicle    the paper's vehicle, and tasks of users that have a prior
grasping   the paper's arm
"""
