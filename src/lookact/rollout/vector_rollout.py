"""Rollouts of a control policy in a vector environment, as tensors with time first.

Every rollout begins with fresh episodes by a plan, so that what a rollout holds depends on nothing but the policy, the
plan and the noise: a resumed run needs no simulator's state. A step that did not happen, because its worker was started
again, is outside the mask and ends its episode there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import ActorOutput, ControlInputs
from lookact.ops.logprobs import gaussian_logprob
from lookact.protocols import ControlPolicy, EnvPart, VectorEnvLike
from lookact.types import PlanEpisode, VectorObservation, VectorStep


@dataclass(frozen=True)
class EpisodeStats:
    """An episode that came to its end."""

    reward: float
    """Summed."""
    steps: int
    success: bool
    failed: bool
    """Its worker was started again: it says nothing about the policy."""
    start: tuple[int, int] | None = None
    """Seeds of its scene and of its places, where the environment tells them."""


@dataclass(frozen=True)
class Rollout:
    """Steps of all rows; tensors are (t, rows, ...)."""

    inputs: ControlInputs
    """With the actions taken; the memory, where there is one, is (t, rows, hidden)."""
    logprobs: Tensor
    values: Tensor
    rewards: Tensor
    terminated: Tensor
    truncated: Tensor
    truncated_values: Tensor
    """Of the observation that a truncated episode ended on; 0 elsewhere."""
    mask: Tensor
    """False on steps that did not happen."""
    last_values: Tensor
    """(rows,) of the observation after the last step."""
    episodes: tuple[EpisodeStats, ...]
    """Those that came to their end."""


def collect_rollout(
    policy: ControlPolicy, envs: VectorEnvLike, *, noise: Tensor, plan_episode: PlanEpisode | None = None
) -> Rollout:
    """As many steps as standard normal `noise` (t, rows, sample_size) has; zeros act greedily."""
    sizes = [part.num_envs for part in envs.parts]
    with torch.inference_mode():
        bounds = envs.action_space.low, envs.action_space.high
        runners = [
            _EnvRunner(policy, part, own, bounds, plan_episode)
            for part, own in zip(envs.parts, torch.split(noise, sizes, dim=1))
        ]
        for _ in range(len(noise)):
            # double-buffered: while one part decides, the others step
            for runner in runners:
                runner.decide()
        last_inputs = [runner.observe() for runner in runners]
    with torch.no_grad():
        return _side_by_side([runner.buffer.finish(policy, last) for runner, last in zip(runners, last_inputs)])


class ControlActor:
    """A policy's inputs in a vector environment: keeps each row's action history and memory.

    Each instruction is tokenised once; a frozen vision encoder encodes each frame once.
    """

    def __init__(self, policy: ControlPolicy, rows: int) -> None:
        self.policy, spec = policy, policy.spec
        self.history = torch.zeros(rows, spec.history, spec.action_size, device=policy.device)
        self.carry = policy.start_carry(rows)
        self._nothing = torch.zeros(rows, spec.sample_size, device=policy.device)
        self._texts: tuple[str, ...] = ()
        self._text_ids = torch.zeros(rows, 0, dtype=torch.long)
        self._known: dict[str, Tensor] = {}

    def observe(self, observation: VectorObservation) -> ControlInputs:
        """Inputs of all rows; their actions are zeros, for they are not taken yet."""
        texts = observation.texts.get("instruction") or ("",) * len(self.history)
        if texts != self._texts:
            self._texts, self._text_ids = texts, self._tokenize(texts)
        return ControlInputs(
            actions=self._nothing,
            state=torch.from_numpy(observation.arrays["state"]).to(self.policy.device, torch.float32),
            images=self._encode_images(observation.arrays, self._text_ids),
            text_ids=self._text_ids,
            history=self.history,
            carry=self.carry,
            true_state=self._true_state(observation.arrays),
        )

    def update(self, actions: Tensor, carry: Tensor | None) -> None:
        """`actions` (rows, a) were done, and `carry` is the memory after the step."""
        if self.history.shape[1]:
            done = self.policy.normalise_actions(actions).unsqueeze(1)
            self.history = torch.cat([self.history[:, 1:], done], dim=1)
        self.carry = carry

    def final_observation(self, finals: Mapping[int, Mapping[str, Any]]) -> ControlInputs:
        """Inputs of the rows that ended, one each, as they were after their last step."""
        rows, known = list(finals), ("true_state",) if "true_state" in next(iter(finals.values())) else ()
        arrays = {name: np.stack([final[name] for final in finals.values()]) for name in (*self._arrays(), *known)}
        text_ids = self._tokenize([str(final.get("instruction", "")) for final in finals.values()])
        return ControlInputs(
            actions=self._nothing[rows],
            state=torch.from_numpy(arrays["state"]).to(self.policy.device, torch.float32),
            images=self._encode_images(arrays, text_ids),
            text_ids=text_ids,
            history=self.history[rows],
            carry=None if self.carry is None else self.carry[:, rows],
            true_state=self._true_state(arrays),
        )

    def reset_rows(self, rows: Sequence[int]) -> None:
        """New episodes begin on these rows: no past action, an empty memory."""
        self.history = self.history.index_fill(0, torch.tensor(rows, device=self.history.device), 0.0)
        if self.carry is not None:
            self.carry = self.carry.index_fill(1, torch.tensor(rows, device=self.carry.device), 0.0)

    def _arrays(self) -> tuple[str, ...]:
        return ("state", *self.policy.spec.cameras)

    def _true_state(self, arrays: Mapping[str, NDArray[Any]]) -> Tensor | None:
        known = arrays.get("true_state")
        return None if known is None else torch.from_numpy(known).to(self.policy.device, torch.float32)

    def _encode_images(self, arrays: Mapping[str, NDArray[Any]], text_ids: Tensor) -> dict[str, Tensor]:
        cameras = self.policy.spec.cameras
        frames = {camera: torch.from_numpy(arrays[camera]).to(self.policy.device) for camera in cameras}
        return self.policy.features(frames, text_ids) if frames and self.policy.frozen_vision else frames

    def _tokenize(self, texts: Sequence[str]) -> Tensor:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known |= dict(zip(fresh, self.policy.tokenize(fresh)))
        return torch.stack([self._known[text] for text in texts])


class _EnvRunner:
    """A policy in one part of the environments."""

    def __init__(
        self, policy: ControlPolicy, part: EnvPart, noise: Tensor, bounds: tuple[Any, Any], plan: PlanEpisode | None
    ) -> None:
        self.policy, self.part, self.noise, self.bounds = policy, part, noise, bounds
        self.actor, self.buffer = ControlActor(policy, part.num_envs), _RolloutBuffer(len(noise), part.num_envs)
        self.observation, _ = part.reset(plan)
        self.t = 0
        self.under_way: tuple[Tensor, Tensor | None] | None = None
        """The last actions, and the memory after them."""

    def decide(self) -> None:
        """Act on the observation; the step's outcome is received before the next one."""
        inputs = self.observe()
        actions, output = self.policy.sample(inputs, self.noise[self.t])
        self.buffer.add_decision(self.t, inputs, actions, output)
        # a Gaussian has no bounds, the action space has
        done = np.minimum(np.maximum(self.policy.executed(actions).cpu().numpy(), self.bounds[0]), self.bounds[1])
        self.part.send(done)
        self.under_way = torch.from_numpy(done).to(actions), output.carry
        self.t += 1

    def observe(self) -> ControlInputs:
        """Inputs after the step under way, if any, is done."""
        if self.under_way is not None:
            step = self.part.receive()
            self.actor.update(*self.under_way)
            self.buffer.add_outcome(self.t - 1, step, self.actor)
            self.observation, self.under_way = step.observations, None
        return self.actor.observe(self.observation)


class _RolloutBuffer:
    """Rollout buffer: steps as they come."""

    def __init__(self, steps: int, rows: int) -> None:
        self.steps = steps
        self.rewards = np.zeros((steps, rows), np.float32)
        self.terminated, self.truncated = np.zeros((steps, rows), np.bool_), np.zeros((steps, rows), np.bool_)
        self.mask = np.ones((steps, rows), np.bool_)
        self.returns, self.lengths = np.zeros(rows), np.zeros(rows, np.int64)
        self.kept: dict[str, Tensor] = {}
        self.cameras: tuple[str, ...] = ()
        self.cuts: list[tuple[int, list[int], ControlInputs]] = []
        """Truncated episodes: step, rows, and final observations."""
        self.episodes: list[EpisodeStats] = []

    def add_decision(self, t: int, inputs: ControlInputs, actions: Tensor, output: ActorOutput) -> None:
        """What the policy was shown, and its output."""
        parts = {"actions": actions, "mean": output.mean[:, 0], "critic_features": output.critic_features}
        parts["state"] = inputs.state
        if output.log_std.dim() > 1:
            parts["log_std"] = output.log_std
        parts |= {f"image/{camera}": frames for camera, frames in inputs.images.items()}
        parts |= {"text_ids": inputs.text_ids, "history": inputs.history}
        if inputs.carry is not None:
            parts["carry"] = inputs.carry[0]
        if inputs.true_state is not None:
            parts["true_state"] = inputs.true_state
        if not self.kept:
            self.cameras = tuple(inputs.images)
            # tensors made in inference mode cannot be learned from
            with torch.inference_mode(False):
                self.kept = {name: part.new_zeros((self.steps, *part.shape)) for name, part in parts.items()}
        for name, part in parts.items():
            self.kept[name][t] = part

    def add_outcome(self, t: int, step: VectorStep, actor: ControlActor) -> None:
        """Rewards, and the episodes that ended."""
        self.rewards[t] = step.rewards
        self.returns += step.rewards
        self.lengths += 1
        if not step.finals:
            return
        self.terminated[t], self.truncated[t] = step.terminated, step.truncated
        for row in step.finals:
            info = step.infos[row]
            failed = bool(info.get("worker_restarted"))
            self.mask[t, row] = not failed
            steps, success = int(self.lengths[row]), bool(info.get("success"))
            self.episodes.append(EpisodeStats(float(self.returns[row]), steps, success, failed, info.get("seeds")))
            self.returns[row], self.lengths[row] = 0.0, 0
        cut = {row: final for row, final in step.finals.items() if step.truncated[row] and self.mask[t, row]}
        if cut:
            self.cuts.append((t, list(cut), actor.final_observation(cut)))
        actor.reset_rows(list(step.finals))

    def finish(self, policy: ControlPolicy, last: ControlInputs) -> Rollout:
        """Everything as tensors; values are computed in one go, so that acting does not wait for them."""
        kept = self.kept
        values, output = _values(policy, kept["critic_features"]), policy(last)
        # a step that did not happen ends its episode on what was seen before it
        truncated = torch.from_numpy(self.truncated).to(values.device)
        truncated_values = values.masked_fill(~truncated, 0.0)
        if self.cuts:
            times = torch.tensor([t for t, rows, _ in self.cuts for _ in rows])
            rows = torch.tensor([row for _, rows, _ in self.cuts for row in rows])
            truncated_values[times, rows] = policy(join([inputs for _, _, inputs in self.cuts])).values
        return Rollout(
            inputs=ControlInputs(
                actions=kept["actions"],
                state=kept["state"],
                images={camera: kept[f"image/{camera}"] for camera in self.cameras},
                text_ids=kept["text_ids"],
                history=kept["history"],
                carry=kept.get("carry"),
                true_state=kept.get("true_state"),
            ),
            logprobs=gaussian_logprob(kept["actions"], kept["mean"], kept.get("log_std", output.log_std)),
            values=values,
            rewards=torch.from_numpy(self.rewards).to(values.device),
            terminated=torch.from_numpy(self.terminated).to(values.device),
            truncated=truncated,
            truncated_values=truncated_values,
            mask=torch.from_numpy(self.mask).to(values.device),
            last_values=output.values,
            episodes=tuple(self.episodes),
        )


def first_steps(rollout: Rollout, count: int) -> Rollout:
    """A rollout's first steps, bootstrapped with the value of the observation after them."""
    names = ("logprobs", "values", "rewards", "terminated", "truncated", "truncated_values", "mask")
    inputs = rollout.inputs
    return replace(
        rollout,
        inputs=ControlInputs(
            **{name: getattr(inputs, name)[:count] for name in ("actions", "state", "text_ids", "history")},
            images={camera: frames[:count] for camera, frames in inputs.images.items()},
            carry=None if inputs.carry is None else inputs.carry[:count],
            true_state=None if inputs.true_state is None else inputs.true_state[:count],
        ),
        last_values=rollout.values[count],
        **{name: getattr(rollout, name)[:count] for name in names},
    )


def _side_by_side(parts: Sequence[Rollout]) -> Rollout:
    """The rollouts of several parts as one of all rows."""
    if len(parts) == 1:
        return parts[0]
    tensors = {
        name: torch.cat([getattr(part, name) for part in parts], dim=1)
        for name in ("logprobs", "values", "rewards", "terminated", "truncated", "truncated_values", "mask")
    }
    return Rollout(
        inputs=join([part.inputs for part in parts], dim=1),
        last_values=torch.cat([part.last_values for part in parts]),
        episodes=tuple(episode for part in parts for episode in part.episodes),
        **tensors,
    )


def _values(policy: ControlPolicy, critic_features: Tensor, at_once: int = 128) -> Tensor:
    """Values (t, rows) on critic_features (t, rows, ...)."""
    found = [policy.value(part) for part in torch.split(critic_features.flatten(0, 1), at_once)]
    return torch.cat(found).view(critic_features.shape[:2])


def join(parts: Sequence[ControlInputs], dim: int = 0) -> ControlInputs:
    """Rows of several inputs in one; `dim` is the rows' (a memory's is always 1)."""

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts], dim=dim)

    carries = [part.carry for part in parts if part.carry is not None]
    known = [part.true_state for part in parts if part.true_state is not None]
    return ControlInputs(
        **{name: joined(name) for name in ("actions", "state", "text_ids", "history")},
        images={camera: torch.cat([part.images[camera] for part in parts], dim=dim) for camera in parts[0].images},
        carry=torch.cat(carries, dim=1) if carries else None,
        true_state=torch.cat(known, dim=dim) if known else None,
    )
