"""The `lookact` command: finds the command, runs it, and turns any failure into one line and an exit code.

0 success · 1 a failed run · 2 bad usage or bad input · 130 interrupted · 143 ended by SIGTERM. `--debug` shows
the traceback instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from lookact.cli.launch import is_launched, prepare_process, write_error_file
from lookact.cli.parser import run
from lookact.errors import ConfigError, DataError, LookActError, Terminated

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    prepare_process()
    try:
        run(words)
        sys.stdout.flush()
    except Terminated:
        _report("ended by SIGTERM; train continues where it was with --auto-resume", 143)
        return 143
    except SystemExit as stop:
        # argparse leaves this way after --help and --version
        return int(stop.code or 0)
    except KeyboardInterrupt:
        _report("interrupted; train continues where it was with --auto-resume", 130)
        return 130
    except BrokenPipeError:
        # whoever read our output has seen enough; the interpreter must not try to flush it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        code = 2 if isinstance(error, ConfigError | DataError) else 1
        _report(_message(error), code, ours=isinstance(error, LookActError))
        return code
    return 0


def _message(error: Exception) -> str:
    if isinstance(error, LookActError):
        return str(error)
    return f"failed: {type(error).__name__}: {error} (--debug shows where)"


def _report(text: str, code: int, *, ours: bool = True) -> None:
    line = " ".join(text.split())
    if is_launched():
        write_error_file(line, code, ours=ours)
    else:
        sys.stderr.write(f"lookact: {line}\n")
