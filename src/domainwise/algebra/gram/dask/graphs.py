"""Building blocks of task graphs: constants, tasks with one BLAS thread, and trees of merges.

A function decorated with :func:`task` limits BLAS to one thread, and its arguments are aligned
arrays, which BLAS can use. Partial results are merged in a tree that depends only on their number.
The bits of a result therefore do not depend on the number of workers or on which worker ran which
task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any
from uuid import uuid4

import cloudpickle
import dask
import numpy as np

from domainwise.base.process import single_blas_thread

Task = Any

#: Number of partial results that one task merges.
FAN_IN = 4


class Constant:
    """A value that is pickled in one piece, so that its arrays are aligned on workers.

    ``n_bytes`` is the size of the pickle, from which Dask estimates transfer times.
    """

    def __init__(self, value: Any, n_bytes: int = 0) -> None:
        self.value, self.n_bytes = value, n_bytes

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return _load_constant, (cloudpickle.dumps(self.value, protocol=5),)

    def __sizeof__(self) -> int:
        return self.n_bytes


def _load_constant(pickle_bytes: bytes) -> Constant:
    return Constant(cloudpickle.loads(pickle_bytes), len(pickle_bytes))


def constant(value: Any, name: str) -> Task:
    """Return a task with the result ``value``, which is sent to each worker once."""
    return dask.delayed(Constant(value), name=f"{name}-{uuid4().hex}", traverse=False)


class Deferred:
    """Rows that a task reads itself, so that workers do not send them to each other."""

    def __init__(self, read: Callable[..., Any], *arguments: Any) -> None:
        self.read, self.arguments = read, arguments


def task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that runs in a task: limit BLAS to one thread, and unwrap arguments."""

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with single_blas_thread():
            return function(
                *map(unwrap, args), **{name: unwrap(value) for name, value in kwargs.items()}
            )

    return wrapper


def unwrap(value: Any) -> Any:
    """Return the value of a constant, read deferred rows, and copy unaligned arrays.

    Arrays from network buffers may be unaligned. NumPy multiplies unaligned arrays without BLAS,
    which is slow and rounds differently.
    """
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, Deferred):
        return value.read(*value.arguments)
    if isinstance(value, list | tuple):
        return type(value)(map(unwrap, value))
    if isinstance(value, np.ndarray) and not value.flags.aligned:
        return value.copy(order="K")
    return value


def calls(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Task]:
    """Return one task per tuple of arguments, all in one group.

    The scheduler distributes the tasks of a group that has few dependencies among free workers.
    Without a group, it would send all tasks to the worker that has their constants.
    """
    group_name = f"{function.__name__}-{uuid4().hex}"
    make_task = dask.delayed(function, pure=False, traverse=False)
    return [make_task(*args, dask_key_name=(group_name, i)) for i, args in enumerate(arguments)]


def tree(tasks: Sequence[Task], merge: Callable[[list[Any]], Any]) -> Task:
    """Return a task that merges the results of all tasks, ``FAN_IN`` adjacent ones at a time."""
    level_tasks, make_task = list(tasks), dask.delayed(merge, pure=False, traverse=False)
    while len(level_tasks) > 1:
        groups = [level_tasks[i : i + FAN_IN] for i in range(0, len(level_tasks), FAN_IN)]
        level_tasks = [make_task(group) if len(group) > 1 else group[0] for group in groups]
    return level_tasks[0]


def run(tasks: Sequence[Task]) -> list[Any]:
    """Compute tasks with the current client, or Dask's local scheduler if there is no client."""
    return [unwrap(result) for result in dask.compute(*tasks, traverse=False)]
