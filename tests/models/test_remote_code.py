"""No checkpoint brings code of its own: every automatic class is told so."""

import re
from pathlib import Path

import lookact


def test_every_automatic_class_is_told_to_run_no_code():
    calls = re.compile(r"\bAuto(?:Config|Tokenizer|Processor|Model\w*)\.from_pretrained\(([^)]*)\)")
    for path in Path(lookact.__file__).parent.rglob("*.py"):
        for found in calls.finditer(path.read_text()):
            assert "trust_remote_code=False" in found[1] or "**options" in found[1], f"{path}: {found[0]}"
