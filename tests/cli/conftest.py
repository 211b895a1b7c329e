"""A toy recipe that records what the command line asks of it."""

import json
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from lookact.cli import recipes
from lookact.config import setting
from lookact.errors import ConfigError, EngineError


@dataclass(frozen=True)
class Optim:
    lr: float = setting(1e-4, above=0, help="learning rate")
    schedule: Literal["constant", "cosine"] = "cosine"


@dataclass(frozen=True)
class Evaluation:
    final_episodes: int = 6


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    group_size: int = setting(8, least=2, help="episodes that share a baseline")
    scenes: Path | None = setting(None, exists=True)
    whiten: bool = True
    fail: str = ""
    optim: Optim = Optim()
    evaluation: Evaluation = Evaluation()


def preflight(cfg, job):
    if cfg.fail == "preflight":
        raise ConfigError(f"{job.command} has no GPU: set --device cpu")


def main(cfg, run):
    if cfg.fail == "refused":
        raise ConfigError("the room has no door: open one")
    if cfg.fail == "engine":
        raise EngineError("the engine\nis gone")
    if cfg.fail == "bug":
        raise RuntimeError("two\nlines")
    if cfg.fail == "interrupt":
        raise KeyboardInterrupt
    for step in run.steps(2):
        run.log({"eval/success_rate": step / 2, "loss/total": 1 / step, "time/learn": 30.0}, step)
    return {
        "lr": cfg.optim.lr,
        "seed": cfg.seed,
        "group_size": cfg.group_size,
        "folder": str(run.folder),
        "before": {"sampled": {"success_rate": 0.25}},
        "after": {"sampled": {"success_rate": 0.75}},
        "seconds": {"imitating": 5.0},
    }


def evaluate(cfg, *, checkpoint, episodes, greedy, dummy, folder):
    (folder / "seen.json").write_text(json.dumps({"seed": cfg.seed}))
    return {
        "success_rate": 0.5,
        "ci": {"success_rate": [0.4, 0.6]},
        "asked": [str(checkpoint), episodes, greedy, dummy, cfg.group_size],
    }


def collect(cfg, *, checkpoint, episodes, out):
    return {"episodes": episodes, "checkpoint": str(checkpoint), "out": str(out)}


@pytest.fixture(autouse=True)
def toy(monkeypatch, tmp_path):
    """The recipe `toy`, in a working folder of its own."""
    module = types.ModuleType("toy.train")
    presets = {"debug": Config(group_size=2), "small": Config(), "full": Config(group_size=64)}
    vars(module).update(main=main, evaluate=evaluate, collect=collect)
    settings = types.ModuleType("toy.config")
    vars(settings).update(Config=Config, PRESETS=presets)
    monkeypatch.setitem(sys.modules, "toy.config", settings)
    checks = types.ModuleType("toy.preflight")
    vars(checks).update(preflight=preflight)
    monkeypatch.setitem(sys.modules, "toy.preflight", checks)
    monkeypatch.setitem(sys.modules, "toy.train", module)
    monkeypatch.setitem(sys.modules, "toy", types.ModuleType("toy"))
    monkeypatch.setattr(recipes, "RECIPES", {"toy": "toy.train"})
    monkeypatch.chdir(tmp_path)
    return module
