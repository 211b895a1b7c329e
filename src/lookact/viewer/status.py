"""What became of a run, as far as its folder tells."""

from __future__ import annotations

import re
import time
from pathlib import Path

from lookact.training.run_files import LOG, METRICS, RESULT, is_locked
from lookact.viewer.plain import read_tail

RECENT = 60.0
"""A run that wrote within so many seconds counts as alive, where its lock cannot be seen."""
TAIL = 64 << 10
ENDED = "the run ended with an error"
REMEDY = "train continues where it was with --auto-resume"
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ \w+ ", re.MULTILINE)


def run_status(folder: Path, *, now: float | None = None) -> tuple[str, str]:
    """One of running, finished, failed, interrupted and stopped, and the reason where one is known."""
    if is_locked(folder):
        return "running", ""
    log, result = _changed(folder / LOG), _changed(folder / RESULT)
    reason = last_error(read_tail(folder / LOG, TAIL))
    # what failed after an earlier end wrote to its log since
    if reason is None or (result and result >= log):
        if result:
            return "finished", ""
        wrote = max(log, _changed(folder / METRICS))
        alive = (time.time() if now is None else now) - wrote < RECENT
        return ("running", "") if alive else ("stopped", f"it left no word of its end; {REMEDY}")
    interrupted = reason.startswith("KeyboardInterrupt")
    return ("interrupted", f"by Ctrl-C; {REMEDY}") if interrupted else ("failed", reason)


def last_error(log: str) -> str | None:
    """The line in which a log's last traceback ends, unless the run has written more since."""
    _, marked, after = log.rpartition(ENDED)
    if not marked or _STAMP.search(after):
        return None
    lines = [line for line in after.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ENDED


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
