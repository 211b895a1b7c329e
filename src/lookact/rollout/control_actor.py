"""What a control policy is shown in many rows at once: pictures or their features, texts, state, and its own past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.batch import ControlInputs
from lookact.envs.vector.vector_env import VectorObservation
from lookact.models.actor_critic import ActorCriticOutput, ActorOutput


class ControlPolicy(Protocol):
    """A policy over action vectors."""

    @property
    def spec(self) -> Any:
        """With `cameras`, `history` and `action_size`."""

    @property
    def device(self) -> torch.device: ...

    @property
    def frozen_vision(self) -> bool:
        """Whether `features` of a frame never change."""
        ...

    def features(self, images: dict[str, Tensor]) -> dict[str, Tensor]: ...
    def read(self, texts: Sequence[str]) -> Tensor: ...
    def start_carry(self, rows: int) -> Tensor | None: ...
    def intend(self, inputs: ControlInputs) -> ActorOutput: ...
    def appraise(self, critic_features: Tensor) -> Tensor: ...
    def __call__(self, inputs: ControlInputs) -> ActorCriticOutput:
        """Both at once."""


class ControlActor:
    """Keeps each row's last actions and memory, and reads each instruction once; frozen eyes see each frame once."""

    def __init__(self, policy: ControlPolicy, rows: int) -> None:
        self.policy, spec = policy, policy.spec
        self.history = torch.zeros(rows, spec.history, spec.action_size, device=policy.device)
        self.carry = policy.start_carry(rows)
        self._nothing = torch.zeros(rows, spec.action_size, device=policy.device)
        self._texts: tuple[str, ...] = ()
        self._text_ids = torch.zeros(rows, 0, dtype=torch.long)
        self._known: dict[str, Tensor] = {}

    def look(self, observation: VectorObservation) -> ControlInputs:
        """Inputs of all rows; their actions are zeros, for they are not taken yet."""
        texts = observation.texts.get("instruction") or ("",) * len(self.history)
        if texts != self._texts:
            self._texts, self._text_ids = texts, self._read(texts)
        return ControlInputs(
            actions=self._nothing,
            state=torch.from_numpy(observation.arrays["state"]).to(self.policy.device, torch.float32),
            images=self._see(observation.arrays),
            text_ids=self._text_ids,
            history=self.history,
            carry=self.carry,
        )

    def remember(self, actions: Tensor, carry: Tensor | None) -> None:
        """`actions` (rows, a) were done, and `carry` is the memory after the step."""
        if self.history.shape[1]:
            self.history = torch.cat([self.history[:, 1:], actions.unsqueeze(1)], dim=1)
        self.carry = carry

    def look_back(self, finals: Mapping[int, Mapping[str, Any]]) -> ControlInputs:
        """Inputs of the rows that ended, one each, as they were after their last step."""
        rows = list(finals)
        arrays = {name: np.stack([final[name] for final in finals.values()]) for name in self._arrays()}
        texts = [str(final.get("instruction", "")) for final in finals.values()]
        return ControlInputs(
            actions=self._nothing[rows],
            state=torch.from_numpy(arrays["state"]).to(self.policy.device, torch.float32),
            images=self._see(arrays),
            text_ids=self._read(texts),
            history=self.history[rows],
            carry=None if self.carry is None else self.carry[:, rows],
        )

    def forget(self, rows: Sequence[int]) -> None:
        """New episodes begin on these rows: no past action, an empty memory."""
        self.history = self.history.index_fill(0, torch.tensor(rows, device=self.history.device), 0.0)
        if self.carry is not None:
            self.carry = self.carry.index_fill(1, torch.tensor(rows, device=self.carry.device), 0.0)

    def _arrays(self) -> tuple[str, ...]:
        return ("state", *self.policy.spec.cameras)

    def _see(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        cameras = self.policy.spec.cameras
        frames = {camera: torch.from_numpy(arrays[camera]).to(self.policy.device) for camera in cameras}
        return self.policy.features(frames) if frames and self.policy.frozen_vision else frames

    def _read(self, texts: Sequence[str]) -> Tensor:
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            self._known |= dict(zip(fresh, self.policy.read(fresh)))
        return torch.stack([self._known[text] for text in texts])
