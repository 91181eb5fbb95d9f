"""Small robots in a module, so that workers can import them, and ways to see what they did."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacbayes_control.rollouts.jobs import Pace
from pacbayes_control.tasks import Environments
from pacbayes_control.tasks.functions import BatchTask, FunctionTask

HERE = str(Path(__file__).parent)

# ---- plain functions: a rollout at a time, and many ---------------------------------------------


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """A goal, and obstacles: a number and an array."""
    return {"goal": rng.random(), "obstacles": rng.random(3)}


def draw_many(rng: np.random.Generator, n: int) -> dict[str, NDArray]:
    return {"goal": rng.random(n), "obstacles": rng.random((n, 3))}


def miss(policy: NDArray, environment: Mapping[str, Any]) -> float:
    """A graded cost."""
    return float(environment["goal"] * (1.5 + policy[0]) + environment["obstacles"][1]) % 1


def hit(policy: NDArray, environment: Mapping[str, Any]) -> float:
    """A cost of 0 or 1."""
    return float(miss(policy, environment) > 0.5)


def slip(policy: NDArray, environment: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A graded cost, with noise."""
    return (miss(policy, environment) + rng.random()) % 1


def trip(policy: NDArray, environment: Mapping[str, Any], rng: np.random.Generator) -> float:
    """A cost of 0 or 1, with noise: of so many draws that a shared generator would show."""
    return float(sum(rng.random(1 + int(8 * environment["goal"]))) % 1 > 0.2 + 0.01 * policy[0])


def miss_all(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
    goal, obstacle = environments["goal"][:, None], environments["obstacles"][:, 1, None]
    return (goal * (1.5 + policies[..., 0]) + obstacle) % 1


def hit_all(policies: NDArray, environments: Mapping[str, NDArray]) -> NDArray:
    return miss_all(policies, environments) > 0.5


def slip_all(policies: NDArray, environments: Mapping[str, NDArray], bits: NDArray) -> NDArray:
    return (miss_all(policies, environments) + bits / 2.0**64) % 1


def trip_all(policies: NDArray, environments: Mapping[str, NDArray], bits: NDArray) -> NDArray:
    return slip_all(policies, environments, bits) > 0.5


ONE_BY_ONE = [FunctionTask(f, draw, f.__name__, 2) for f in (miss, hit, slip, trip)]
BATCHED = [BatchTask(f, draw_many, f.__name__, 2) for f in (miss_all, hit_all, slip_all, trip_all)]
TASKS = {task.name: task for task in (*ONE_BY_ONE, *BATCHED)}


def policies(n: int) -> NDArray[np.float64]:
    """The first parameter of each is its number."""
    return np.column_stack([np.arange(float(n)), np.linspace(0, 1, n)])


# ---- a robot that leaves traces, and gets into trouble ------------------------------------------


@dataclass(frozen=True)
class Robot:
    """A rollout whose every call is a line of a log, and that goes wrong where it is told to."""

    log: str  # a file
    graded: bool = False
    seconds: float = 0.0
    trouble: tuple[tuple[float, int], ...] = ()  # goals, and numbers of policies
    kind: str = "raises"  # of trouble
    mended: str = ""  # a file: no trouble once it exists
    holds: tuple[int, ...] = ()  # so many lines are followed by no other until it is `released`

    def __call__(self, policy: NDArray, environment: Mapping[str, Any]) -> float:
        goal, number = float(environment["goal"]), int(policy[0])
        before = self._been_at(goal, number) if "once" in self.kind else False
        for lines in self.holds:
            hold(self.log, lines)
        append(self.log, f"{goal!r} {number} {os.getpid()}")
        time.sleep(self.seconds)
        trouble = (goal, number) in self.trouble or self.kind.startswith("always")
        if trouble and not before and not (self.mended and Path(self.mended).exists()):
            return TROUBLE[self.kind.split()[-1]]()
        return miss(policy, environment) if self.graded else hit(policy, environment)

    def _been_at(self, goal: float, number: int) -> bool:
        lines = Path(self.log).read_text().splitlines() if Path(self.log).exists() else []
        return any(line.startswith(f"{goal!r} {number} ") for line in lines)


class UnpicklableError(Exception):
    """It cannot be sent anywhere: of two arguments, and holding a function."""

    def __init__(self, words: str, number: int) -> None:
        super().__init__(f"{words}, {number} times")
        self.function = lambda: number


def raises() -> float:
    raise KeyError("the arm\nis stuck")


def unpicklable() -> float:
    raise UnpicklableError("stuck", 3)


def dies() -> float:
    os._exit(7)


def killed() -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return 0.0


def exits() -> float:
    sys.exit(3)


TROUBLE: dict[str, Callable[[], Any]] = {
    "raises": raises,
    "unpicklable": unpicklable,
    "dies": dies,
    "killed": killed,
    "exits": exits,
    "two": lambda: 1.5,
    "negative": lambda: -1e-9,
    "nan": lambda: float("nan"),
    "infinite": lambda: float("inf"),
    "none": lambda: None,
    "words": lambda: "far away",
    "digits": lambda: "0.5",
    "list": lambda: [0.5, 0.5],
}


def hold(log: str | Path, lines: int) -> None:
    """Once a log has so many lines, wait for somebody to release those who wait."""
    release = released(log, lines)
    if lines_of(log) >= lines and not release.exists():
        append(f"{release} waiting", str(os.getpid()))
        until = time.monotonic() + 600  # whoever should have released it may have been killed
        while not release.exists() and time.monotonic() < until:
            time.sleep(0.01)


def released(log: str | Path, lines: int) -> Path:
    """The file that lets those go on who wait after so many lines."""
    return Path(f"{log} {lines}")


def waiting(log: str | Path, lines: int) -> set[int]:
    """The processes that are amid a rollout, and stay there until they are released."""
    path = Path(f"{released(log, lines)} waiting")
    return set(map(int, path.read_text().split())) if path.exists() else set()


def append(path: str, line: str) -> None:
    """Add a line to a file that several processes add lines to."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def robot_task(log: Path, **options: Any) -> FunctionTask:
    return FunctionTask(Robot(str(log), **options), draw, "robot", 2)


def goal(environments: Environments, row: int) -> float:
    """What a robot knows an environment by."""
    return float(environments.arrays()["goal"][row])


def rolled_out(log: Path, environments: Environments, after: int = 0) -> list[tuple[int, int, int]]:
    """Environment (a row), policy and process of every line of a log, after so many lines."""
    rows = {float(value): row for row, value in enumerate(environments.arrays()["goal"])}
    lines = log.read_text().splitlines()[after:] if log.exists() else []
    parts = (line.split() for line in lines)
    return [(rows[float(value)], int(number), int(pid)) for value, number, pid in parts]


def lines_of(log: str | Path) -> int:
    return len(Path(log).read_text().splitlines()) if Path(log).exists() else 0


def kept(out: Path) -> set[tuple[int, int]]:
    """The rollouts that a campaign's table and chunks hold, each once."""
    pieces = [tuple(map(int, re.findall(r"\d+", path.name))) for path in out.glob("*.npz")]
    if (out / "costs.npy").exists():
        rows, columns = np.load(out / "costs.npy", mmap_mode="r").shape
        beside = [piece for piece in pieces if piece[0] >= rows or piece[2] >= columns]
        pieces = [(0, rows, 0, columns), *beside]  # others are about to be deleted
    cells = [(i, j) for a, b, c, d in pieces for i in range(a, b) for j in range(c, d)]
    assert len(cells) == len(set(cells))
    return set(cells)


# ---- executors and paces that nobody would wish for ---------------------------------------------


class Scrambled(Executor):
    """It keeps what it is given for a while, and does it in another order."""

    def __init__(self, seed: int = 0, size: int = 4) -> None:
        self._max_workers = size
        self._rng = np.random.default_rng(seed)
        self._kept: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._lock, self._open = threading.Lock(), True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.order: list[int] = []
        self._given = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            number, self._given = self._given, self._given + 1

            def do() -> Any:
                self.order.append(number)
                return fn(*args, **kwargs)

            self._kept.append((future, do))
        return future

    def _run(self) -> None:
        while self._open:
            time.sleep(0.0002)
            with self._lock:
                some = self._rng.integers(0, len(self._kept) + 1)
                chosen = [self._kept.pop(self._rng.integers(len(self._kept))) for _ in range(some)]
            for future, do in chosen:
                if future.set_running_or_notify_cancel():
                    future.set_result(do())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del cancel_futures
        self._open = False
        if wait:
            self._thread.join()


class Erratic(Pace):
    """It asks for pieces of other sizes all the time, from a list."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(1.0)
        self._sizes, self._at = sizes, 0

    @property
    def size(self) -> int:
        self._at += 1
        return self._sizes[self._at % len(self._sizes)]

    @size.setter
    def size(self, value: int) -> None:
        pass

    def tell(self, rollouts: int, seconds: float) -> None:
        pass
