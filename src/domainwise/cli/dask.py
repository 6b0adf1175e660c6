"""The options ``--dask`` and ``--jobs``: where a command computes."""

from __future__ import annotations

import logging
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from domainwise.cli.common import shown, stderr

#: Seconds to wait for the answer of a scheduler, and for its first worker.
PATIENCE = 5


def processes(jobs: int | None, where: str | None) -> int:
    """Return the number of processes: that of ``--jobs``, or -1 for all cores or Dask workers."""
    if jobs is not None and (jobs == 0 or jobs < -1):
        raise ValueError(f"--jobs must be at least 1, or -1 for all cores; got {jobs}")
    if where is not None and jobs is not None:
        raise ValueError("--dask uses all workers of the cluster: leave out --jobs")
    return -1 if jobs is None else jobs


@contextmanager
def connected(where: str | None) -> Iterator[Any]:
    """Open the client that ``--dask`` asks for; close it, and a cluster that was started for it.

    ``where`` is the address of a scheduler, "local" for a cluster of this machine's cores, or None.
    """
    if where is None:
        yield None
        return
    from domainwise.checks import needs_extra

    with needs_extra("--dask", "dask"):
        import dask
        from distributed import Client
    with ExitStack() as stack:
        # Rows of a table in memory are sent with their tasks, on purpose: no warning.
        large = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
        stack.enter_context(dask.config.set(large))
        if where == "local":
            cluster = stack.enter_context(_local_cluster())
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.run(_ignore_interrupts)
        else:
            client = stack.enter_context(_connect(where))
        n_workers = len(client.nthreads())
        try:
            dashboard = f"dashboard at {client.dashboard_link}"
            if where == "local" and not find_spec("bokeh"):
                dashboard += " (pip install bokeh to see it)"
        except KeyError:  # the scheduler was started without one
            dashboard = "no dashboard"
        workers = "1 worker" if n_workers == 1 else f"{n_workers} workers"
        stderr().print(f"dask: {workers}, {shown(dashboard)}", soft_wrap=True)
        yield client


def _local_cluster() -> Any:
    """Start one single-threaded worker per core, on the loopback interface only."""
    from dask.system import CPU_COUNT
    from distributed import LocalCluster

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        return LocalCluster(
            n_workers=CPU_COUNT,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:8787",
            # Errors of tasks reach the user as errors of the command.
            silence_logs=logging.CRITICAL,
        )


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the command handles it and closes its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connect(address: str) -> Any:
    """Return a client, after checking that the scheduler answers and has workers."""
    import asyncio

    from distributed import Client, Security
    from distributed.comm import connect

    async def greet() -> None:  # a client would wait forever for, say, a web server
        async with asyncio.timeout(PATIENCE):
            comm = await connect(address, **Security().get_connection_args("client"))
            await comm.close()

    if not re.fullmatch(r"((tcp|tls|ws|wss)://)?[^\s/]+:\d+", address):
        raise ValueError(
            f"--dask {address!r}: pass the address of a scheduler, such as tcp://10.0.0.1:8786, or "
            "local"
        )
    try:
        asyncio.run(greet())
    except (OSError, TypeError) as error:
        reason = str(error) or f"waited {PATIENCE} seconds"
        raise ValueError(
            f"--dask {address}: no Dask scheduler answers there ({reason}); start one with dask "
            "scheduler, or use --dask local"
        ) from None
    client = Client(address, timeout=PATIENCE, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()
        raise ValueError(
            f"--dask {address}: the scheduler has no workers; start one with dask worker {address} "
            "(an adaptive cluster needs a minimum of one)"
        ) from None
    return client
