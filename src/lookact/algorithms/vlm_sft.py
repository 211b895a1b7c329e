"""The supervised start of a chat recipe: eyes first, then an expert's demonstrations, done once in a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoTokenizer

from lookact.algorithms.sft import fit
from lookact.algorithms.vision_pretraining import pretrain_vision
from lookact.algorithms.vlm import script_of
from lookact.algorithms.vlm_settings import WarmStart
from lookact.data.demos import Demo, demo_episode
from lookact.data.segments import Segment, cut
from lookact.envs.rooms.generate import RoomStyle
from lookact.envs.rooms.pretraining_images import draw_looks
from lookact.envs.rooms.render import Camera
from lookact.models.vlm.loading import save_chat
from lookact.models.vlm.policy import ChatVLM
from lookact.rollout.episode_specs import make_specs
from lookact.seeding import derive
from lookact.text.tokenizers import assert_same_tokenizer
from lookact.training.atomic_io import sync_tree, write_text
from lookact.training.distributed import barrier, is_main, rank, world_size
from lookact.training.progress import progress, timed
from lookact.training.run import Run
from lookact.training.weights import read_weights
from lookact.types import EpisodeSpec

LOOKS_A_ROOM = 4
DONE = "metrics.json"
"""Written last: a supervised start with it is whole."""


@dataclass(frozen=True)
class Lessons:
    """What a recipe teaches in its supervised start."""

    start: WarmStart
    seed: int
    system: str
    """The system prompt."""
    token_budget: int
    style: RoomStyle
    camera: Camera
    demos: Callable[[Sequence[EpisodeSpec]], Iterator[Demo]]
    """The expert's episodes, one a plan."""


def teach(chat: ChatVLM, lessons: Lessons, run: Run, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Teaches `chat` and measures it, or takes both from an earlier part of this run.

    Returns what `measure` says as `reports`, and the `seconds` that each phase took.
    """
    folder = run.folder / "warm_start"
    if not (folder / DONE).exists():
        seconds: dict[str, float] = {}
        with timed(seconds, "learning to see"):
            if lessons.start.look_rooms:
                learn_to_see(chat, lessons, run)
        with timed(seconds, "imitating"):
            if lessons.start.demos:
                imitate(chat, lessons, run)
        with timed(seconds, "evaluating the warm start"):
            measured = {"reports": measure(), "seconds": seconds}
        if is_main():
            sync_tree(save_chat(chat, folder))
            write_text(folder / DONE, json.dumps(measured, indent=2) + "\n")
        barrier()
        return measured
    assert_same_tokenizer(AutoTokenizer.from_pretrained(folder, trust_remote_code=False), chat.tokenizer)
    read_weights(chat.model, folder)()
    measured_before: dict[str, Any] = json.loads((folder / DONE).read_text())
    return measured_before


def learn_to_see(chat: ChatVLM, lessons: Lessons, run: Run) -> None:
    """Lessons on looks into random rooms; every process draws its share of them."""
    start = lessons.start
    rooms = range(rank(), start.look_rooms, world_size())
    looks = draw_looks(
        derive(lessons.seed, "looks"), rooms=rooms, per_room=LOOKS_A_ROOM, style=lessons.style, camera=lessons.camera
    )
    numbers = [room * LOOKS_A_ROOM + look for room in rooms for look in range(LOOKS_A_ROOM)]
    pretrain_vision(
        chat,
        dict(zip(progress(numbers, "looking into rooms"), looks)),
        total=start.look_rooms * LOOKS_A_ROOM,
        epochs=start.look_epochs,
        rows=32,
        lr=2 * start.lr,
        seed=lessons.seed,
        report=run_log(run, "seeing"),
    )


def imitate(chat: ChatVLM, lessons: Lessons, run: Run) -> None:
    """Supervised training on demonstrations; every process makes, and learns from, its share of them."""
    start = lessons.start
    fit(
        chat,
        own_segments(chat, lessons),
        total=start.demos,
        epochs=start.epochs,
        rows=start.rows,
        lr=start.lr,
        token_budget=lessons.token_budget,
        seed=lessons.seed,
        report=run_log(run, "imitation"),
    )


def own_segments(chat: ChatVLM, lessons: Lessons) -> dict[int, Segment]:
    """This process's demonstrations as training segments, by their number."""
    plans = make_specs(lessons.seed, "demo", groups=lessons.start.demos)[rank() :: world_size()]
    script = script_of(chat, system=lessons.system)
    segments = {}
    for plan, demo in zip(progress(plans, "watching the expert"), lessons.demos(plans)):
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
