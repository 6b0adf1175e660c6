"""The options ``--dask`` and ``--jobs``, which control where computations run."""

from __future__ import annotations

import logging
import re
import signal
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from domainwise.cli.common import count, escaped, stderr

#: Seconds to wait for a scheduler to respond, and for its first worker.
TIMEOUT_SECONDS = 5


def resolve_jobs(jobs: int | None, dask_address: str | None) -> int:
    """Return the value of ``--jobs``; the default is -1, for all cores or Dask workers."""
    if jobs is not None and (jobs == 0 or jobs < -1):
        raise ValueError(f"--jobs must be at least 1, or -1 for all cores; got {jobs}")
    if dask_address is not None and jobs is not None:
        raise ValueError("--jobs cannot be used with --dask, which uses all workers; remove --jobs")
    return -1 if jobs is None else jobs


@contextmanager
def dask_client(address: str | None) -> Iterator[Any]:
    """Yield a Dask client; then close it, and the cluster if one was started for it.

    ``address`` is the address of a scheduler, "local" to start a cluster on this machine, or None
    to yield None.
    """
    if address is None:
        yield None
        return
    from domainwise.base.messages import needs_extra

    with needs_extra("--dask", "dask"):
        import dask
        from distributed import Client
    with ExitStack() as stack:
        # Do not warn about large graphs: a table in memory is deliberately sent with the tasks.
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
        stack.enter_context(dask.config.set(settings))
        if address == "local":
            cluster = stack.enter_context(_local_cluster())
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.run(_ignore_interrupts)
        else:
            client = stack.enter_context(_connect(address))
        try:
            dashboard_text = f"dashboard at {client.dashboard_link}"
            if address == "local" and not find_spec("bokeh"):
                dashboard_text += " (requires pip install bokeh)"
        except KeyError:  # the scheduler was started without a dashboard
            dashboard_text = "no dashboard"
        workers_text = count(len(client.nthreads()), "worker")
        stderr().print(f"dask: {workers_text}, {escaped(dashboard_text)}", soft_wrap=True)
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
            # The command itself reports errors in tasks.
            silence_logs=logging.CRITICAL,
        )


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the command handles it and closes its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connect(address: str) -> Any:
    """Return a client, after checking that the scheduler responds and has workers."""
    import asyncio

    from distributed import Client, Security
    from distributed.comm import connect

    # A client would wait forever if something else, such as a web server, used this address.
    async def check_scheduler() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            comm = await connect(address, **Security().get_connection_args("client"))
            await comm.close()

    if not re.fullmatch(r"((tcp|tls|ws|wss)://)?[^\s/]+:\d+", address):
        raise ValueError(
            f"--dask {address!r} is not the address of a Dask scheduler; pass an address such as "
            'tcp://10.0.0.1:8786, or "local"'
        )
    try:
        asyncio.run(check_scheduler())
    except (OSError, TypeError) as error:
        reason = str(error) or f"no response after {TIMEOUT_SECONDS} seconds"
        raise ValueError(
            f"--dask {address}: cannot connect to a Dask scheduler ({reason}); start one with "
            "`dask scheduler`, or use --dask local"
        ) from None
    client = Client(address, timeout=TIMEOUT_SECONDS, set_as_default=False)
    try:
        client.wait_for_workers(1, timeout=TIMEOUT_SECONDS)
    except TimeoutError:
        client.close()
        raise ValueError(
            f"--dask {address}: the scheduler has no workers; start one with "
            f"`dask worker {address}` (if the cluster is adaptive, set its minimum to at least 1)"
        ) from None
    return client
