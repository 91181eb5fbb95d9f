"""Poses from a tracker: which datagrams are frames, how old they are, and which are ignored."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes_control.robots.swing.flight.tracking import (
    AT_ONCE,
    FrameReader,
    Pose,
    UdpTracker,
    parse_address,
    parse_frame,
)
from polling import wait_until
from sizes import sized

FRAME = {"time": 12.5, "frame": 3, "x": 0.1, "y": 1, "z": 0.9, "yaw": -0.2}


def message(**changes: object) -> bytes:
    return json.dumps({**FRAME, **changes}).encode()


@pytest.fixture
def tracker() -> Iterator[UdpTracker]:
    listening = UdpTracker()
    yield listening
    listening.close()


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        yield sending


def collect(tracker: UdpTracker, n: int) -> list[Pose]:
    poses: list[Pose] = []

    def enough() -> bool:
        tracker.wait(0.1)
        poses.extend(tracker.poses())
        return len(poses) >= n

    wait_until(enough)
    return poses


# ---- messages -----------------------------------------------------------------------------------


def test_a_frame_is_read_as_documented():
    assert parse_frame(message(), at=5.0) == Pose(5.0, 3, 0.1, 1.0, 0.9, -0.2, 12.5)
    assert parse_frame(message(name="swing"), at=5.0) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"x": "0.1"},
        {"x": None},
        {"x": True},
        {"y": [1]},
        {"z": float("nan")},
        {"yaw": float("inf")},
        {"x": 1e7},
        {"x": 10**400},
        {"frame": 3.0},
        {"frame": -1},
        {"frame": 2**63},
        {"frame": True},
        {"time": "noon"},
        {"padding": "x" * 600},
    ],
)
def test_a_datagram_that_is_not_a_frame_is_refused(changes: dict[str, object]):
    assert parse_frame(message(**changes), at=0.0) is None


@pytest.mark.parametrize("name", FRAME)
def test_a_frame_without_a_field_is_refused(name: str):
    record = {key: value for key, value in FRAME.items() if key != name}
    assert parse_frame(json.dumps(record).encode(), at=0.0) is None


@given(st.binary(max_size=600))
@pytest.mark.slow
def test_no_bytes_make_it_raise(datagram: bytes):
    parse_frame(datagram, at=0.0)


@settings(max_examples=sized(30, full=100))
@given(
    st.dictionaries(
        st.sampled_from([*FRAME, "other"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    )
)
def test_no_record_makes_it_raise_or_gives_a_pose_that_is_not_finite(record: dict[str, object]):
    pose = parse_frame(json.dumps(record).encode(), at=0.0)
    if pose is not None:
        assert max(abs(value) for value in (pose.x, pose.y, pose.z, pose.yaw)) <= 1e6


def test_deep_nesting_is_no_frame():
    assert parse_frame(b"[" * 500, at=0.0) is None


# ---- new poses ----------------------------------------------------------------------------------


def test_a_frozen_tracker_brings_no_new_pose():
    reader = FrameReader()
    assert reader.read(message(frame=1), 0.0)
    assert not reader.read(message(frame=1, x=0.5), 0.1)  # the same frame
    assert not reader.read(message(frame=0, x=0.5), 0.1)  # one from before
    assert not reader.read(message(frame=2), 0.2)  # the same pose, to the last digit
    assert not reader.read(message(frame=3), 0.3)
    assert reader.read(message(frame=4, x=0.1001), 0.4)
    assert reader.counts == {"frames": 2, "out of order": 2, "repeated": 2}


# ---- the socket ---------------------------------------------------------------------------------


def test_poses_come_in_order_and_the_rest_is_counted(tracker: UdpTracker, sender: socket.socket):
    to = ("127.0.0.1", tracker.port)
    for datagram in (b"", b"hello", message(frame=5), message(frame=4), message(frame=6, x=0.2)):
        sender.sendto(datagram, to)
    assert [pose.frame for pose in collect(tracker, 2)] == [5, 6]
    assert tracker.counts == {"frames": 2, "malformed": 2, "out of order": 1}


def test_a_pose_is_never_dated_later_than_it_arrived(tracker: UdpTracker, sender: socket.socket):
    assert tracker.poses() == []
    sender.sendto(message(time=1e5), ("127.0.0.1", tracker.port))
    arrived = time.monotonic()
    time.sleep(0.05)  # it lies in the socket while the loop does something else
    [pose] = collect(tracker, 1)
    assert pose.time <= arrived
    assert tracker.poses() == []
    sender.sendto(message(frame=4, x=0.2), ("127.0.0.1", tracker.port))
    [fresh] = collect(tracker, 1)
    assert fresh.time > arrived


def test_only_the_first_sender_is_listened_to(tracker: UdpTracker, sender: socket.socket):
    to = ("127.0.0.1", tracker.port)
    sender.sendto(message(frame=1), to)
    collect(tracker, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(message(frame=2, x=3.0), to)
        sender.sendto(message(frame=3, x=0.2), to)
        assert [pose.frame for pose in collect(tracker, 1)] == [3]
        assert tracker.counts["other sender"] == 1
        tracker.start()
        stranger.sendto(message(frame=1), to)
        assert len(collect(tracker, 1)) == 1


def test_frames_before_the_start_are_forgotten(tracker: UdpTracker, sender: socket.socket):
    sender.sendto(message(frame=7), ("127.0.0.1", tracker.port))
    tracker.wait(120)
    tracker.start()
    assert tracker.poses() == []
    sender.sendto(message(frame=1), ("127.0.0.1", tracker.port))
    assert [pose.frame for pose in collect(tracker, 1)] == [1]


def test_a_flood_does_not_hold_up_the_loop(tracker: UdpTracker, sender: socket.socket):
    for n in range(3 * AT_ONCE):
        sender.sendto(message(frame=n, x=n / 1e4), ("127.0.0.1", tracker.port))
    assert len(tracker.poses()) <= AT_ONCE


def test_waiting_ends_when_nothing_comes(tracker: UdpTracker):
    tracker.wait(0.01)
    tracker.wait(-1.0)
    assert tracker.poses() == []


def test_a_port_in_use_is_an_error(tracker: UdpTracker):
    with pytest.raises(ValueError, match=r"cannot listen for a tracker at 127.0.0.1:\d+ \(.*use"):
        UdpTracker("127.0.0.1", tracker.port)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "udp://", "udp://1.2.3.4", "udp://1.2.3.4:0", "udp://1.2.3.4:65536",
        "tcp://1.2.3.4:5", "udp://1.2.3:5", "udp://300.2.3.4:5", "udp://host:5", "udp://1.2.3.4:-1",
    ],
)  # fmt: skip
def test_a_bad_address_is_refused(text: str):
    with pytest.raises(ValueError, match="is not the address of a tracker: give udp://HOST:PORT"):
        parse_address(text)


def test_addresses_of_both_kinds_are_read():
    assert parse_address("udp://localhost:5005") == ("127.0.0.1", 5005)
    assert parse_address("udp://[::1]:5005") == ("::1", 5005)
