"""The task of vla-ppo: the tabletop environment, a policy for it, training episodes with a curriculum, demonstrations.

Demonstrations are recorded by the scripted expert in worker processes and kept as a LeRobot dataset.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import numpy as np

from lookact.data.lerobot.read import INFO, Demonstration, Wanted, read_demonstrations, read_info
from lookact.data.lerobot.write import write_demonstrations
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.experts import record
from lookact.envs.tabletop.pretraining_images import LabelledImage, labelled_image
from lookact.envs.tabletop.randomise import Randomisation, draw_start, instruction_corpus
from lookact.envs.vector.vector_env import PipelinedVectorEnv
from lookact.errors import ConfigError, DataError, EnvError
from lookact.models.vla.checkpoint import make_vla
from lookact.models.vla.encoders import TextSpec, VisionSpec
from lookact.models.vla.policy import VLA, PolicySpec
from lookact.recipes.vla_ppo.config import Config, EnvConfig, Learn, Model
from lookact.seeding import derive
from lookact.training.distributed import rank, world_size
from lookact.training.progress import progress
from lookact.training.weights import read_weights
from lookact.types import PlanEpisode

log = logging.getLogger(__name__)
T = TypeVar("T")
FPS, ROBOT = 10, "lookact_panda"
AT_ONCE = 8
"""Episodes or images that a worker makes before it reports."""
_table: list[Tabletop] = []
"""A worker's own environment."""


def make_table(env: EnvConfig, *, shift: str = "none") -> Tabletop:
    """One environment; `shift` is the out-of-distribution shift."""
    return Tabletop(
        task=env.task,
        control=env.control,
        cameras=env.cameras,
        image_size=env.image_size,
        max_steps=env.max_steps,
        reward=env.reward_mode,
        randomise=Randomisation(env.appearance, env.background, env.light, env.camera, env.clutter),
        shift=shift,
        distractors=env.distractors,
    )


def table_maker(env: EnvConfig, *, shift: str = "none") -> Callable[[], Tabletop]:
    """What a worker process calls to make its environments."""
    return partial(make_table, env, shift=shift)


def worker_count(wanted: int) -> int:
    """Worker processes of this process: as many as wanted, or with 0 one for each of its share of the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return wanted or max(1, cores // world_size())


# ---- policy


def open_policy(model: Model, env: EnvConfig, *, seed: int) -> VLA:
    """The policy before any training."""
    sizes = ("history", "action_chunk", "width", "layers", "heads", "value_layers", "std_schedule", "std", "final_std")
    spec = PolicySpec(
        cameras=tuple(env.cameras),
        state_size=env.state_size,
        action_size=env.action_size,
        memory=model.memory,
        **{name: getattr(model, name) for name in sizes},
    )
    vision, text = VisionSpec(**vars(model.vision)), TextSpec(**vars(model.text))
    return make_vla(spec, vision, text, corpus=instruction_corpus(env.task), seed=seed, device=model.device)


def load_checkpoint(policy: VLA, checkpoint: str | None) -> None:
    """The weights that PPO alone starts from."""
    if checkpoint is None:
        raise ConfigError("stage ppo trains a policy that was cloned: name it with --checkpoint, or use stage both")
    if not Path(checkpoint).is_dir():
        raise DataError(f"checkpoint {checkpoint} does not exist: check the path")
    read_weights(policy, Path(checkpoint))()


# ---- training episodes


def open_envs(env: EnvConfig, learn: Learn) -> PipelinedVectorEnv:
    """This process's share of the environments; a worker that hangs or dies is restarted."""
    if learn.rollout_steps < env.max_steps:
        raise ConfigError(
            f"learn.rollout_steps = {learn.rollout_steps}: episodes last up to {env.max_steps}, and none is carried on"
        )
    num_envs, odd = divmod(learn.num_envs, world_size())
    if odd or not num_envs:
        raise ConfigError(f"learn.num_envs = {learn.num_envs}: give a multiple of the {world_size()} processes")
    return PipelinedVectorEnv(
        table_maker(env),
        num_envs,
        workers=worker_count(learn.workers),
        step_seconds=learn.step_timeout_s,
        max_restarts=learn.max_restarts,
    )


def plan_iteration(cfg: Config, step: int) -> PlanEpisode:
    """The episodes of an iteration, seeded by its number: a resumed run needs no simulator's state."""
    seed, share = derive(cfg.seed, "learn", step), start_fraction(cfg.learn, step)

    # asked for again in every step until the episode begins
    @lru_cache(maxsize=4 * cfg.learn.num_envs)
    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        own = derive(seed, rank() + world_size() * row, episode)
        return own, {} if share == 1.0 else {"start_seed": easy_start(cfg.env, own, round(1 / share))}

    return plan


def start_fraction(learn: Learn, step: int) -> float:
    """Curriculum: the easiest fraction of starts in an iteration, growing linearly to 1."""
    first = learn.curriculum_start_fraction
    return min(1.0, first + (1.0 - first) * (step - 1) / learn.curriculum_iterations)


def easy_start(env: EnvConfig, seed: int, among: int) -> int:
    """The seed of the easiest of so many starts: the shortest way from the tool to the object and on to the target."""

    def way(start_seed: int) -> float:
        start = draw_start(start_seed, env.task, "none", things=1 + env.distractors)
        spot = start.objects[0][:2]
        return float(np.linalg.norm(start.tool[:2] - spot) + np.linalg.norm(start.targets[0] - spot))

    return min((derive(seed, "start", number) for number in range(among)), key=way)


# ---- demonstrations and pretraining images


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Demonstrations of the scripted expert as a LeRobot dataset; one that holds enough already is left alone."""
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


def open_demos(folder: Path, env: EnvConfig) -> Iterator[Demonstration]:
    """Demonstrations from a LeRobot dataset; a DataError where its features are not the environment's."""
    wanted = Wanted(cameras=env.cameras, state_size=env.state_size, action_size=env.action_size)
    return read_demonstrations(folder, wanted)


def write_demos(folder: Path, env: EnvConfig, *, seed: int, count: int, noise: float, workers: int) -> int:
    """Record and write `count` demonstrations; the folder is there as a whole or not at all."""
    demos = record_demos(env, seed=seed, count=count, noise=noise, workers=workers)
    return write_demonstrations(folder, demos, fps=FPS, robot=ROBOT)


def record_demos(env: EnvConfig, *, seed: int, count: int, noise: float, workers: int) -> Iterator[Demonstration]:
    """The first `count` episodes that the expert solves, whoever recorded them; failures are left out."""
    tasks = ((derive(seed, "demo", start), noise) for start in itertools.count())
    kept = tried = 0
    with progress(count, "recording the expert") as bar:
        for demo in in_workers(_record, tasks, env, workers):
            tried += 1
            if demo is not None:
                kept += 1
                bar.advance()
                yield demo
            if kept == count:
                break
            if tried >= 4 * AT_ONCE * workers and kept < tried // 4:
                raise EnvError(f"the expert solved {kept} of {tried} episodes: lower the noise, or raise max_steps")
    if tried > kept:
        log.info("%d of %d episodes were not solved by the expert, and left out", tried - kept, tried)


def pretraining_images(env: EnvConfig, *, seed: int, count: int, workers: int) -> list[LabelledImage]:
    """So many labelled images, each of a scene of its own."""
    seeds = [(derive(seed, "look", number),) for number in range(count)]
    return list(progress(list(in_workers(_image, seeds, env, workers)), "rendering pretraining images"))


def in_workers(
    function: Callable[..., T], tasks: Iterable[tuple[Any, ...]], env: EnvConfig, workers: int
) -> Iterator[T]:
    """What `function(*task)` gives for each task, in order; a few batches are made ahead, and none is made twice."""
    context = multiprocessing.get_context("spawn")
    source = iter(tasks)
    ahead: list[Future[list[T]]] = []
    with ProcessPoolExecutor(workers, context, _open_table, (env,)) as pool:
        try:
            while True:
                while len(ahead) < 2 * workers and (batch := list(itertools.islice(source, AT_ONCE))):
                    ahead.append(pool.submit(_run, function, batch))
                if not ahead:
                    return
                yield from ahead.pop(0).result()
        except BrokenProcessPool as error:
            raise EnvError("a worker process died while it recorded: is there memory enough?") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _open_table(env: EnvConfig) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    _table[:] = [make_table(env)]


def _end_with_parent() -> None:
    """A pool's worker waits for ever for a parent that was killed, unless it checks."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(function: Callable[..., T], tasks: list[tuple[Any, ...]]) -> list[T]:
    return [function(*task) for task in tasks]


def _record(seed: int, noise: float) -> Demonstration | None:
    table = _table[0]
    episode = record(table, seed=seed, noise=noise)
    if not episode.info["success"]:
        return None
    return Demonstration(
        task=str(episode.info["instruction"]),
        images={camera: np.stack([shown[camera] for shown in episode.shown]) for camera in table.cameras},
        states=np.stack([shown["state"] for shown in episode.shown]),
        actions=episode.actions,
    )


def _image(seed: int) -> LabelledImage:
    return labelled_image(_table[0], seed)
