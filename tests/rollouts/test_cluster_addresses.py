"""Addresses of Dask schedulers: with TLS, and those at which no scheduler answers."""

from __future__ import annotations

import gc
import http.server
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401 - adds its defaults to the configuration of Dask
import pytest
import small_robots as robots
from small_robots import TASKS, policies

from pacbayes_control.rollouts import Execution, cluster, evaluate
from polling import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates, ours and another's, each with its key, and each its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ours", "other"):
        made = f"-subj /CN={name} -keyout {folder / name}.key -out {folder / name}.pem"
        command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {made}"
        subprocess.run(command.split(), check=True, capture_output=True)
    return folder


def configured(folder: Path, certificate: str, authority: str = "ours") -> Any:
    """Dask's own configuration of a client with a certificate."""
    tls = {
        "ca-file": str(folder / f"{authority}.pem"),
        "client.cert": str(folder / f"{certificate}.pem"),
        "client.key": str(folder / f"{certificate}.key"),
    }
    return dask.config.set({f"distributed.comm.tls.{name}": path for name, path in tls.items()})


@contextmanager
def dask_process(*arguments: object) -> Iterator[None]:
    """Dask in a process of its own, whose log is not ours."""
    path = os.pathsep.join([robots.HERE, os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "dask", *map(str, arguments), "--no-dashboard"]
    environment = os.environ | {"PYTHONPATH": path}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        return one.getsockname()[1]


@contextmanager
def scheduler(scheme: str, *options: object) -> Iterator[str]:
    """The address of a scheduler that listens."""
    port = free_port()
    address = f"{scheme}://127.0.0.1:{port}"

    def listens() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False

    with dask_process("scheduler", "--host", address, *options):
        assert wait_until(listens)
        yield address


@pytest.fixture(scope="module")
def with_tls(folder: Path) -> Iterator[str]:
    """The address of a scheduler with TLS, which has a worker or will have one soon."""
    certificate, key = folder / "ours.pem", folder / "ours.key"
    options = ("--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    with (
        scheduler("tls", *options) as address,
        dask_process("worker", address, *options, "--nthreads", 1, "--no-nanny"),
    ):
        yield address


@pytest.fixture(scope="module")
def without_tls() -> Iterator[str]:
    with scheduler("tcp") as address:
        yield address


def test_rollouts_on_a_cluster_with_tls_cost_the_same(folder: Path, with_tls: str):
    task = TASKS["trip"]
    train = task.environments(20, stream="train")
    with configured(folder, "ours"), cluster(with_tls) as executor:
        costs = evaluate(task, policies(3), train, execution=Execution(workers=executor))
    assert costs.digests == evaluate(task, policies(3), train).digests


def refused(address: str, caplog: pytest.LogCaptureFixture) -> str:
    """The error for an address, in one line; no thread and no line of a log is left of it."""
    before = set(threading.enumerate())

    def left() -> list[str]:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if "process_request" not in name]  # of the web server here

    caplog.clear()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(OSError, match=r"^no Dask scheduler answers at ") as caught,
        cluster(address),
    ):
        pass
    words = str(caught.value)
    assert "\n" not in words
    assert not caplog.records
    assert wait_until(lambda: not left())
    return words.removeprefix(f"no Dask scheduler answers at {address}: ")


def test_a_scheduler_with_tls_wants_its_certificates(
    folder: Path, with_tls: str, caplog: pytest.LogCaptureFixture
):
    plain = with_tls.replace("tls", "tcp", 1)
    assert "its certificates are not set: give Dask's" in refused(with_tls, caplog)
    assert "or one with TLS: then write tls://HOST:PORT" in refused(plain, caplog)
    with configured(folder, "other", "other"):
        assert "certificate verify failed" in refused(with_tls, caplog)
    with configured(folder, "other"):
        assert "or with other certificates" in refused(with_tls, caplog)
    with configured(folder, "lost"):
        assert "cannot be read: [Errno 2] No such file" in refused(with_tls, caplog)


def test_a_scheduler_without_tls_is_told_from_one_with_it(
    folder: Path, without_tls: str, caplog: pytest.LogCaptureFixture
):
    with configured(folder, "ours"):
        words = refused(without_tls.replace("tcp", "tls", 1), caplog)
    assert "or one without TLS" in words


class Web(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # of Tornado
@pytest.mark.parametrize("scheme", ["tcp", "tls"])
def test_what_is_not_a_scheduler_is_told_in_a_line(
    folder: Path, scheme: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.modules["pacbayes_control.rollouts.cluster"], "GREETING", 0.5)
    with (
        configured(folder, "ours"),
        closing(socket.create_server(("127.0.0.1", 0))) as silent,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as web,
    ):
        web.daemon_threads = True
        serving = threading.Thread(target=web.serve_forever)
        serving.start()
        try:
            words = refused(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}", caplog)
            assert words == "what listens there has not greeted as one for 0.5 seconds"
            words = refused(f"{scheme}://127.0.0.1:{web.server_port}", caplog)
            assert words.startswith("what listens there ")
        finally:
            web.shutdown()
            serving.join()
    gc.collect()  # here, and not within another test


@pytest.mark.parametrize("scheme", ["", "tcp://", "tls://", "wss://"])
def test_an_address_where_nothing_listens_is_told_in_a_line(
    scheme: str, caplog: pytest.LogCaptureFixture
):
    assert "Connection refused" in refused(f"{scheme}127.0.0.1:{free_port()}", caplog)
    assert "[Errno -" in refused(f"{scheme}no-such-host.invalid:8786", caplog)
    assert f"write {scheme or 'tcp://'}HOST:PORT" in refused(f"{scheme}127.0.0.1", caplog)
