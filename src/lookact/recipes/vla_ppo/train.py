"""vla-ppo: a vision-language-action policy clones an expert's demonstrations, then gets better by PPO.

DINOv2 sees, BERT reads, a transformer fuses both with the arm's state and its last actions; a Gaussian acts. Cloning
gives a policy that often succeeds; acting in many worlds at once, with a critic's credit, it learns from its own
success and failure (arXiv:1707.06347, arXiv:2505.19789).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lookact.data.lerobot.read import INFO, read_info
from lookact.errors import ConfigError, DataError
from lookact.models.vla.checkpoint import load_vla
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import Config
from lookact.recipes.vla_ppo.demos import write_demos
from lookact.recipes.vla_ppo.evaluate import keep_in, measure
from lookact.recipes.vla_ppo.model import open_policy
from lookact.recipes.vla_ppo.start import warm_start, worker_count
from lookact.recipes.vla_ppo.update import reinforce
from lookact.training.kept_episodes import EPISODES, keep_episodes
from lookact.training.progress import timed
from lookact.training.run import Run
from lookact.training.weights import read_weights

__all__ = ["collect", "evaluate", "main"]


def main(cfg: Config, run: Run) -> dict[str, Any]:
    vla = open_policy(cfg.model, cfg.world, seed=cfg.seed)

    # clone
    if cfg.stage == "ppo":
        load_start(vla, cfg)
        before: dict[str, Any] = {"reports": final_reports(vla, cfg, run, "before"), "seconds": {}}
    else:
        before = warm_start(vla, cfg, run, lambda: final_reports(vla, cfg, run, "before"))
    seconds = dict(before["seconds"])
    if cfg.stage == "bc":
        return {**before["reports"], "seconds": seconds}

    # reinforce
    if cfg.model.freeze:
        vla.freeze_encoders()
    reinforce(vla, cfg, run)

    # report
    with timed(seconds, "evaluating the end"):
        after = final_reports(vla, cfg, run, "after")
    return {"before": before["reports"], "after": after, "seconds": seconds}


def final_reports(vla: VLA, cfg: Config, run: Run, when: str) -> dict[str, Any]:
    """Greedy in and out of distribution, and sampled, on episodes that nothing else ever uses; the end is filmed."""
    evaluation, count = cfg.evaluation, cfg.evaluation.final_episodes
    if not count:
        return {}
    kinds: dict[str, dict[str, Any]] = {
        "greedy": {"outside": evaluation.outside, "folder": run.folder / "videos" if when == "after" else None},
        "sampled": {},
    }
    common: dict[str, Any] = {"seed": cfg.seed, "split": "test", "episodes": count}
    return {
        kind: measure(
            vla,
            cfg.world,
            evaluation,
            greedy=kind == "greedy",
            keep=keep_in(run.folder, f"{when}-{kind}"),
            **common,
            **how,
        )
        for kind, how in kinds.items()
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
    how["keep"] = lambda kind, kept: keep_episodes(folder / EPISODES / kind, kept)
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
