"""Settings that the training of several recipes shares; no torch, so that a recipe's config loads at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lookact.config import setting


@dataclass(frozen=True)
class Parallel:
    """How several processes share the learning."""

    kind: Literal["data", "shard"] = setting(
        "data", help="every process holds all weights, or a part of each (FSDP2) for models that are too large"
    )


@dataclass(frozen=True)
class ImportanceSampling:
    """Rollout correction: weights p_learner / p_sampler where the sampler is not the learner, or lags behind it."""

    level: Literal["none", "token", "sequence", "geometric"] = setting(
        "token", help="ratio of a token, of a sequence's product, or of its geometric mean; none: no weights"
    )
    mode: Literal["truncate", "mask"] = setting(
        "truncate", help="ratios above cap count as cap (TIS), or those outside floor and cap count nothing (MIS)"
    )
    cap: float = setting(2.0, help="largest importance weight", above=0)
    floor: float = setting(0.0, help="smallest ratio that counts (mask)", least=0)

    def options(self) -> dict[str, Any]:
        """What `ops.importance_weights` takes."""
        return {"level": self.level, "masked": self.mode == "mask", "cap": self.cap, "low": self.floor}


@dataclass(frozen=True)
class PPO:
    """From rewards to gradient steps."""

    gamma: float = setting(0.99, help="discount a step", above=0, most=1)
    lam: float = setting(0.95, help="GAE's lambda", least=0, most=1)
    whiten: bool = setting(True, help="centre and scale advantages over the rollout")
    epochs: int = setting(4, help="passes over a rollout", least=1)
    minibatch: int = setting(256, help="steps a gradient step, over all processes", least=1)
    micro_batch_size: int | None = setting(
        None, help="steps of a minibatch that a process learns from at once; gradients are summed. none: all", least=1
    )
    clip: float = setting(0.2, help="how far a probability ratio may fall below 1", above=0, below=1)
    clip_high: float | None = setting(None, help="how far it may rise above 1; none: as far as below", above=0)
    value_loss: Literal["huber", "clipped"] = setting("huber", help="how errors of the value are weighed")
    value_clip: float = setting(
        1.0, help="huber: where an error turns linear; clipped: how far a value may move in an update", above=0
    )
    value_coef: float = setting(1.0, help="weight of the value loss", least=0)
    entropy_coef: float = setting(0.0, help="weight of the entropy bonus; no effect with a fixed std", least=0)
    max_kl: float | None = setting(None, help="nats from the acting policy after which an update's epochs end", above=0)
    kl_coef: float = setting(0.0, help="weight of the distance from the policy that learning began with", least=0)
    clip_norm: float = setting(0.5, help="largest gradient norm", above=0)
