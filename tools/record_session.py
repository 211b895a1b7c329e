"""Runs the commands of a page anew and puts what they said under them: `python tools/record_session.py PAGE`.

A command stands behind a `$` in a console block. All run in order in one folder, as a user's shell would; the first
that fails ends the recording with its output. Long output is shown by its beginning and its end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEAD, TAIL = 12, 16
"""Lines that are shown of long output."""


@dataclass(frozen=True)
class Spoken:
    """One command, and what came of it."""

    command: str
    code: int
    output: str
    seconds: float


def commands(page: str) -> list[str]:
    """The commands of a page, in order."""
    return [line[2:] for block in CONSOLE.findall(page) for line in block.splitlines() if line.startswith("$ ")]


def record(page: str, folder: Path) -> Iterator[Spoken]:
    """Run a page's commands in a folder, as far as they succeed."""
    # where `pip install` puts commands of the environment that runs this
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    for command in commands(page):
        began = time.perf_counter()
        done = subprocess.run(
            command, shell=True, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        yield Spoken(command, done.returncode, done.stderr + done.stdout, time.perf_counter() - began)
        if done.returncode != 0:
            return


def rewrite(page: str, session: list[Spoken]) -> str:
    """The page with what was said in place of what stood there."""
    said = {spoken.command: spoken for spoken in session}

    def block(match: re.Match[str]) -> str:
        there = [said[command] for command in commands(match.group(0)) if command in said]
        return "```console\n" + "".join(f"$ {one.command}\n{shortened(one.output)}" for one in there) + "```"

    return CONSOLE.sub(block, page)


def shortened(output: str) -> str:
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    if len(lines) > HEAD + TAIL + 1:
        lines = [*lines[:HEAD], f"… {len(lines) - HEAD - TAIL} lines more …", *lines[-TAIL:]]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    path = Path(sys.argv[1])
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        session = list(record(page, Path(folder)))
    for spoken in session:
        sys.stdout.write(f"{spoken.seconds:6.1f} s  {spoken.command}\n")
    if session[-1].code != 0:
        sys.stderr.write(session[-1].output)
        return 1
    path.write_text(rewrite(page, session), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
