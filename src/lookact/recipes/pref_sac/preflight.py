"""Checks of pref-sac before it starts."""

from __future__ import annotations

from lookact.algorithms.vlm_preflight import PATCH
from lookact.envs.control.gym_control import control_shapes, instruction_of
from lookact.envs.control.task_names import is_outside, packages_of
from lookact.errors import ConfigError, DataError
from lookact.judges.client import server_url
from lookact.judges.goals import goal_of
from lookact.models.vlm.sources import check_source
from lookact.recipes.pref_sac.config import LABELS, VLM_JUDGES, Config, label_file, needs_frames, needs_pictures
from lookact.rollout.reach import is_reachable
from lookact.training.preflight import Job, need_device, need_files, need_package, need_room, need_same

SMALLEST = 47
"""Pixels per side of the smallest image that the reward network reads."""

SHAPES = ("env.task", "learn.hidden", "reward_model.inputs", "reward_model.ensemble_size", "reward_model.hidden")
"""Settings without which a checkpoint's weights do not fit."""


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    if job.command == "collect":
        raise ConfigError(
            "pref-sac collects while it trains: see vlm_query_log.csv and labels of a run; "
            "lookact eval pref-sac keeps images of episodes"
        )
    if is_outside(cfg.env.task):
        control_shapes(cfg.env.task, (), draw=cfg.reward == "learned" and needs_frames(cfg))
    for package in packages_of(cfg.env.task):
        need_package(package, f"env.task {cfg.env.task}", instead="set --env.task Pendulum-v1")
    if job.checkpoint is not None:
        need_files(job.checkpoint, "pref-sac", ("sac",))
    if job.trains:
        if job.processes > 1:
            raise ConfigError(f"pref-sac trains in one process, not in {job.processes}: leave --processes out")
        need_same(cfg, job.resume, SHAPES)
        if cfg.reward == "learned":
            check_judge(cfg)
        remedy = "free some, give another --out, or set a smaller --learn.replay_capacity"
        need_room(job.folder, (cfg.keep + 2) * replay_bytes(cfg), remedy=remedy)
    need_device("device", cfg.device)


def check_judge(cfg: Config) -> None:
    """Refuse a judge who could not be asked when the time comes, or would have nothing to begin with."""
    client = cfg.judge.client
    if cfg.judge.kind in VLM_JUDGES and not cfg.env.goal and not instruction_of(cfg.env.task):
        goal_of(cfg.env.task)
    if cfg.judge.kind == "embedded":
        for package in ("fastapi", "uvicorn"):
            need_package(package, "judge.kind embedded", instead="set --judge.kind oracle")
        if client.checkpoint:
            check_source(client.checkpoint, "qwen3_vl")
        elif (size := cfg.env.judge_image_size or cfg.env.image_size) % PATCH:
            name = "judge_image_size" if cfg.env.judge_image_size else "image_size"
            raise ConfigError(f"env.{name} = {size}: an embedded judge needs a multiple of {PATCH}")
        if cfg.feedback.frames > 1:
            raise ConfigError("feedback.frames = 1 is all that an embedded judge has learned to read: leave it out")
    if cfg.judge.kind == "similarity":
        check_source(cfg.judge.clip_source, "clip", example="openai/clip-vit-base-patch32")
    if cfg.feedback.frames > cfg.feedback.segment_length:
        raise ConfigError(
            f"feedback.frames = {cfg.feedback.frames}: a segment has {cfg.feedback.segment_length} steps, "
            "raise feedback.segment_length"
        )
    if cfg.judge.kind == "server":
        url = client.url or server_url()
        if not is_reachable(url):
            raise ConfigError(
                f"no judge answers at {url}: start one with lookact serve, name another with --judge.client.url, or "
                "set --judge.kind embedded"
            )
    path = label_file(cfg.feedback.cached_label_path)
    if path is not None and not (path.is_file() or any(path.glob("*.safetensors"))):
        raise DataError(
            f"no labels at {cfg.feedback.cached_label_path}: give the folder of a run that asked, or its {LABELS}"
        )
    if cfg.reward_model.inputs == "frame" and cfg.env.image_size < SMALLEST:
        raise ConfigError(f"env.image_size = {cfg.env.image_size}: a reward read from frames needs {SMALLEST}")


def replay_bytes(cfg: Config) -> int:
    """What the frames and pictures of a full replay take, about; the numbers beside them are few."""
    steps = (
        min(cfg.learn.replay_capacity, cfg.learn.episodes * cfg.env.horizon)
        if cfg.env.horizon
        else cfg.learn.replay_capacity
    )
    pictures = steps * cfg.env.judge_image_size**2 // 3 if needs_pictures(cfg) else 0
    return pictures + (steps * cfg.env.image_size**2 * 3 if needs_frames(cfg) else 0)
