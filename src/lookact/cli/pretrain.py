"""Make the general tiny VLM, once, and keep it in the cache: then --model.source general-tiny takes it.

It learns colours, shapes, places, counts and directions on synthetic scenes, in several minutes of one core, and says
how much it knows at the end. The cache is LOOKACT_CACHE, else lookact in the user's cache folder.
"""

from __future__ import annotations

import json
from pathlib import Path

from lookact.cli.output import say, show_log
from lookact.cli.parser import Arguments, Parser, positive_int

EXAMPLES = ("lookact pretrain", "lookact pretrain --seed 1 --out general-1")


def add_options(parser: Parser) -> None:
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="seeds everything (default: 0)")
    parser.add_argument("--conversations", metavar="N", type=positive_int, help="conversations of SFT")
    parser.add_argument("--images", metavar="N", type=positive_int, help="images of vision pretraining")
    parser.add_argument("--out", metavar="DIR", type=Path, help="write it here instead, for --model.source DIR")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    from lookact.models.vlm.general import GeneralSpec

    chosen = {name: getattr(arguments, name) for name in ("seed", "images", "conversations")}
    spec = GeneralSpec(**{name: number for name, number in chosen.items() if number is not None})
    folder = arguments.out or spec.folder
    if (folder / "config.json").exists():
        say(f"{folder} is there already")
        return
    from lookact.algorithms.general_vlm import make_general

    show_log()
    folder.parent.mkdir(parents=True, exist_ok=True)
    accuracy = make_general(spec, folder)
    if arguments.json:
        say(json.dumps({"folder": str(folder), "accuracy": accuracy}))
        return
    say(f"{folder}: right on new scenes, " + ", ".join(f"{kind} {right:.0%}" for kind, right in accuracy.items()))
