"""Run many small cases in child processes and see what becomes of each.

A case may refuse, or work. It must not end its process by a signal, hang, or take much more memory
than it was given bytes.
"""

import os
import resource
import select
import signal
import time
from collections import Counter
from pathlib import Path

#: Seconds of work for one case, and seconds by the clock, in which a busy machine does less;
PATIENCE, LONGEST = 20, 300
#: cases for one child, so that what one leaves behind is not another's.
PER_CHILD = 250
#: Bytes of memory allowed for each byte of a case, and beside them (allocators round up).
FACTOR, SLACK = 100, 64 * 2**20
#: A case that asks for more than this at once gets a MemoryError instead.
ADDRESS_SPACE = 4 * 2**30


def watch(count, case, *, first=0):
    """Run ``case(number)`` for ``count`` numbers.

    Parameters
    ----------
    count : int
    case : callable
        Returns the size of its input in bytes and a word for what became of it.
    first : int, default=0

    Returns
    -------
    outcomes : Counter
        How often each word was returned.
    failures : list of str
        What must not happen, with the number of the case.
    """
    outcomes, failures, number = Counter(), [], first
    while number < first + count:
        last = min(number + PER_CHILD, first + count)
        number = _child(case, number, last, outcomes, failures)
    return outcomes, failures


def _child(case, number, last, outcomes, failures):
    """Run cases in one child; return the number to go on with."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(case, number, last, writing)
    os.close(writing)
    # Without a buffer, in which a line could wait while we wait for the next.
    with open(reading, "rb", buffering=0) as answers:
        while number < last:
            if _hangs(child, answers):
                failures.append(f"case {number} hangs")
                os.kill(child, signal.SIGKILL)
                break
            answer = answers.readline().decode()
            if not answer:
                break
            word = answer.strip()
            if word.startswith("case"):
                failures.append(word)
            else:
                outcomes[word] += 1
            number += 1
    status = os.waitpid(child, 0)[1]
    if number < last:
        if os.WIFSIGNALED(status) and not (failures and failures[-1] == f"case {number} hangs"):
            failures.append(f"case {number} ends by signal {os.WTERMSIG(status)}")
        number += 1
    return number


def _hangs(child, answers):
    """Wait for an answer; return whether the child works for too long without one."""
    before, end = _work_of(child), time.monotonic() + LONGEST
    while not select.select([answers], [], [], 1)[0]:
        if _work_of(child) - before > PATIENCE or time.monotonic() > end:
            return True
    return False


def _work_of(child):
    """Seconds that a process has been running on a core."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _work(case, number, last, writing):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + ADDRESS_SPACE, space + ADDRESS_SPACE))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for each in range(number, last):
        try:
            size, word = case(each)
        except MemoryError:
            size, word = 0, f"case {each} asks for more memory than there is"
        except BaseException as error:
            size, word = 0, f"case {each} raises {type(error).__name__}: {error}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if size and grown > FACTOR * size + SLACK:
            word = f"case {each} takes {grown / 2**20:.0f} MiB for {size} bytes"
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(writing, (" ".join(word.split())[:300] + "\n").encode())
    os._exit(0)
