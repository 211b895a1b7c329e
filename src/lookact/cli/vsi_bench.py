"""Ask a model VSI-Bench's rows about their videos, as the benchmark does: its prompts, greedy replies of at most 16
tokens, no system prompt. Answers are kept one by one: a run that was ended goes on, and shards may share a folder."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.cli.output import format_value, new_table, say, show_log, show_table, write_json
from lookact.cli.parser import Parser, new_parser, positive_int
from lookact.errors import ConfigError

if TYPE_CHECKING:
    from lookact.cli.parser import Arguments
    from lookact.vsi_bench.answerers import Ask

NAME = "vsi-bench"
EXAMPLES = (
    "lookact eval vsi-bench --questions test.parquet --videos VSI-Bench --model Qwen/Qwen3-VL-8B-Instruct",
    "lookact eval vsi-bench --questions test.parquet --videos VSI-Bench --server http://127.0.0.1:8000 --shard 0/4",
    "lookact eval vsi-bench --questions test.parquet --blind --model runs/vqa-ppo/small-seed0/best --scoring exact",
)
CELL = 32
"""Qwen3-VL takes one token for 32x32 pixels."""


def make_parser() -> Parser:
    parser = new_parser(f"lookact eval {NAME}", str(__doc__).strip(), examples=EXAMPLES)
    add = parser.add_argument
    number: Any = {"metavar": "N", "type": positive_int}
    add("--questions", metavar="FILE", type=Path, required=True, help="the benchmark's rows, parquet or JSONL")
    add("--videos", metavar="DIR", type=Path, help="holds DATASET/SCENE.mp4, or ARKitScenes folders DATASET/SCENE")
    add("--blind", action="store_true", help="show no frames: what the words alone give away")
    add("--model", metavar="M", help="a checkpoint folder or a Hub name; with --server, the name there")
    add("--server", metavar="URL", help="ask a server that speaks OpenAI's chat completions (token: SERVER_TOKEN)")
    add("--wait", metavar="S", type=float, default=0.0, help="seconds to wait for --server to come up (default: 0)")
    add("--engine", choices=("hf", "vllm"), default="hf", help="who runs --model (default: hf)")
    add("--frames", **number, default=32, help="frames of each video, evenly spaced (default: 32)")
    scoring = "as published, to the bit; or ours, which forgives blanks, JSON and rounding (default: official)"
    add("--scoring", choices=("official", "exact"), default="official", help=scoring)
    add("--ids", metavar="FILE", type=Path, help="only the rows with these ids, one a line: VSI-Bench-Debiased")
    add("--shard", metavar="I/N", default="0/1", help="only the I-th of N shares of the scenes, from 0 (default: 0/1)")
    add("--batch", **number, default=8, help="rows of one scene asked together (default: 8)")
    add("--device", metavar="D", default="cpu", help="cpu, cuda, cuda:1 or auto (default: cpu)")
    add("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="(default: float32)")
    add("--max-context", **number, default=32_768, help="tokens of prompt and reply (default: 32768)")
    add("--max-image-tokens", **number, help="larger frames shrink to as many cells of 32x32 pixels (hf)")
    add("--out", metavar="DIR", type=Path, help="for answers and results (default: runs/vsi-bench/MODEL)")
    add("--output", metavar="FILE", type=Path, help="also write the result to this JSON file")
    add("--json", action="store_true", help="print the result as one JSON object")
    return parser


def run(words: list[str]) -> None:
    arguments = make_parser().parse_args(words)
    index, count = shard(arguments.shard)
    if not arguments.blind and arguments.videos is None:
        raise ConfigError("nothing to show: give --videos DIR, or --blind")
    if not arguments.blind and not arguments.videos.is_dir():
        raise ConfigError(f"--videos {arguments.videos}: is no folder; give the one that holds DATASET/SCENE.mp4")
    if not arguments.model and not arguments.server:
        raise ConfigError("nobody to ask: give --model, a folder or a Hub name, or --server URL")
    from lookact.vsi_bench.run import answer_rows, claim, load_rows, make_report, of_shard, sight_gap

    show_log()
    rows = load_rows(arguments.questions, arguments.ids)
    model = arguments.model or arguments.server
    out = arguments.out or Path("runs") / NAME / re.sub(r"[^\w.-]+", "-", model).strip("-.")
    folder = out / ("blind" if arguments.blind else f"frames-{arguments.frames}")
    claim(folder, identity(arguments, model))
    answer_rows(
        of_shard(rows, index, count),
        make_answerer(arguments),
        folder,
        part=f"{index}-of-{count}",
        videos=None if arguments.blind else arguments.videos,
        frames=arguments.frames,
        batch=arguments.batch,
    )
    result = {"model": model, "asked": folder.name} | make_report(rows, folder, scoring=arguments.scoring)
    sighted = sorted(out.glob("frames-*")) if arguments.blind else [folder]
    gaps = {path.name: sight_gap(rows, path, out / "blind", scoring=arguments.scoring) for path in sighted}
    result["gap"] = {name: gap for name, gap in gaps.items() if gap is not None}
    if arguments.output:
        write_json(result, arguments.output)
    show(result, folder, as_json=arguments.json)


def shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not int(found[1]) < int(found[2]):
        raise ConfigError(f"--shard {text}: write I/N with I from 0 to N - 1, as in 0/4")
    return int(found[1]), int(found[2])


def identity(arguments: Arguments, model: str) -> dict[str, Any]:
    """What answers depend on; the rest may change from call to call."""
    from lookact.training.evaluation import fingerprint

    weights = fingerprint(Path(model)) if not arguments.server and Path(model).is_dir() else {}
    known = {
        "model": model,
        "engine": "server" if arguments.server else arguments.engine,
        "weights": weights.get("files"),
        "max_image_tokens": arguments.max_image_tokens,
    }
    return {**known, "questions": hashlib.sha256(arguments.questions.read_bytes()).hexdigest()}


def make_answerer(arguments: Arguments) -> Ask:
    from lookact.vsi_bench.answerers import hf_answerer, server_answerer, vllm_answerer

    if arguments.server:
        token = os.environ.get("SERVER_TOKEN") or ""
        named, batch = arguments.model or "", arguments.batch
        return server_answerer(arguments.server, model=named, token=token, concurrency=batch, wait_s=arguments.wait)
    held: dict[str, Any] = {"dtype": arguments.dtype, "max_context": arguments.max_context}
    if arguments.engine == "vllm":
        return vllm_answerer(arguments.model, **held)
    tokens = arguments.max_image_tokens
    return hf_answerer(
        arguments.model, device=arguments.device, max_pixels=None if tokens is None else tokens * CELL * CELL, **held
    )


def show(result: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    """A row for each type and for the means, the gap to the blind run beside it where there is one."""
    if as_json:
        import json

        say(json.dumps(result))
        return
    table = new_table()
    for heading in ("", "questions", "score", *(f"{name} minus blind" for name in result["gap"])):
        table.add_column(heading, justify="left" if not heading else "right")
    reports = (result, *result["gap"].values())
    for name, count in result["questions"].items():
        cells = [
            format_value("", report["per_type"].get(name, ""), report["ci"]["per_type"].get(name)) for report in reports
        ]
        table.add_row(name, str(count), *cells)
    for name, title in (("overall", "mean of tasks"), ("micro", "mean of questions")):
        cells = [format_value("", report[name], report["ci"][name]) for report in reports]
        table.add_row(title, str(result["answered"]), *cells)
    show_table(
        table, f"{result['model']}, {result['asked']}, {result['scoring']} scoring", note="in brackets: 95% intervals"
    )
    say(f" {result['answered']} of {result['rows']} rows answered, {result['not_asked_yet']} not asked yet")
    for reason, count in result["skipped"].items():
        say(f" {count} skipped: {reason}")
    if result["missing"]:
        say(f" not comparable to others: no questions of {', '.join(result['missing'])}")
    say(f" results.json and samples_vsibench.jsonl are in {folder}")
