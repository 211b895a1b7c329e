"""What vqa-ppo does around its learning loop: the supervised start, evaluation, collection, and the closing report."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lookact.data.quality import summarise
from lookact.data.store import EpisodeStore
from lookact.models.chat_vlm import ChatVLM
from lookact.protocols import Actor
from lookact.recipes.chat_model import open_chat
from lookact.recipes.nav_world import make_plans
from lookact.recipes.vqa_eval import answer_questions, fingerprint
from lookact.recipes.vqa_world import make_corpus, make_env, training_rows
from lookact.rollout.collect import collect as run_plans
from lookact.rollout.hf_actor import HFActor
from lookact.train.progress import progress
from lookact.types import Episode

if TYPE_CHECKING:
    from lookact.recipes.vqa_ppo import Config


def open_policy(cfg: Config, folder: Path) -> ChatVLM:
    """The model as it is before any training."""
    return open_chat(
        cfg.model,
        folder,
        corpus=lambda: make_corpus(cfg.world),
        image_size=cfg.world.image_size,
        seed=cfg.seed,
        value_head=cfg.critic.backbone == "shared",
    )


def open_checkpoint(cfg: Config, checkpoint: Path) -> ChatVLM:
    """A policy that was saved, held as the config says."""
    return open_policy(replace(cfg, model=replace(cfg.model, source=str(checkpoint))), checkpoint)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on questions never trained on; resumes what `folder` holds."""
    evaluation = cfg.evaluation
    asked = {"protocol": evaluation.protocol, "questions": evaluation.questions, "scenes": list(evaluation.scenes)}
    actor: Actor | None = None
    who: dict[str, Any] = {"dummy": True}
    if not dummy:
        assert checkpoint is not None
        actor = HFActor(open_checkpoint(cfg, checkpoint), replace(cfg.sampling, greedy=greedy), system=cfg.instructions)
        who = {**fingerprint(checkpoint), "greedy": greedy}
    report: dict[str, Any] = answer_questions(cfg, actor, who | asked, episodes, folder)
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    chat = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    actor = HFActor(chat, cfg.sampling, system=cfg.instructions)
    store, rows = EpisodeStore(out), training_rows(cfg.world, cfg.seed)
    there = store.ids()
    plans = [plan for plan in make_plans(cfg.seed, "collect", groups=episodes) if plan.id not in there]
    envs = [make_env(cfg.world, rows) for _ in range(min(cfg.evaluation.rows, len(plans)))]
    with progress(len(plans), "collecting") as bar:

        def keep(episode: Episode) -> None:
            store.add(episode)
            bar.advance()

        run_plans(plans, envs, actor, finished=keep)
    summary = summarise(store.episodes())
    return {**asdict(summary), "collected": len(plans), "kept": len(there)}
