"""What world-duel does around its loop: reports, evaluation of a checkpoint, collection, and the closing report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lookact.data.sequences import Recording
from lookact.models.world_model.explorer import Explorer
from lookact.models.world_model.model import WorldModel
from lookact.models.world_model.vq import psnr
from lookact.recipes.world_duel.config import Config
from lookact.recipes.world_duel.data import Tables, coverage, make_worlds, plan_episodes, record_random, tokenise
from lookact.recipes.world_duel.episodes import foreseen_episodes, part, plain_episodes
from lookact.recipes.world_duel.evaluate import measure_explorer, measure_world, summary
from lookact.recipes.world_duel.model import load_world, open_world
from lookact.recipes.world_duel.phases import Data, TrainState
from lookact.recipes.world_duel.report import flat_metrics, show_foresight
from lookact.recipes.world_duel.student import explore
from lookact.rollout.recording import record
from lookact.training.atomic_io import write_text
from lookact.training.distributed import is_main, rank, world_size
from lookact.training.kept_episodes import EPISODES, KEPT, keep_episodes, keep_evaluation, step_name
from lookact.training.run import Run
from lookact.types import Episode

REPORTS = "reports.json"
"""The last report of each phase, in the run's folder: a resumed run ends with all of them."""


def report_on(
    players: TrainState, data: Data, cfg: Config, run: Run, phase: str, step: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """Measure everyone, show an episode, and keep the report of the phase; the report, and its numbers as metrics."""
    report = foresight_report(players, data, cfg, run, phase)
    shown, exploring = data.recordings[0], phase != "teacher" and cfg.world.env != "hidden"
    if exploring:
        report["explorer"] = measure_explorer(players.explorer, players.world, players.worlds, data.held_out, cfg)
        shown = replayed(players.explorer, players.worlds, cfg)
    if phase == "adversarial":
        report["duel"] = players.rival.report(players.world, data.held_out, stride=cfg.model.stride)
    if is_main():
        picture = show_foresight(players.world, shown, run.folder, step, stride=cfg.model.stride)
        run.tracker.image("world/foresight", picture, step)
        write_text(run.folder / REPORTS, json.dumps(read_reports(run) | {phase: report}, indent=2) + "\n")
    episodes = shown_episodes(players.world, shown, cfg, exploring=exploring)
    keep_evaluation(run.folder, step_name(step, phase), episodes)
    return report, flat_metrics(report)


def shown_episodes(world: WorldModel, recording: Recording, cfg: Config, *, exploring: bool) -> Iterator[Episode]:
    """This process's share of a few episodes to be looked at: of the explorer's own rows, or of all processes' ones."""
    own = range(len(recording.actions)) if exploring else range(rank(), len(recording.actions), world_size())
    rows = own[: -(-KEPT // world_size())]
    numbers = [row * world_size() + rank() for row in rows] if exploring else rows
    name = "explorer" if exploring else "random"
    return foreseen_episodes(world, part(recording, rows), numbers, name, stride=cfg.model.stride)


def foresight_report(players: TrainState, data: Data, cfg: Config, run: Run, phase: str) -> dict[str, Any]:
    """How the world model foresees held-out episodes; in phase student it stands still, and is measured once."""
    reports = read_reports(run)
    known = reports.get("student") or reports.get("teacher")
    if phase == "student" and known:
        return {name: value for name, value in known.items() if name != "explorer"}
    return measure_world(players.world, data.recordings, data.held_out, cfg)


def replayed(explorer: Explorer, worlds: Tables, cfg: Config) -> Recording:
    """An episode of the explorer's with all cameras: its actions taken once more."""
    found = explore(explorer, worlds, cfg, "explore", 0).sequences
    return record(worlds, found.actions.numpy(), plan_episodes(cfg.seed, "explore", 0, cfg.world, together=True))


def read_reports(run: Run) -> dict[str, Any]:
    path = run.folder / REPORTS
    reports: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return reports


def finish(players: TrainState, data: Data, cfg: Config, run: Run, report: dict[str, Any]) -> dict[str, Any]:
    """The last report of every phase, side by side."""
    return read_reports(run) or {cfg.phase: report}


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint's foresight on held-out episodes and its explorer's coverage; `dummy`: random moves and copying."""
    recordings = record_random(cfg.world, folder / f"seed{cfg.seed}", seed=cfg.seed, split="test", episodes=episodes)
    if dummy:
        rows = range(min(KEPT, len(recordings[0].actions)))
        keep_episodes(folder / EPISODES, plain_episodes(part(recordings[0], rows), rows, "random"))
        return _measure_dummy(cfg, recordings)
    assert checkpoint is not None
    world = open_world(cfg, checkpoint)
    load_world(world, checkpoint)
    held = tokenise(world, recordings)
    report = measure_world(world, recordings, held, cfg)
    show_foresight(world, recordings[0], folder, 0, stride=cfg.model.stride)
    shown, exploring = recordings[0], (checkpoint / "student").is_dir() and cfg.world.env != "hidden"
    if exploring:
        explorer, worlds = Explorer(open_world(cfg, checkpoint), stride=cfg.model.stride), make_worlds(cfg.world)
        load_world(explorer.world, checkpoint / "student")
        report["explorer"] = measure_explorer(explorer, world, worlds, held, cfg)
        shown = replayed(explorer, worlds, cfg)
        worlds.close()
        report["coverage"] = report["explorer"]["student_coverage"]
        report["ci"]["coverage"] = report["explorer"]["ci"]["student_coverage"]
    else:
        report |= {"coverage": _random_coverage(cfg, recordings)["coverage"]}
        report["ci"] |= _random_coverage(cfg, recordings)["ci"]
    keep_episodes(folder / EPISODES, shown_episodes(world, shown, cfg, exploring=exploring))
    return report | {"episodes": len(held)}


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Recordings of random actions, or of a checkpoint's explorer, in `out`; what is there already is kept."""
    before = len(list(out.glob("*.npz")))
    if checkpoint is None:
        recordings = record_random(cfg.world, out, seed=cfg.seed, split="collect", episodes=episodes)
        return _counted(recordings, before, cfg)
    explorer, worlds = Explorer(open_world(cfg, checkpoint), stride=cfg.model.stride), make_worlds(cfg.world)
    load_world(explorer.world, checkpoint / "student")
    recordings = []
    for number in range(-(-episodes // cfg.world.rows)):
        found = explore(explorer, worlds, cfg, "collect", number).sequences
        plan = plan_episodes(cfg.seed, "collect", number, cfg.world, together=True)
        recordings.append(record(worlds, found.actions.numpy(), plan))
        recordings[-1].save(out / f"explorer-{number:04d}.npz")
    worlds.close()
    return _counted(recordings, before, cfg)


def _counted(recordings: list[Recording], before: int, cfg: Config) -> dict[str, Any]:
    rows = sum(len(one.actions) for one in recordings)
    return {"episodes": rows, "kept": before * cfg.world.rows, "collected": max(0, rows - before * cfg.world.rows)}


def _measure_dummy(cfg: Config, recordings: list[Recording]) -> dict[str, Any]:
    """Who guesses tokens at random, takes the present frame for the next, and moves at random."""
    frames = torch.from_numpy(np.concatenate([one.wrist for one in recordings]))
    still = np.array([float(psnr(one[:-1], one[1:]).mean()) for one in frames])
    chance = np.full(len(still), 1.0 / cfg.tokens.codes)
    report = summary({"token_accuracy": chance, "psnr": still})
    found = _random_coverage(cfg, recordings)
    report["ci"] |= found.pop("ci")
    return report | found | {"episodes": len(still)}


def _random_coverage(cfg: Config, recordings: list[Recording]) -> dict[str, Any]:
    if cfg.world.env == "hidden":
        return {"coverage": 0.0, "ci": {}}
    states = np.concatenate([one.state for one in recordings])
    return summary({"coverage": np.array([coverage(one, cfg.world) for one in states])})
