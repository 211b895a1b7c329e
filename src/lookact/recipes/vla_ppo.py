"""vla-ppo: a vision-language-action policy clones an expert's demonstrations, then gets better by PPO.

DINOv2 sees, BERT reads, a transformer fuses both with the arm's state and its last actions; a Gaussian acts. Cloning
gives a policy that often succeeds; acting in many worlds at once, with a critic's credit, it learns from its own
success and failure (arXiv:1707.06347, arXiv:2505.19789).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lookact.data.lerobot import INFO, read_info
from lookact.errors import ConfigError, DataError
from lookact.models.vla import VLA
from lookact.models.vla_store import load_vla
from lookact.recipes.vla_demos import write_demos
from lookact.recipes.vla_eval import Evaluation, measure
from lookact.recipes.vla_learn import Learn, reinforce
from lookact.recipes.vla_model import Model, Text, Vision, open_policy
from lookact.recipes.vla_start import Start, warm_start, worker_count
from lookact.recipes.vla_world import World
from lookact.train.config import setting
from lookact.train.control_ppo import PPO
from lookact.train.progress import timed
from lookact.train.run import Run
from lookact.train.sharding import Parallel
from lookact.train.weights import read_weights

__all__ = ["PRESETS", "Config", "collect", "evaluate", "main"]


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    stage: Literal["bc", "ppo", "both"] = setting("both", help="clone, reinforce what --checkpoint holds, or both")
    checkpoint: str | None = setting(None, help="the policy that stage ppo begins with")
    render: bool = setting(False, help="film evaluations while training, into videos/")
    model: Model = Model()
    world: World = World()
    start: Start = Start()
    learn: Learn = Learn()
    ppo: PPO = PPO()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()


PRESETS = {
    "debug": Config(
        model=Model(vision=Vision(hidden=32, layers=1, glances=4), text=Text(hidden=32), width=32, layers=1),
        world=World(max_steps=24),
        start=Start(looks=32, look_epochs=1, freeze_eyes=True, demos=4, epochs=1, save_every=10),
        learn=Learn(updates=2, rows=4, steps=24, critic_warmup=1),
        evaluation=Evaluation(every=1, episodes=2, final_episodes=4, outside=2, rows=4, films=1),
    ),
    "small": Config(
        # wide at first, or what an action is worth drowns in what else happens; narrow at last, when it must be exact
        model=Model(spread="decay", std=0.25, last_std=0.1),
        # few demonstrations on purpose: they leave reward something to add
        start=Start(looks=4000, look_epochs=8, freeze_eyes=True, demos=60, epochs=16, lr=2e-3),
        learn=Learn(updates=80, lr=1.5e-4, critic_warmup=3),
        ppo=PPO(gamma=0.98, max_kl=0.06),
        evaluation=Evaluation(every=40, final_episodes=100, outside=50, rows=20, films=2),
    ),
    "full": Config(
        model=Model(
            vision=Vision(source="facebook/dinov2-base", image_size=224, patch=14, glances=16, hold="lora"),
            text=Text(source="google-bert/bert-base-uncased", hold="frozen"),
            width=512,
            layers=6,
            heads=8,
            device="cuda",
            freeze=False,
        ),
        world=World(
            image_size=224, max_steps=60, distractors=2, background=True, light=True, camera=True, clutter=True
        ),
        start=Start(demos=1000, epochs=30, rows=256, lr=1e-4),
        evaluation=Evaluation(every=20, episodes=200, final_episodes=500, outside=200),
    ),
}


def main(cfg: Config, run: Run) -> dict[str, Any]:
    vla = open_policy(cfg.model, cfg.world, seed=cfg.seed)

    # clone
    if cfg.stage == "ppo":
        load_start(vla, cfg)
        before: dict[str, Any] = {"reports": final_reports(vla, cfg), "seconds": {}}
    else:
        before = warm_start(vla, cfg, run, lambda: final_reports(vla, cfg))
    seconds = dict(before["seconds"])
    if cfg.stage == "bc":
        return {**before["reports"], "seconds": seconds}

    # reinforce
    if cfg.model.freeze:
        vla.freeze_encoders()
    reinforce(vla, cfg, run)

    # report
    with timed(seconds, "evaluating the end"):
        after = final_reports(vla, cfg, run.folder / "videos")
    return {"before": before["reports"], "after": after, "seconds": seconds}


def final_reports(vla: VLA, cfg: Config, folder: Path | None = None) -> dict[str, Any]:
    """Greedy in and out of distribution, and sampled, on episodes that nothing else ever uses."""
    evaluation, count = cfg.evaluation, cfg.evaluation.final_episodes
    if not count:
        return {}
    common: dict[str, Any] = {"seed": cfg.seed, "split": "test", "episodes": count}
    return {
        "greedy": measure(vla, cfg.world, evaluation, **common, greedy=True, outside=evaluation.outside, folder=folder),
        "sampled": measure(vla, cfg.world, evaluation, **common, greedy=False),
    }


def load_start(vla: VLA, cfg: Config) -> None:
    """The weights that reinforcement alone begins with."""
    if cfg.checkpoint is None:
        raise ConfigError("stage ppo reinforces a policy that was cloned: name it with --checkpoint, or use stage both")
    folder = Path(cfg.checkpoint)
    if not folder.is_dir():
        raise DataError(f"checkpoint {folder} does not exist: check the path")
    read_weights(vla, folder)()


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or random actions, on test episodes in distribution and as many along each way out of it."""
    policy = None
    if not dummy:
        assert checkpoint is not None
        policy = load_vla(checkpoint, device=cfg.model.device)
        policy.freeze_encoders()
    how: dict[str, Any] = {"seed": cfg.seed, "split": "test", "greedy": greedy, "folder": folder}
    return measure(policy, cfg.world, cfg.evaluation, episodes=episodes, outside=episodes, **how)


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Demonstrations of the scripted expert as a LeRobot folder; one that holds enough already is left alone."""
    if checkpoint is not None:
        raise ConfigError("vla-ppo collects what its scripted expert does: leave --checkpoint out")
    if (out / INFO).exists():
        there = int(read_info(out)["total_episodes"])
        if there < episodes:
            raise DataError(f"{out} holds {there} demonstrations, {episodes} are wanted: choose another folder")
        return {"collected": 0, "kept": there}
    if out.is_dir():
        if next(out.iterdir(), None) is not None:
            raise DataError(f"{out} holds other things: choose an empty folder")
        out.rmdir()
    workers = worker_count(cfg.start)
    count = write_demos(out, cfg.world, seed=cfg.seed, count=episodes, noise=cfg.start.noise, workers=workers)
    return {"collected": count, "kept": 0, "steps": int(read_info(out)["total_frames"])}
