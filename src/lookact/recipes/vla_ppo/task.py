"""The task of vla-ppo: the tabletop or another's environment, a policy, episodes with a curriculum, demonstrations.

Demonstrations are recorded by the scripted expert in worker processes and kept as a LeRobot dataset.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookact.algorithms.control_ppo import FailedStarts
from lookact.data.lerobot.action_space import action_bounds as dataset_bounds
from lookact.data.lerobot.read import INFO, Demonstration, read_demonstrations, read_info
from lookact.data.lerobot.write import write_demonstrations
from lookact.envs.control.gym_control import make_gym_control
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import Recording
from lookact.envs.tabletop.pretraining_images import LabelledImage
from lookact.envs.tabletop.randomise import Randomisation, draw_start, instruction_corpus, name_words
from lookact.envs.tabletop.sizes import true_state_size
from lookact.envs.tabletop.workers import (
    AT_ONCE,
    in_workers,
    label_here,
    record_here,
    record_outside_here,
    relabel_here,
)
from lookact.envs.vector.vector_env import PipelinedVectorEnv
from lookact.errors import ConfigError, DataError, EnvError
from lookact.models.vla.checkpoint import SPEC, make_vla, read_policy_spec, save_encoders
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import VLA, PolicySpec
from lookact.models.vlm.sources import TINY
from lookact.recipes.vla_ppo.config import Config, EnvConfig, Learn, Model
from lookact.recipes.vla_ppo.preflight import wanted_features
from lookact.seeding import derive
from lookact.training.atomic_io import sync_tree, write_text
from lookact.training.distributed import barrier, is_main, rank, world_size
from lookact.training.progress import progress
from lookact.training.weights import read_weights, write_weights
from lookact.types import PlanEpisode

log = logging.getLogger(__name__)
ROBOT = "lookact_panda"
DONE = "metrics.json"
"""Written last: behaviour cloning is complete."""
Attempt = tuple[int, list[NDArray[np.float32]]]
"""An episode's seed and its actions."""
ActionBounds = tuple[tuple[float, ...], tuple[float, ...]]


def table_maker(env: EnvConfig, *, shift: str = "none", true_state: bool = False) -> Callable[[], Any]:
    """What a worker process calls to make its environments, without loading torch; `shift`: out of distribution.

    With `true_state` observations hold what an asymmetric critic is given.
    """
    if not env.is_tabletop:
        how: dict[str, Any] = {"image_size": env.image_size, "max_steps": env.max_steps}
        return partial(make_gym_control, env.task, instruction=env.instruction, cameras=env.shapes.cameras, **how)
    return partial(
        Tabletop,
        task=env.task,
        control=env.control,
        cameras=env.cameras,
        image_size=env.image_size,
        max_steps=env.max_steps,
        reward=env.reward_mode,
        success_bonus=env.success_bonus,
        randomise=Randomisation(env.appearance, env.background, env.light, env.camera, env.clutter, env.sizes),
        shift=shift,
        distractors=env.distractors,
        objects=env.object_kind,
        action_noise=env.action_noise,
        latency=env.latency,
        true_state=true_state,
    )


def worker_count(wanted: int) -> int:
    """Worker processes of this process: as many as wanted, or with 0 one for each of its share of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return wanted or max(1, cores // world_size())


# ---- policy


def policy_spec(model: Model, env: EnvConfig) -> PolicySpec:
    """Observations, actions and sizes of the policy."""
    sizes = ("history", "action_chunk", "width", "layers", "heads", "value_layers", "std_schedule", "std", "final_std")
    flow = ("action_head", "flow_steps", "flow_noise")
    shapes = env.shapes
    return PolicySpec(
        cameras=shapes.cameras,
        state_size=shapes.state_size,
        action_size=shapes.action_size,
        memory=model.memory,
        true_state=true_state_size(env.control) if model.asymmetric_critic and env.is_tabletop else 0,
        **{name: getattr(model, name) for name in (*sizes, *flow)},
    )


def open_policy(model: Model, env: EnvConfig, *, seed: int, bounds: ActionBounds | None = None) -> VLA:
    """The policy before any training; `bounds` are what its actions of -1 and 1 stand for."""
    spec, shapes = replace(policy_spec(model, env), action_bounds=bounds), env.shapes
    vision, text = VisionSpec(**vars(model.vision)), TextSpec(**vars(model.text))
    corpus = instruction_corpus(env.task, env.object_kind) if env.is_tabletop else shapes.instructions
    return make_vla(spec, vision, text, corpus=corpus, seed=seed, device=model.device)


def action_bounds(cfg: Config) -> ActionBounds | None:
    """Bounds of a checkpoint's actions, or those of the dataset's statistics."""
    if cfg.stage == "ppo" and cfg.checkpoint is not None and (Path(cfg.checkpoint) / SPEC).is_file():
        return read_policy_spec(json.loads((Path(cfg.checkpoint) / SPEC).read_text("utf-8"))["policy"]).action_bounds
    found = None if cfg.bc.dataset is None else dataset_bounds(Path(cfg.bc.dataset), cfg.bc.action_bounds)
    return None if found is None else (tuple(found[0].tolist()), tuple(found[1].tolist()))


def has_demonstrations(cfg: Config) -> bool:
    """Whether there is anything to clone: another's task may have no expert."""
    return cfg.bc.dataset is not None or cfg.env.has_expert


def from_scratch(cfg: Config) -> bool:
    """Whether PPO starts from nothing: another's task with nobody to clone, or stage ppo without a checkpoint."""
    alone = cfg.stage == "ppo" and not cfg.env.is_tabletop
    return cfg.checkpoint is None and (alone or not has_demonstrations(cfg))


def freezes_encoders(cfg: Config) -> bool:
    """Whether PPO leaves the encoders as they are; tiny ones that nothing has trained learn with the rest."""
    return cfg.model.freeze_encoders and not (from_scratch(cfg) and cfg.model.vision.source == TINY)


def load_checkpoint(policy: VLA, cfg: Config) -> None:
    """The weights that PPO alone starts from; none where it starts from scratch."""
    checkpoint = cfg.checkpoint
    if from_scratch(cfg):
        return
    if checkpoint is None:
        raise ConfigError("stage ppo trains a policy that was cloned: name it with --checkpoint, or use stage both")
    if not Path(checkpoint).is_dir():
        raise DataError(f"checkpoint {checkpoint} does not exist: check the path")
    read_weights(policy, Path(checkpoint))()


def learner_options(cfg: Config) -> dict[str, Any]:
    """Rates and statistics of PPO's learner."""
    learn = cfg.learn
    # nothing has told the states' mean and deviation to a policy that was not cloned
    normalise = learn.normalise_state or from_scratch(cfg)
    rates = {"lr": learn.lr, "critic_lr": learn.critic_lr, "reference": cfg.ppo.kl_coef > 0}
    return {"normalise_state": normalise, "scale_rewards": learn.scale_rewards, **rates}


def read_clone(policy: VLA, folder: Path, *, freeze: bool) -> dict[str, Any] | None:
    """What `save_clone` wrote, once it is complete: the policy has its weights, and its encoders are frozen again."""
    if not (folder / DONE).exists():
        return None
    read_weights(policy, folder)()
    if freeze:
        policy.freeze_encoders()
    return dict(json.loads((folder / DONE).read_text(encoding="utf-8")))


def save_clone(policy: VLA, folder: Path, measured: dict[str, Any]) -> None:
    """A cloned policy as a checkpoint, with what was measured of it."""
    if is_main():
        write_weights(policy, folder)
        save_encoders(policy, folder)
        sync_tree(folder)
        write_text(folder / DONE, json.dumps(measured, indent=2) + "\n")
    barrier()


# ---- training episodes


def open_envs(env: EnvConfig, learn: Learn, *, true_state: bool = False) -> PipelinedVectorEnv:
    """This process's share of the environments; a worker that hangs or dies is restarted."""
    if learn.rollout_steps < env.max_steps:
        raise ConfigError(
            f"learn.rollout_steps = {learn.rollout_steps}: episodes last up to {env.max_steps}, and none is carried on"
        )
    num_envs, odd = divmod(learn.num_envs, world_size())
    if odd or not num_envs:
        raise ConfigError(f"learn.num_envs = {learn.num_envs}: give a multiple of the {world_size()} processes")
    if learn.advantage != "gae" and num_envs % learn.group_size:
        raise ConfigError(
            f"learn.group_size = {learn.group_size}: {num_envs} environments of a process do not fall into such groups"
        )
    return PipelinedVectorEnv(
        table_maker(env, true_state=true_state),
        num_envs,
        workers=worker_count(learn.workers),
        step_seconds=learn.step_timeout_s,
        start_seconds=learn.start_timeout_s,
        max_restarts=learn.max_restarts,
    )


def plan_iteration(cfg: Config, step: int, failed: FailedStarts | None = None) -> PlanEpisode:
    """The episodes of an iteration, seeded by its number: a resumed run needs no simulator's state.

    Some begin where others `failed`. Rows that are compared with each other begin alike.
    """
    seed, share = derive(cfg.seed, "learn", step), start_fraction(cfg.learn, step)
    alike = 1 if cfg.learn.advantage == "gae" else cfg.learn.group_size

    # asked for again in every step until the episode begins
    @lru_cache(maxsize=4 * cfg.learn.num_envs)
    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        own = derive(seed, rank() + world_size() * (row // alike), episode)
        again = {} if failed is None else failed.choose(own, cfg.learn.failure_starts)
        return own, again if again or share == 1.0 or not cfg.env.is_tabletop else {
            "start_seed": easy_start(cfg.env, own, round(1 / share))
        }

    return plan


def start_fraction(learn: Learn, step: int) -> float:
    """Curriculum: the easiest fraction of starts in an iteration, growing linearly to 1."""
    first = learn.curriculum_start_fraction
    return min(1.0, first + (1.0 - first) * (step - 1) / learn.curriculum_iterations)


def easy_start(env: EnvConfig, seed: int, among: int) -> int:
    """The seed of the easiest of so many starts: the shortest way from the tool to the object and on to the target."""

    def way(start_seed: int) -> float:
        start = draw_start(start_seed, env.task, "none", things=1 + env.distractors, kind=env.object_kind)
        spot = start.objects[0][:2]
        return float(np.linalg.norm(start.tool[:2] - spot) + np.linalg.norm(start.targets[0] - spot))

    return min((derive(seed, "start", number) for number in range(among)), key=way)


# ---- demonstrations and pretraining images


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Demonstrations of the scripted expert as a LeRobot dataset; one that holds enough already is left alone."""
    if not cfg.env.has_expert:
        raise ConfigError(f"{cfg.env.task} has no scripted expert to collect from: record a LeRobot folder yourself")
    if checkpoint is not None:
        raise ConfigError("vla-ppo collects what its scripted expert does: leave --checkpoint out")
    if (out / INFO).exists():
        there = int(read_info(out)["total_episodes"])
        if there < episodes:
            raise DataError(f"{out} holds {there} demonstrations, {episodes} are wanted: choose another folder")
        return {"collected": 0, "kept": there}
    if out.is_dir():
        if next(out.iterdir(), None) is not None:
            raise DataError(f"{out} holds other things: choose an empty folder")
        out.rmdir()
    workers = worker_count(cfg.bc.workers)
    count = write_demos(out, cfg.env, seed=cfg.seed, count=episodes, noise=cfg.bc.action_noise, workers=workers)
    return {"collected": count, "kept": 0, "steps": int(read_info(out)["total_frames"])}


def demonstrations(cfg: Config, folder: Path) -> Path:
    """Those to clone: a dataset from elsewhere, or the expert's, which are recorded below `folder` unless they are."""
    bc, demos = cfg.bc, folder / "demos"
    if bc.dataset is not None:
        return Path(bc.dataset)
    if is_main() and not demos.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_demos(
            demos, cfg.env, seed=cfg.seed, count=bc.demos, noise=bc.action_noise, workers=worker_count(bc.workers)
        )
    barrier()
    return demos


def open_demos(folder: Path, env: EnvConfig, rename: Sequence[str] = ()) -> Iterator[Demonstration]:
    """Demonstrations from a LeRobot dataset; a DataError where its features are not the environment's."""
    return read_demonstrations(folder, wanted_features(env, rename))


def write_demos(folder: Path, env: EnvConfig, *, seed: int, count: int, noise: float, workers: int) -> int:
    """Record and write `count` demonstrations; the folder is there as a whole or not at all."""
    demos = record_demos(env, seed=seed, count=count, noise=noise, workers=workers)
    return write_demonstrations(folder, demos, fps=env.rate, robot=ROBOT, space=env.action_space)


def record_demos(env: EnvConfig, *, seed: int, count: int, noise: float, workers: int) -> Iterator[Demonstration]:
    """The first `count` episodes that the expert solves, whoever recorded them; failures are left out."""
    tasks = ((derive(seed, "demo", start), noise) for start in itertools.count())
    kept, tried, cameras = 0, 0, env.shapes.cameras
    record = record_here if env.is_tabletop else record_outside_here
    with progress(count, "recording the expert") as bar:
        for episode in in_workers(record, tasks, table_maker(env), workers):
            tried += 1
            if episode.info["success"]:
                kept += 1
                bar.advance()
                yield demonstration(episode, cameras)
            if kept == count:
                break
            if tried >= 4 * AT_ONCE * workers and kept < tried // 4:
                raise EnvError(f"the expert solved {kept} of {tried} episodes: lower the noise, or raise max_steps")
    if tried > kept:
        log.info("%d of %d episodes were not solved by the expert, and left out", tried - kept, tried)


def demonstration(episode: Recording, cameras: Sequence[str]) -> Demonstration:
    """An expert's episode as a dataset has it."""
    return Demonstration(
        task=str(episode.info["instruction"]),
        images={camera: np.stack([shown[camera] for shown in episode.shown]) for camera in cameras},
        states=np.stack([shown["state"] for shown in episode.shown]),
        actions=episode.actions,
    )


def hindsight_demonstrations(cfg: Config, folder: Path, sample: Callable[[], Iterable[Attempt]]) -> list[Path]:
    """Attempts of a policy as a dataset below `folder`, failed ones relabelled; none if none of them moved anything."""
    out = folder / "hindsight_demos"
    if not out.exists():
        tried, workers = list(sample()), worker_count(cfg.bc.workers)
        found = in_workers(relabel_here, tried, table_maker(cfg.env), workers)
        demos = [demonstration(episode, cfg.env.cameras) for episode in found if episode is not None]
        log.info("hindsight: %d of %d episodes became demonstrations", len(demos), len(tried))
        if not demos:
            return []
        write_demonstrations(out, demos, fps=cfg.env.rate, robot=ROBOT, space=cfg.env.action_space)
    return [out]


def pretraining(cfg: Config) -> tuple[Callable[[], list[LabelledImage]], dict[str, Any]]:
    """What draws the images of vision pretraining, and how that takes its gradient steps."""
    bc, seed, workers = cfg.bc, derive(cfg.seed, "seeing"), worker_count(cfg.bc.workers)
    draw = partial(pretraining_images, cfg.env, seed=seed, count=bc.pretrain_images, workers=workers)
    steps = {"epochs": bc.pretrain_epochs, "batch_size": bc.pretrain_batch_size, "save_every": bc.save_every}
    words = {"names": name_words(), "word_dropout": bc.word_dropout}
    return draw, {"count": bc.pretrain_images, "lr": bc.pretrain_lr, "seed": seed, **words, **steps}


def pretraining_images(env: EnvConfig, *, seed: int, count: int, workers: int) -> list[LabelledImage]:
    """So many labelled images, each of a scene of its own."""
    seeds = [(derive(seed, "look", number),) for number in range(count)]
    return list(
        progress(list(in_workers(label_here, seeds, table_maker(env), workers)), "rendering pretraining images")
    )
