"""The supervised start of nav-rloo: eyes first, then the navigator's demonstrations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lookact.data.demos import demo_episode
from lookact.data.segments import Segment, cut
from lookact.models.chat_vlm import ChatVLM
from lookact.recipes.chat_model import script_of
from lookact.recipes.nav_world import LOOKS_A_ROOM, make_demos, make_looks, make_plans
from lookact.seeding import derive
from lookact.train.config import setting
from lookact.train.distributed import is_main, rank, world_size
from lookact.train.progress import progress
from lookact.train.run import Run
from lookact.train.seeing import teach_to_see
from lookact.train.supervised import fit

if TYPE_CHECKING:
    from lookact.recipes.nav_rloo import Config


@dataclass(frozen=True)
class WarmStart:
    """What a model learns before any reward; a pretrained one needs no lessons in seeing."""

    look_rooms: int = setting(0, help="rooms to look into for the lessons in seeing; 0: the model can see", least=0)
    look_epochs: int = setting(4, help="passes over the looks", least=1)
    demos: int = setting(2000, help="demonstrated episodes; 0 starts RL from the model as it is", least=0)
    noise: float = setting(
        0.15, help="share of moves replaced by random ones, so that recovery is seen", least=0, most=1
    )
    epochs: int = setting(3, help="passes over the demonstrations", least=1)
    rows: int = setting(16, help="episodes a learning step", least=1)
    lr: float = setting(1e-3, help="peak learning rate", above=0)


def learn_to_see(chat: ChatVLM, cfg: Config, run: Run) -> None:
    """Lessons on looks into random rooms; every process draws its share of them."""
    start = cfg.warm_start
    rooms = range(rank(), start.look_rooms, world_size())
    numbers = [room * LOOKS_A_ROOM + i for room in rooms for i in range(LOOKS_A_ROOM)]
    drawn = make_looks(cfg.world, derive(cfg.seed, "looks"), rooms=rooms)
    looks = dict(zip(progress(numbers, "looking into rooms"), drawn))
    teach_to_see(
        chat,
        looks,
        total=start.look_rooms * LOOKS_A_ROOM,
        epochs=start.look_epochs,
        rows=32,
        lr=2 * start.lr,
        seed=cfg.seed,
        report=run_log(run, "seeing"),
    )


def imitate(chat: ChatVLM, cfg: Config, run: Run) -> None:
    """Supervised training on demonstrations; every process makes, and learns from, its share of them."""
    start = cfg.warm_start
    fit(
        chat,
        own_segments(chat, cfg),
        total=start.demos,
        epochs=start.epochs,
        rows=start.rows,
        lr=start.lr,
        token_budget=cfg.learn.token_budget,
        seed=cfg.seed,
        report=run_log(run, "imitation"),
    )


def own_segments(chat: ChatVLM, cfg: Config) -> dict[int, Segment]:
    """This process's demonstrations as training segments, by their number."""
    plans = make_plans(cfg.seed, "demo", groups=cfg.warm_start.demos)[rank() :: world_size()]
    script = script_of(chat, system=cfg.instructions)
    demos = make_demos(cfg.world, plans, noise=cfg.warm_start.noise)
    segments = {}
    for plan, demo in zip(progress(plans, "watching the navigator"), demos):
        # a demonstration is one unbroken context, so one segment
        (segments[plan.group],) = cut(demo_episode(demo, script, name=plan.id), units="action")
    return segments


def run_log(run: Run, phase: str) -> Callable[[dict[str, float], int], None]:
    """Keeps a phase's numbers in a file of its own, since its steps are counted apart from RL's."""
    if not is_main():
        return lambda metrics, step: None
    path = run.folder / "warm_start" / f"{phase}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)

    def log(metrics: dict[str, float], step: int) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    return log
