"""What vqa-ppo does around its learning loop: the supervised start, evaluation, collection, and the closing report."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from lookact.algorithms.vlm import open_chat
from lookact.algorithms.vlm_sft import teach
from lookact.data.episode_store import EpisodeStore
from lookact.data.quality import summarise
from lookact.models.vlm.loading import save_readers
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor
from lookact.recipes.ppo.config import Config
from lookact.recipes.ppo.evaluate import answer_questions, evaluation_rows, fingerprint, question_plans
from lookact.recipes.ppo.report import plain_report, prediction_rows, side_by_side
from lookact.recipes.ppo.start import lessons_of
from lookact.rollout.collect import collect as run_plans
from lookact.rollout.episode_specs import make_specs
from lookact.rollout.samplers.hf import HFSampler
from lookact.tasks.spatial_vqa import make_corpus, make_env, map_drawer, training_rows
from lookact.training.distributed import rank, world_size
from lookact.training.kept_episodes import keep_evaluation, step_name
from lookact.training.progress import progress, timed
from lookact.training.run import Run
from lookact.training.weights import Weights
from lookact.types import Episode


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


def open_critic(chat: ChatVLM, cfg: Config, folder: Path) -> ChatVLM:
    """The policy itself where it has a value head, else a second model from the same start with a head of its own."""
    if cfg.critic.backbone == "shared":
        return chat
    source = replace(cfg.model, source=str(folder / "warm_start"))
    return open_chat(source, folder, corpus=list, image_size=0, seed=cfg.seed, value_head=True)


def weights_of(chat: ChatVLM, critic: ChatVLM) -> dict[str, Weights]:
    """What a checkpoint holds: the policy with its tokenizer, and the critic."""
    assert critic.value_head is not None
    weights: dict[str, Weights] = {"model": chat.model, "readers": partial(save_readers, chat)}
    own: dict[str, Weights] = {} if critic is chat else {"critic": critic.model}
    return weights | own | {"value_head": critic.value_head}


def warm_start(chat: ChatVLM, cfg: Config, run: Run) -> dict[str, Any]:
    """The supervised start, and what it reaches."""
    return teach(chat, lessons_of(cfg), run, lambda: final_reports(chat, cfg, run, "before"))


def validate(chat: ChatVLM, cfg: Config, run: Run, step: int) -> dict[str, Any]:
    """The greedy policy after a step, on questions that training never asks; a few episodes are kept."""
    return report_on(chat, cfg, run, step_name(step), split="validate", questions=cfg.evaluation.episodes, greedy=True)


def report_on(
    chat: ChatVLM, cfg: Config, run: Run, name: str, *, split: str, questions: int, greedy: bool
) -> dict[str, Any]:
    """The policy on questions of our own, shared by the processes; a few episodes are kept under `name`."""
    rows = evaluation_rows(replace(cfg, evaluation=replace(cfg.evaluation, questions=None)))
    plans = question_plans(cfg, split, questions, rows)[rank() :: world_size()]
    actor = HFSampler(chat, replace(cfg.sampling, greedy=greedy), system=cfg.instructions)
    with progress(len(plans), "evaluating") as bar:
        envs = [make_env(cfg.world, rows) for _ in range(min(cfg.evaluation.rows, len(plans)))]
        ended = run_plans(plans, envs, actor, finished=lambda episode: bar.advance())
    keep_evaluation(run.folder, name, map(map_drawer(cfg.world, plans, rows), ended))
    return plain_report(prediction_rows(ended))


def final_reports(chat: ChatVLM, cfg: Config, run: Run, when: str) -> dict[str, Any]:
    """Greedy and sampled, on questions that nothing else ever asks."""
    count = cfg.evaluation.final_episodes
    kinds = {"greedy": True, "sampled": False} if count else {}
    return {
        name: report_on(chat, cfg, run, f"{when}-{name}", split="test", questions=count, greedy=greedy)
        for name, greedy in kinds.items()
    }


def finish(chat: ChatVLM, cfg: Config, run: Run, before: dict[str, Any]) -> dict[str, Any]:
    """Before and after RL, side by side, and the seconds spent around it."""
    seconds = dict(before["seconds"])
    with timed(seconds, "evaluating the end"):
        after = final_reports(chat, cfg, run, "after")
    return side_by_side(before["reports"], after) | {"seconds": seconds}


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
        actor = HFSampler(
            open_checkpoint(cfg, checkpoint), replace(cfg.sampling, greedy=greedy), system=cfg.instructions
        )
        who = {**fingerprint(checkpoint), "greedy": greedy}
    report: dict[str, Any] = answer_questions(cfg, actor, who | asked, episodes, folder)
    return report


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    chat = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    actor = HFSampler(chat, cfg.sampling, system=cfg.instructions)
    store, rows = EpisodeStore(out), training_rows(cfg.world, cfg.seed)
    there = store.ids()
    plans = [plan for plan in make_specs(cfg.seed, "collect", groups=episodes) if plan.id not in there]
    envs = [make_env(cfg.world, rows) for _ in range(min(cfg.evaluation.rows, len(plans)))]
    draw = map_drawer(cfg.world, plans, rows)
    with progress(len(plans), "collecting") as bar:

        def keep(episode: Episode) -> None:
            store.add(draw(episode))
            bar.advance()

        run_plans(plans, envs, actor, finished=keep)
    summary = summarise(store.episodes())
    return {**asdict(summary), "collected": len(plans), "kept": len(there)}
