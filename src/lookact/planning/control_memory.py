"""Memory of vla-ppo's step on one GPU: its policy, optimiser and sampler run on fake tensors."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor
from transformers import BertConfig, BertModel, Dinov2Model

from lookact.batch import ControlInputs
from lookact.models.vla.encoders import (
    NO_DROPOUT,
    TextEncoder,
    TextSpec,
    VisionEncoder,
    VisionSpec,
    set_finetune,
    tiny_bert,
    tiny_dinov2,
)
from lookact.models.vla.policy import VLA, PolicySpec
from lookact.planning.architectures import dinov2
from lookact.planning.fake_models import make_fake
from lookact.planning.tracker import MemoryTracker, Sizes
from lookact.training.optim import NonFiniteGuard, build_adamw, clip_and_step

TINY = "tiny"


@dataclass(frozen=True)
class ControlStep:
    """vla-ppo's step as one process does it."""

    policy: PolicySpec
    vision: VisionSpec
    text: TextSpec
    image_size: int
    rows: int
    """Environments that are acted on together."""
    eval_rows: int
    minibatch: int
    """Steps a gradient step of PPO."""
    bc_batch: int
    freeze_encoders: bool
    on_gpu: bool = True


def control_memory(step: ControlStep) -> dict[str, Sizes]:
    """Peaks of every stage, named "phase: stage"."""
    tracker = MemoryTracker()
    with tracker.watching():
        tracker.begin("load")
        policy = open_fake_policy(tracker, step)
        for phase, rows in (("rollout", step.rows), ("evaluate", step.eval_rows)):
            tracker.begin(f"{phase}: policy")
            with torch.no_grad():
                policy.actor(_inputs(tracker, step, rows))
        tracker.begin("behaviour cloning: gradient")
        _learn(tracker, step, policy, step.bc_batch, "behaviour cloning")
        if step.freeze_encoders:
            policy.freeze_encoders()
        _learn(tracker, step, policy, step.minibatch, "update")
    return tracker.peaks


def open_fake_policy(tracker: MemoryTracker, step: ControlStep) -> VLA:
    """The policy before any training."""
    vision, text = step.vision, step.text
    sizes = {"hidden": vision.hidden, "layers": vision.layers, "image_size": vision.image_size, "patch": vision.patch}
    seen = tiny_dinov2(**sizes) if vision.source == TINY else dinov2(vision.source)
    short = {"hidden": text.hidden, "layers": text.layers, "vocabulary": text.vocabulary, "length": text.length}
    read = tiny_bert(**short) if text.source == TINY else BertConfig(**NO_DROPOUT)
    with torch.device("meta"):
        vision_model = set_finetune(Dinov2Model(seen), vision.finetune, rank=vision.lora_rank, seed=0)
        text_model = BertModel(read, add_pooling_layer=False)
        text_model = set_finetune(text_model, text.finetune, rank=text.lora_rank, seed=0)
    make_fake(tracker, vision_model, adapted=vision.finetune == "lora")
    make_fake(tracker, text_model, adapted=text.finetune == "lora")
    with tracker.fake:
        text_encoder = TextEncoder(text, text_model, SimpleNamespace(pad_token_id=0))
        encoder = VisionEncoder(vision, vision_model, step.policy.cameras, text_width=text_encoder.width, seed=0)
        policy = VLA(step.policy, encoder, text_encoder)
    held = {id(part) for module in (vision_model, text_model) for part in module.parameters()}
    tracker.label([part for part in policy.parameters() if id(part) not in held], "weights")
    tracker.begin("load")
    return policy


def _learn(tracker: MemoryTracker, step: ControlStep, policy: VLA, rows: int, phase: str) -> None:
    """One gradient step, Adam's moments there from the beginning."""
    optimizer = build_adamw({"policy": policy}, lr=1e-4)
    learned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for group in optimizer.param_groups:
        group["foreach"] = step.on_gpu
    for parameter in learned:
        parameter.grad = torch.empty_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    moments = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    tracker.label(moments, "optimizer")
    tracker.begin(f"{phase}: gradient")
    scores = policy.evaluate(_inputs(tracker, step, rows))
    assert scores.values is not None
    (scores.logprobs.mean() + scores.values.square().mean()).backward()  # type: ignore[no-untyped-call]
    tracker.label([parameter.grad for parameter in learned], "gradients")
    tracker.begin(f"{phase}: optimizer")
    clip_and_step(optimizer, learned, max_norm=1.0, guard=NonFiniteGuard())


def _inputs(tracker: MemoryTracker, step: ControlStep, rows: int) -> ControlInputs:
    spec, side = step.policy, step.image_size
    frames = {camera: tracker.empty([rows, side, side, 3], torch.uint8) for camera in spec.cameras}
    tracker.label(frames.values(), "pixels")
    carry = tracker.empty([1, rows, spec.memory]) if spec.memory else None
    return ControlInputs(
        actions=tracker.empty([rows, spec.action_size]),
        state=tracker.empty([rows, spec.state_size]),
        images=frames,
        text_ids=torch.ones(rows, step.text.length, dtype=torch.long),
        history=tracker.empty([rows, spec.history, spec.action_size]),
        carry=carry,
    )
