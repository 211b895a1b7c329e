"""Run a result again and say whether it holds: number by number, the same, within its interval, or not.

CARD is a run folder, a card made of one with --card, or a record that holds its command (benchmarks/grid/*.json).
Digits repeat on one kind of CPU only; on another, intervals are what must agree. Exit code 1 where a measure differs.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from lookact.cli.output import say, write_json
from lookact.cli.parser import Arguments, Parser, find_command
from lookact.config.safe_yaml import load_yaml
from lookact.errors import DataError, VerificationError
from lookact.training.run_files import CONFIG, ORIGIN, RESULT, VERSIONS, read_origin
from lookact.training.verification import Comparison, compare_results

EXAMPLES = (
    "lookact verify runs/nav-rloo/small-seed0",
    "lookact verify runs/nav-rloo/small-seed0 --card nav.json",
    "lookact verify nav.json --json",
    "lookact verify benchmarks/grid/red-square-rloo-seed-0.json",
)
SHOWN = {"same": "same", "agrees": "agrees", "differs": "DIFFERS", "changed": "changed, no interval"}


@dataclass(frozen=True)
class Card:
    """What it takes to do a run again, and what it came to."""

    name: str
    recipe: str
    settings: Mapping[str, Any] | None
    """All settings; None where `words` say them."""
    words: tuple[str, ...]
    """The command line after `lookact train`, of a record that holds it."""
    result: Mapping[str, Any]
    versions: Mapping[str, Any]


def add_options(parser: Parser) -> None:
    parser.add_argument("path", metavar="CARD", type=Path, help="a run folder, a card, or a record with its command")
    parser.add_argument("--card", metavar="FILE", type=Path, help="only write the card of a run, to keep or to send")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs"), help="where the new run is kept (default: runs)"
    )
    parser.add_argument("--auto-resume", action="store_true", help="go on with a verification that was broken off")
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON object")


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    card = read_card(arguments.path)
    if arguments.card is not None:
        write_json({"recipe": card.recipe, "settings": card.settings, **_told(card)}, arguments.card)
        say(f"wrote {arguments.card}: lookact verify {arguments.card} runs it again")
        return
    folder, result = train_again(card, arguments.out, auto_resume=arguments.auto_resume)
    rows = compare_results(card.result, result)
    if not rows:
        raise DataError(f"{arguments.path} and {folder / RESULT} have no number in common")
    if arguments.json:
        say(json.dumps({"run": str(folder), "measures": [{**asdict(row), "verdict": row.verdict} for row in rows]}))
    else:
        show_comparison(rows, card, folder)
    if missed := [row.name for row in rows if row.verdict == "differs"]:
        raise VerificationError(f"{len(missed)} of {len(rows)} measures differ: {', '.join(missed)}")


def read_card(path: Path) -> Card:
    """The card of a run folder, or of a file."""
    if path.is_dir():
        origin = read_origin(path)
        if not origin.get("recipe"):
            raise DataError(f"{path} is no run folder: it has no {ORIGIN} that names a recipe")
        place = str(origin.get("source") or origin["recipe"])
        return Card(path.name, place, _read(path / CONFIG), (), _read(path / RESULT), _read(path / VERSIONS))
    content = _read(path)
    if isinstance(content.get("command"), str):
        words = shlex.split(content["command"])
        if words[:2] != ["lookact", "train"]:
            raise DataError(f"{path}: its command is {content['command'][:60]!r}, not lookact train …")
        return Card(path.stem, "", None, tuple(_without(words[2:], ("--out", "--name"))), content, content)
    if not {"recipe", "settings", "result"} <= set(content):
        raise DataError(f"{path} is no card: it has neither a command nor recipe, settings and result")
    given = content["settings"], (), content["result"], content.get("versions") or {}
    return Card(path.stem, str(content["recipe"]), *given)


def train_again(card: Card, out: Path, *, auto_resume: bool = False) -> tuple[Path, dict[str, Any]]:
    """Train from the card's settings or command; the new run's folder and its result."""
    train, parser = find_command("train")
    with tempfile.TemporaryDirectory() as scratch:
        words = list(card.words)
        if card.settings is not None:
            file = Path(scratch) / f"{card.name}.yaml"
            file.write_text(yaml.safe_dump(dict(card.settings), sort_keys=False), encoding="utf-8")
            words = [card.recipe, "--config", str(file)]
        words += ["--out", str(out), "--name", f"{card.name}-again", *(["--auto-resume"] if auto_resume else [])]
        given, rest = parser.parse_known_args(words)
        given.words = ["train", *words]
        _, folder, result = train.train_from(given, rest, parser)
    return folder, result


def show_comparison(rows: Sequence[Comparison], card: Card, folder: Path) -> None:
    """A line a measure, and what the two runs ran on."""
    width = max(len(row.name) for row in rows)
    for row in rows:
        recorded, again = (
            _shown(value, bounds)
            for value, bounds in ((row.recorded, row.recorded_interval), (row.again, row.again_interval))
        )
        say(f" {row.name:{width}}  {recorded:>26}  {again:>26}  {SHOWN[row.verdict]}")
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in SHOWN}
    say("\n " + ", ".join(f"{count} {SHOWN[verdict].lower()}" for verdict, count in counts.items() if count))
    now = _read(folder / VERSIONS)
    known = {name: value for name, value in now.items() if name in card.versions}
    others = [
        f"{name} {card.versions[name]} → {value}" for name, value in known.items() if card.versions[name] != value
    ]
    say(f" unlike the recorded run: {', '.join(others)}" if others else " the same versions and commit")
    say(f" the new run is in {folder}")


def _told(card: Card) -> dict[str, Any]:
    if card.settings is None:
        raise DataError(f"{card.name} is a record with its command already: verify it as it is")
    return {"result": card.result, "versions": card.versions}


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = load_yaml(text) if path.suffix == ".yaml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {type(error).__name__}; a run that ended has it") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no mapping")
    return content


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """The words without these options and their values."""
    kept, skip = list[str](), False
    for word in words:
        if not skip and word not in options:
            kept.append(word)
        skip = not skip and word in options
    return kept


def _shown(value: float, bounds: tuple[float, float] | None) -> str:
    return f"{value:.4g}" + ("" if bounds is None else f" [{bounds[0]:.4g}, {bounds[1]:.4g}]")
