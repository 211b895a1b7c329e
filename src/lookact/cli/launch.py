"""Runs a command as several processes that train together, by torchrun's own launcher.

The processes share this one's terminal. The first that fails ends all of them, and what it had to say is said here.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lookact.config import aliases
from lookact.errors import Terminated

RUN_ID = "lookact-"
"""How the id of our own launches begins; under torchrun itself it is another."""
COMMAND = ("-m", "lookact")
MONITOR_SECONDS = 0.5
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def to_launch(processes: int) -> bool:
    """Whether more processes are wanted than this one, and it is not itself one of several."""
    return processes > 1 and "RANK" not in os.environ


def is_launched() -> bool:
    """Whether `launch` started this process: it leaves all talking to the one that did."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "").startswith(RUN_ID)


def launch(words: Sequence[str], processes: int) -> None:
    """Run `lookact` with these words in that many processes; ends this one as they did if one of them fails."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence_launcher()
    handlers = {name: signal.getsignal(name) for name in SIGNALS}
    with tempfile.TemporaryDirectory() as notes:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=f"{RUN_ID}{os.getpid()}",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=MONITOR_SECONDS,
            logs_specs=DefaultLogsSpecs(log_dir=notes),
        )
        try:
            elastic_launch(config, sys.executable)(*COMMAND, *words)
        except SignalException as stop:
            raise (Terminated() if stop.sigval == signal.SIGTERM else KeyboardInterrupt()) from stop
        except ChildFailedError as failed:
            _end_as(list(failed.failures.values()))
        finally:
            for name, handler in handlers.items():
                signal.signal(name, handler)


def prepare_process() -> None:
    """Before anything heavy is imported; in a launched process one thread each, and no life after the launcher's."""
    # it warns, wherever it is imported, of a faster kernel that it could fetch
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    if not is_launched():
        return
    # the launcher has warned of old names already
    logging.getLogger(aliases.__name__).setLevel(logging.ERROR)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # torch warns of host names without an address, at every start
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: a launcher that is killed outright can no longer end its processes
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def write_error_file(line: str, code: int, *, ours: bool) -> None:
    """In a launched process that fails: its one line, for the launcher to say; `ours` is one that we wrote."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if file:
        note = {"message": line, "timestamp": int(time.time()), "code": code, "ours": ours, "at": time.time()}
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(json.dumps(note), encoding="utf-8")


def _silence_launcher() -> None:
    """What it logs is of itself alone: a failed process tells its own reason."""
    for name in list(logging.root.manager.loggerDict):
        # each has a level of its own
        if name.startswith("torch.distributed."):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _end_as(failures: Sequence[Any]) -> None:
    """Say what the failed processes came to, and leave with their exit code."""
    notes = [failure.error_file_data for failure in failures if "code" in failure.error_file_data]
    if notes:
        # what one process refused is the reason; that others lost the connection to it is not
        first: Mapping[str, Any] = min(notes, key=lambda note: (not note["ours"], note["at"]))
        sys.stderr.write(f"lookact: {first['message']}\n")
        raise SystemExit(first["code"])
    code = failures[0].exitcode
    if code < 0:
        name = signal.Signals(-code).name
        sys.stderr.write(f"lookact: a process was ended by {name}; train continues where it was with --auto-resume\n")
    raise SystemExit(1)
