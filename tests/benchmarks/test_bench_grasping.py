"""The benchmark of grasping at a small size; how fast it is, is not tested."""

import sys

import numpy as np
import pytest

from loading import load

grasping = load("grasping")
HALF_WIDTH = grasping.HALF_WIDTH


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="PyBullet has no wheels beyond 3.11")
def test_bench_grasping_measures_against_pybullet():
    told = []
    bench = grasping.bench_grasping(4, 6, progress=lambda *now: told.append(now))
    assert bench.reference_grasps_per_second is not None
    assert bench.ratio == pytest.approx(bench.grasps_per_second / bench.reference_grasps_per_second)
    assert bench.agreement is not None
    assert 0.8 <= bench.agreement <= 1
    assert bench.reference_success is not None
    assert abs(bench.success - bench.reference_success) <= 1 - bench.agreement
    assert bench.arm_grasps_per_second > 0
    assert 0.8 <= bench.arm_agreement <= 1
    assert told[-1] == (24, 24)
    sizes = [(scale.environments, scale.policies) for scale in bench.scaling]
    assert sizes == [(1, 6), (2, 6), (4, 6), (1, 12), (1, 24)]
    assert all(scale.microseconds > 0 and scale.peak_mib > 0 for scale in bench.scaling)


def test_without_pybullet_only_ours_is_measured(monkeypatch):
    monkeypatch.setattr(grasping, "find_spec", lambda _: None)
    bench = grasping.bench_grasping(2, 3)
    assert bench.grasps_per_second > 0
    assert (bench.reference_grasps_per_second, bench.ratio) == (None, None)
    assert (bench.agreement, bench.reference_success) == (None, None)


def test_random_offsets_lie_around_the_centroid_at_any_angle():
    offsets = grasping.random_offsets(2, 500, seed=3)
    assert 0.98 * HALF_WIDTH < np.abs(offsets[..., :2]).max() <= HALF_WIDTH
    assert 0 <= offsets[..., 2].min() < 0.05
    assert np.pi - 0.05 < offsets[..., 2].max() < np.pi
    np.testing.assert_array_equal(offsets, grasping.random_offsets(2, 500, seed=3))
