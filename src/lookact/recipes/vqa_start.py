"""The supervised start of vqa-ppo: eyes first, then demonstrations of looking around and answering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lookact.data.demos import demo_episode
from lookact.data.segments import Segment, cut
from lookact.envs.looks import draw_looks
from lookact.envs.scenes.render import Camera
from lookact.models.chat_vlm import ChatVLM
from lookact.recipes.chat_model import script_of
from lookact.recipes.nav_start import run_log
from lookact.recipes.nav_world import LOOKS_A_ROOM, make_plans
from lookact.recipes.vqa_world import make_demos, room_style, training_rows
from lookact.seeding import derive
from lookact.train.config import setting
from lookact.train.distributed import rank, world_size
from lookact.train.progress import progress
from lookact.train.run import Run
from lookact.train.seeing import teach_to_see
from lookact.train.supervised import fit

if TYPE_CHECKING:
    from lookact.recipes.vqa_ppo import Config


@dataclass(frozen=True)
class Expert:
    """Who is imitated."""

    haste: float = setting(0.0, help="share of demonstrations that answer at the first look", least=0, most=1)


def learn_to_see(chat: ChatVLM, cfg: Config, run: Run) -> None:
    """Lessons on looks into random rooms; every process draws its share of them."""
    start, world = cfg.warm_start, cfg.world
    rooms = range(rank(), start.look_rooms, world_size())
    numbers = [room * LOOKS_A_ROOM + look for room in rooms for look in range(LOOKS_A_ROOM)]
    drawn = draw_looks(
        derive(cfg.seed, "looks"),
        rooms=rooms,
        per_room=LOOKS_A_ROOM,
        style=room_style(world),
        camera=Camera.square(world.image_size, world.fov_degrees),
    )
    teach_to_see(
        chat,
        dict(zip(progress(numbers, "looking into rooms"), drawn)),
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
    rows = training_rows(cfg.world, cfg.seed)
    demos = make_demos(cfg.world, plans, noise=cfg.warm_start.noise, haste=cfg.expert.haste, rows=rows)
    segments = {}
    for plan, demo in zip(progress(plans, "watching the expert"), demos):
        # a demonstration is one unbroken context, so one segment
        (segments[plan.group],) = cut(demo_episode(demo, script, name=plan.id), units="action")
    return segments
