"""vqa-ppo's policies: opened, evaluated on questions (a predictions file that may be continued), asked for episodes."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lookact.algorithms.evaluation import Evaluator, evaluate_task, fill_store
from lookact.algorithms.rollouts import open_actor
from lookact.algorithms.sft import FOLDER as SFT_FOLDER
from lookact.algorithms.vlm import open_chat
from lookact.config import to_mapping
from lookact.data.episode_store import EpisodeStore
from lookact.data.jsonl import append_row, drop_torn_line
from lookact.envs.rooms.experts.demonstrate import random_reply
from lookact.envs.rooms.vsi import load_questions
from lookact.errors import DataError
from lookact.models.vlm.policy import ChatVLM
from lookact.protocols import Actor, Task
from lookact.recipes.ppo.config import Config
from lookact.recipes.ppo.learner import limits_of
from lookact.rollout.collect import collect as run_specs
from lookact.rollout.samplers.settings import Sampling
from lookact.seeding import derive, numpy_rng
from lookact.tasks import registry
from lookact.tasks.settings import is_spatial_vqa
from lookact.tasks.spatial_vqa import AskingEnv, SpatialVQATask, benchmark_rows, prediction_row, scene_questions
from lookact.training.evaluation import EPISODES, EVALUATION_KEPT, fingerprint, without_depth
from lookact.training.progress import progress
from lookact.training.vsi_scoring import load_predictions, vsi_report
from lookact.types import Decision, Episode, EpisodeSpec, Observation

log = logging.getLogger(__name__)

PREDICTIONS, IDENTITY = "predictions.jsonl", "identity.json"


class RandomAnswers:
    """The uniformly random policy, which must know whether letters or numbers are asked for: row i acts in envs[i]."""

    version = 0

    def __init__(self, envs: Sequence[AskingEnv]) -> None:
        self.envs = envs
        self._streams: dict[int, np.random.Generator] = {}

    def begin(self, row: int, seed: int) -> None:
        self._streams[row] = numpy_rng(seed, "dummy")

    def act(self, rows: Sequence[int], observations: Sequence[Observation]) -> list[Decision]:
        nothing = np.zeros(0, dtype=np.float32)
        replies = (random_reply(self.envs[row].env, self._streams[row]) for row in rows)
        return [Decision(reply, nothing, nothing.astype(bool)) for reply in replies]

    def end(self, row: int) -> None:
        del self._streams[row]


def make_task(cfg: Config) -> Task:
    """The task to learn; of spatial VQA generated rooms, or questions of our own about recorded scenes."""
    if not is_spatial_vqa(cfg.env):
        return registry.make_task(cfg.env, cfg.seed)
    return SpatialVQATask(cfg.env, scene_questions(cfg.env, cfg.seed), guess_fraction=cfg.expert.guess_fraction)


def held_out_task(cfg: Config) -> Task:
    """What is evaluated while training."""
    return asked_task(cfg, None) if is_spatial_vqa(cfg.env) else registry.make_task(cfg.env, cfg.seed)


def asked_task(cfg: Config, questions: str | None) -> SpatialVQATask:
    """What is asked: a benchmark's rows, questions about recorded scenes, or rooms that training never shows."""
    env = replace(cfg.env, paraphrase=False)
    if cfg.evaluation.scenes:
        # scenes that are named for evaluation are all asked about
        env = replace(env, scenes=cfg.evaluation.scenes, held_out_scenes=0.0)
    if questions is not None:
        return SpatialVQATask(env, benchmark_rows(questions, cfg.evaluation.scenes), in_order=True)
    return SpatialVQATask(env, scene_questions(env, derive(cfg.seed, "test")), in_order=True)


def open_policy(cfg: Config, folder: Path) -> ChatVLM:
    """The model as it is before any training."""
    return open_chat(
        cfg.model,
        folder,
        corpus=make_task(cfg).corpus,
        image_size=cfg.env.image_size,
        seed=cfg.seed,
        value_head=cfg.critic.backbone == "shared",
    )


def open_checkpoint(cfg: Config, checkpoint: Path) -> ChatVLM:
    """A policy that was saved, held as the config says."""
    return open_policy(replace(cfg, model=replace(cfg.model, source=str(checkpoint))), checkpoint)


def open_critic(policy: ChatVLM, cfg: Config, folder: Path) -> ChatVLM:
    """The policy itself where it has a value head, else a second model from the same start with a head of its own."""
    if cfg.critic.backbone == "shared":
        return policy
    source = replace(cfg.model, source=str(folder / SFT_FOLDER))
    return open_chat(source, folder, corpus=list, image_size=0, seed=cfg.seed, value_head=True)


def make_evaluator(cfg: Config, folder: Path) -> Evaluator:
    """For evaluations before, during and after training, which keep a few episodes in the run's folder."""
    task, num_envs = held_out_task(cfg), cfg.evaluation.num_envs
    return Evaluator(task, cfg.sampling, cfg.instructions, cfg.seed, num_envs, folder, cfg.rollout)


def acting(cfg: Config, policy: ChatVLM, sampling: Sampling, folder: Path) -> AbstractContextManager[Actor]:
    """The policy behind the sampler that the config names."""
    how: dict[str, Any] = {"system": cfg.instructions, "vllm": cfg.vllm, "max_logprob_gap": limits_of(cfg).token}
    return open_actor(policy, sampler=cfg.sampler, sampling=sampling, folder=folder / "engine", **how)


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or the uniformly random policy, on questions never trained on; resumes what `folder` holds."""
    evaluation = cfg.evaluation
    asked = {"questions": evaluation.question_file, "scenes": list(evaluation.scenes)}
    opened: AbstractContextManager[Actor | None] = nullcontext()
    who: dict[str, Any] = {"dummy": True}
    if dummy and not is_spatial_vqa(cfg.env):
        opened = nullcontext(make_task(cfg).random_actor())
    if not dummy:
        assert checkpoint is not None
        opened = acting(cfg, open_checkpoint(cfg, checkpoint), replace(cfg.sampling, greedy=greedy), folder)
        who = {**fingerprint(checkpoint), "greedy": greedy}
    how: dict[str, Any] = {"seed": cfg.seed, "episodes": episodes, "num_envs": cfg.evaluation.num_envs}
    with opened as actor:
        if actor is not None and not is_spatial_vqa(cfg.env):
            return evaluate_task(make_task(cfg), actor, folder=folder, **how)
        return answer_questions(cfg, actor, who | asked, episodes, folder)


def collect(cfg: Config, *, checkpoint: Path | None, episodes: int, out: Path) -> dict[str, Any]:
    """Fills `out` up to `episodes` episodes; what is there already is kept and counts."""
    task = make_task(cfg)
    policy = open_policy(cfg, out / "model") if checkpoint is None else open_checkpoint(cfg, checkpoint)
    specs = task.specs(cfg.seed, "collect", groups=episodes)
    draw = task.add_floor_map(specs)
    with acting(cfg, policy, cfg.sampling, out) as actor:
        return fill_store(out, specs, task.make_env, actor, num_envs=cfg.evaluation.num_envs, draw=draw)


def answer_questions(
    cfg: Config, actor: Actor | None, who: Mapping[str, Any], questions: int, folder: Path
) -> dict[str, Any]:
    """Asks what `folder` has no answer to yet, and scores all answers; without an actor, replies are random."""
    task = asked_task(cfg, cfg.evaluation.question_file)
    specs = task.specs(cfg.seed, "test", groups=questions)
    path = claim(folder, {**who, "env": to_mapping(cfg.env), "seed": cfg.seed})
    done = {row["episode_id"] for row in load_predictions(path)} if path.exists() else set()
    left = [spec for spec in specs if spec.id not in done]
    asking = [task.make_env() for _ in range(min(cfg.evaluation.num_envs, len(left)))]
    keep_shown = shown_keeper(folder, specs, task.add_floor_map(specs))
    path.touch()
    with progress(len(left), "asking") as bar:

        def keep(episode: Episode) -> None:
            keep_shown(episode)
            if (row := prediction_row(episode)) is not None:
                append_row(path, row)
            bar.advance()

        run_specs(left, asking, actor or RandomAnswers(asking), finished=keep, keep=False)
    wanted = {spec.id for spec in specs}
    answers = [row for row in load_predictions(path) if row["episode_id"] in wanted]
    if not answers:
        raise DataError("no question could be asked: the log names the errors")
    return vsi_report(answers) | {"failed": len(specs) - len(answers), "skipped": skipped_rows(cfg, task)}


def skipped_rows(cfg: Config, task: SpatialVQATask) -> int:
    """Rows of the question file whose scenes are not among the folders."""
    if (path := cfg.evaluation.question_file) is None:
        return 0
    skipped = len(load_questions(path, purpose="test")) - len(task.rows or ())
    if skipped:
        log.warning("%d rows of %s have no folder in evaluation.scenes: lookact eval vsi-bench asks all", skipped, path)
    return skipped


def shown_keeper(
    folder: Path, specs: Sequence[EpisodeSpec], draw: Callable[[Episode], Episode]
) -> Callable[[Episode], None]:
    """Keeps the episodes of the first specs in `folder`, to be looked at; what is there from before stays."""
    store, shown = EpisodeStore(folder / EPISODES), {spec.id for spec in specs[:EVALUATION_KEPT]}
    missing = shown - store.ids()

    def keep(episode: Episode) -> None:
        if episode.id in missing:
            store.add(without_depth(draw(episode)))

    return keep


def claim(folder: Path, who: Mapping[str, Any]) -> Path:
    """The predictions file of `who`; another's is set aside under a name of its own, and taken back when it returns.

    So are the episodes that were kept of both.
    """
    described = json.dumps(who, sort_keys=True, default=str)
    identity, held = folder / IDENTITY, (folder / PREDICTIONS, folder / EPISODES)
    if identity.exists() and (before := identity.read_text()) != described:
        for path in held:
            if path.exists():
                path.rename(_aside(path, before))
            if (mine := _aside(path, described)).exists():
                mine.rename(path)
    identity.write_text(described)
    drop_torn_line(folder / PREDICTIONS)
    return folder / PREDICTIONS


def _aside(path: Path, described: str) -> Path:
    return path.with_name(f"{path.stem}-{hashlib.sha256(described.encode()).hexdigest()[:8]}{path.suffix}")
