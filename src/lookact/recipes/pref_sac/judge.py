"""The judge of pref-sac: a simulated teacher, a VLM server, or a tiny VLM trained, served and measured on the spot.

Every reply is kept on disk as it comes. A server that dies costs only the replies that were not there yet: those are
asked again, the others are read, and each pair counts once.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.judge_diary import JudgeDiary
from lookact.algorithms.judge_training import (
    HELD_OUT,
    REPORT,
    LabelledImages,
    clear_accuracy,
    measure_judge,
    train_judge,
)
from lookact.algorithms.reward_learning import (
    Feedback,
    Labeller,
    LearnedReward,
    RewardLearner,
    ServedJudge,
    teacher_labeller,
    vlm_labeller,
)
from lookact.data.preferences import PreferenceStore, load_labels
from lookact.data.replay import Replay
from lookact.envs.control.fixed_horizon import horizon_of
from lookact.envs.control.scripted_experts import NoisyExpert, controller_of
from lookact.envs.control.task_names import is_metaworld
from lookact.errors import EngineError, JudgeError, JudgeRefused
from lookact.judges.client import ClientSpec, JudgeClient, server_url
from lookact.judges.similarity import SimilarityJudge
from lookact.judges.teachers import TEACHERS
from lookact.judges.vlm_judge import QUESTIONS, Pair, ReplyCache, VLMJudge
from lookact.models.reward_model import make_reward_model
from lookact.recipes.pref_sac.config import LABELS, VLM_JUDGES, ClientConfig, Config, EnvConfig, label_file
from lookact.recipes.pref_sac.evaluate import goal_in_words, make_env
from lookact.rollout.samplers.server_process import ServerProcess
from lookact.seeding import derive, numpy_rng, torch_rng
from lookact.training.progress import progress
from lookact.training.run import Run, artifact_folder
from lookact.types import Preference

logger = logging.getLogger(__name__)
RANDOM_PROBS = (0.0, 0.3, 0.6, 1.0)
"""Of the noisy experts, in turn: images of every quality."""
OWN_TIMEOUT_S = 2.0
"""Before an embedded server is checked: whether its process lives is known at once."""
PAUSE_S = 0.5
"""Between two tries to reach a server that is away, beside those of the client."""
START_S = 600.0
"""Seconds in which it must be up, on a machine that may be busy."""


def open_feedback(cfg: Config, replay: Replay, run: Run, closing: ExitStack) -> Feedback:
    """A new reward ensemble on what the replay holds, and the judge who labels for it, open until `closing` ends."""
    how, shape = cfg.reward_model, replay.feature_shape(cfg.reward_model.inputs)
    model = make_reward_model(
        shape, members=how.ensemble_size, hidden=how.hidden, generator=torch_rng(cfg.seed, "reward")
    ).to(cfg.device)
    dtype = torch.float32 if how.inputs == "state" else torch.uint8
    steps = cfg.feedback.frames if cfg.judge.kind in VLM_JUDGES else cfg.feedback.segment_length
    labels = label_folder(run)
    store = PreferenceStore(capacity=cfg.feedback.total, shape=(steps, *shape), dtype=dtype, folder=labels)
    label, judge = open_labeller(cfg, run.folder / "judge", closing)
    reward = LearnedReward(model, how.inputs, sharpness=how.reward_sharpness)
    return Feedback(label, judge, store, RewardLearner(model, lr=how.lr), reward)


def label_folder(run: Run) -> Path:
    """Where the run writes its labels: beside its checkpoints; a run that goes on from another's takes them along."""
    folder = (artifact_folder(run) or run.folder) / LABELS
    if run.resumed_from is not None:
        earlier = run.resumed_from.parent / LABELS
        if earlier.is_dir() and earlier.resolve() != folder.resolve():
            shutil.copytree(earlier, folder, dirs_exist_ok=True)
    return folder


def begin_labels(cfg: Config, feedback: Feedback | None) -> None:
    """For a run from its start: no labels but those of an earlier run that it is told to begin with."""
    if feedback is None:
        return
    if feedback.store.folder is not None:
        shutil.rmtree(feedback.store.folder, ignore_errors=True)
    if (path := label_file(cfg.feedback.cached_label_path)) is not None:
        load_labels(feedback.store, path)
    if feedback.judge is not None:
        # a run that was killed before its first checkpoint left a diary of pairs that did not count
        feedback.judge.load_state_dict(dict(feedback.judge.counts))


def open_labeller(cfg: Config, folder: Path, closing: ExitStack) -> tuple[Labeller, ServedJudge | None]:
    """Who labels, and the service behind a VLM judge, open until `closing` ends.

    An embedded judge is trained and measured first, unless an earlier part of the run did it.
    """
    if cfg.judge.kind in TEACHERS:
        teacher = TEACHERS[cfg.judge.kind]
        if cfg.judge.kind == "mistake":
            teacher = replace(teacher, mistake=cfg.judge.mistake_prob)
        return teacher_labeller(teacher, seed=derive(cfg.seed, "teacher") % 2**31), None
    embedded, goal = cfg.judge.kind == "embedded", goal_in_words(cfg.env)
    if cfg.judge.kind == "similarity":
        return written_down(DiaryJudge(SimilarityJudge(cfg.judge.clip_source, device=cfg.device), folder), goal, ())
    service = JudgeService(
        cfg.judge.client, checkpoint=embedded_judge(cfg, folder) if embedded else None, folder=folder
    )
    closing.callback(service.close)
    if embedded and not (folder / REPORT).exists():
        count = cfg.judge.sft.held_out
        held_out = render_labelled_images(cfg.env, count, seed=derive(cfg.seed, "held-out pictures"))
        untouched = service.judge.state_dict()
        report = measure_judge(service, held_out, goal, pairs=count, seed=cfg.seed, folder=folder)
        service.judge.load_state_dict(untouched)
        logger.info("the judge: %s; see %s and %s", clear_accuracy(report), folder / REPORT, folder / HELD_OUT)
    if not embedded:
        ask_trial_question(service, cfg.env, goal)
    return written_down(service, goal, QUESTIONS[cfg.judge.client.variant])


def written_down(
    judge: JudgeService | DiaryJudge, goal: str, questions: Sequence[str]
) -> tuple[Labeller, JudgeService | DiaryJudge]:
    """The judge and its labels, each round of which goes into its diary."""

    def note(number: int, preferences: Sequence[Preference], scores: NDArray[np.float64]) -> None:
        judge.diary.extend(number, goal, questions, preferences, scores)

    return vlm_labeller(judge, goal, note), judge


def ask_trial_question(service: JudgeService, config: EnvConfig, goal: str) -> None:
    """One pair, before the first step: a server that refuses, or whose replies can't be read, is found out now."""
    env, untouched = make_env(config), service.judge.state_dict()
    images: list[Any] = []
    for seed in range(2):
        env.reset(seed=seed)
        env.step(np.full(env.action_space.shape or (), 1.0 - 2.0 * seed, np.float32))
        images.append(env.render())
    env.close()
    (told,) = service.compare([(images[0], images[1])], goal)
    if service.counts["unparsable"] > untouched["unparsable"]:
        logger.warning("the judge's reply to a trial question can't be read as 0, 1 or -1: %r", told.raw_text[-200:])
    else:
        logger.info("the judge answers a trial question: %r", told.raw_text[-200:])
    service.judge.load_state_dict(untouched)


def embedded_judge(cfg: Config, folder: Path) -> Path:
    """The folder of a judge: given, made by an earlier part of this run, or trained now, for this task or on others."""
    if cfg.judge.client.checkpoint:
        return Path(cfg.judge.client.checkpoint)
    if not (folder / "model").exists():
        sft = cfg.judge.sft
        envs = [replace(cfg.env, task=task, goal="") for task in sft.tasks] or [cfg.env]
        seed, count = derive(cfg.seed, "pictures"), sft.images // len(envs)
        data = {goal_in_words(env): render_labelled_images(env, count, seed=seed) for env in envs}
        folder.mkdir(parents=True, exist_ok=True)
        train_judge(
            folder / "model",
            data,
            regression_epochs=sft.regression_epochs,
            qa_pairs=sft.qa_pairs,
            epochs=sft.epochs,
            batch_size=sft.batch_size,
            lr=sft.lr,
            margin=sft.margin,
            seed=cfg.seed,
            yes=cfg.judge.client.variant == "yes",
        )
    return folder / "model"


def render_labelled_images(env: EnvConfig, count: int, *, seed: int) -> LabelledImages:
    """`count` images from episodes of every quality, with their progress, in the order of their episodes."""
    steps = itertools.islice(noisy_expert_steps(env, seed), count)
    images, scores, states = zip(*progress(steps, "rendering images"))
    return LabelledImages(np.stack(images), np.array(scores), np.stack(states))


def noisy_expert_steps(config: EnvConfig, seed: int) -> Iterator[tuple[NDArray[np.uint8], float, NDArray[np.float32]]]:
    """Steps of noisy experts without end: image, progress and state."""
    env = make_env(config)
    expert, size = controller_of(config.task), int(np.prod(env.action_space.shape or ()))
    for episode in itertools.count():
        # the names of the random streams are part of the results
        rng = numpy_rng(seed, "gallery", "pupil", episode)
        actor = NoisyExpert(expert, random_prob=RANDOM_PROBS[episode % len(RANDOM_PROBS)], action_size=size, rng=rng)
        state, _ = env.reset(seed=derive(seed, "gallery", episode) % 2**31)
        for _ in range(horizon_of(env)):
            state, reward, *_ = env.step(actor.act(state))
            yield env.render(), progress_of(config.task, state, float(reward)), state  # type: ignore[misc]


def progress_of(task: str, state: NDArray[np.float32], reward: float) -> float:
    """Progress towards the goal: the reward, or as much of it as an image shows."""
    if task.startswith("Pendulum-"):
        # its reward counts speed too, which no image shows
        return -float(np.arctan2(state[1], state[0]) ** 2)
    if is_metaworld(task):
        # nearly all of MetaWorld's reward comes at the end: its root, in the same order, tells the way there apart
        return float(np.sqrt(max(reward, 0.0)))
    return reward


class DiaryJudge:
    """A judge that needs no server, with the diary that `JudgeService` keeps."""

    def __init__(self, judge: SimilarityJudge, folder: Path) -> None:
        self.judge, self.diary, self.compare = judge, JudgeDiary(folder), judge.compare

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.judge.counts)

    def state_dict(self) -> dict[str, Any]:
        return self.judge.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.judge.load_state_dict(state)
        self.diary.keep(state["pairs"])


class JudgeService:
    """A `Judge` that outlives its server; with a checkpoint, the server is its own."""

    def __init__(self, client: ClientConfig, *, checkpoint: Path | None, folder: Path) -> None:
        self.config = client
        self.server = None if checkpoint is None else own_server(checkpoint, folder / "server.log", client)
        self.judge = VLMJudge(self._connect(), variant=client.variant, cache=ReplyCache(folder / "replies"))
        self.diary = JudgeDiary(folder)

    @property
    def counts(self) -> dict[str, int]:
        """What was asked and what came of it, as `VLMJudge` counts."""
        return dict(self.judge.counts)

    def compare(self, pairs: Sequence[Pair], goal: str) -> list[Preference]:
        """A verdict for every pair. A server that is away is waited for; what it refuses would be refused again."""
        answered, since = -1, time.monotonic()
        while True:
            try:
                return self.judge.compare(pairs, goal)
            except JudgeRefused:
                raise
            except JudgeError as error:
                if self.counts["requests"] > answered:
                    answered, since = self.counts["requests"], time.monotonic()
                away = time.monotonic() - since
                if self.config.on_timeout == "stop" or away > self.config.max_wait_s:
                    raise
                logger.warning("waiting for the judge, away for %.0f s: %s", away, error)
                time.sleep(PAUSE_S)
                # somebody else's server is left to its owner
                if self.server is not None:
                    self.judge.client.close()
                    self.judge.client = self._connect()

    def state_dict(self) -> dict[str, Any]:
        return self.judge.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.judge.load_state_dict(state)
        self.diary.keep(state["pairs"])

    def close(self) -> None:
        """Ends the connection, and the server where it is our own."""
        self.judge.client.close()
        if self.server is not None:
            self.server.stop()

    def _connect(self) -> JudgeClient:
        """A client of the server; our own is started first."""
        if self.server is not None and not self.server.healthy():
            try:
                self.server.restart()
            except EngineError as error:
                raise JudgeError(f"the embedded judge cannot be served: {error}") from error
        own, timeout_s = self.server is not None, self.config.timeout_s
        return JudgeClient(
            ClientSpec(
                url=self.server.url if self.server is not None else self.config.url or server_url(),
                model="" if own else self.config.model,
                token="" if own else os.environ.get(self.config.key_variable, ""),
                retry_s=min(OWN_TIMEOUT_S, timeout_s) if own else timeout_s,
                concurrency=self.config.concurrency,
            )
        )


def own_server(checkpoint: Path, log: Path, client: ClientConfig) -> ServerProcess:
    """`lookact serve` of a checkpoint on a free port of this machine; it ends with this process."""
    name = judge_name(checkpoint)

    def command(port: int) -> list[str]:
        words = ["serve", "--model", str(checkpoint), "--name", name, "--host", "127.0.0.1", "--port", str(port)]
        return [sys.executable, "-m", "lookact", *words, "--batch", str(max(16, client.concurrency))]

    # what the environment says of another server is not for ours; one thread, since training needs the other cores
    quiet = {"SERVER_TOKEN": "", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return ServerProcess(command, log=log, timeout_s=max(START_S, client.timeout_s), env=quiet)


def judge_name(folder: Path) -> str:
    """A name for a judge by its weights: replies of another one are never taken for its own."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return f"judge-{digest.hexdigest()}"
