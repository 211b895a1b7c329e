import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.workers import in_workers
from lookact.errors import EnvError

MAKE = partial(Tabletop, image_size=32)


def _die(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number


@pytest.mark.slow
def test_a_worker_that_dies_is_said():
    with pytest.raises(EnvError, match="a worker process died"):
        list(in_workers(_die, [(number,) for number in range(6)], MAKE, 1))


ENDLESS = """
import itertools, os, time
from functools import partial
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.workers import in_workers

pids = in_workers(os.getpid, itertools.repeat(()), partial(Tabletop, image_size=32), 1)
print(next(pids), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_workers_end_with_whoever_started_them():
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True) as driver:
        worker = Path("/proc", driver.stdout.readline().strip())
        worked = worker.exists()
        driver.kill()
    assert worked
    began = time.monotonic()
    while worker.exists():
        assert time.monotonic() < began + 60
        time.sleep(0.05)
