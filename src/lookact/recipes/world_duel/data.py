"""world-duel's worlds: a table with an arm, its episodes, and what random actions show of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from lookact.data.sequences import Recording, Sequences, join, load_recording
from lookact.envs.maniskill.env import ManiSkillTable
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.randomise import Randomisation
from lookact.envs.testbeds.memory_curtain import INSTRUCTION, Hidden
from lookact.envs.testbeds.noisy_tv import NoisyTV
from lookact.envs.vector.vector_env import InlineVectorEnv, PlanEpisode, VectorEnv
from lookact.errors import ConfigError
from lookact.models.world_model.model import WorldModel
from lookact.recipes.vla_ppo.config import World as Table
from lookact.recipes.vla_ppo.task import make_corpus as table_corpus
from lookact.recipes.world_duel.config import World
from lookact.rollout.recording import record
from lookact.seeding import derive, numpy_rng
from lookact.training.distributed import barrier, rank, world_size
from lookact.training.progress import progress

TOOL = slice(8, 11)
"""Where in the table's state the tool's position stands."""


def make_env(world: World) -> gymnasium.Env[Any, Any]:
    """One environment; its episodes outlast the steps that are taken, so that all end together."""
    longer = world.steps_per_episode + 2
    if world.env == "hidden":
        return Hidden(image_size=world.image_size, max_steps=longer)
    settings: dict[str, Any] = {
        "control": world.control,
        "image_size": world.image_size,
        "max_steps": longer,
        "randomise": Randomisation(world.appearance, world.background, world.light, world.camera, world.clutter),
        "distractors": world.distractors,
    }
    if world.env == "maniskill":
        return ManiSkillTable(**settings)
    table = Tabletop(task="reach", terminate_on_success=False, **settings)
    return NoisyTV(table) if world.env == "noisy_tv" else table


Tables = VectorEnv | InlineVectorEnv


def make_worlds(world: World) -> Tables:
    """This process's environments, side by side."""
    maker = functools.partial(make_env, world)
    if not world.workers:
        return InlineVectorEnv(maker, world.rows)
    return VectorEnv(maker, world.rows, workers=min(world.workers, world.rows))


def plan_episodes(seed: int, split: str, number: int, world: World, *, together: bool = False) -> PlanEpisode:
    """The `number`-th episode of every row of a split; rows of all processes are counted through if `together`.

    A row's scene stays for `scene_reuse` episodes; where things and the arm begin differs each time.
    """

    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        place = row * world_size() + rank() if together else row
        turn = number + episode
        scene = derive(seed, split, "scene", place, turn // world.scene_reuse)
        return derive(seed, split, place, turn), {"scene_seed": scene}

    return plan


def make_corpus(world: World) -> list[str]:
    """Every instruction that may be given."""
    return [INSTRUCTION] if world.env == "hidden" else list(table_corpus(Table(task="reach")))


def record_random(
    world: World, folder: Path, *, seed: int, split: str, episodes: int, scale: float = 1.0
) -> list[Recording]:
    """Episodes of uniformly random actions; those that `folder` holds are read. The processes share the work."""
    parts = -(-episodes // world.rows)
    paths = [folder / f"{split}-{number:04d}.npz" for number in range(parts)]
    missing = [number for number in range(parts)[rank() :: world_size()] if not paths[number].exists()]
    if missing:
        worlds = make_worlds(world)
        for number in progress(missing, f"recording {split}"):
            actions = scale * random_actions(world, seed, split, number)
            record(worlds, actions, plan_episodes(seed, split, number, world)).save(paths[number])
        worlds.close()
    barrier()
    return [load_recording(path) for path in paths]


def random_actions(world: World, seed: int, split: str, number: int) -> NDArray[np.float32]:
    """(rows, t, a) uniform in [-1, 1], the same whoever asks."""
    shape = (world.rows, world.steps_per_episode, world.action_size)
    return numpy_rng(seed, split, "actions", number).uniform(-1, 1, shape).astype(np.float32)


@torch.no_grad()
def tokenise(model: WorldModel, recordings: Sequence[Recording], *, chunk: int = 512) -> Sequences:
    """Recordings with frames as tokens."""

    def encode(frames: NDArray[np.uint8]) -> torch.Tensor:
        flat = torch.from_numpy(frames).flatten(0, 1)
        ids = torch.cat([model.vq.encode(part.to(model.device)).cpu() for part in torch.split(flat, chunk)])
        return ids.to(torch.int16).reshape(*frames.shape[:2], -1)

    return join(
        [
            Sequences(
                wrist=encode(one.wrist),
                head=encode(one.head),
                head_seen=torch.ones(len(one.wrist), dtype=torch.bool),
                state=torch.from_numpy(one.state),
                actions=torch.from_numpy(one.actions),
                text_ids=model.read(one.texts.tolist()),
                counts=torch.from_numpy(one.counts),
            )
            for one in recordings
        ]
    )


def coverage(states: NDArray[np.float32], world: World, *, cell: float = 0.05) -> float:
    """How many cells of `cell` metres the tool was in, over states (..., s)."""
    if world.env == "hidden":
        raise ConfigError("world.env hidden has no arm that could cover anything: choose tabletop")
    cells = np.floor(states.reshape(-1, states.shape[-1])[:, TOOL] / cell).astype(np.int64)
    return float(len(np.unique(cells, axis=0)))
