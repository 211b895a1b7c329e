"""Certify that a model is scored as it is sampled: |Δ log p| with and without KV reuse, adapters and company.

MODEL is a folder, a name on the Hub, or a family, whose tiny checkpoint is made on the spot: qwen3-vl, qwen3-vl-moe,
qwen2.5-vl, smolvlm, internvl or gemma3. In float32 no token may be off by more than 1e-4 nats.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from lookact.cli.output import new_table, say, show_log, show_table, write_json
from lookact.cli.parser import Arguments, Parser
from lookact.errors import TokenMismatch

EXAMPLES = ("lookact parity smolvlm", "lookact parity Qwen/Qwen3-VL-2B-Instruct --device cuda --out parity.json")
CORPUS = ("Where is it?", "Look again.", "Be brief.", "It is to the left of the red chair.") * 8


def add_options(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder, a Hub name, or a family for its tiny checkpoint")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the certificate here as JSON")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="(default: float32)")
    parser.add_argument("--device", metavar="D", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print the certificate as JSON")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    show_log()
    told = certify(arguments.model, dtype=arguments.dtype, device=arguments.device)
    if arguments.out is not None:
        write_json(told, arguments.out)
    if arguments.json:
        say(json.dumps(told))
    else:
        show_rows(told)
    if not told["passes"]:
        raise TokenMismatch(f"{arguments.model} is not scored as it is sampled: do not train it with this sampler")


def certify(model: str, *, dtype: str = "float32", device: str = "cpu") -> dict[str, Any]:
    """The certificate of a checkpoint, or of a family's tiny one."""
    from lookact.algorithms.parity import certificate
    from lookact.models.vlm.families import FAMILIES
    from lookact.models.vlm.sources import CHAT, check_source
    from lookact.models.vlm.tiny import TinySpec, make_tiny

    if model not in FAMILIES:
        check_source(model, CHAT)
        return {"model": model, **certificate(model, dtype=dtype, device=device)}
    spec = TinySpec(hidden=64, vision_hidden=32, image_size=64, vocabulary=512, family=model)
    with tempfile.TemporaryDirectory() as folder:
        make_tiny(folder, corpus=CORPUS, spec=spec)
        return {"model": f"tiny {model}", **certificate(folder, dtype=dtype, device=device)}


def show_rows(told: dict[str, Any]) -> None:
    """The certificate as a table."""
    table = new_table()
    for heading in ("family", "sampler", "KV reuse", "weights", "batch", "tokens", "mean", "99.9%", "max"):
        table.add_column(heading, justify="left" if heading in ("family", "sampler", "weights") else "right")
    for row in told["rows"]:
        gaps = (f"{row[name]:.1e}" for name in ("mean", "quantile", "max"))
        reuse = "on" if row["reuse"] else "off"
        table.add_row(
            row["family"], row["sampler"], reuse, row["weights"], str(row["batch"]), str(row["tokens"]), *gaps
        )
    verdict = "scored as it is sampled" if told["passes"] else "NOT scored as it is sampled"
    show_table(table, f"{told['model']}, {told['dtype']}: {verdict}; |Δ log p| in nats")
