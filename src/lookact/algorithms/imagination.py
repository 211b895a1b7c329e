"""Policy learning inside a world model: short rollouts imagined from real states, with predicted rewards and ends.

The world model is frozen. It predicts the wrist camera's next tokens; heads learned from real steps predict the rest.
The policy sees what it would see in the environment, so that imagined steps are scored and learned from as real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lookact.batch import ControlInputs
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel, WorldModelInputs
from lookact.models.world_model.step_heads import StepHeads, StepPrediction, step_features
from lookact.ops.advantages import lambda_returns
from lookact.ops.logprobs import gaussian_logprob
from lookact.rollout.vector_rollout import Rollout, join
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.distributed import rank, sum_gradients, world_size
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step

AT_ONCE = 256
"""Steps in one forward pass of the world model."""
BATCH = 256
ALIVE = 0.5
"""Imagined steps count until the probability that the episode still goes on falls below this."""


@dataclass(frozen=True)
class Transitions:
    """Real steps as the heads learn from them, (n, ...) each."""

    features: Tensor
    reward: Tensor
    end: Tensor
    """1 where the step terminated the episode."""
    state: Tensor
    head: Tensor
    """(n, cells, d)"""
    follows: Tensor
    """False where the observation after the step is another episode's."""

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, rows: Tensor) -> Transitions:
        return Transitions(**{name: part[rows] for name, part in vars(self).items()})


class Imagination:
    """A frozen world model with heads for what its next frame does not tell; the heads' training state is resumable."""

    def __init__(self, world_model: WorldModel, policy: Explorer, *, lr: float, capacity: int, seed: int) -> None:
        """`capacity` rollouts are kept to learn from."""
        self.observer = Explorer(world_model, stride=policy.stride, cameras=policy.spec.cameras)
        self.heads = StepHeads(world_model, seed=seed).to(world_model.device)
        self.optimizer = build_adamw({"heads": self.heads}, lr=lr)
        self.guard, self.capacity = NonFiniteGuard(), capacity
        self.kept: list[Transitions] = []

    def state_dict(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"heads": self.heads, "optimizer": self.optimizer, "guard": self.guard}
        return {name: part.state_dict() for name, part in parts.items()} | {"kept": [dict(vars(x)) for x in self.kept]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.guard.load_state_dict(state["guard"])
        self.kept = [Transitions(**part) for part in state["kept"]]

    # ---- learning from real steps

    def learn(self, rollout: Rollout, *, steps: int, seed: int) -> dict[str, float]:
        """Gradient steps on the last rollouts and this one; metrics of what was predicted of it before."""
        fresh = self._transitions(rollout)
        metrics = self._errors(fresh)
        self.kept = [*self.kept, fresh][-self.capacity :]
        known = {name: torch.cat([getattr(part, name) for part in self.kept]) for name in vars(fresh)}
        everything, parameters, losses = Transitions(**known), list(self.heads.parameters()), [0.0]
        for step in range(steps):
            rows = numpy_rng(seed, "heads", step, rank()).choice(len(everything), min(BATCH, len(everything)), False)
            batch = everything[torch.from_numpy(rows).to(everything.reward.device)]
            truth = StepPrediction(batch.reward, batch.end, batch.state, batch.head)
            loss = self.heads.loss(batch.features, truth, batch.follows) / world_size()
            loss.backward()  # type: ignore[no-untyped-call]
            sum_gradients(parameters)
            losses.append(float(loss.detach()))
            clip_and_step(self.optimizer, parameters, max_norm=1.0, guard=self.guard, loss=losses[-1])
        return metrics | {"loss/step_heads": sum(losses) / max(1, steps)}

    @torch.no_grad()
    def _transitions(self, rollout: Rollout) -> Transitions:
        """The counted steps of a rollout."""
        model, rows = self.observer.model, rollout.mask.shape[1]
        now = _steps(rollout.inputs)
        action = self.observer.executed(now.actions).clamp(-1.0, 1.0)
        observed, _ = self.observer.observe(now)
        features = []
        for first in range(0, len(action), AT_ONCE):
            part = _rows(observed, slice(first, first + AT_ONCE))
            features.append(self._features(part, model.pad(action[first : first + AT_ONCE]))[0])
        # what stands a row's step later; an episode's last step has nothing after it here
        later = [part.roll(-rows, 0) for part in (model.normalise_state(observed.state), observed.head)]
        follows = ~(rollout.terminated | rollout.truncated) & rollout.mask.roll(-1, 0)
        follows[-1] = False
        whole = Transitions(
            features=torch.cat(features),
            reward=rollout.rewards.flatten(),
            end=rollout.terminated.flatten().float(),
            state=later[0] - model.normalise_state(observed.state),
            head=(later[1] - observed.head) / model.feature_std,
            follows=follows.flatten(),
        )
        return whole[rollout.mask.flatten().nonzero().squeeze(-1)]

    @torch.no_grad()
    def _errors(self, fresh: Transitions) -> dict[str, float]:
        """How well rewards of steps not yet learned from are predicted: the share of their variance explained."""
        found = self.heads(fresh.features).reward
        error, spread = (found - fresh.reward).square().mean(), fresh.reward.var(correction=0)
        return {"world/reward_explained": float(1.0 - error / spread.clamp(min=1e-8))}

    # ---- imagined steps

    def _features(self, observed: WorldModelInputs, action: Tensor) -> tuple[Tensor, Tensor]:
        """The heads' features of steps with padded actions, and the ids of the next wrist frame."""
        ids, hidden = self.observer.model.generate_with_hidden(observed, action)
        return step_features(self.observer.model, observed, hidden, action), ids

    @torch.no_grad()
    def step(self, inputs: ControlInputs, action: Tensor, carry: Tensor | None) -> tuple[ControlInputs, Tensor, Tensor]:
        """What an action (n, a) leads to: the next inputs, the reward (n,), and the probability to go on (n,)."""
        model = self.observer.model
        observed, _ = self.observer.observe(inputs)
        features, ids = self._features(observed, model.pad(action))
        found = self.heads(features)
        state = inputs.state + (found.state * model.state_std)[:, : inputs.state.shape[1]]
        head = model.vq.quantise(observed.head + found.head * model.feature_std)
        history = torch.cat([inputs.history[:, 1:], action[:, None]], dim=1)
        images = {"wrist": ids, "head": head} if "head" in inputs.images else {"wrist": ids}
        after = replace(inputs, state=state, images=images, history=history, carry=carry)
        return after, found.reward, 1.0 - found.end.sigmoid()

    @torch.no_grad()
    def rollout(
        self, policy: Explorer, real: Rollout, *, horizon: int, starts: int, gamma: float, lam: float, seed: int
    ) -> tuple[Rollout, Tensor]:
        """Imagined steps (horizon, starts) from real ones, and their λ-returns, which the critic is to predict."""
        inputs = self._starts(real, -(-starts // world_size()), seed)
        size = horizon, len(inputs.state), policy.spec.sample_size
        noise = torch.randn(size, generator=torch_rng(seed, "imagined", rank())).to(policy.device)
        taken, kept, alive = [], [], torch.ones(size[1], device=policy.device)
        for now in noise:
            actions, output = policy.sample(inputs, now)
            value = policy.value(output.critic_features)
            logprob = gaussian_logprob(actions, output.mean[:, 0], output.log_std)
            taken.append(replace(inputs, actions=actions))
            done = policy.executed(actions).clamp(-1.0, 1.0)
            inputs, reward, goes_on = self.step(inputs, done, output.carry)
            kept.append((logprob, value, reward, goes_on, alive >= ALIVE))
            alive = alive * goes_on
        logprobs, values, rewards, go_on, mask = (torch.stack(column) for column in zip(*kept))
        last = policy.value(policy.actor(inputs).critic_features)
        after = torch.cat([values[1:], last[None]])
        returns = lambda_returns(rewards.T, gamma * go_on.T, after.T, lam=lam).T
        never = torch.zeros_like(mask)
        imagined = Rollout(
            inputs=_stack(taken), logprobs=logprobs, values=values, rewards=rewards, terminated=never, truncated=never,
            truncated_values=torch.zeros_like(values), mask=mask, last_values=last, episodes=(),
        )  # fmt: skip
        return imagined, returns

    def _starts(self, real: Rollout, count: int, seed: int) -> ControlInputs:
        """Inputs of `count` counted steps of a rollout, drawn at random."""
        counted = real.mask.flatten().nonzero().squeeze(-1)
        rng = numpy_rng(derive(seed, "starts"), rank())
        chosen = counted[torch.from_numpy(rng.choice(len(counted), count, len(counted) < count)).to(counted.device)]
        flat = _steps(real.inputs)
        return ControlInputs(
            actions=flat.actions[chosen],
            state=flat.state[chosen],
            images={camera: frames[chosen] for camera, frames in flat.images.items()},
            text_ids=flat.text_ids[chosen],
            history=flat.history[chosen],
            carry=None if flat.carry is None else flat.carry[:, chosen],
        )


def _steps(inputs: ControlInputs) -> ControlInputs:
    """Steps (t, rows, ...) of a rollout as rows (t · rows, ...)."""
    return ControlInputs(
        **{name: getattr(inputs, name).flatten(0, 1) for name in ("actions", "state", "text_ids", "history")},
        images={camera: frames.flatten(0, 1) for camera, frames in inputs.images.items()},
        carry=None if inputs.carry is None else inputs.carry.flatten(0, 1)[None],
    )


def _stack(steps: list[ControlInputs]) -> ControlInputs:
    """Steps (n, ...) one after another, with time first; a memory is (t, n, hidden), as in a rollout."""
    joined, size = join(steps), (len(steps), len(steps[0].state))

    def in_time(part: Tensor) -> Tensor:
        return part.reshape(*size, *part.shape[1:])

    return ControlInputs(
        **{name: in_time(getattr(joined, name)) for name in ("actions", "state", "text_ids", "history")},
        images={camera: in_time(frames) for camera, frames in joined.images.items()},
        carry=None if joined.carry is None else in_time(joined.carry[0]),
    )


def _rows(inputs: WorldModelInputs, rows: slice) -> WorldModelInputs:
    parts: dict[str, Any] = {name: None if part is None else part[rows] for name, part in vars(inputs).items()}
    return WorldModelInputs(**parts)
