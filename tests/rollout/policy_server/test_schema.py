"""The policy server's HTTP part keeps to its own OpenAPI schema, whatever it is sent."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(SCHEMATHESIS), reason="needs lookact[dev]")
def test_the_server_keeps_to_its_schema(serve_policy, tmp_path):
    url = serve_policy().replace("ws", "http")
    command = [
        SCHEMATHESIS,
        "run",
        f"{url}/openapi.json",
        "--max-examples=8",
        "--generation-deterministic",
        "--no-color",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "4/4" in done.stdout
