"""Memory of a token recipe's step on one GPU: its own model, optimiser and sampler run on fake tensors, phase by phase.

Layers are alike: a model of a few and one with one more of each kind give every stage's peak at the real depth.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.testing._internal.distributed.fake_pg import FakeStore

from lookact.algorithms.vlm import lora_of
from lookact.algorithms.vlm_settings import Model
from lookact.data.packing import Segment, collate
from lookact.models.vlm.loading import merged_state
from lookact.models.vlm.policy import ChatVLM
from lookact.models.vlm.reference import AdapterReference, CopyReference, open_reference
from lookact.planning.architectures import with_depth
from lookact.planning.fake_models import fake_chat
from lookact.planning.tracker import Kind, MemoryTracker, Sizes
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.kv_cache import KVCache, extend
from lookact.rollout.samplers.settings import Sampling
from lookact.training.distributed import shard, sum_gradients, unsharded, unsharded_parameters
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step

Stages = dict[str, Sizes]
"""Bytes by kind at the peak of every stage, named "phase: stage"."""
TEXT_DEPTH, VISION_DEPTH = 5, 4
"""More layers than levels of the vision encoder that join them."""
PIECES = 8


@dataclass(frozen=True)
class TokenStep:
    """A token recipe's step as one process does it."""

    model: Model
    config: Any
    """The model's Hugging Face configuration."""
    sampling: Sampling
    image_size: int
    turns: int
    text_tokens: int
    """Of an observation."""
    reply_tokens: int
    rows: int
    """Episodes side by side in the rollout; 0: an engine or other GPUs sample."""
    eval_rows: int
    token_budget: int
    images_per_turn: int = 1
    sharded: bool = False
    processes: int = 1
    reference: Literal["none", "frozen", "ema"] = "none"
    critic: Literal["none", "shared", "separate"] = "none"
    engine_bytes: float = 0.0
    engine_sleeps: bool = False
    """Whether the engine gives its memory back while the learner updates."""
    learns: bool = True

    @property
    def image_tokens(self) -> int:
        """Of one picture, square and within the budget of pixels."""
        cell: int = self.config.vision_config.patch_size * self.config.vision_config.spatial_merge_size
        side = min(self.image_size, int((self.model.max_pixels or self.image_size**2) ** 0.5))
        return max(1, side // cell) ** 2

    @property
    def visual_tokens(self) -> int:
        """Of one turn."""
        return self.images_per_turn * self.image_tokens

    @property
    def turn_tokens(self) -> int:
        return self.text_tokens + self.visual_tokens + self.reply_tokens

    @property
    def segment_turns(self) -> int:
        """Turns until the context is full and starts afresh."""
        room = max(self.turn_tokens, self.sampling.max_context)
        return max(1, min(self.turns, room // self.turn_tokens))

    @property
    def batch_rows(self) -> int:
        """Rows of the widest micro-batch."""
        return max(1, self.token_budget // (self.segment_turns * self.turn_tokens))


def token_memory(step: TokenStep) -> Stages:
    """Peaks of every stage at the model's real depth."""
    depth, tower = step.config.text_config.num_hidden_layers, step.config.vision_config.depth
    if depth <= TEXT_DEPTH or tower <= VISION_DEPTH:
        return stages_at(step, depth, tower)
    base = stages_at(step, TEXT_DEPTH, VISION_DEPTH)
    longer = stages_at(step, TEXT_DEPTH + 1, VISION_DEPTH)
    taller = stages_at(step, TEXT_DEPTH, VISION_DEPTH + 1)
    more = (depth - TEXT_DEPTH, tower - VISION_DEPTH)
    return {
        stage: {
            kind: size
            + more[0] * (longer[stage].get(kind, 0.0) - size)
            + more[1] * (taller[stage].get(kind, 0.0) - size)
            for kind, size in sizes.items()
        }
        for stage, sizes in base.items()
    }


def stages_at(step: TokenStep, depth: int, tower: int) -> Stages:
    """Peaks of every stage of a model with so many layers of text and of vision."""
    step = replace(step, config=with_depth(step.config, depth, tower))
    tracker = MemoryTracker(_kinds(step.config))
    with _process_group(step.processes), tracker.watching():
        tracker.begin("load")
        policy = _open(tracker, step, value_head=step.critic == "shared")
        critic = _open(tracker, step, value_head=True) if step.critic == "separate" else policy
        engine = [tracker.empty([int(step.engine_bytes)], torch.uint8)] if step.engine_bytes else []
        tracker.label(engine, "engine")
        learner = _make_learner(tracker, step, policy, critic) if step.learns else None
        if step.rows:
            _sample(tracker, step, policy, step.rows, "rollout")
        if step.eval_rows == step.rows:
            same = {name.replace("rollout", "evaluate"): sizes for name, sizes in tracker.peaks.items() if step.rows}
            tracker.peaks |= {name: sizes for name, sizes in same.items() if name.startswith("evaluate")}
        elif step.eval_rows:
            _sample(tracker, step, policy, step.eval_rows, "evaluate")
        if step.engine_sleeps:
            engine.clear()
        if learner is not None:
            _update(tracker, step, learner)
        if step.engine_bytes:
            tracker.begin("sync: weights as they are sent")
            # awake again, to take them
            engine += [] if engine else [tracker.empty([int(step.engine_bytes)], torch.uint8)]
            tracker.label(engine, "engine")
            if not step.model.lora_rank:
                merged_state(policy)
    return tracker.peaks


@dataclass(frozen=True)
class _Learner:
    policy: ChatVLM
    critic: ChatVLM
    reference: Any
    optimizers: Sequence[torch.optim.Optimizer]


def _open(tracker: MemoryTracker, step: TokenStep, *, value_head: bool) -> ChatVLM:
    model = step.model
    chat = fake_chat(
        tracker,
        step.config,
        dtype=getattr(torch, model.dtype),
        attention=model.attention,
        lora=lora_of(model) if step.learns else None,
        quantise=model.quantise,
        max_pixels=model.max_pixels or step.image_size**2,
        gradient_checkpointing=model.gradient_checkpointing,
        value_head=value_head,
    )
    tracker.begin("load")
    return chat


def _make_learner(tracker: MemoryTracker, step: TokenStep, policy: ChatVLM, critic: ChatVLM) -> _Learner:
    """Reference, shards and optimisers, whose moments are there from the first step on."""
    tracker.begin("load: reference and shards")
    with warnings.catch_warnings():
        # a copy asks a fake tensor where it lies
        warnings.simplefilter("ignore")
        reference = open_reference(policy, step.reference)
    if isinstance(reference, CopyReference):
        tracker.label(reference.chat.parameters(), "reference")
    elif isinstance(reference, AdapterReference):
        tracker.label(reference.adapters.values(), "reference")
    models = {id(chat): chat for chat in (policy, critic)}
    if isinstance(reference, CopyReference):
        models[id(reference.chat)] = reference.chat
    for chat in models.values():
        _shard(tracker, step, chat)
    parts = [{"policy": policy}] if critic is policy else [{"policy": policy}, {"critic": critic}]
    optimizers = [build_adamw(part, lr=1e-4) for part in parts]
    for optimizer in optimizers:
        _first_step(tracker, optimizer, on_gpu=step.model.device != "cpu")
    return _Learner(policy, critic, reference, optimizers)


def _shard(tracker: MemoryTracker, step: TokenStep, chat: ChatVLM) -> None:
    if not step.sharded or step.processes == 1:
        return
    adapted = bool(step.model.lora_rank)
    held: Kind = "weights" if any(p.requires_grad for p in chat.parameters()) else "reference"
    compute = torch.bfloat16 if step.model.device != "cpu" else None
    layers = chat.causal.model.language_model.layers
    shard(chat, layers, kept=unsharded_parameters(chat), methods=("evaluate",), compute=compute)
    tracker.label([p for p in chat.parameters() if not (adapted and p.requires_grad)], held)


def _first_step(tracker: MemoryTracker, optimizer: torch.optim.Optimizer, *, on_gpu: bool) -> None:
    """Adam's moments, which a first step makes; on a GPU it steps all tensors at once (foreach)."""
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for group in optimizer.param_groups:
        group["foreach"] = on_gpu
    for parameter in learned:
        parameter.grad = torch.empty_like(parameter)
    stage = tracker.stage
    # the true first step has no moments yet, and so holds less than those after it
    tracker.begin("")
    optimizer.step()
    optimizer.zero_grad()
    tracker.peaks.pop("")
    tracker.stage = stage
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    tracker.label(states, "optimizer")
    for parameter in learned:
        parameter.register_post_accumulate_grad_hook(lambda learned: tracker.label([learned.grad], "gradients"))


def _update(tracker: MemoryTracker, step: TokenStep, learner: _Learner) -> None:
    """One micro-batch's gradient and a step."""
    policy, critic = learner.policy, learner.critic
    batch = collate(micro_segments(step, policy.image_pad_id), _encoder(tracker, step, policy))
    tracker.begin("update: vision forward")
    with _boundaries(tracker, policy):
        policy.train()
        scores = policy.evaluate(batch.inputs)
        loss = scores.logprobs.mean() + 0.0 * scores.entropy.mean()
        if step.critic != "none":
            values = scores.values if critic is policy else critic.evaluate(batch.inputs).values
            assert values is not None
            loss = loss + values.square().mean()
        if learner.reference is not None:
            tracker.begin("update: reference")
            loss = loss + (scores.logprobs - learner.reference.evaluate(batch.inputs).logprobs).mean()
        tracker.begin("update: logits")
        loss.backward()  # type: ignore[no-untyped-call]
    for chat, optimizer in zip((policy, critic), learner.optimizers):
        tracker.label([parameter.grad for parameter in chat.parameters()], "gradients")
        tracker.begin("update: gradients over processes")
        sum_gradients(chat.parameters())
        tracker.label([parameter.grad for parameter in chat.parameters()], "gradients")
        tracker.begin("update: optimizer")
        clip_and_step(optimizer, chat.parameters(), max_norm=1.0, guard=NonFiniteGuard())


@contextmanager
def _boundaries(tracker: MemoryTracker, policy: ChatVLM) -> Iterator[None]:
    """Begins a stage where the pass crosses from vision to text, to the output layer, and back."""

    def crossing(forward: str, backward: str) -> Any:
        def cross(_: Any, __: Any, output: Tensor) -> None:
            if tracker.stage.startswith("update") and torch.is_grad_enabled():
                tracker.begin(f"update: {forward}")
                if output.requires_grad:
                    output.register_hook(  # type: ignore[no-untyped-call]
                        lambda grad: tracker.begin(f"update: {backward}")
                    )

        return cross

    core = policy.causal.model
    hooks = [
        core.visual.merger.register_forward_hook(crossing("text forward", "vision backward")),
        core.language_model.norm.register_forward_hook(crossing("logits", "text backward")),
    ]
    yield
    for hook in hooks:
        hook.remove()


def _sample(tracker: MemoryTracker, step: TokenStep, policy: ChatVLM, rows: int, phase: str) -> None:
    """The last turn of an episode, with the keys and values of all before it."""
    config, cache = step.config.text_config, KVCache()
    prompt = step.text_tokens + step.visual_tokens
    sampler = HFSampler(policy, step.sampling)
    policy.eval()

    def fill(columns: int) -> None:
        block = [rows, config.num_key_value_heads, columns, config.head_dim]
        for layer in range(config.num_hidden_layers if columns else 0):
            keys, values = (tracker.empty(block, policy.output_weight.dtype) for _ in range(2))
            cache.update(keys, values, layer)
        cache.advance(columns)

    def forward(ids: Tensor, pixels: Tensor | None, grids: Tensor | None) -> Tensor:
        # fake, so that the masks of all pairs that come of it are too
        attend = tracker.empty([rows, cache.get_seq_length() + ids.shape[1]], torch.bool)
        positions = torch.arange(ids.shape[1]).expand(3, rows, -1)
        return extend(policy, cache, attend, ids, positions, pixels, grids)

    tracker.begin(f"{phase}: weights gathered")
    with torch.no_grad(), unsharded(policy):
        for _ in range(step.turns - 1):
            fill(prompt)
            # buffers grow where a token no longer fits: in small pieces, as a reply comes token by token
            for piece in range(PIECES):
                fill((step.reply_tokens + piece) // PIECES)
        ids = torch.ones(rows, prompt, dtype=torch.long)
        ids[:, : step.visual_tokens] = policy.image_pad_id
        pixels, grids = _encoder(tracker, step, policy)([None] * (rows * step.images_per_turn))
        tracker.begin(f"{phase}: prefill")
        forward(ids, pixels, grids)
        tracker.begin(f"{phase}: decode")
        fill(max(0, step.reply_tokens - 2))
        hidden = forward(ids[:, -1:], None, None)
        sampler._sample(hidden, torch.zeros(rows))
        tracker.begin(f"{phase}: rows end")
        cache.select(torch.arange(max(1, rows - 1)))


def micro_segments(step: TokenStep, image_pad: int) -> list[Segment]:
    """The rows of the widest micro-batch, all of the same turns."""
    turns, turn = step.segment_turns, step.turn_tokens
    ids = np.ones((turns, turn), dtype=np.int64)
    ids[:, : step.visual_tokens] = image_pad
    replies = np.arange(turns * turn).reshape(turns, turn)[:, turn - step.reply_tokens :].reshape(-1)
    zeros = np.zeros(len(replies), dtype=np.float32)
    segment = Segment(
        ids=ids.reshape(-1),
        positions=replies,
        mask=np.ones(len(replies), dtype=bool),
        logprobs=zeros,
        turns=np.repeat(np.arange(turns), step.reply_tokens),
        rewards=zeros,
        images=(np.zeros((step.image_size, step.image_size, 3), dtype=np.uint8),) * (turns * step.images_per_turn),
        episode_return=0.0,
        group=0,
        terminated=True,
        advantages=zeros,
    )
    return [segment] * step.batch_rows


def _encoder(tracker: MemoryTracker, step: TokenStep, policy: ChatVLM) -> Any:
    """`encode_images` of equal pictures, of which one is encoded and the others are fake."""
    side = int(step.image_tokens**0.5) * step.config.vision_config.patch_size * policy.merge
    pixels, grids = policy.encode_images([np.zeros((side, side, 3), dtype=np.uint8)])

    def encode(images: Sequence[Any]) -> tuple[Tensor, Tensor]:
        count = len(images)
        made = tracker.empty([count * pixels.shape[0], *pixels.shape[1:]], pixels.dtype)
        # a GPU gets a copy in its own type
        if step.model.device == "cpu" or step.model.dtype == "float32":
            tracker.label([made], "pixels")
        return made, grids.repeat(count, 1)

    return encode


def _kinds(config: Any) -> Any:
    """What a tensor is for, by its shape: logits, keys and values, or another activation."""
    text = config.text_config

    def kind_of(tensor: Tensor) -> Kind:
        shape = tensor.shape
        if len(shape) > 1 and text.vocab_size in (shape[0], shape[-1]):
            return "logits"
        if len(shape) == 4 and (shape[1], shape[3]) == (text.num_key_value_heads, text.head_dim):
            return "kv_cache"
        return "activations"

    return kind_of


@contextmanager
def _process_group(processes: int) -> Iterator[None]:
    """Stands for one of several processes: collectives have the shapes they would have, and send nothing."""
    if processes == 1:
        yield
        return
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    try:
        yield
    finally:
        dist.destroy_process_group()
        # what was worked out for this group must not be taken for another one's
        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
