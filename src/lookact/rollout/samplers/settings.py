"""Settings of samplers; no torch, so that a recipe's config loads at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lookact.config import setting

Sampler = Literal["hf", "vllm", "vllm-server"]
"""The learner's own model, vLLM in the learner's process, or a vLLM server."""


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn; the learner must score under the same values."""

    max_tokens: int = setting(64, least=1, help="longest reply")
    temperature: float = setting(1.0, above=0, help="of sampling and of scoring alike")
    top_k: int = setting(0, least=0, help="sample from the k likeliest tokens; 0: all")
    top_p: float = setting(1.0, above=0, most=1, help="sample from the likeliest tokens that make up this share")
    greedy: bool = setting(False, help="take the likeliest token instead of sampling")
    min_action_tokens: int = setting(
        10, least=1, help="fewest tokens of a guessed action; one that was read may be shorter"
    )
    max_action_tokens: int = setting(100, least=1, help="most tokens an action may have")
    max_context: int = setting(4096, least=64, help="tokens after which a conversation starts afresh")
    thoughts: Literal["keep", "strip"] = setting(
        "keep", help="of a model that thinks: keep its thoughts in the context, or strip those of earlier turns"
    )

    def filters(self) -> dict[str, Any]:
        """What scores must share with sampling to be of the same distribution."""
        return {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}


@dataclass(frozen=True)
class Concurrency:
    """How many episodes run side by side, and where their environments step."""

    max_concurrent_episodes: int = setting(0, least=0, help="most episodes side by side; 0: all of a step")
    env_workers: Literal["none", "threads", "processes"] = setting(
        "none", help="for slow environments: each steps in a thread or process of its own, and nobody waits for another"
    )
    env_timeout_s: float = setting(
        120.0, above=0, help="seconds a step may take in a process of its own before its episode counts as failed"
    )


@dataclass(frozen=True)
class VllmSpec:
    """How a vLLM engine is run; what it samples with comes with every call."""

    max_num_seqs: int = setting(64, help="conversations that it answers side by side", least=1)
    kv_cache_memory: float = setting(
        0.5, help="for keys and values: gigabytes on a CPU, a share of all memory on a GPU", above=0
    )
    url: str = setting("", help="of a server that runs already (vllm-server); empty: the run starts one of its own")
    sleep: bool = setting(False, help="leave the engine's GPU memory to the learner between rollouts")
    tensor_parallel_size: int = setting(1, help="GPUs that share an engine's weights", least=1)
    enforce_eager: bool = setting(True, help="without CUDA graphs; false is faster on a GPU, and differs more")
    start_timeout_s: float = setting(
        600.0, help="seconds a server may take to come up, and the processes of one engine to meet", above=0
    )
    reply_timeout_s: float = setting(300.0, help="seconds without a reply after which a server counts as hung", above=0)
    max_restarts: int = setting(3, help="servers lost over one reply before the run gives up", least=0)
