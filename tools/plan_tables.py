"""The tables of docs/scaling.md, by `lookact plan`: `python tools/plan_tables.py` writes them into the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lookact.cli.parser import find_command
from lookact.cli.plan import make_plan
from lookact.cli.recipes import make_config
from lookact.planning.report import CARDS, GIB, Plan, needed, table

PAGE = Path(__file__).parents[1] / "docs/scaling.md"
SIZES = ("2B", "4B", "8B")
MODEL = "Qwen/Qwen3-VL-{}-Instruct"
TOKEN_RECIPES = ("nav-rloo", "vqa-ppo")
FULL = {
    f"{recipe} · {size} · {count}": f"{recipe} --preset full --evaluation.num_envs 32 "
    f"--model.source {MODEL.format(size)} --gpu H100x{count}"
    for recipe in TOKEN_RECIPES
    for size in SIZES
    for count in (1, 2, 8)
}
ONE_CARD = {
    f"{recipe} · {preset}": f"{recipe} --preset {preset} --gpu RTX4090"
    for recipe in TOKEN_RECIPES
    for preset in ("2b", "4b")
}
SERVER = {size: f"pref-sac --preset full --gpu L4 --served {MODEL.format(size)}" for size in SIZES}
SERVER["8B in nf4"] = SERVER["8B"] + " --quantise nf4"
VLA = {str(count): f"vla-ppo --preset full --gpu H100x{count}" for count in (1, 2, 8)}
TABLES = {"full": FULL, "one card": ONE_CARD, "server": SERVER, "vla": VLA}
HEADS = {
    "full": ["recipe · model · H100s"],
    "one card": ["recipe · preset, one RTX 4090"],
    "server": ["judge"],
    "vla": ["vla-ppo · H100s"],
}


def plan_of(words: str) -> Plan:
    """What `lookact plan` would say to these words."""
    _, parser = find_command("plan")
    arguments, rest = parser.parse_known_args(words.split())
    return make_plan(arguments, make_config(arguments, rest, parser=parser))


def row(name: str, plan: Plan) -> list[str]:
    """A plan as a row: GiB of each phase, of the whole card, the smallest card that will do, seconds a step."""
    totals = {phase.name: f"{phase.total / GIB:.1f}" for phase in plan.phases}
    need = needed(plan.peak.total) / GIB
    card = next((f"{card} GB" for card in CARDS if need <= card), "none")
    seconds = [] if plan.seconds is None else [f"{plan.seconds.total:.0f}"]
    return [name, *totals.values(), f"{plan.peak.name}, {plan.peak.stage}", f"{need:.1f}", card, *seconds]


def head(name: str, plan: Plan) -> list[str]:
    phases = [phase.name for phase in plan.phases]
    return [*HEADS[name], *phases, "peak at", "GiB needed", "fits", *(["s a step"] if plan.seconds else [])]


def make_table(name: str) -> str:
    plans = {label: plan_of(words) for label, words in TABLES[name].items()}
    first = next(iter(plans.values()))
    return table([head(name, first), *(row(label, plan) for label, plan in plans.items())])


def write(name: str, made: str) -> None:
    """Put a table between its marks in the page."""
    text = PAGE.read_text(encoding="utf-8")
    marks = f"<!-- plan: {name} -->\n", f"\n<!-- end of {name} -->"
    found = re.search(re.escape(marks[0]) + ".*?" + re.escape(marks[1]), text, re.DOTALL)
    if found is None:
        raise SystemExit(f"{PAGE} has no place for the table {name!r}")
    PAGE.write_text(text.replace(found[0], marks[0] + made + marks[1]), encoding="utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or TABLES:
        write(chosen, make_table(chosen))
