"""The server keeps to its own OpenAPI schema, whatever it is sent."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lookact.judges.server.batching import Reply

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


def reply(prompts, dropped):
    for index, _ in enumerate(prompts):
        yield index, Reply("fine", 1, 1)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(SCHEMATHESIS), reason="needs lookact[dev]")
def test_the_server_keeps_to_its_schema(serve_here, tmp_path):
    command = [
        SCHEMATHESIS,
        "run",
        f"{serve_here(reply)}/openapi.json",
        "--max-examples=10",
        "--generation-deterministic",
    ]
    # that a string is an image cannot be said in a schema: a request with another one is rightly refused
    command += ["--exclude-checks=positive_data_acceptance", "--no-color"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "6/6" in done.stdout
