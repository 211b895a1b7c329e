"""Who answers VSI-Bench's rows: a checkpoint in this process, by Hugging Face or vLLM, or a server of OpenAI's kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lookact.errors import ConfigError, JudgeError, JudgeRefused
from lookact.judges.client import ClientSpec, Content, JudgeClient, encode_part
from lookact.judges.server.batching import Message, Prompt, Reply
from lookact.models.vlm.loading import load_chat, resolve
from lookact.rollout.samplers.chat_engine import ChatEngine
from lookact.rollout.samplers.vllm import ENVIRONMENT, GIGABYTE, IN_PROCESS, MOST_IMAGES
from lookact.training.preflight import need_package

MAX_TOKENS = 16
"""Of a reply, as VSI-Bench's published task has it; replies are greedy and there is no system prompt."""
PROBE_TIMEOUT_S = 5.0
"""Seconds that a server has to list its models."""
Ask = Callable[[Sequence[Content]], list[Reply]]
"""One reply to each user message, in order; a message that can't be answered has its reason in `Reply.error`."""


def hf_answerer(
    model: str, *, device: str = "cpu", dtype: str = "float32", max_context: int = 32_768, max_pixels: int | None = None
) -> Ask:
    """A checkpoint folder, with adapters or without, or a name on the Hub."""
    placed: dict[str, Any] = {"device_map": "auto"} if device == "auto" else {"device": device}
    chat = load_chat(model, dtype=dtype, max_pixels=max_pixels, **placed)
    engine = ChatEngine(chat, max_context=max_context)

    def ask(contents: Sequence[Content]) -> list[Reply]:
        prompts = [Prompt((Message("user", tuple(content)),), MAX_TOKENS) for content in contents]
        replies = dict(engine(prompts, lambda index: False))
        return [replies[index] for index in range(len(prompts))]

    return ask


def vllm_answerer(model: str, *, dtype: str = "float32", max_context: int = 32_768, cpu_cache_gb: float = 6.0) -> Ask:
    """The same by vLLM in this process; without a GPU, keys and values take `cpu_cache_gb`."""
    need_package("vllm", "--engine vllm", instead="--engine hf")
    base, adapter = resolve(model)
    if adapter is not None:
        raise ConfigError(f"{model} holds adapters alone, which vLLM does not open here: give --engine hf")
    os.environ.update({**ENVIRONMENT, **IN_PROCESS})
    import vllm
    from vllm.exceptions import VLLMValidationError

    held = {} if torch.cuda.is_available() else {"kv_cache_memory_bytes": int(cpu_cache_gb * GIGABYTE)}
    limits = {"image": MOST_IMAGES, "video": 0}
    llm = vllm.LLM(base, dtype=dtype, max_model_len=max_context, limit_mm_per_prompt=limits, **held)
    greedy = vllm.SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS)

    def ask(contents: Sequence[Content]) -> list[Reply]:
        asked = [[{"role": "user", "content": [encode_part(part) for part in content]}] for content in contents]
        try:
            return [Reply(output.outputs[0].text) for output in llm.chat(asked, greedy, use_tqdm=False)]
        except (ValueError, VLLMValidationError) as error:
            # a prompt longer than max_context: the others are asked without it
            if len(contents) == 1:
                return [Reply(error=" ".join(str(error).split()))]
            return [reply for content in contents for reply in ask([content])]

    return ask


def server_answerer(url: str, *, model: str = "", token: str = "", concurrency: int = 16, wait_s: float = 0.0) -> Ask:
    """A server that speaks OpenAI's chat completions; without a name, the first model that it lists.

    One that is not there within `wait_s` raises JudgeError; one that goes away later is retried for longer.
    """
    model = _listed_model(url, token, wait_s, model)
    client = JudgeClient(ClientSpec(url, model=model, token=token, concurrency=concurrency))

    def ask_one(content: Content) -> Reply:
        try:
            return Reply(client.ask(content, max_tokens=MAX_TOKENS))
        except JudgeRefused as error:
            return Reply(error=str(error))

    return lambda contents: client.map(ask_one, contents)


def _listed_model(url: str, token: str, wait_s: float, model: str) -> str:
    """The model to ask, once somebody answers there."""
    probe = JudgeClient(ClientSpec(url, token=token, timeout=PROBE_TIMEOUT_S, retry_s=wait_s))
    try:
        listed = probe.model
    except JudgeRefused:
        # some servers list no models; if there is a name, they may well know it
        if not model:
            raise
        return model
    except JudgeError as error:
        remedy = "start it, mend the address, or wait longer with --wait SECONDS"
        raise JudgeError(f"no server answers at {url}: {remedy}") from error
    finally:
        probe.close()
    return model or listed
