"""The paper's arm that grasps objects it has never seen (Section 7.2).

shapes, objects,          convex parts; objects drawn from families, or from a folder of meshes
meshes, decomposition
models, gripper, arm,     the physics: an object on a table, two robots, and the ending of a grasp;
camera, environments      objects at rest, and their depth images
policy, extractors,       from an image to a grasp: a network's layers over a frozen extractor
compact, vgg, weights
labels, surrogates,       training
learning, pretraining
task, options             `Grasping`, and the choices of a user
rendering, playback,      pictures
sheet, pictures
cache, extras             kept results, and optional libraries
experiment, commands      the paper's experiment, and `pbc grasping`
"""

from pacbayes_control.robots.grasping.arm import Arm
from pacbayes_control.robots.grasping.camera import Camera, View
from pacbayes_control.robots.grasping.compact import Compact
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.gripper import Gripper, Hand
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.objects import Procedural
from pacbayes_control.robots.grasping.policy import GraspNetwork, Offsets
from pacbayes_control.robots.grasping.surrogates import Surrogate
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.robots.grasping.vgg import Vgg16

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
