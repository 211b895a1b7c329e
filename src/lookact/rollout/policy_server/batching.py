"""Observations of several clients, acted on together: history and memory belong to the connection."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lookact.protocols import ControlPolicy
from lookact.rollout.policy_server.observations import Shown
from lookact.rollout.vector_rollout import ControlActor
from lookact.seeding import torch_rng
from lookact.serving.limits import Limits, Refused
from lookact.types import VectorObservation

log = logging.getLogger(__name__)


class Session:
    """One connection's episode: its action history and memory, and its noise."""

    def __init__(self, policy: ControlPolicy, seed: int, number: int) -> None:
        self.policy, self.noise = policy, torch_rng(seed, "connection", number)
        self.reset()

    def reset(self) -> None:
        """An episode begins: no past action, an empty memory."""
        spec = self.policy.spec
        self.history: Tensor = torch.zeros(1, spec.history, spec.action_size, device=self.policy.device)
        self.carry: Tensor | None = self.policy.start_carry(1)


@dataclass(frozen=True)
class Request:
    session: Session
    shown: Shown
    answer: asyncio.Future[NDArray[np.float32]]


class PolicyEngine:
    """Takes what waits, up to `limits.batch` observations, and acts on all of it in one pass in a thread."""

    def __init__(self, policy: ControlPolicy, limits: Limits, *, greedy: bool, seed: int) -> None:
        self.policy, self.limits, self.greedy, self.seed = policy, limits, greedy, seed
        self.waiting: asyncio.Queue[Request] = asyncio.Queue()
        self.batches, self.opened = 0, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")

    def open(self) -> Session:
        self.opened += 1
        return Session(self.policy, self.seed, self.opened)

    async def act(self, session: Session, shown: Shown) -> NDArray[np.float32]:
        """The action (a,), in -1..1 or the policy's own bounds."""
        if self.waiting.qsize() >= self.limits.queue:
            raise Refused(429, "too many observations wait: ask again later")
        request = Request(session, shown, asyncio.get_running_loop().create_future())
        self.waiting.put_nowait(request)
        try:
            return await asyncio.wait_for(request.answer, self.limits.request_seconds)
        except TimeoutError:
            raise Refused(504, f"no action within {self.limits.request_seconds:g} seconds") from None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            batch = [await self.waiting.get()]
            await asyncio.sleep(self.limits.batch_wait)
            while len(batch) < self.limits.batch and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            # who waited too long is gone
            batch = [request for request in batch if not request.answer.done()]
            if batch:
                await self._answer(batch)

    async def _answer(self, batch: list[Request]) -> None:
        self.batches += 1
        found: list[Any]
        try:
            found = list(await asyncio.get_running_loop().run_in_executor(self._thread, self.step, batch))
        except Exception as error:
            log.exception("the policy failed")
            found = [Refused(500, f"the policy failed: {type(error).__name__}")] * len(batch)
        for request, outcome in zip(batch, found):
            if request.answer.done():
                continue
            if isinstance(outcome, Refused):
                request.answer.set_exception(outcome)
            else:
                request.answer.set_result(outcome)

    @torch.inference_mode()
    def step(self, batch: list[Request]) -> NDArray[np.float32]:
        """Actions (b, a); each session's history and memory move on."""
        sessions = [request.session for request in batch]
        actor = ControlActor(self.policy, len(batch))
        actor.history = torch.cat([session.history for session in sessions])
        carries = [session.carry for session in sessions if session.carry is not None]
        actor.carry = torch.cat(carries, dim=1) if carries else None
        names = batch[0].shown.arrays
        arrays = {name: np.stack([request.shown.arrays[name] for request in batch]) for name in names}
        texts = {"instruction": tuple(request.shown.instruction for request in batch)}
        size = self.policy.spec.sample_size
        noise = torch.zeros(len(batch), size)
        if not self.greedy:
            noise = torch.stack([torch.randn(size, generator=session.noise) for session in sessions])
        inputs = actor.observe(VectorObservation(arrays, texts))
        found, output = self.policy.sample(inputs, noise.to(self.policy.device))
        actions = self.policy.executed(found)
        if getattr(self.policy.spec, "action_bounds", None) is None:
            actions = actions.clamp(-1.0, 1.0)
        actor.update(actions, output.carry)
        for row, session in enumerate(sessions):
            session.history = actor.history[row : row + 1]
            session.carry = None if actor.carry is None else actor.carry[:, row : row + 1]
        return actions.cpu().numpy().astype(np.float32)
