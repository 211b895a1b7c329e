"""world-duel's models: made from settings, read from checkpoints."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from lookact.envs.tabletop.randomise import instruction_corpus
from lookact.envs.testbeds.memory_curtain import INSTRUCTION
from lookact.errors import DataError
from lookact.models.world_model.loading import build_world_model, open_tokenizer
from lookact.models.world_model.model import WorldModel, WorldModelSpec
from lookact.models.world_model.vq import VQSpec
from lookact.recipes.world_duel.config import Config
from lookact.training.weights import read_weights


def open_older(world_model: WorldModel, cfg: Config) -> WorldModel | None:
    """The older world model that learning progress is measured against: that of `teacher_path`, or a copy."""
    if cfg.rewards.uncertainty != "learning_progress" or cfg.phase == "task":
        return None
    older = copy.deepcopy(world_model)
    if cfg.teacher_path:
        load_model(older, Path(cfg.teacher_path) / "older")
    return older


def task_of(cfg: Config) -> str | None:
    """The task of phase task."""
    return cfg.task_phase.task_name if cfg.phase == "task" else None


def cameras_of(cfg: Config) -> tuple[str, ...]:
    """What a policy sees: an explorer has the wrist camera alone."""
    return ("wrist", "head") if cfg.phase == "task" else ("wrist",)


def open_model(cfg: Config, source: Path | None = None, *, tokenizer: Any = None) -> WorldModel:
    """A fresh model of the config's sizes, with `tokenizer`, the one of the checkpoint `source`, or a new one."""
    model, vq, shapes = cfg.model, cfg.tokenizer, cfg.env.shapes
    spec = WorldModelSpec(
        state_size=shapes.state_size,
        action_size=shapes.action_size,
        vq=VQSpec(cfg.env.image_size, vq.width, vq.latent_dim, vq.scales, vq.codebook_size),
        state_dim=model.state_dim,
        action_dim=model.action_dim,
        history=model.history,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        memory=model.memory,
        memory_layers=model.memory_layers,
        memory_backprop=model.memory_backprop,
        members=model.ensemble_size,
        chunk=model.action_chunk,
        action_head=model.action_head,
        foresight=model.foresight,
        predicted_frames=model.predicted_frames,
    )
    corpus = [INSTRUCTION] if cfg.env.name == "memory_curtain" else instruction_corpus(task_of(cfg) or "reach")
    corpus = list(shapes.instructions) if cfg.env.is_outside else corpus
    return build_world_model(
        spec,
        text=model.text,
        vision=model.vision,
        tokenizer=tokenizer or open_tokenizer(model.text, corpus, source),
        seed=cfg.seed,
        lora_rank=model.lora_rank,
        lora_alpha=model.lora_alpha,
        device=model.device,
    )


def load_model(model: WorldModel, checkpoint: Path) -> None:
    """Load the weights at the top of a checkpoint, or those in one of its folders."""
    if not checkpoint.is_dir():
        raise DataError(f"checkpoint {checkpoint} does not exist: check the path")
    read_weights(model, checkpoint)()
