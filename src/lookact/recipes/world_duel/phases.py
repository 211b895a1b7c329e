"""The three phases of world-duel, and what they hand on to one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lookact.algorithms.control_ppo import open_optimizer
from lookact.data.sequences import Recording, SequenceReplay, Sequences, join
from lookact.envs.vector.vector_env import InlineVectorEnv, VectorEnv
from lookact.errors import ConfigError
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.freeze import Freeze, freeze
from lookact.models.world_model.model import WorldModel
from lookact.recipes.world_duel.config import Config
from lookact.recipes.world_duel.data import make_worlds, record_random, tokenise
from lookact.recipes.world_duel.frozen_explorer import FrozenExplorer
from lookact.recipes.world_duel.model import learn_tokens, load_world, open_world, weights_of
from lookact.recipes.world_duel.preflight import check_phase
from lookact.recipes.world_duel.student import curiosity_of, explore, learn_to_explore
from lookact.recipes.world_duel.update import Learner, learn_film, to_film
from lookact.rewards.intrinsic import Units
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.distributed import gather, rank, world_size
from lookact.training.optim import NonFiniteGuard, build_adamw, learning_rate, set_learning_rate
from lookact.training.run import Run
from lookact.training.weights import Weights

PHASES = ("teacher", "student", "adversarial")


@dataclass(frozen=True)
class TrainState:
    """Everyone and everything that a run holds."""

    world: WorldModel
    explorer: Explorer
    teacher: Learner
    student: dict[str, Any]
    """The explorer's optimizer and its guard."""
    units: Units
    replay: SequenceReplay
    rival: FrozenExplorer
    worlds: VectorEnv | InlineVectorEnv

    def weights(self, cfg: Config) -> dict[str, Weights]:
        alone = cfg.phase == "teacher"
        return weights_of(self.world, None if alone else self.explorer.world, cfg.model)

    def state(self) -> dict[str, Any]:
        """What a checkpoint must keep besides weights."""
        return {
            "teacher_optimizer": self.teacher.optimizer,
            "teacher_guard": self.teacher.guard,
            "student_optimizer": self.student["optimizer"],
            "student_guard": self.student["guard"],
            "units": self.units,
            "replay": self.replay,
            "rival": self.rival,
        }


@dataclass(frozen=True)
class Data:
    """What random actions show: to learn from, and held out."""

    train: Sequences | None
    duel: Sequences | None
    """Those of `train`, and more that only the duel learns from."""
    held_out: Sequences
    recordings: tuple[Recording, ...]
    """Of the held-out episodes."""


def planned(cfg: Config) -> dict[str, int]:
    """The phases of a run and their steps, in order."""
    steps = {"teacher": cfg.teacher.steps, "student": cfg.student.steps, "adversarial": cfg.adversarial.steps}
    return steps if cfg.phase == "all" else {cfg.phase: steps[cfg.phase]}


def phase_at(cfg: Config, step: int) -> tuple[str, int]:
    """The phase that a run's step from 1 on belongs to, and its number there."""
    for phase, steps in planned(cfg).items():
        if step <= steps:
            return phase, step
        step -= steps
    raise ConfigError(f"step {step} lies beyond the last phase: raise its steps")


def is_due(number: int, steps: int, times: int) -> bool:
    """Whether one of a phase's `times` evaluations, spread evenly and the last at its end, follows step `number`."""
    return number * times // steps > (number - 1) * times // steps


def open_players(cfg: Config, run: Run) -> TrainState:
    """Models as a run begins: fresh, or from `teacher_path` and `student_path`."""
    check_phase(cfg)
    source = run.resumed_from or (Path(cfg.teacher_path) if cfg.teacher_path else None)
    world = open_world(cfg, source)
    own = open_world(cfg, source, tokenizer=world.reader.tokenizer)
    if cfg.teacher_path:
        load_world(world, Path(cfg.teacher_path))
        own.load_state_dict(world.state_dict())
    if cfg.student_path:
        load_world(own, Path(cfg.student_path) / "student")
    explorer = Explorer(own, stride=cfg.model.stride)
    model, seeing = cfg.model, cfg.model.freeze_vision_encoder
    acts = model.train_act_expert_only
    freeze(world, Freeze(seeing, model.freeze_gen_expert, acts, model.train_gen_expert_only))
    freeze(own, Freeze(seeing, gen_expert=True, act_expert_only=acts))
    optimizer = build_adamw({"world": world}, lr=cfg.teacher.lr, weight_decay=cfg.teacher.weight_decay, fused=True)
    own_optimizer = open_optimizer(explorer, lr=cfg.student.lr, critic_lr=cfg.student.critic_lr)
    return TrainState(
        world,
        explorer,
        Learner(optimizer, NonFiniteGuard(), cfg.teacher.clip_norm),
        {"optimizer": own_optimizer, "guard": NonFiniteGuard()},
        Units(),
        SequenceReplay(cfg.adversarial.replay),
        FrozenExplorer(),
        make_worlds(cfg.world),
    )


def gather_data(players: TrainState, cfg: Config, run: Run) -> Data:
    """Record random actions, learn tokens of what they show unless the world model came with some, and apply them."""
    folder, seed = run.folder / "episodes", cfg.seed
    learns = cfg.phase != "student"
    train: list[Recording] = []
    if learns:
        train = record_random(cfg.world, folder, seed=seed, split="random", episodes=cfg.teacher.episodes)
    held = record_random(cfg.world, folder, seed=seed, split="held_out", episodes=cfg.evaluation.episodes)
    if not cfg.teacher_path:
        learn_tokens(players.world, train, cfg, run.folder / "warm_start")
    train_tokens = tokenise(players.world, train) if train else None
    duel_tokens = train_tokens
    if train_tokens and cfg.phase in ("adversarial", "all") and cfg.adversarial.episodes:
        more = record_random(cfg.world, folder, seed=seed, split="more", episodes=cfg.adversarial.episodes)
        duel_tokens = join([train_tokens, tokenise(players.world, more)])
    return Data(train_tokens, duel_tokens, tokenise(players.world, held), tuple(held))


def begin_phase(players: TrainState, data: Data, cfg: Config, phase: str) -> None:
    """What one phase takes from the one before."""
    if phase == "student" and cfg.phase == "all":
        players.explorer.world.load_state_dict(players.world.state_dict())
    if phase == "student" or (phase == "adversarial" and cfg.phase == "adversarial"):
        parts = curiosity_of(players.world, data.held_out, stride=cfg.model.stride, kind=cfg.rewards.uncertainty)
        players.units.measure(parts, data.held_out.counts.to(parts.divergence.device))
    if phase == "adversarial":
        found = explore(players.explorer, players.worlds, cfg, "explore", 0).sequences
        players.rival.meet(players.world, found, data.held_out, stride=cfg.model.stride)


def teach(players: TrainState, data: Data, cfg: Config, number: int) -> dict[str, float]:
    """One step of phase teacher: a batch of random episodes, window by window."""
    assert data.train is not None
    teacher = cfg.teacher
    rate = set_learning_rate(
        players.teacher.optimizer, number, warmup=teacher.warmup, total=teacher.steps, schedule="cosine", floor=0.05
    )
    return rate | learn_batch(players, [(data.train, teacher.batch)], cfg, derive(cfg.seed, "teacher", number))


def study(players: TrainState, cfg: Config, number: int, split: str = "student") -> tuple[dict[str, float], Sequences]:
    """One step of phase student: an episode on every row, and PPO on what the world model could not foresee."""
    explored = explore(players.explorer, players.worlds, cfg, split, number)
    metrics = learn_to_explore(
        players.explorer, players.world, explored, players.units, players.student, cfg, derive(cfg.seed, split, number)
    )
    return metrics, explored.sequences


def fight(players: TrainState, data: Data, cfg: Config, number: int) -> dict[str, float]:
    """One step of phase adversarial: the explorer goes where it hurts, then the world model learns from it."""
    assert data.duel is not None
    metrics, found = study(players, cfg, number, "duel")
    players.replay.add(join(gather(found)))
    duel = cfg.adversarial
    rate = learning_rate(number, peak=duel.lr, total=duel.steps, schedule="cosine", floor=0.05)
    for group in players.teacher.optimizer.param_groups:
        group["lr"] = rate
    sources = [(data.duel, duel.random_batch), (players.replay.all(), duel.explorer_batch)]
    parts = [
        learn_batch(players, sources, cfg, derive(cfg.seed, "duel", number, index))
        for index in range(duel.world_updates)
    ]
    learned = {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}
    errors = players.rival.errors(players.world, data.held_out, stride=cfg.model.stride)
    return metrics | learned | {f"duel/{name}": float(values.mean()) for name, values in errors.items()}


def learn_batch(
    players: TrainState, sources: Sequence[tuple[Sequences, int]], cfg: Config, seed: int
) -> dict[str, float]:
    """The world model learns from so many episodes of each source; the processes share them."""
    teacher, members = cfg.teacher, cfg.model.members
    batches, folds = [], []
    for index, (source, count) in enumerate(sources):
        rows = numpy_rng(seed, "rows", index).choice(len(source), min(count, len(source)), replace=False)
        mine = torch.from_numpy(rows[rank() :: world_size()].copy())
        batches.append(source[mine])
        folds.append(mine % members)
    batch = join(batches)
    seen = torch.rand(len(batch), generator=torch_rng(seed, "head", rank())) < teacher.head_share
    return learn_film(
        players.world,
        to_film(players.world, batch, seen),
        torch.cat(folds),
        players.teacher,
        length=teacher.bptt_length,
        stride=cfg.model.stride,
        sequential=teacher.sequential_training,
        action_weight=teacher.action_weight,
        seed=seed,
    )
