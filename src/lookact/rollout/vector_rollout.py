"""Steps of a control policy in many worlds at once, as tensors with time first.

Every rollout begins with fresh episodes by a plan, so that what a rollout holds depends on nothing but the policy, the
plan and the noise: a resumed run needs no simulator's state. A step that did not happen, because its worker was started
again, is outside the mask and ends its episode there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import ControlInputs
from lookact.envs.vector.vector_env import PlanEpisode, VectorObservation, VectorStep
from lookact.ops.gaussian import gaussian_logprob
from lookact.rollout.control_actor import ControlActor, ControlPolicy


class Part(Protocol):
    """Environments side by side that reset themselves in the step that ends an episode."""

    @property
    def rows(self) -> int: ...
    def reset(
        self, plan_episode: PlanEpisode | None = None
    ) -> tuple[VectorObservation, tuple[dict[str, Any], ...]]: ...
    def send(self, actions: NDArray[np.float32]) -> None: ...
    def receive(self) -> VectorStep: ...


class Worlds(Protocol):
    """All rows, in parts that may step at the same time."""

    @property
    def rows(self) -> int: ...
    @property
    def restarts(self) -> int: ...
    @property
    def action_space(self) -> Any: ...
    @property
    def parts(self) -> Sequence[Part]: ...


@dataclass(frozen=True)
class EpisodeStats:
    """An episode that came to its end."""

    reward: float
    """Summed."""
    steps: int
    success: bool
    broken: bool
    """Its worker was started again: it says nothing about the policy."""


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
    """(rows,) of what is seen after the last step."""
    ended: tuple[EpisodeStats, ...]


def roll_out(
    policy: ControlPolicy, worlds: Worlds, *, noise: Tensor, plan_episode: PlanEpisode | None = None
) -> Rollout:
    """As many steps as `noise` (t, rows, a) has, in units of the policy's standard deviation; zeros act greedily."""
    sizes = [part.rows for part in worlds.parts]
    with torch.inference_mode():
        bounds = worlds.action_space.low, worlds.action_space.high
        crews = [
            _EnvRunner(policy, part, own, bounds, plan_episode)
            for part, own in zip(worlds.parts, torch.split(noise, sizes, dim=1))
        ]
        for _ in range(len(noise)):
            # while one decides, the others' worlds step
            for crew in crews:
                crew.decide()
        seen = [crew.look() for crew in crews]
    with torch.no_grad():
        return _side_by_side([crew.tape.finish(policy, last) for crew, last in zip(crews, seen)])


class _EnvRunner:
    """A policy in one part of the worlds."""

    def __init__(
        self, policy: ControlPolicy, part: Part, noise: Tensor, bounds: tuple[Any, Any], plan: PlanEpisode | None
    ) -> None:
        self.policy, self.part, self.noise, self.bounds = policy, part, noise, bounds
        self.actor, self.tape = ControlActor(policy, part.rows), _RolloutBuffer(len(noise), part.rows)
        self.seen, _ = part.reset(plan)
        self.t = 0
        self.under_way: tuple[Tensor, Tensor | None] | None = None
        """What was done last, and the memory after it."""

    def decide(self) -> None:
        """Act on what is seen; what comes of it is asked for at the next look."""
        inputs = self.look()
        intent = self.policy.intend(inputs)
        mean = intent.mean[:, 0]
        actions = mean + intent.log_std.exp() * self.noise[self.t]
        self.tape.write(self.t, inputs, actions, mean, intent.critic_features)
        # the policy's Gaussian knows no bounds: the world is given what it can do
        done = np.minimum(np.maximum(actions.cpu().numpy(), self.bounds[0]), self.bounds[1])
        self.part.send(done)
        self.under_way = torch.from_numpy(done).to(actions), intent.carry
        self.t += 1

    def look(self) -> ControlInputs:
        """What there is to see once the step under way, if any, is done."""
        if self.under_way is not None:
            step = self.part.receive()
            self.actor.remember(*self.under_way)
            self.tape.note(self.t - 1, step, self.actor)
            self.seen, self.under_way = step.observations, None
        return self.actor.look(self.seen)


class _RolloutBuffer:
    """A rollout while it is being recorded."""

    def __init__(self, steps: int, rows: int) -> None:
        self.steps = steps
        self.rewards = np.zeros((steps, rows), np.float32)
        self.terminated, self.truncated = np.zeros((steps, rows), np.bool_), np.zeros((steps, rows), np.bool_)
        self.mask = np.ones((steps, rows), np.bool_)
        self.returns, self.lengths = np.zeros(rows), np.zeros(rows, np.int64)
        self.kept: dict[str, Tensor] = {}
        self.cameras: tuple[str, ...] = ()
        self.cuts: list[tuple[int, list[int], ControlInputs]] = []
        """When, which rows, and what they saw last."""
        self.ended: list[EpisodeStats] = []

    def write(self, t: int, inputs: ControlInputs, actions: Tensor, mean: Tensor, critic_features: Tensor) -> None:
        """What the policy was shown and made of it."""
        parts = {"actions": actions, "mean": mean, "critic_features": critic_features, "state": inputs.state}
        parts |= {f"image/{camera}": frames for camera, frames in inputs.images.items()}
        parts |= {"text_ids": inputs.text_ids, "history": inputs.history}
        if inputs.carry is not None:
            parts["carry"] = inputs.carry[0]
        if not self.kept:
            self.cameras = tuple(inputs.images)
            # what was made in inference mode is of no use to learning
            with torch.inference_mode(False):
                self.kept = {name: part.new_zeros((self.steps, *part.shape)) for name, part in parts.items()}
        for name, part in parts.items():
            self.kept[name][t] = part

    def note(self, t: int, step: VectorStep, actor: ControlActor) -> None:
        """What came of it."""
        self.rewards[t] = step.rewards
        self.returns += step.rewards
        self.lengths += 1
        if not step.finals:
            return
        self.terminated[t], self.truncated[t] = step.terminated, step.truncated
        for row in step.finals:
            info = step.infos[row]
            broken = bool(info.get("worker_restarted"))
            self.mask[t, row] = not broken
            self.ended.append(
                EpisodeStats(float(self.returns[row]), int(self.lengths[row]), bool(info.get("success")), broken)
            )
            self.returns[row], self.lengths[row] = 0.0, 0
        cut = {row: final for row, final in step.finals.items() if step.truncated[row] and self.mask[t, row]}
        if cut:
            self.cuts.append((t, list(cut), actor.look_back(cut)))
        actor.forget(list(step.finals))

    def finish(self, policy: ControlPolicy, last: ControlInputs) -> Rollout:
        """Everything as tensors; acting does not wait for values, so that they are found in one go."""
        kept = self.kept
        values, outlook = _appraised(policy, kept["critic_features"]), policy(last)
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
            ),
            logprobs=gaussian_logprob(kept["actions"], kept["mean"], outlook.log_std),
            values=values,
            rewards=torch.from_numpy(self.rewards).to(values.device),
            terminated=torch.from_numpy(self.terminated).to(values.device),
            truncated=truncated,
            truncated_values=truncated_values,
            mask=torch.from_numpy(self.mask).to(values.device),
            last_values=outlook.values,
            ended=tuple(self.ended),
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
        ended=tuple(ended for part in parts for ended in part.ended),
        **tensors,
    )


def _appraised(policy: ControlPolicy, critic_features: Tensor, at_once: int = 128) -> Tensor:
    """Values (t, rows) on critic_features (t, rows, ...)."""
    found = [policy.appraise(part) for part in torch.split(critic_features.flatten(0, 1), at_once)]
    return torch.cat(found).view(critic_features.shape[:2])


def join(parts: Sequence[ControlInputs], dim: int = 0) -> ControlInputs:
    """Rows of several inputs in one; `dim` is the rows' (a memory's is always 1)."""

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts], dim=dim)

    carries = [part.carry for part in parts if part.carry is not None]
    return ControlInputs(
        **{name: joined(name) for name in ("actions", "state", "text_ids", "history")},
        images={camera: torch.cat([part.images[camera] for part in parts], dim=dim) for camera in parts[0].images},
        carry=torch.cat(carries, dim=1) if carries else None,
    )
