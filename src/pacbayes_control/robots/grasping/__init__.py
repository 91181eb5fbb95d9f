"""The paper's arm that grasps objects it has never seen (Section 7.2).

objects, meshes          shapes: drawn without end, or from a folder
models, gripper, arm,    the physics: an object on a table, two robots, and how a grasp ends
simulator, bullet
camera, environments     an object at rest, as it is seen
policy, compact, vgg     from what is seen to a grasp: a network's layers over an extractor
labels, surrogates,      what training needs
pretraining
task                     `Grasping`, all of it together
rendering, playback      pictures
"""

from pacbayes_control.robots.grasping.arm import Arm
from pacbayes_control.robots.grasping.camera import Camera, View
from pacbayes_control.robots.grasping.compact import Compact
from pacbayes_control.robots.grasping.environments import Tabletop
from pacbayes_control.robots.grasping.gripper import Gripper, Hand
from pacbayes_control.robots.grasping.labels import Grid, Labels
from pacbayes_control.robots.grasping.meshes import MeshFolder
from pacbayes_control.robots.grasping.objects import Procedural
from pacbayes_control.robots.grasping.policy import Network, Offsets
from pacbayes_control.robots.grasping.surrogates import Surrogate
from pacbayes_control.robots.grasping.task import Grasping
from pacbayes_control.robots.grasping.vgg import Vgg16

__all__ = [
    "Arm",
    "Camera",
    "Compact",
    "Grasping",
    "Grid",
    "Gripper",
    "Hand",
    "Labels",
    "MeshFolder",
    "Network",
    "Offsets",
    "Procedural",
    "Surrogate",
    "Tabletop",
    "Vgg16",
    "View",
]
