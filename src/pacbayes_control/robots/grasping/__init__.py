"""The paper's arm that grasps objects it has never seen (Section 7.2).

models                        convex parts of objects, and MuJoCo models of an object on a table
objects                       objects drawn from families
meshes, decomposition         objects from a folder of meshes, cut into convex parts
robots                        two robots with one hand
simulator, environments       grasps and their endings; objects that have come to rest
camera                        depth images for policies, and shaded pictures
policy, extractors, weights   from an image to a grasp: layers over a frozen network from a file
labels, learning              grasps tried for training, costs made from them, priors
task                          `Grasping`, and the choices of a user
pictures, experiment          the pictures of a run, and the paper's experiment
commands                      `pbc grasping`
extras                        optional libraries, and the folder for kept results
"""

from pacbayes_control.robots.grasping.camera import Camera, View
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.extractors import Compact, Vgg16
from pacbayes_control.robots.grasping.labels import Grid, Labels, Surrogate
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.objects import Procedural
from pacbayes_control.robots.grasping.policy import GraspNetwork, Offsets
from pacbayes_control.robots.grasping.robots import Arm, Gripper, Hand
from pacbayes_control.robots.grasping.task import Grasping

__all__ = [
    "Arm",
    "Camera",
    "Compact",
    "GraspNetwork",
    "Grasping",
    "Grid",
    "Gripper",
    "Hand",
    "Labels",
    "MeshFolder",
    "Offsets",
    "Procedural",
    "Surrogate",
    "Tabletop",
    "Vgg16",
    "View",
]
