"""The supervised start of vla-ppo: eyes first, then behaviour cloning of demonstrations.

Each phase has a folder of its own under `warm_start/` and goes on where it was broken off.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lookact.algorithms.behaviour_cloning import StepTable, cloning_loss, tabulate
from lookact.algorithms.keypoint_pretraining import looking_loss, make_head
from lookact.algorithms.supervised_phase import Lesson, study
from lookact.data.packing import shuffled
from lookact.envs.tabletop.pretraining_images import FACTS
from lookact.models.vla.checkpoint import save_encoders
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import Config, Start
from lookact.recipes.vla_ppo.demos import cores, draw_looks, open_demos, write_demos
from lookact.seeding import derive
from lookact.training.atomic_io import sync_tree, write_text
from lookact.training.distributed import barrier, is_main, world_size
from lookact.training.progress import timed
from lookact.training.run import Run
from lookact.training.weights import read_weights, write_weights

DONE = "metrics.json"
"""Written last: a supervised start with it is whole."""


def warm_start(vla: VLA, cfg: Config, run: Run, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Trains `vla` and measures it, or takes both from an earlier part of this run.

    `measure()` gives the reports that are kept, under `reports`; `seconds` are those of each phase.
    """
    folder = run.folder / "warm_start"
    if (folder / DONE).exists():
        read_weights(vla, folder)()
        vla.vision_encoder.requires_grad_(not cfg.start.freeze_eyes)
        known: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
        return known
    seconds: dict[str, float] = {}
    with timed(seconds, "learning to see"):
        if cfg.start.looks:
            learn_to_see(vla, cfg, folder / "seeing", run)
    with timed(seconds, "recording the expert"):
        demos = find_demos(cfg, folder / "demos")
    with timed(seconds, "cloning"):
        clone(vla, cfg, demos, folder / "cloning", run)
    with timed(seconds, "evaluating the clone"):
        measured = {"reports": measure(), "seconds": seconds}
    if is_main():
        write_weights(vla, folder)
        save_encoders(vla, folder)
        sync_tree(folder)
        write_text(folder / DONE, json.dumps(measured, indent=2) + "\n")
    barrier()
    return measured


def learn_to_see(vla: VLA, cfg: Config, folder: Path, run: Run) -> None:
    """Lessons on looks into scenes of their own."""
    start, seed = cfg.start, derive(cfg.seed, "seeing")
    head = make_head(vla, FACTS, seed)

    def prepare() -> Lesson:
        looks = draw_looks(cfg.world, seed=seed, count=start.looks, workers=worker_count(start))
        states = torch.from_numpy(np.stack([look.state for look in looks]))
        facts = torch.from_numpy(np.stack([look.facts for look in looks]))
        images: dict[str, Tensor] = {
            camera: torch.from_numpy(np.stack([look.images[camera] for look in looks])) for camera in cfg.world.cameras
        }
        spots: dict[str, Tensor] = {
            camera: torch.from_numpy(np.stack([look.spots[camera] for look in looks])) for camera in cfg.world.cameras
        }
        vla.set_statistics(states.mean(dim=0), states.std(dim=0))
        return looking_loss(vla, head, images, states, facts, spots)

    study(
        folder,
        run.config,
        {"eyes": vla.vision_encoder, "pooled": vla.pooled, "head": head},
        prepare,
        [rows for epoch in range(start.look_epochs) for rows in shuffled(start.looks, start.look_rows, seed, epoch)],
        lr=start.look_lr,
        label="learning to see",
        save_every=start.save_every,
    )


def find_demos(cfg: Config, folder: Path) -> Path:
    """The demonstrations to clone: those that the config names, else recorded ones."""
    if cfg.start.folder is not None:
        return Path(cfg.start.folder)
    if is_main() and not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        start, workers = cfg.start, worker_count(cfg.start)
        write_demos(folder, cfg.world, seed=cfg.seed, count=start.demos, noise=start.noise, workers=workers)
    barrier()
    return folder


def clone(vla: VLA, cfg: Config, demos: Path, folder: Path, run: Run) -> None:
    """Behaviour cloning of all that a LeRobot folder holds."""
    start, seed = cfg.start, derive(cfg.seed, "cloning")
    if start.freeze_eyes:
        vla.vision_encoder.requires_grad_(False)
    table = tabulate(vla, open_demos(demos, cfg.world), encode=start.freeze_eyes)
    vla.set_statistics(table.inputs.state.mean(dim=0), table.inputs.state.std(dim=0))
    study(
        folder,
        run.config,
        {"model": vla},
        lambda: cloning_loss(vla, table, noise=start.noise, swap=start.swap, seed=seed),
        [rows for epoch in range(start.epochs) for rows in shuffled(examples(vla, table), start.rows, seed, epoch)],
        lr=start.lr,
        label="cloning",
        save_every=start.save_every,
    )


def examples(vla: VLA, table: StepTable) -> int:
    """Steps, or demonstrations for a policy with memory."""
    return table.episodes if vla.spec.memory else len(table)


def worker_count(start: Start) -> int:
    return start.workers or max(1, cores() // world_size())
