"""What nav-rloo does around its learning loop: the supervised start, evaluation, collection, and the closing report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_sft import teach
from lookact.data.episode_store import EpisodeStore
from lookact.data.quality import summarise
from lookact.envs.rooms.experts.demonstrate import random_move
from lookact.envs.rooms.motion import Limits
from lookact.models.vlm.policy import ChatVLM
from lookact.plots.navigation import draw_sheet
from lookact.protocols import Actor
from lookact.recipes.rloo.config import Config
from lookact.recipes.rloo.report import Report, evaluate_actor
from lookact.recipes.rloo.start import lessons_of
from lookact.rollout.collect import collect as run_plans
from lookact.rollout.episode_specs import make_specs
from lookact.rollout.samplers.hf import HFSampler
from lookact.rollout.samplers.random_actor import RandomActor
from lookact.tasks.navigation import make_corpus, make_env, map_drawer
from lookact.training.kept_episodes import EPISODES, EVALUATION_KEPT, keep_episodes, keep_evaluation, step_name
from lookact.training.progress import progress, timed
from lookact.training.run import Run
from lookact.training.sharding import whole
from lookact.types import Episode


def open_policy(cfg: Config, folder: Path) -> ChatVLM:
    """The model as it is before any training."""
    return open_chat(
        cfg.model,
        folder,
        corpus=lambda: make_corpus(cfg.world),
        image_size=cfg.world.image_size,
        seed=cfg.seed,
    )


def open_checkpoint(cfg: Config, checkpoint: Path) -> ChatVLM:
    """A policy that was saved, held as the config says."""
    return open_policy(replace(cfg, model=replace(cfg.model, source=str(checkpoint))), checkpoint)


def warm_start(chat: ChatVLM, cfg: Config, run: Run) -> dict[str, Any]:
    """The supervised start, and what it reaches."""
    return teach(chat, lessons_of(cfg), run, lambda: final_reports(chat, cfg, run, "before"))


def validate(chat: ChatVLM, cfg: Config, run: Run, step: int) -> Report:
    """The sampled policy after a step, on starts that training never uses; a few episodes are kept."""
    return report_on(chat, cfg, run, step_name(step), split="validate", episodes=cfg.evaluation.episodes, greedy=False)


def report_on(chat: ChatVLM, cfg: Config, run: Run, name: str, *, split: str, episodes: int, greedy: bool) -> Report:
    """The policy on held-out starts; a few episodes are kept under `name`."""
    actor = HFSampler(chat, replace(cfg.sampling, greedy=greedy), system=cfg.instructions)
    with whole(chat):
        report, ended = evaluate_actor(
            actor, cfg.world, seed=cfg.seed, split=split, episodes=episodes, rows=cfg.evaluation.rows
        )
    draw = map_drawer(cfg.world, make_specs(cfg.seed, split, groups=episodes))
    keep_evaluation(run.folder, name, map(draw, ended))
    return report


def final_reports(chat: ChatVLM, cfg: Config, run: Run, when: str) -> dict[str, Any]:
    """Greedy and sampled, on the starts that nothing else ever uses."""
    reports = {}
    for name, greedy in (("greedy", True), ("sampled", False)):
        if count := cfg.evaluation.final_episodes:
            report = report_on(chat, cfg, run, f"{when}-{name}", split="test", episodes=count, greedy=greedy)
            reports[name] = report.plain()
    return reports


def finish(chat: ChatVLM, cfg: Config, run: Run, before: dict[str, Any]) -> dict[str, Any]:
    """Before and after RL, side by side, and the seconds spent around it."""
    seconds = dict(before["seconds"])
    with timed(seconds, "evaluating the end"):
        after = final_reports(chat, cfg, run, "after")
    return {"before": before["reports"], "after": after, "seconds": seconds}


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on the test split; its episodes are kept in `folder`."""
    if dummy:
        actor: Actor = RandomActor(lambda rng: random_move(rng, Limits()).json())
    else:
        assert checkpoint is not None
        sampling = replace(cfg.sampling, greedy=greedy)
        actor = HFSampler(open_checkpoint(cfg, checkpoint), sampling, system=cfg.instructions)
    report, ended = evaluate_actor(
        actor, cfg.world, seed=cfg.seed, split="test", episodes=episodes, rows=cfg.evaluation.rows
    )
    draw = map_drawer(cfg.world, make_specs(cfg.seed, "test", groups=episodes))
    keep_episodes(folder / EPISODES, map(draw, ended), most=EVALUATION_KEPT)
    draw_sheet(folder / EPISODES, folder / "sheet.png")
    return report.plain()


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    chat = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    actor = HFSampler(chat, cfg.sampling, system=cfg.instructions)
    store = EpisodeStore(out)
    there = store.ids()
    plans = [plan for plan in make_specs(cfg.seed, "collect", groups=episodes) if plan.id not in there]
    rows, draw = min(cfg.evaluation.rows, max(1, len(plans))), map_drawer(cfg.world, plans)
    with progress(len(plans), "collecting") as bar:

        def keep(episode: Episode) -> None:
            store.add(draw(episode))
            bar.advance()

        run_plans(plans, [make_env(cfg.world) for _ in range(rows)], actor, finished=keep)
    summary = summarise(store.episodes())
    return {**asdict(summary), "collected": len(plans), "kept": len(there)}
