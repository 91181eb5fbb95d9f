"""The arm is the published one, goes where it is sent, and grasps as the floating gripper does."""

from typing import Any

import numpy as np
import pytest

from pacbayes_control.robots.grasping.environments import Tabletop, minor_axis
from pacbayes_control.robots.grasping.models import BOX, Body, build, mujoco
from pacbayes_control.robots.grasping.robots import Arm, Gripper, Hand
from pacbayes_control.robots.grasping.simulator import LIFTED, PHASES, Simulator
from pacbayes_control.tasks.environments import generator

LIMITS = np.radians([170, 120, 170, 120, 170, 120, 175])  # rad
TORQUES = np.array([320, 320, 176, 176, 110, 40, 40])  # N m
SPEEDS = np.radians([85, 85, 100, 75, 130, 135, 135])  # rad/s
AWAY = np.array([0.4, 0.4, 0.02, 1, 0, 0, 0])  # a cube at rest where the hand does not come
mj = mujoco()
STATE = mj.mjtState.mjSTATE_FULLPHYSICS


def with_a_cube(arm: Arm) -> Any:
    cube = np.array([BOX, 0.02, 0.02, 0.02, 1, 1, 0, 0, 0, 1, 0, 0, 0])
    return build(Body([cube], 0.1, np.ones(3), 0.5), arm.world)


def random_poses(n: int) -> np.ndarray:
    """Where grasps are, and the way above them."""
    rng = np.random.default_rng(0)
    low, high = [-0.08, -0.08, 0.006, 0], [0.08, 0.08, 0.18, np.pi]
    return rng.uniform(low, high, (n, 4))


def flange(joints: np.ndarray) -> np.ndarray:
    """The flange seen from the base, by the Denavit-Hartenberg matrices of the iiwa 14."""
    pose = np.eye(4)
    offsets = (0.36, 0, 0.42, 0, 0.40, 0, 0.126)
    twists = np.radians([-90, 90, 90, -90, -90, 90, 0])
    for theta, d, alpha in zip(joints, offsets, twists, strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        pose = pose @ [
            [c, -s * ca, s * sa, 0],
            [s, c * ca, -c * sa, 0],
            [0, sa, ca, d],
            [0, 0, 0, 1],
        ]
    return pose


def test_forward_kinematics_are_those_of_the_denavit_hartenberg_matrices():
    arm = Arm()
    model = with_a_cube(arm)
    data = mj.MjData(model)
    for joints in np.random.default_rng(1).uniform(-LIMITS, LIMITS, (100, 7)):
        data.qpos[:7] = joints
        mj.mj_kinematics(model, data)
        pose = flange(joints)
        tips = pose[:3, 3] + pose[:3, 2] * (arm.hand.length + 0.024) + [-0.6, 0, 0]
        np.testing.assert_allclose(data.body("hand").xpos, tips, atol=1e-12)
        turned = pose[:3, :3] * [1, -1, -1]  # the hand's z points back to the flange
        np.testing.assert_allclose(data.body("hand").xmat.reshape(3, 3), turned, atol=1e-12)


def test_angles_and_torques_have_the_published_limits():
    model = with_a_cube(Arm())
    np.testing.assert_allclose(model.jnt_range[:7], np.stack([-LIMITS, LIMITS], axis=1))
    np.testing.assert_array_equal(model.actuator_forcerange[:7, 1], TORQUES)
    assert model.jnt_limited[:7].all()


def test_the_joints_bring_the_hand_to_the_pose_well_within_the_limits():
    arm, poses = Arm(), random_poses(400)
    joints = arm.joints(poses)
    assert (np.abs(joints) < LIMITS - np.radians(15)).all()
    for (x, y, height, angle), one in zip(poses, joints, strict=True):
        pose = flange(one)
        tips = pose[:3, 3] + pose[:3, 2] * arm.length + [-0.6, 0, 0]
        np.testing.assert_allclose(tips, [x, y, height], atol=1e-4)
        np.testing.assert_allclose(pose[:3, 2], [0, 0, -1], atol=1e-3)
        closing = pose[:2, 0] @ [np.cos(angle), np.sin(angle)]  # ±1: a hand has no front
        across = pose[:2, 0] @ [-np.sin(angle), np.cos(angle)]
        assert abs(closing) > 0.999
        assert abs(across) < 1e-3


def test_a_longer_hand_has_its_tips_at_the_same_place():
    arm = Arm(Hand(length=0.1))
    model = with_a_cube(arm)
    data = mj.MjData(model)
    data.qpos[:7] = arm.joints(np.array([0.03, -0.02, 0.05, 1.0]))
    mj.mj_kinematics(model, data)
    np.testing.assert_allclose(data.body("hand").xpos, [0.03, -0.02, 0.05], atol=1e-12)


@pytest.mark.parametrize(
    "pose",
    [
        [1.0, 0, 0.02, 0],  # too far
        [-0.55, 0, 0.02, 0],  # too near: the elbow would fold
        [0, 0, 2.0, 0],  # too high
        [0, np.nan, 0.02, 0],
        [0, 0, 0.02, np.inf],
    ],
)
def test_a_pose_out_of_reach_is_told(pose: list[float]):
    with pytest.raises(ValueError, match=r"the arm does not reach x .* nearer to the origin"):
        Arm().joints(np.array([[0, 0, 0.02, 0], pose]))


def test_the_hand_stays_on_the_vertical_line_and_the_drives_within_what_they_can():
    arm = Arm()
    model = with_a_cube(arm)
    data = mj.MjData(model)
    poses = random_poses(10)
    for pose in poses:
        pose[2] = min(pose[2], 0.1)
        grasp, tips = pose[None, [0, 1, 3]], pose[None, 2]
        state = arm.start(model, AWAY, grasp, tips)[0]
        mj.mj_setState(model, data, state, STATE)
        for phase in PHASES:
            rise, _ = arm.hand.motion(phase)
            for control in arm.controls(phase, grasp, tips)[0]:
                data.ctrl[:] = control
                mj.mj_step(model, data)
                assert (np.abs(data.actuator_force[:7]) < TORQUES).all()
                assert (np.abs(data.qvel[:7]) < SPEEDS).all()
                mj.mj_kinematics(model, data)
                aside = data.body("hand").xpos[:2] - pose[:2]
                assert np.linalg.norm(aside) < 5e-4
                assert data.body("hand").xmat[8] > np.cos(2e-3)
            assert abs(data.body("hand").xpos[2] - pose[2] - rise[-1]) < 3e-4
    np.testing.assert_allclose(data.body("object").xpos, AWAY[:3], atol=1e-4)


def test_only_the_hand_can_touch():
    model = with_a_cube(Arm())
    robot = [model.geom(i) for i in range(model.ngeom) if model.geom(i).name]
    touching = {geom.name for geom in robot if geom.conaffinity[0] or geom.contype[0]}
    assert touching == {"table", "palm", "left", "right"}


def test_a_cube_is_lifted_missed_or_met_as_the_grasp_says():
    cube = np.array([BOX, 0.02, 0.02, 0.02, 1, 1, 0, 0, 0, 1, 0, 0, 0])
    body = Body([cube], 0.1, np.ones(3), 0.5)
    grasps = np.array([[0.0, 0, 0], [0.0, 0, np.pi / 2], [0.08, 0.08, 0], [0.035, 0, 0]])
    ends = Simulator(Arm()).endings(body, np.array([0, 0, 0.02, 1, 0, 0, 0]), 0.04, grasps)
    assert ends.tolist() == [0, 0, 2, 1]  # lifted, lifted, missed, met on the way down


def sampled(objects: int, each: int) -> list[tuple[Body, np.ndarray, float, np.ndarray]]:
    """Objects at rest and grasps of them: the centroid across the minor axis, and random ones."""
    table, found = Tabletop(), []
    rng = np.random.default_rng(7)
    for block in range(-(-objects // 16)):
        drawn = table.draw(generator(0, "arm test", block), 16)
        for row in range(min(16, objects - 16 * block)):
            middle = drawn["centroid"][row]
            grasps = np.empty((each, 3))
            grasps[:, :2] = middle + rng.uniform(-0.03, 0.03, (each, 2))
            grasps[:, 2] = rng.uniform(0, np.pi, each)
            grasps[0] = *middle, minor_axis(drawn["mask"][row])
            body = table.body(drawn, row)
            found.append((body, drawn["rest"][row], float(drawn["top"][row]), grasps))
    return found


@pytest.mark.slow
def test_it_lifts_what_the_floating_gripper_lifts():
    arm, gripper = Simulator(Arm()), Simulator(Gripper())
    sample = sampled(objects=20, each=3)
    lifted = np.concatenate([arm.endings(*grasp) == LIFTED for grasp in sample])
    expected = np.concatenate([gripper.endings(*grasp) == LIFTED for grasp in sample])
    assert 0.2 < expected.mean() < 0.8
    assert (lifted == expected).mean() >= 0.9


def test_rollouts_are_the_same_to_the_bit_in_any_company():
    arm = Arm()
    body, rest, top, grasps = sampled(objects=1, each=5)[0]
    model = build(body, arm.world)
    tips = np.full(5, float(arm.hand.tip_height(np.array(top))))

    def ends(chosen: slice) -> np.ndarray:
        states = arm.start(model, rest, grasps[chosen], tips[chosen])
        with mj.rollout.Rollout(nthread=0) as pool:
            for phase in PHASES:
                controls = arm.controls(phase, grasps[chosen], tips[chosen])
                states, _ = pool.rollout([model], [mj.MjData(model)], states, controls)
                states = states[:, -1]
        return states

    together = ends(slice(None))
    np.testing.assert_array_equal(together, ends(slice(None)))
    np.testing.assert_array_equal(together[2:3], ends(slice(2, 3)))
