"""Checks of world-duel before a run starts."""

from __future__ import annotations

from pathlib import Path

from lookact.errors import ConfigError
from lookact.models.vlm.sources import HUB_NAME, check_source, model_type
from lookact.recipes.world_duel.config import Config
from lookact.training.preflight import Job, need_device, need_files, need_package, need_room, need_same

CHECKPOINT = ("model.safetensors",)
"""Files of every checkpoint."""
CELL = 8
"""Pixels a side of a cell of the finest scale."""

SHAPES = (
    *(f"env.{name}" for name in ("control", "image_size")),
    *(f"tokenizer.{name}" for name in ("codebook_size", "latent_dim", "width", "scales")),
    *(f"model.{name}" for name in ("width", "layers", "heads", "history", "memory", "memory_layers", "ensemble_size")),
    *(
        f"model.{name}"
        for name in ("action_chunk", "action_head", "foresight", "predicted_frames", "action_dim", "state_dim")
    ),
    *("model.lora_rank", "model.vision"),
)
"""Settings without which a checkpoint's weights do not fit."""


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    check_sizes(cfg)
    if not cfg.env.is_outside:
        need_package("mujoco", "world-duel")
    if cfg.env.name == "maniskill":
        for package in ("mani_skill", "sapien"):
            need_package(package, "env.name maniskill", instead="set --env.name tabletop")
    if job.checkpoint is not None:
        need_files(job.checkpoint, "world-duel", CHECKPOINT)
        if job.command == "collect":
            need_files(job.checkpoint / "student", "world-duel student", CHECKPOINT[:1])
    if job.trains:
        need_same(cfg, job.resume, SHAPES)
        check_phase(cfg)
        check_shape(cfg)
        remedy = "free some, give another --out, or record fewer episodes (--teacher.episodes, --adversarial.episodes)"
        need_room(job.folder, recorded_bytes(cfg), remedy=remedy)
    need_device("model.device", cfg.model.device)


def check_sizes(cfg: Config) -> None:
    """Refuse another's environment that does not run, or any whose numbers the model has no room for."""
    shapes, model = cfg.env.shapes, cfg.model
    for what, size, room in (
        ("state", shapes.state_size, model.state_dim),
        ("action", shapes.action_size, model.action_dim),
    ):
        if size > room:
            raise ConfigError(f"{cfg.env.name} has {size} numbers of {what}: set --model.{what}_dim to at least {size}")


def check_phase(cfg: Config) -> None:
    """Refuse a phase that lacks what the phases before it would have given."""
    later = cfg.phase in ("student", "adversarial")
    if later and not cfg.teacher_path:
        raise ConfigError(f"phase {cfg.phase} needs a world model: give teacher_path, a checkpoint of phase teacher")
    if cfg.phase == "adversarial" and not cfg.student_path:
        raise ConfigError("phase adversarial needs an explorer: give student_path, a checkpoint of phase student")
    experts = ("tabletop", "two_arms", "memory_curtain")
    if cfg.phase == "task" and cfg.env.name not in experts:
        raise ConfigError(f"phase task has an expert in {', '.join(experts)}, not in {cfg.env.name}: set env.name")
    if cfg.teacher_path:
        need_files(Path(cfg.teacher_path), "world-duel", CHECKPOINT)
        if cfg.rewards.uncertainty == "learning_progress" and cfg.phase != "task":
            # without it nothing tells what the teacher knew before: train it with the same rewards.uncertainty
            need_files(Path(cfg.teacher_path) / "older", "world-duel learning_progress", CHECKPOINT)
    if cfg.student_path:
        need_files(Path(cfg.student_path), "world-duel", ("student", *CHECKPOINT))


def check_shape(cfg: Config) -> None:
    """Refuse sizes that do not fit each other."""
    scales, size = cfg.tokenizer.scales, cfg.env.image_size
    if size % CELL:
        raise ConfigError(f"env.image_size = {size}: give a multiple of {CELL}")
    if not scales or scales[-1] * CELL != size or list(scales) != sorted(scales):
        raise ConfigError(
            f"tokenizer.scales = {scales}: images of {size} pixels need rising ones that end in {size // CELL}"
        )
    model = cfg.model
    if model.train_gen_expert_only and (model.freeze_gen_expert or model.train_act_expert_only):
        raise ConfigError(
            "model.train_gen_expert_only leaves nothing else to train: drop freeze_gen_expert and train_act_expert_only"
        )
    if model.width % model.heads:
        raise ConfigError(f"model.width = {model.width}: give a multiple of the {model.heads} heads")
    check_source(model.text, "bert", example="google-bert/bert-base-uncased", bare=True)
    if model.vision != "none":
        known = Path(model.vision).exists() or HUB_NAME.fullmatch(model.vision)
        family = "siglip" if known and (model_type(model.vision) or "").startswith("siglip") else "dinov2"
        check_source(model.vision, family, example="google/siglip-base-patch16-224 or facebook/dinov2-base")


def recorded_bytes(cfg: Config) -> int:
    """Size of the recorded frames of both cameras."""
    random = cfg.fitting.episodes if cfg.phase != "student" else 0
    more = cfg.adversarial.episodes if cfg.phase in ("adversarial", "all") else 0
    frames = (random + more + cfg.evaluation.episodes) * (cfg.env.steps_per_episode + 1) * 2
    return frames * cfg.env.image_size**2 * 3
