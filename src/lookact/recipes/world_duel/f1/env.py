"""`lookact/F1-v0`: world-duel's environment for other learners, with histories of frames and actions.

`gymnasium.make("lookact/F1-v0", phase="student", teacher="runs/…/checkpoint-280")`. In phase teacher the reward is 0,
or the task's where one is named; in phase student it is intrinsic, by the frozen world model of a teacher's checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformReward
from numpy.typing import NDArray

from lookact.config import load_config
from lookact.errors import ConfigError
from lookact.recipes.world_duel.config import PRESETS, Config
from lookact.recipes.world_duel.f1.environments import env_maker
from lookact.recipes.world_duel.f1.models import load_model, open_model, open_older
from lookact.rewards.intrinsic_env import IntrinsicReward, IntrinsicWeights
from lookact.training.run_files import saved_config

Shown = dict[str, Any]
Task = Literal["reach", "push", "pick_place"]


class F1Env(gymnasium.Wrapper[Shown, NDArray[np.float32], Any, NDArray[np.float32]]):
    """An environment with the tabletop's observations, as F1 sees it.

    `image_history` (h, y, x, 3) are the wrist camera's last frames, the present one last; `action_history` (h, a) the
    actions that led to each of them, oldest first, zeros where none did. Before an episode's first frame stands that
    frame. `head` is shown in phase teacher alone. Actions are multiplied by `action_scale`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, NDArray[np.float32]],
        *,
        phase: Literal["teacher", "student"] = "teacher",
        history_length: int = 4,
        action_scale: float = 1.0,
    ) -> None:
        super().__init__(env)
        if phase not in ("teacher", "student"):
            raise ConfigError(f"phase is {phase!r}: choose teacher or student")
        if history_length < 1:
            raise ConfigError(f"history_length is {history_length}: give at least 1, the present frame")
        if not 0 < action_scale <= 1:
            raise ConfigError(f"action_scale is {action_scale}: give more than 0 and at most 1")
        self.phase, self.history_length, self.action_scale = phase, history_length, action_scale
        inner: dict[str, Any] = dict(env.observation_space.spaces)  # type: ignore[attr-defined]
        image, size = inner["wrist"], env.action_space.shape or ()
        shown = {name: inner[name] for name in ("state", "instruction")}
        shown["image_history"] = spaces.Box(0, 255, (history_length, *image.shape), np.uint8)
        shown["action_history"] = spaces.Box(-1.0, 1.0, (history_length, *size), np.float32)
        if phase == "teacher":
            shown["head"] = inner["head"]
        self.observation_space = spaces.Dict(shown)
        self._frames: list[Any] = []
        self._actions: list[NDArray[np.float32]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        shown, info = self.env.reset(seed=seed, options=options)
        self._frames = [shown["wrist"]] * self.history_length
        self._actions = [np.zeros(self.action_space.shape or (), np.float32)] * self.history_length
        return self._shown(shown), info

    def step(self, action: NDArray[np.float32]) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        done = (self.action_scale * np.clip(np.asarray(action, np.float32), -1, 1)).astype(np.float32)
        shown, reward, terminated, truncated, info = self.env.step(done)
        self._frames = [*self._frames[1:], shown["wrist"]]
        self._actions = [*self._actions[1:], done]
        return self._shown(shown), float(reward), terminated, truncated, info

    def _shown(self, shown: Shown) -> Shown:
        seen = {name: shown[name] for name in ("state", "instruction")}
        seen |= {"image_history": np.stack(self._frames), "action_history": np.stack(self._actions)}
        return seen | ({"head": shown["head"]} if self.phase == "teacher" else {})


def make_f1_env(
    *,
    phase: Literal["teacher", "student"] = "teacher",
    teacher: str | Path | None = None,
    task: Task | None = None,
    history_length: int = 4,
    max_steps: int = 48,
    action_scale: float = 1.0,
    single_arm: bool = True,
    weights: IntrinsicWeights | None = None,
    **env: Any,
) -> F1Env:
    """Entry point of `lookact/F1-v0`; further words are those of `EnvConfig`, over the teacher's own where it has any.

    teacher: a checkpoint of phase teacher; phase student needs it.
    """
    if not single_arm:
        env = {"name": "two_arms"} | env
    if (phase == "student") != (teacher is not None):
        raise ConfigError("give teacher, a checkpoint of phase teacher, in phase student and in no other")
    cfg = _config_of(Path(teacher)) if teacher is not None else PRESETS["small"]
    cfg = replace(cfg, env=replace(cfg.env, steps_per_episode=max_steps, **env))
    made: gymnasium.Env[Any, Any] = TimeLimit(env_maker(cfg.env, task)(), max_steps)
    if task is None:
        # the table's own is that of reach
        made = TransformReward(made, lambda reward: 0.0)
    if teacher is not None:
        world_model = open_model(cfg, Path(teacher))
        load_model(world_model, Path(teacher))
        with torch.no_grad():
            made = IntrinsicReward(
                made,
                world_model.eval(),
                weights=weights or _weights_of(cfg),
                kind=cfg.rewards.uncertainty,
                stride=cfg.model.stride,
                position=cfg.env.position,
                older=open_older(world_model, replace(cfg, teacher_path=str(teacher))),
            )
    return F1Env(made, phase=phase, history_length=history_length, action_scale=action_scale)


def teacher_env(**how: Any) -> F1Env:
    """`lookact/F1-v0` in phase teacher: both cameras, for recording what a world model learns from."""
    return make_f1_env(phase="teacher", **how)


def student_env(teacher: str | Path, **how: Any) -> F1Env:
    """`lookact/F1-v0` in phase student: the wrist camera, paid by the frozen world model of `teacher`."""
    return make_f1_env(phase="student", teacher=teacher, **how)


def _config_of(checkpoint: Path) -> Config:
    saved = saved_config(checkpoint)
    if saved is None:
        raise ConfigError(f"{checkpoint} has no config.yaml: give a checkpoint that lookact train world-duel wrote")
    return load_config(Config, saved, PRESETS["small"], recipe="world-duel")


def _weights_of(cfg: Config) -> IntrinsicWeights:
    rewards = cfg.rewards
    return IntrinsicWeights(rewards.memory_weight, rewards.uncertainty_weight, rewards.novelty_weight)
