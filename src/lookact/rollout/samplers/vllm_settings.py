"""How vLLM is told to be exact: float32 where the learner is, no graphs, log-probs of what was sampled from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from lookact.errors import StaleWeights
from lookact.rollout.samplers.settings import EngineSpec
from lookact.rollout.samplers.vllm_worker import EXTENSION

if TYPE_CHECKING:
    from lookact.models.vlm.policy import ChatVLM
    from lookact.rollout.samplers.settings import Sampling

ENVIRONMENT = {
    # opens the calls that load weights and reset caches; the server listens on loopback alone
    "VLLM_SERVER_DEV_MODE": "1",
    # the engine's threads share the cores with the learner's
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
GIGABYTE = 2**30
MOST_IMAGES = 999
"""More than any context holds."""


def engine_arguments(chat: ChatVLM, sampling: Sampling, spec: EngineSpec) -> dict[str, Any]:
    """vLLM's engine arguments for a model like `chat`, in its precision."""
    arguments: dict[str, Any] = {
        "dtype": str(chat.output_weight.dtype).removeprefix("torch."),
        # a turn begins below max_context and may bring long observations with it
        "max_model_len": min(2 * sampling.max_context, chat.config.text_config.max_position_embeddings),
        "max_num_seqs": spec.rows,
        "enforce_eager": True,
        "limit_mm_per_prompt": {"image": MOST_IMAGES, "video": 0},
        # temperature, bans and filters are part of the distribution that the learner scores
        "logprobs_mode": "processed_logprobs",
        # the checkpoint's own sampling defaults have no say
        "generation_config": "vllm",
        "worker_extension_cls": EXTENSION,
    }
    if torch.cuda.is_available():
        return arguments | {"gpu_memory_utilization": spec.memory}
    return arguments | {"kv_cache_memory_bytes": int(spec.memory * GIGABYTE)}


def version_of(versions: Iterable[str]) -> int:
    """The one version that sampled a whole reply."""
    named = set(versions)
    if len(named) != 1:
        raise StaleWeights(f"weights changed while a reply was sampled ({sorted(named)}): push between rollouts only")
    version = named.pop()
    if not version.lstrip("-").isdigit():
        raise StaleWeights(f"the engine's weights are named {version!r}: none were pushed to it yet")
    return int(version)
