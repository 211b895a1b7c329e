"""What world-duel trains on: environments, recordings of random actions, models and the train state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_ppo import open_optimizer
from lookact.algorithms.exploration import SCRIPTS, correlated_noise
from lookact.algorithms.imagination import Imagination
from lookact.algorithms.world_model import fit_tokenizer, sequence_rewards, tokenise
from lookact.algorithms.world_model_evaluation import prediction_error
from lookact.data.sequences import Recording, SequenceReplay, TokenSequences, concat, load_recording
from lookact.envs.tabletop import experts
from lookact.envs.tabletop.env import Tabletop
from lookact.envs.tabletop.two_arms import TwoArms
from lookact.envs.testbeds.memory_curtain import MemoryCurtain
from lookact.models.actor_critic import FrozenPolicy
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.loading import Freeze, freeze, save_adapter, save_tokenizer
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.pretrained import load_pretrained
from lookact.recipes.world_duel.config import Config, EnvConfig, ModelConfig
from lookact.recipes.world_duel.f1.environments import VectorEnvs, env_maker, make_envs, plan_episodes, table_settings
from lookact.recipes.world_duel.f1.models import cameras_of, load_model, open_model, open_older, task_of
from lookact.rewards.intrinsic import IntrinsicRewards, RewardScale
from lookact.rollout.recording import record, record_demonstrations, record_object_masks, stack_demonstrations
from lookact.rollout.vector_rollout import Rollout, collect_rollout, first_steps
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.distributed import barrier, is_main, rank, world_size
from lookact.training.evaluation import Numbers
from lookact.training.optim import NonFiniteGuard, build_adamw
from lookact.training.progress import progress
from lookact.training.run import Run
from lookact.training.weights import Weights

WEIGHT_DECAY = 0.01


class FrozenExplorer:
    """Fixed test set of phase adversarial: held-out episodes of the explorer as it was when the phase began."""

    def __init__(self) -> None:
        self.episodes = SequenceReplay(1)
        self.initial_errors: Numbers = {}
        """The world model's errors when the phase began, one number an episode."""

    def state_dict(self) -> dict[str, Any]:
        errors = {name: values.tolist() for name, values in self.initial_errors.items()}
        return {"episodes": self.episodes.state_dict(), "initial_errors": errors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episodes.load_state_dict(state["episodes"])
        self.initial_errors = {name: np.array(values) for name, values in state["initial_errors"].items()}


@dataclass(frozen=True)
class TrainState:
    """Models, optimizers, buffers and environments of a run."""

    envs: VectorEnvs
    world_model: WorldModel
    explorer: Explorer
    world_model_optimizer: torch.optim.AdamW
    world_model_guard: NonFiniteGuard
    explorer_optimizer: torch.optim.AdamW
    explorer_guard: NonFiniteGuard
    reward_scale: RewardScale
    replay: SequenceReplay
    """Episodes of the explorer, in phase adversarial."""
    frozen_explorer: FrozenExplorer
    older: WorldModel | None
    """A moving average of the world model's weights, where learning progress pays."""
    imagination: Imagination | None
    reference: FrozenPolicy | None
    """The policy that PPO's phase began with, where its KL term counts."""

    def saved(self) -> dict[str, Any]:
        """For a checkpoint, beside the weights."""
        apart = ("envs", "world_model", "explorer", "older")
        return {name: part for name, part in vars(self).items() if name not in apart and part is not None}

    def weights(self, model: ModelConfig, *, with_explorer: bool) -> dict[str, Weights]:
        """For a checkpoint: the world model at the top with its tokenizer, adapters and the explorer beside it."""
        weights: dict[str, Weights] = {
            "model": self.world_model,
            "readers": functools.partial(save_tokenizer, self.world_model),
        }
        if model.lora_rank:
            adapter = functools.partial(save_adapter, self.world_model, model.lora_rank, model.lora_alpha)
            weights["peft_adapter"] = adapter
        if self.older is not None:
            weights["older"] = self.older
        return weights | ({"student": self.explorer.model} if with_explorer else {})


@dataclass(frozen=True)
class Data:
    """Token sequences of random actions."""

    train: TokenSequences | None
    adversarial: TokenSequences | None
    """Those of `train`, and more for phase adversarial alone."""
    held_out: TokenSequences
    recordings: tuple[Recording, ...]
    """Of the held-out episodes."""
    expert: TokenSequences | None = None
    """Pick-and-place, to measure the duel on what neither side of it does."""
    scripted: TokenSequences | None = None
    """Every joint at ±1, held for 8 steps, in the scenes that the explorer is measured in."""
    objects: NDArray[np.bool_] | None = None
    """(b, t + 1, h, w) where the held-out episodes' wrist frames show an object."""


def open_state(cfg: Config, source: Path | None) -> TrainState:
    """Fresh models, or those of `teacher_path` and `student_path`; `source` is the checkpoint of a resumed run."""
    source = source or (Path(cfg.teacher_path) if cfg.teacher_path else None)
    world_model = open_model(cfg, source)
    own = open_model(cfg, source, tokenizer=world_model.text_encoder.tokenizer)
    if cfg.model.pretrained and source is None:
        load_pretrained(world_model, Path(cfg.model.pretrained))
        own.load_state_dict(world_model.state_dict())
    if cfg.teacher_path:
        load_model(world_model, Path(cfg.teacher_path))
        own.load_state_dict(world_model.state_dict())
    if cfg.student_path:
        load_model(own, Path(cfg.student_path) / "student")
    model = cfg.model
    vision, act_only = model.freeze_vision_encoder, model.train_act_expert_only
    freeze(world_model, Freeze(vision, model.freeze_gen_expert, act_only, model.train_gen_expert_only))
    freeze(own, Freeze(vision, gen_expert=True, act_expert_only=act_only))
    # a fresh critic must not change what was cloned
    explorer = Explorer(own, stride=model.stride, cameras=cameras_of(cfg), detach_critic=cfg.phase == "task")
    lr, critic_lr = cfg.task_phase.lr if cfg.phase == "task" else cfg.student.lr, cfg.student.critic_lr
    dream = cfg.task_phase.imagination
    how: dict[str, Any] = {"lr": dream.lr, "capacity": dream.rollouts, "seed": cfg.seed}
    return TrainState(
        make_envs(cfg.env, task_of(cfg)),
        world_model,
        explorer,
        build_adamw({"world_model": world_model}, lr=cfg.fitting.lr, weight_decay=WEIGHT_DECAY, fused=True),
        NonFiniteGuard(),
        open_optimizer(explorer, lr=lr, critic_lr=critic_lr),
        NonFiniteGuard(),
        RewardScale(),
        SequenceReplay(cfg.adversarial.replay_size),
        FrozenExplorer(),
        open_older(world_model, cfg),
        Imagination(world_model, explorer, **how) if cfg.phase == "task" and dream.horizon else None,
        FrozenPolicy(explorer) if (cfg.task_phase if cfg.phase == "task" else cfg.student).ppo.kl_coef else None,
    )


def record_random(env: EnvConfig, folder: Path, *, seed: int, split: str, episodes: int) -> list[Recording]:
    """Episodes of uniformly random actions; those that `folder` holds are read. The processes share the work."""
    parts = -(-episodes // env.num_envs)
    paths = [folder / f"{split}-{number:04d}.npz" for number in range(parts)]
    missing = [number for number in range(parts)[rank() :: world_size()] if not paths[number].exists()]
    if missing:
        envs = make_envs(env)
        for number in progress(missing, f"recording {split}"):
            plan = plan_episodes(seed, split, number, env.scene_reuse)
            record(envs, random_actions(env, seed, split, number), plan).save(paths[number])
        envs.close()
    barrier()
    return [load_recording(path) for path in paths]


def load_object_masks(
    env: EnvConfig, recordings: Sequence[Recording], folder: Path, *, seed: int, split: str
) -> NDArray[np.bool_] | None:
    """Where the wrist frames of `record_random`'s episodes show an object, kept in `folder`; None off the tabletop."""
    if env.name != "tabletop":
        return None
    path = folder / f"{split}-objects.npy"
    if is_main() and not path.exists():
        table = env_maker(env)()
        plans = [plan_episodes(seed, split, number, env.scene_reuse) for number in range(len(recordings))]
        masks = [record_object_masks(table, one.actions, plan) for one, plan in zip(recordings, plans)]
        table.close()
        np.save(path, np.concatenate(masks))
    barrier()
    found: NDArray[np.bool_] = np.load(path)
    return found


def random_actions(env: EnvConfig, seed: int, split: str, number: int) -> NDArray[np.float32]:
    """(rows, t, a) uniform in [-1, 1], the same in every process."""
    shape = (env.num_envs, env.steps_per_episode, env.shapes.action_size)
    return numpy_rng(seed, split, "actions", number).uniform(-1, 1, shape).astype(np.float32)


def record_expert(env: EnvConfig, seed: int) -> Recording:
    """Pick-and-place by the scripted expert, as many episodes as environments: what nobody here trains on."""
    table = Tabletop(task="pick_place", terminate_on_success=False, **table_settings(env))
    episodes = [experts.record(table, seed=derive(seed, "expert", row)) for row in range(env.num_envs)]
    table.close()
    return stack_demonstrations([(one.shown, one.actions) for one in episodes], env.steps_per_episode)


def record_scripted(env: EnvConfig, seed: int) -> Recording:
    """A script in the scenes of the explorer's evaluation."""
    envs = make_envs(env)
    plan = plan_episodes(seed, "explore", 0, env.scene_reuse, together=True)
    recording = record(envs, script_actions("bang_bang_8", env, seed, "explore"), plan)
    envs.close()
    return recording


def load_demonstrations(cfg: Config, folder: Path, split: str, episodes: int) -> Recording:
    """The expert's episodes of the task, from `folder` where they are there; recorded by the main process."""
    path = folder / f"{split}.npz"
    if is_main() and not path.exists():
        env, steps = env_maker(cfg.env, cfg.task_phase.task_name)(), cfg.env.steps_per_episode
        act: Callable[[Any], NDArray[np.float32]] = experts.expert_action
        if isinstance(env, (MemoryCurtain, TwoArms)):
            act = type(env).expert_action
        how: dict[str, Any] = {"steps": steps, "noise": cfg.task_phase.action_noise, "seed": derive(cfg.seed, split)}
        record_demonstrations(env, act, episodes=episodes, **how).save(path)
        env.close()
    barrier()
    return load_recording(path)


def script_actions(name: str, env: EnvConfig, *key: Any) -> NDArray[np.float32]:
    """This process's rows (rows, t, a) of a script's actions."""
    shape = (env.num_envs * world_size(), env.steps_per_episode, env.shapes.action_size)
    return SCRIPTS[name](numpy_rng(*key, "scripted", name), shape)[rank() :: world_size()]


def scripted_episodes(state: TrainState, cfg: Config, number: int) -> TokenSequences:
    """What a script finds in the scenes of a duel's step, in place of the explorer: with the wrist camera alone."""
    script = "random" if cfg.adversarial.behaviour_policy == "random" else "bang_bang_8"
    plan = plan_episodes(cfg.seed, "duel", number, cfg.env.scene_reuse, together=True)
    actions = script_actions(script, cfg.env, cfg.seed, "duel", number)
    found = tokenise(state.world_model, [record(state.envs, actions, plan)])
    return replace(found, head_seen=torch.zeros_like(found.head_seen))


def explore(
    explorer: Explorer, envs: VectorEnvs, cfg: Config, split: str, number: int
) -> tuple[Rollout, TokenSequences]:
    """A rollout of the explorer, the `number`-th episode of a split in every environment, and its token sequences.

    One step more is taken than counts, for the observation after the last and its value.
    """
    env, generator = cfg.env, torch_rng(cfg.seed, split, "noise", number)
    shape = (env.steps_per_episode + 1, envs.num_envs * world_size(), explorer.spec.sample_size)
    noise = correlated_noise(shape, cfg.student.noise_correlation, generator)[:, rank() :: world_size()]
    plan = plan_episodes(cfg.seed, split, number, env.scene_reuse, together=True)
    rollout = collect_rollout(explorer, envs, noise=noise.to(explorer.device), plan_episode=plan)
    inputs = rollout.inputs
    wrist = inputs.images["wrist"].transpose(0, 1).to("cpu", torch.int16)
    sequences = TokenSequences(
        wrist=wrist,
        head=torch.zeros_like(wrist),
        head_seen=torch.zeros(len(wrist), dtype=torch.bool),
        state=inputs.state.transpose(0, 1).cpu(),
        actions=explorer.executed(inputs.actions)[:-1].clamp(-1.0, 1.0).transpose(0, 1).cpu(),
        text_ids=inputs.text_ids[0].cpu(),
        # what follows a failed environment is another episode
        mask=rollout.mask[:-1].T.cpu().long().cummin(dim=1).values.bool(),
    )
    return replace(
        first_steps(rollout, env.steps_per_episode), mask=sequences.mask.T.to(rollout.mask.device)
    ), sequences


def load_data(world_model: WorldModel, cfg: Config, run: Run) -> Data:
    """Recordings of random actions, the VQ tokenizer fitted on them unless `teacher_path` has one, and their tokens."""
    folder, vq = run.folder / "episodes", cfg.tokenizer

    def record_split(split: str, episodes: int) -> list[Recording]:
        if cfg.phase == "task":
            return [load_demonstrations(cfg, folder, split, episodes)]
        return record_random(cfg.env, folder, seed=cfg.seed, split=split, episodes=episodes)

    train = record_split("random", cfg.fitting.episodes) if cfg.phase != "student" else []
    held_out = record_split("held_out", cfg.evaluation.episodes)
    if not cfg.teacher_path:
        size: dict[str, int] = {"steps": vq.gradient_steps, "batch_size": vq.batch_size}
        fit_tokenizer(world_model, train, run.folder / "warm_start", lr=vq.lr, seed=cfg.seed, **size)
    tokens = tokenise(world_model, train) if train else None
    adversarial = tokens
    if tokens and cfg.phase in ("adversarial", "all") and cfg.adversarial.episodes:
        more = record_split("more", cfg.adversarial.episodes)
        adversarial = concat([tokens, tokenise(world_model, more)])
    expert = scripted = objects = None
    if cfg.env.name == "tabletop" and cfg.phase != "task":
        recorded = record_expert(cfg.env, cfg.seed), record_scripted(cfg.env, cfg.seed)
        expert, scripted = (tokenise(world_model, [one]) for one in recorded)
        objects = load_object_masks(cfg.env, held_out, folder, seed=cfg.seed, split="held_out")
    return Data(tokens, adversarial, tokenise(world_model, held_out), tuple(held_out), expert, scripted, objects)


def reward_terms(state: TrainState, sequences: TokenSequences, cfg: Config) -> IntrinsicRewards:
    """Memory divergence, uncertainty and novelty of every step, (b, t) each, before scales and weights."""
    positions, kind = sequences.state[:, 1:, cfg.env.position], cfg.rewards.uncertainty
    how: dict[str, Any] = {"stride": cfg.model.stride, "kind": kind, "older": state.older}
    return sequence_rewards(state.world_model, sequences, positions, **how)


def begin_phase(state: TrainState, data: Data, cfg: Config, phase: str) -> None:
    """The explorer starts as a copy of the world model; rewards are scaled by their means under random actions."""
    if phase == "teacher" and state.older is not None and not cfg.teacher_path:
        # normalisers and tokenizer were fitted since it was made
        state.older.load_state_dict(state.world_model.state_dict())
    if phase == "student" and cfg.phase == "all":
        state.explorer.model.load_state_dict(state.world_model.state_dict())
    if phase in ("student", "reinforce"):
        state.explorer.begin_with(cfg.student.std if phase == "student" else cfg.task_phase.std)
        if state.reference is not None:
            state.reference.load_state_dict(FrozenPolicy(state.explorer).state_dict())
    if phase == "student" or (phase == "adversarial" and cfg.phase == "adversarial"):
        terms = reward_terms(state, data.held_out, cfg)
        state.reward_scale.fit(terms, data.held_out.mask.to(terms.novelty.device))
    if phase == "adversarial":
        frozen = state.frozen_explorer
        frozen.episodes.add(explore(state.explorer, state.envs, cfg, "explore", 0)[1])
        frozen.initial_errors = duel_errors(state, data, stride=cfg.model.stride)


def duel_errors(state: TrainState, data: Data, *, stride: int) -> Numbers:
    """Prediction errors on the frozen explorer's episodes, on random ones, on a script's and on an expert's."""
    compared = {"frozen_explorer": state.frozen_explorer.episodes.all(), "random": data.held_out}
    more = {"scripted": data.scripted, "expert": data.expert}
    compared |= {name: sequences for name, sequences in more.items() if sequences is not None}
    return {
        f"{name}_error": prediction_error(state.world_model, sequences, stride=stride)
        for name, sequences in compared.items()
    }
