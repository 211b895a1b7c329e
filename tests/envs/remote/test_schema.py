"""The environment server keeps to its own OpenAPI schema, whatever it is sent."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(SCHEMATHESIS), reason="needs lookact[dev]")
def test_the_server_keeps_to_its_schema(serve_task, tmp_path):
    from lookact.tasks.registry import find_task, make_task

    task = make_task(find_task("frozen-lake")(size=2, max_turns=2), 0)
    command = [
        SCHEMATHESIS,
        "run",
        f"{serve_task(task, max_sessions=200)}/openapi.json",
        "--max-examples=8",
        "--generation-deterministic",
    ]
    # which sessions are open, and what an environment takes, cannot be said in a schema
    command += ["--exclude-checks=positive_data_acceptance", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "8/8" in done.stdout
