"""Measured speed, always as a ratio to a reference in the same run: machines are noisy."""

from pacbayes_control.bench.continuous import bench_continuous
from pacbayes_control.bench.grasping import bench_grasping
from pacbayes_control.bench.learn import bench_learn
from pacbayes_control.bench.monitor import bench_monitor
from pacbayes_control.bench.rollouts import bench_rollouts
from pacbayes_control.bench.swing import bench_swing
from pacbayes_control.bench.vehicle import bench_vehicle

__all__ = [
    "bench_continuous",
    "bench_grasping",
    "bench_learn",
    "bench_monitor",
    "bench_rollouts",
    "bench_swing",
    "bench_vehicle",
]
