"""The workers of a Dask cluster, found by the address of its scheduler.

Dask's protocol sends pickled functions: who reaches a scheduler runs code on its workers, and a
scheduler runs code in its clients. Certificates for `tls://` come from Dask's own configuration.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

PLAIN, ENCRYPTED = ("", "tcp", "ws"), ("tls", "wss")  # addresses of the form HOST:PORT
SCHEMES = (*PLAIN, *ENCRYPTED, "ucx", "inproc")  # of Dask's addresses
ASKING = 1.0  # seconds between two questions about all calls
GREETING = 5.0  # seconds for a scheduler to answer a connection
NO_CERTIFICATES = (
    "its certificates are not set: give Dask's distributed.comm.tls.ca-file, client.cert and "
    "client.key in a file that DASK_CONFIG names"
)
ADVICE = {
    **dict.fromkeys(PLAIN, ", or one with TLS: then write tls://HOST:PORT"),
    **dict.fromkeys(ENCRYPTED, ", or one without TLS or with other certificates"),
}


class ClusterWorkers(Executor):
    """The workers of a Dask client; results are released as soon as they are taken."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._calls: dict[Future[Any], Any] = {}  # Dask's futures of the calls in flight
        self._deaths: dict[str, int] = {}  # by key: known deaths of workers that had the call
        self._asked = 0.0  # when all calls in flight were last asked for

    @property
    def _max_workers(self) -> int:  # as other executors call it
        return max(1, sum(self.client.nthreads().values()))

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, avoid: str | None = None, **kwargs: Any
    ) -> Future[Any]:
        """Call a function in a worker; if possible, not in the one to avoid."""
        others = [at for at in self.client.nthreads() if at != avoid] if avoid else []
        chosen = {"workers": others, "allow_other_workers": True} if others else {}
        future: Future[Any] = Future()

        def hand_over(call: Any) -> None:
            with suppress(InvalidStateError):  # it was given up
                try:
                    future.set_result(call.result())
                except BaseException as error:
                    future.set_exception(error)

        call = self.client.submit(fn, *args, pure=False, **chosen, **kwargs)
        self._calls[future] = call
        call.add_done_callback(hand_over)
        return future

    def run_again(
        self, ended: Iterable[Future[Any]], in_flight: Iterable[Future[Any]]
    ) -> list[Future[Any]]:
        """Calls whose worker died since this was last asked: Dask runs them again by itself.

        Dask counts deaths while a future is referenced, also of calls that have finished. The
        others are asked for now and then: there may be thousands.
        """
        if (now := time.monotonic()) > self._asked + ASKING:
            ended, self._asked = in_flight, now

        def deaths(keys: list[str], dask_scheduler: Any = None) -> dict[str, int]:
            tasks = dask_scheduler.tasks  # a nested function is sent by value, not imported
            return {key: tasks[key].suspicious for key in keys if key in tasks}

        keys = {self._calls[future].key: future for future in ended if future in self._calls}
        found: Any = self.client.run_on_scheduler(deaths, list(keys))
        again = [keys[key] for key, count in found.items() if count > self._deaths.get(key, 0)]
        self._deaths |= {key: count for key, count in found.items() if count}
        return again

    def release(self, future: Future[Any]) -> None:
        """Let the cluster forget a call."""
        if future in self._calls:
            call = self._calls.pop(future)
            self._deaths.pop(call.key, None)
            call.release()


@contextmanager
def cluster(address: str) -> Iterator[ClusterWorkers]:
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
        yield ClusterWorkers(client)


def _check_answers(address: str) -> None:
    """Raise an error if no scheduler answers: a client that cannot connect leaves threads behind.

    Dask itself would try again until it has waited long enough, whatever the reason.
    """
    scheme, _, place = address.rpartition("://")
    if scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is not one of {', '.join(filter(None, SCHEMES))}")
    if scheme in (*PLAIN, *ENCRYPTED):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"write {scheme or 'tcp'}://HOST:PORT")
        socket.create_connection((host.strip("[]"), int(port)), timeout=GREETING).close()
    import asyncio

    with ThreadPoolExecutor(1) as thread:  # this one may have an event loop, as in a notebook
        thread.submit(asyncio.run, _greet(address, scheme)).result()


async def _greet(address: str, scheme: str) -> None:
    """Connect once, and exchange the greetings of Dask's protocol."""
    import asyncio

    import dask.config
    from distributed.comm.core import connect
    from distributed.security import Security

    if dask.config.get("distributed.client.security-loader", None):
        return  # only the client knows what it loads
    try:
        options = Security().get_connection_args("client")
    except OSError as error:
        raise ValueError(f"the certificates that Dask is told of cannot be read: {error}") from None
    if scheme in ENCRYPTED and options.get("ssl_context") is None:
        raise ValueError(NO_CERTIFICATES)
    try:
        greeted = await asyncio.wait_for(connect(address, timeout=GREETING, **options), GREETING)
    except TimeoutError:
        raise OSError(
            f"what listens there has not greeted as one for {GREETING:g} seconds"
        ) from None
    except Exception as error:
        why = " ".join(str(error.__cause__ or error).split())
        raise OSError(f"what listens there is not one ({why}){ADVICE.get(scheme, '')}") from None
    greeted.abort()
