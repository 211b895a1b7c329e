"""The learned reward of pref-sac: sessions in which the judge is asked, the ensemble learns, and all is relabelled."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.reward_learning import RewardLearner
from lookact.data.preferences import PreferenceStore
from lookact.data.replay import Replay
from lookact.judges.teachers import TEACHERS
from lookact.models.reward_model import ImageRewards, RewardModel, StateRewards
from lookact.recipes.pref_sac.agent import Agent, learn
from lookact.recipes.pref_sac.config import Config, label_path
from lookact.recipes.pref_sac.feedback import (
    Labeller,
    by_judge,
    by_teacher,
    load_labels,
    save_labels,
    session_size,
)
from lookact.recipes.pref_sac.judge import HELD_OUT, REPORT, clear_accuracy, measure_judge, teach_judge
from lookact.recipes.pref_sac.service import JudgeService
from lookact.recipes.pref_sac.tables import Table
from lookact.recipes.pref_sac.task import goal_in_words, make_gallery
from lookact.rewards.learned import LearnedReward
from lookact.rollout.query_selection import draw_pairs, features_of, select
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeedbackLoop:
    """All that stands between the replay and its rewards."""

    labeller: Labeller
    model: RewardModel
    learner: RewardLearner
    reward: LearnedReward
    service: JudgeService | None

    @property
    def store(self) -> PreferenceStore:
        return self.labeller.store

    @property
    def weights(self) -> dict[str, Any]:
        return {"reward": self.model}

    @property
    def state(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"reward": self.learner, "scale": self.reward, "labels": self.store}
        return parts if self.service is None else {**parts, "judge": self.service}

    def reward_of(self, state: NDArray[np.float32], frame: NDArray[np.uint8] | None, score: float) -> float:
        """What a step earns by all that was learned so far."""
        read: Any = state if self.reward.kind == "state" else frame
        return float(self.reward.of(read[None])[0])


def open_feedback(cfg: Config, run: Run, agent: Agent, queries: Table, closing: ExitStack) -> FeedbackLoop:
    """An untaught reward and the judge it will be taught by, who is at work until `closing` ends."""
    generator, inputs = torch_rng(cfg.seed, "reward"), cfg.model.inputs
    if inputs == "state":
        size: tuple[int, ...] = (agent.sac.state_size,)
        model: RewardModel = StateRewards(
            size[0], members=cfg.model.members, hidden=cfg.model.hidden, generator=generator
        )
    else:
        assert agent.frame_shape is not None
        size = agent.frame_shape
        model = ImageRewards(agent.frame_shape[:2], members=cfg.model.members, generator=generator)
    store = PreferenceStore(
        capacity=cfg.feedback.total,
        shape=(cfg.feedback.segment, *size),
        dtype=torch.float32 if inputs == "state" else torch.uint8,
    )
    model = model.to(cfg.device)
    service = open_service(cfg, run, closing)
    if service is None:
        answer = by_teacher(TEACHERS[cfg.judge.kind], seed=derive(cfg.seed, "teacher") % 2**31)
    else:
        answer = by_judge(service, goal_in_words(cfg.world))
    labeller = Labeller(answer, store, queries, inputs)
    reward = LearnedReward(model, inputs, peak=cfg.model.peak)
    return FeedbackLoop(labeller, model, RewardLearner(model, lr=cfg.model.lr), reward, service)


def open_service(cfg: Config, run: Run, closing: ExitStack) -> JudgeService | None:
    """The judge behind its server; an embedded one is taught and measured first, unless an earlier part did it."""
    folder = run.folder / "judge"
    if cfg.judge.kind == "server":
        service = JudgeService(cfg.judge.asking, checkpoint=None, folder=folder)
    elif cfg.judge.kind == "embedded":
        service = JudgeService(cfg.judge.asking, checkpoint=embedded_judge(cfg, folder), folder=folder)
    else:
        return None
    closing.callback(service.close)
    if cfg.judge.kind == "embedded" and not (folder / REPORT).exists():
        teaching, goal = cfg.judge.teaching, goal_in_words(cfg.world)
        held_out = make_gallery(cfg.world, teaching.held_out, seed=derive(cfg.seed, "held-out pictures"))
        untouched = service.state_dict()
        report = measure_judge(service, held_out, goal, pairs=teaching.held_out, seed=cfg.seed, folder=folder)
        service.load_state_dict(untouched)
        logger.info("the judge: %s; see %s and %s", clear_accuracy(report), folder / REPORT, folder / HELD_OUT)
    return service


def embedded_judge(cfg: Config, folder: Path) -> Path:
    """The folder of a judge that was taught for this task: given, made by an earlier part of this run, or made now."""
    if cfg.judge.asking.checkpoint:
        return Path(cfg.judge.asking.checkpoint)
    if not (folder / "model").exists():
        teaching = cfg.judge.teaching
        gallery = make_gallery(cfg.world, teaching.pictures, seed=derive(cfg.seed, "pictures"))
        folder.mkdir(parents=True, exist_ok=True)
        teach_judge(folder / "model", gallery, goal_in_words(cfg.world), teaching, seed=cfg.seed)
    return folder / "model"


def is_due(cfg: Config, episode: int) -> bool:
    """Whether the judge is asked after this episode."""
    since = episode - cfg.learn.random - cfg.learn.wander
    return since >= 0 and since % cfg.feedback.every == 0


def hold_session(cfg: Config, feedback: FeedbackLoop, agent: Agent, episode: int, folder: Path) -> dict[str, float]:
    """Ask, learn, relabel the whole replay; the first time the critics start anew on a reward at last."""
    session = (episode - cfg.learn.random - cfg.learn.wander) // cfg.feedback.every
    if session == 0:
        begin(cfg, feedback, agent.replay)
    asked = feedback.store.counts["pairs"]
    count = session_size(cfg.feedback, asked=asked, done=episode / cfg.learn.episodes)
    metrics = ask(cfg, feedback, agent.replay, count, session=session) if count else {}
    if not len(feedback.store):
        logger.warning("the judge has preferred nothing yet: %d pairs asked about", feedback.store.counts["pairs"])
        return metrics
    if count or session == 0:
        how = cfg.model
        metrics |= feedback.learner.fit(
            feedback.store,
            epochs=how.epochs,
            rows=how.rows,
            enough=how.enough,
            seed=cfg.seed,
            bootstrap=how.bootstrap,
        )
        metrics |= feedback.reward.settle(agent.replay)
        save_labels(feedback.store, folder)
    if session == 0:
        # what the critics know is of wandering
        agent.learner.reset_critics(torch_rng(cfg.seed, "critics"))
        generator = torch_rng(cfg.seed, "after reset")
        for _ in range(cfg.learn.after_reset):
            learn(cfg, agent, generator)
    return metrics


def begin(cfg: Config, feedback: FeedbackLoop, replay: Replay) -> None:
    """Before the first question: the scale of what the reward reads, and the labels of an earlier run."""
    everything = features_of(replay, np.arange(len(replay)), cfg.model.inputs)
    feedback.model.fit_normaliser(torch.from_numpy(everything))
    path = label_path(cfg.feedback.cached_label_path)
    if path is not None:
        load_labels(feedback.store, path)


def ask(cfg: Config, feedback: FeedbackLoop, replay: Replay, count: int, *, session: int) -> dict[str, float]:
    """Choose `count` pairs of the candidates and put them to the judge."""
    candidates = count if cfg.feedback.strategy == "uniform" else count * cfg.feedback.candidates
    rng = numpy_rng(cfg.seed, "queries", session)
    drawn = draw_pairs(replay, length=cfg.feedback.segment, count=candidates, rng=rng)
    pairs = select(
        cfg.feedback.strategy, drawn, count=count, replay=replay, model=feedback.model, kind=cfg.model.inputs
    )
    metrics = feedback.labeller.ask(replay, pairs, session=session)
    if feedback.service is not None:
        counts = feedback.service.counts
        metrics |= {f"judge/{name}": float(counts[name]) for name in ("requests", "cached", "unparsable")}
    return metrics
