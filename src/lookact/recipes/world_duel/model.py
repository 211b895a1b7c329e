"""The models of world-duel: how they are made, how frames become tokens, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoTokenizer

from lookact.data.sequences import Recording
from lookact.errors import DataError
from lookact.models.vla.encoders import hold, open_bert, tiny_bert
from lookact.models.vla.text import TextEncoder, TextSpec, train_wordpiece
from lookact.models.vlm.sources import TINY
from lookact.models.world_model.freeze import adapt, save_adapter
from lookact.models.world_model.model import WorldModel, WorldSpec
from lookact.models.world_model.vq import VQSpec
from lookact.recipes.world_duel.config import Config, Model
from lookact.recipes.world_duel.data import make_corpus
from lookact.seeding import derive, torch_rng
from lookact.training.atomic_io import TEMPORARY, place
from lookact.training.distributed import barrier, is_main
from lookact.training.optim import build_adamw, set_learning_rate
from lookact.training.progress import progress
from lookact.training.weights import Weights, read_weights, write_weights

UNIT_FRAMES = 256
"""Frames that the size of features is measured on."""


def open_world(cfg: Config, source: Path | None = None, *, tokenizer: Any = None) -> WorldModel:
    """A fresh model of the config's sizes, with `tokenizer`, else the one of `source`, else a new one."""
    model, tokens = cfg.model, cfg.tokens
    spec = WorldSpec(
        state_size=cfg.world.state_size,
        action_size=cfg.world.action_size,
        vq=VQSpec(cfg.world.image_size, tokens.width, tokens.latent, tokens.scales, tokens.codes),
        state_dim=model.state_dim,
        action_dim=model.action_dim,
        history=model.history,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        memory=model.memory,
        memory_layers=model.memory_layers,
        memory_backprop=model.memory_backprop,
        members=model.members,
        chunk=model.chunk_size,
        action_head=model.action_head,
        std=model.std,
    )
    # what torch draws by itself comes from a stream of its own, the same in every process
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(cfg.seed, "world model"))
        world = WorldModel(spec, open_reader(cfg, tokenizer or open_tokenizer(cfg, source)), seed=cfg.seed)
    if model.lora_rank:
        adapt(world, rank=model.lora_rank, alpha=model.lora_alpha, seed=cfg.seed)
    return world.to(model.device)


def open_tokenizer(cfg: Config, source: Path | None) -> Any:
    """A checkpoint's tokenizer where there is one, a tiny one for the world's instructions, or a pretrained one."""
    if source is not None and (source / "tokenizer.json").is_file():
        return AutoTokenizer.from_pretrained(source)
    if cfg.model.text == TINY:
        return train_wordpiece(make_corpus(cfg.world), TextSpec())
    return AutoTokenizer.from_pretrained(cfg.model.text)


def open_reader(cfg: Config, tokenizer: Any) -> TextEncoder:
    """The frozen text encoder."""
    text = TextSpec(source=cfg.model.text, hold="frozen")
    tiny = tiny_bert(hidden=text.hidden, layers=text.layers, vocabulary=len(tokenizer), length=text.length)
    bert = open_bert(text.source, tiny if text.source == TINY else None, cfg.seed)
    return TextEncoder(text, hold(bert, "frozen", rank=0, seed=cfg.seed), tokenizer)


def weights_of(world: WorldModel, student: WorldModel | None, model: Model) -> dict[str, Weights]:
    """What a checkpoint holds: the world model at the top with its tokenizer, the student and adapters beside it."""
    weights: dict[str, Weights] = {"model": world, "readers": partial(_save_tokenizer, world)}
    if model.lora_rank:
        weights["peft_adapter"] = partial(save_adapter, world, model.lora_rank, model.lora_alpha)
    return weights if student is None else weights | {"student": student}


def load_world(world: WorldModel, checkpoint: Path) -> None:
    """Fill a model from the top of a checkpoint, or from one of its folders."""
    if not checkpoint.is_dir():
        raise DataError(f"checkpoint {checkpoint} does not exist: check the path")
    read_weights(world, checkpoint)()


def learn_tokens(world: WorldModel, recordings: Sequence[Recording], cfg: Config, folder: Path) -> None:
    """Train the autoencoder on recorded frames and keep it in `folder`, or read it from there."""
    if is_main() and not folder.exists():
        frames = torch.from_numpy(_stack_frames(recordings))
        _fit(world, frames, cfg)
        temporary = folder.with_name(TEMPORARY + folder.name)
        write_weights(world.vq, temporary)
        place(temporary, folder)
    barrier()
    read_weights(world.vq, folder)()
    _measure_units(world, recordings)


def _fit(world: WorldModel, frames: torch.Tensor, cfg: Config) -> None:
    vq, tokens = world.vq, cfg.tokens
    vq.requires_grad_(True)
    optimizer = build_adamw({"vq": vq}, lr=tokens.lr)
    generator = torch_rng(cfg.seed, "codebooks")
    bar: Any = progress(range(1, tokens.steps + 1), "learning tokens")
    for step in bar:
        set_learning_rate(optimizer, step, warmup=20, total=tokens.steps, schedule="linear", floor=0.02)
        chosen = torch.randint(len(frames), (tokens.batch,), generator=torch_rng(cfg.seed, "frames", step))
        loss, metrics = vq.learn(frames[chosen].to(world.device), generator=generator)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(vq.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.note(f"psnr {float(metrics['psnr']):.1f}")
    vq.requires_grad_(False)


def _stack_frames(recordings: Sequence[Recording]) -> NDArray[np.uint8]:
    return np.concatenate([one.reshape(-1, *one.shape[2:]) for rec in recordings for one in (rec.wrist, rec.head)])


def _measure_units(world: WorldModel, recordings: Sequence[Recording]) -> None:
    """What the model divides states and features by."""
    states = torch.cat([torch.from_numpy(one.state).flatten(0, 1) for one in recordings])
    size = states.shape[-1]
    world.state_mean[:size] = states.mean(dim=0)
    world.state_std[:size] = states.std(dim=0).clamp(min=1e-3)
    shown = torch.from_numpy(recordings[0].wrist).flatten(0, 1)[:UNIT_FRAMES].to(world.device)
    world.feature_std.copy_(world.features(world.vq.encode(shown)).std().clamp(min=1e-3))


def _save_tokenizer(world: WorldModel, folder: Path) -> None:
    world.reader.tokenizer.save_pretrained(folder)
