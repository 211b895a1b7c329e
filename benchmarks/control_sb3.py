"""vla-ppo's policy and tables as stable-baselines3's PPO takes them: the same network, another's loop around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper
from torch import Tensor

from lookact.batch import ControlInputs
from lookact.models.actor_critic import draw, score
from lookact.models.vla.policy import VLA
from lookact.training.settings import PPO as PPOSettings

Observation = dict[str, NDArray[Any]]


def make_ppo(
    policy: VLA,
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    ppo: PPOSettings,
    *,
    rows: int,
    steps: int,
    lr: float,
    encode_once: bool,
) -> PPO:
    """stable-baselines3's PPO with LookAct's settings.

    It keeps what the environment shows and has it encoded in every pass; `encode_once` shows it features instead.
    """
    worlds: Any = DummyVecEnv([partial(_Told, make_env, policy)] * rows)
    return PPO(
        _Policy,
        _Encoded(worlds, policy) if encode_once else worlds,
        policy_kwargs={"vla": policy},
        n_steps=steps,
        batch_size=ppo.minibatch,
        n_epochs=ppo.epochs,
        gamma=ppo.gamma,
        gae_lambda=ppo.lam,
        clip_range=ppo.clip,
        # of e², where LookAct weighs ½e²
        vf_coef=0.5 * ppo.value_coef,
        max_grad_norm=ppo.clip_norm,
        learning_rate=lr,
        device="cpu",
        seed=0,
    )


class _Policy(BasePolicy):  # type: ignore[misc, unused-ignore]
    """A VLA behind the methods that PPO calls."""

    def __init__(self, observation_space: Any, action_space: Any, schedule: Any, *, use_sde: bool, vla: VLA) -> None:
        super().__init__(observation_space, action_space)
        self.vla = vla
        learned = [parameter for parameter in vla.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=schedule(1))

    def forward(self, observation: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        actions, logprobs, values = draw(self.vla(self._inputs(observation)), generator=None)
        return actions, values, logprobs

    def evaluate_actions(self, observation: Mapping[str, Tensor], actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Values, log-probs and entropy (b,) of actions (b, a)."""
        scores = score(self.vla(self._inputs(observation)), actions)
        assert scores.values is not None
        return scores.values[:, 0], scores.logprobs[:, 0], scores.entropy[:, 0]

    def predict_values(self, observation: Mapping[str, Tensor]) -> Tensor:
        values: Tensor = self.vla(self._inputs(observation)).values
        return values

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        return draw(self.vla(self._inputs(observation)), generator=None, greedy=deterministic)[0]

    def _inputs(self, observation: Mapping[str, Tensor]) -> ControlInputs:
        state = observation["state"]
        return ControlInputs(
            actions=torch.zeros(len(state), self.vla.spec.action_size),
            state=state,
            images={camera: _frames(observation[camera], self.vla) for camera in self.vla.spec.cameras},
            text_ids=observation["text_ids"],
            history=observation["history"],
        )


def _frames(shown: Tensor, policy: VLA) -> Tensor:
    """Frames (b, s, s, 3) of what `_Told` shows of them; features are left as they are."""
    size = policy.vision_encoder.spec.image_size
    return shown.view(-1, size, size, 3) if shown.dtype == torch.uint8 else shown


class _Told(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A table whose instruction is shown as ids, beside the last actions: arrays are all that is understood."""

    def __init__(self, make_env: Callable[[], gymnasium.Env[Any, Any]], policy: VLA) -> None:
        super().__init__(make_env())
        self.policy, spec = policy, policy.spec
        self.history = np.zeros((spec.history, spec.action_size), np.float32)
        self.text_ids = np.zeros(0, np.int64)
        ids = policy.tokenize([""]).shape[1:]
        shown = self.env.observation_space
        assert isinstance(shown, spaces.Dict)
        # a row of pixels: what is known for a picture would be turned round in every step
        frames = {
            camera: spaces.Box(0, 255, (int(np.prod(shown[camera].shape or ())),), np.uint8) for camera in spec.cameras
        }
        self.observation_space = spaces.Dict(
            {"state": shown["state"]}
            | frames
            | {
                "text_ids": spaces.Box(0, np.iinfo(np.int64).max, ids, np.int64),
                "history": spaces.Box(-1.0, 1.0, self.history.shape, np.float32),
            }
        )

    def reset(self, **options: Any) -> tuple[Observation, dict[str, Any]]:
        shown, info = self.env.reset(**options)
        self.history = np.zeros_like(self.history)
        self.text_ids = self.policy.tokenize([shown["instruction"]])[0].numpy()
        return self._arrays(shown), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        shown, reward, terminated, truncated, info = self.env.step(action)
        self.history = np.concatenate([self.history[1:], action[None]])
        return self._arrays(shown), reward, terminated, truncated, info

    def _arrays(self, shown: Mapping[str, Any]) -> Observation:
        frames = {camera: shown[camera].reshape(-1) for camera in self.policy.spec.cameras}
        return frames | {"state": shown["state"], "text_ids": self.text_ids, "history": self.history}


class _Encoded(VecEnvWrapper):  # type: ignore[misc, unused-ignore]
    """Frames as a frozen encoder's features, made once for all rows together."""

    def __init__(self, worlds: Any, policy: VLA) -> None:
        self.policy = policy
        shown = worlds.observation_space
        blank = {camera: np.zeros((1, *shown[camera].shape), np.uint8) for camera in policy.spec.cameras}
        seen = {
            camera: spaces.Box(-np.inf, np.inf, features.shape[1:], np.float32)
            for camera, features in self._features(blank).items()
        }
        super().__init__(worlds, observation_space=spaces.Dict({**shown.spaces, **seen}))

    def reset(self) -> Any:
        return self._encode(self.venv.reset())

    def step_wait(self) -> Any:
        shown, rewards, dones, infos = self.venv.step_wait()
        ended = [info for info in infos if "terminal_observation" in info]
        if ended:
            last = [info["terminal_observation"] for info in ended]
            for info, seen in zip(ended, self._encode_each(last)):
                info["terminal_observation"] = seen
        return self._encode(shown), rewards, dones, infos

    def _encode(self, shown: Any) -> Any:
        return {**shown, **self._features({camera: shown[camera] for camera in self.policy.spec.cameras})}

    def _encode_each(self, shown: Sequence[Observation]) -> list[Observation]:
        seen = self._encode({name: np.stack([each[name] for each in shown]) for name in shown[0]})
        return [{name: array[row] for name, array in seen.items()} for row in range(len(shown))]

    def _features(self, frames: Observation) -> Observation:
        shown = {camera: _frames(torch.from_numpy(array), self.policy) for camera, array in frames.items()}
        rows = len(next(iter(shown.values())))
        found = self.policy.features(shown, self.policy.tokenize([""] * rows))
        return {camera: features.numpy() for camera, features in found.items()}
