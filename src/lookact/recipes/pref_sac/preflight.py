"""What pref-sac sees to before it begins."""

from __future__ import annotations

from lookact.algorithms.vlm_preflight import PATCH
from lookact.envs.control.task_names import packages_of
from lookact.errors import ConfigError, DataError
from lookact.judges.client import server_url
from lookact.judges.goals import goal_of
from lookact.models.vlm.sources import check_source
from lookact.recipes.pref_sac.config import LABELS, SEEING, Config, label_path, needs_frames
from lookact.rollout.reach import is_reachable
from lookact.training.preflight import Job, need_device, need_files, need_package, need_room, need_same

SMALLEST = 47
"""Pixels a side of the smallest picture that the reward network reads."""

SHAPES = ("world.task", "learn.hidden", "model.inputs", "model.members", "model.hidden")
"""Settings without which a checkpoint's weights do not fit."""


def preflight(cfg: Config, job: Job) -> None:
    """Refuse what could not work on this machine, before anything is begun."""
    if job.command == "collect":
        raise ConfigError(
            "pref-sac collects while it trains: see vlm_query_log.csv and labels.safetensors of a run; "
            "lookact eval pref-sac keeps pictures of episodes"
        )
    for package in packages_of(cfg.world.task):
        need_package(package, f"world.task {cfg.world.task}", instead="set --world.task Pendulum-v1")
    if job.checkpoint is not None:
        need_files(job.checkpoint, "pref-sac", ("sac",))
    if job.trains:
        if job.processes > 1:
            raise ConfigError(f"pref-sac trains in one process, not in {job.processes}: leave --processes out")
        need_same(cfg, job.resume, SHAPES)
        if cfg.reward == "learned":
            check_judge(cfg)
        remedy = "free some, give another --out, or set a smaller --learn.capacity"
        need_room(job.folder, (cfg.keep + 2) * replay_bytes(cfg), remedy=remedy)
    need_device("device", cfg.device)


def check_judge(cfg: Config) -> None:
    """Refuse a judge who could not be asked when the time comes, or would have nothing to begin with."""
    asking = cfg.judge.asking
    if cfg.judge.kind in SEEING and not cfg.world.goal:
        goal_of(cfg.world.task)
    if cfg.judge.kind == "embedded":
        for package in ("fastapi", "uvicorn"):
            need_package(package, "judge.kind embedded", instead="set --judge.kind oracle")
        if asking.checkpoint:
            check_source(asking.checkpoint, "qwen3_vl")
        elif cfg.world.image_size % PATCH:
            raise ConfigError(
                f"world.image_size = {cfg.world.image_size}: an embedded judge needs a multiple of {PATCH}"
            )
    if cfg.judge.kind == "server":
        url = asking.url or server_url()
        if not is_reachable(url):
            raise ConfigError(
                f"no judge answers at {url}: start one with lookact serve, name another with --judge.asking.url, or "
                "set --judge.kind embedded"
            )
    path = label_path(cfg.feedback.cached_label_path)
    if path is not None and not (path / LABELS if path.is_dir() else path).is_file():
        raise DataError(f"no labels at {path}: give the folder of a run that asked, or its {LABELS}")
    if cfg.model.inputs == "frame" and cfg.world.image_size < SMALLEST:
        raise ConfigError(f"world.image_size = {cfg.world.image_size}: a reward read from frames needs {SMALLEST}")


def replay_bytes(cfg: Config) -> int:
    """What the pictures of a full replay take; the numbers beside them are few."""
    steps = min(cfg.learn.capacity, cfg.learn.episodes * cfg.world.horizon) if cfg.world.horizon else cfg.learn.capacity
    return steps * cfg.world.image_size**2 * 3 if needs_frames(cfg) else 0
