"""The workers of a Dask cluster."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

SCHEMES = ("", "tcp", "tls", "ucx", "ws", "wss", "inproc")  # of Dask's addresses


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster, by its scheduler's address; each must have this package."""
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("a cluster needs dask: pip install 'pacbayes-control[cluster]'") from None
    try:
        _check_answers(address)
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise OSError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=30)
        except TimeoutError:
            raise OSError(f"the Dask scheduler at {address} has no workers: start some") from None
        ours = version("pacbayes-control")
        found: Any = client.run(version, "pacbayes-control", on_error="return")
        for worker, theirs in found.items():
            if isinstance(theirs, Exception):
                raise ValueError(
                    f"the worker {worker} has no pacbayes-control: install version {ours} there"
                )
            if theirs != ours:
                raise ValueError(
                    f"the worker {worker} has pacbayes-control {theirs}, not {ours}: install that"
                )
        yield client.get_executor()


def _check_answers(address: str) -> None:
    """Raise an error if nothing listens: a client that cannot connect leaves threads behind."""
    scheme, _, place = address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is not one of {', '.join(filter(None, SCHEMES))}")
    if scheme in ("", "tcp"):
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError("write tcp://HOST:PORT")
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
