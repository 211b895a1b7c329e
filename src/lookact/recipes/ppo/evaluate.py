"""Evaluation of vqa-ppo: questions answered one after another into a predictions file, which may be continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lookact.config import to_mapping
from lookact.data.episode_store import EpisodeStore
from lookact.envs.rooms.experts.demonstrate import random_reply
from lookact.errors import DataError
from lookact.protocols import Actor, Env
from lookact.recipes.ppo.config import Config
from lookact.recipes.ppo.report import plain_report, prediction_row
from lookact.rollout.collect import collect as run_plans
from lookact.rollout.episode_specs import make_specs
from lookact.seeding import derive, numpy_rng
from lookact.tasks.spatial_vqa import AskingEnv, Rows, benchmark_rows, make_env, map_drawer, training_rows
from lookact.tasks.spatial_vqa_frames import FramesEnv
from lookact.training.kept_episodes import EPISODES, EVALUATION_KEPT, without_depth
from lookact.training.progress import progress
from lookact.training.vsi_scoring import load_predictions
from lookact.types import Decision, Episode, EpisodeSpec, Observation

PREDICTIONS, IDENTITY = "predictions.jsonl", "identity.json"


class DummyAsker:
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


def evaluation_rows(cfg: Config) -> Rows | None:
    """What is asked: a benchmark's rows, questions about the world's recorded scenes, or None for generated rooms."""
    if cfg.evaluation.questions is not None:
        return benchmark_rows(cfg.evaluation.questions, cfg.evaluation.scenes)
    held_out = replace(cfg.world, scenes=cfg.evaluation.scenes or cfg.world.scenes)
    return training_rows(held_out, derive(cfg.seed, "test"))


def question_plans(cfg: Config, split: str, questions: int, rows: Rows | None) -> list[EpisodeSpec]:
    """One plan a question; a benchmark's rows are asked in their own order, each once."""
    if rows is None:
        return make_specs(cfg.seed, split, groups=questions)
    return [
        EpisodeSpec(
            id=f"{question.dataset}-{question.id}",
            group=number,
            seed=derive(cfg.seed, "episode", split, number),
            options={"scene_seed": number, "start_seed": derive(cfg.seed, "start", split, number)},
        )
        for number, (question, _) in enumerate(rows[:questions])
    ]


def answer_questions(cfg: Config, actor: Actor | None, who: Mapping[str, Any], questions: int, folder: Path) -> Any:
    """Asks what `folder` has no answer to yet, and scores all answers; without an actor, replies are random."""
    rows = evaluation_rows(cfg)
    plans = question_plans(cfg, "test", questions, rows)
    path = claim(folder, {**who, "world": to_mapping(cfg.world), "seed": cfg.seed})
    done = {row["episode_id"] for row in load_predictions(path)} if path.exists() else set()
    left = [plan for plan in plans if plan.id not in done]
    asking = [make_env(cfg.world, rows) for _ in range(min(cfg.evaluation.rows, len(left)))]
    envs: list[Env] = [*asking]
    if cfg.evaluation.protocol == "frames":
        envs = [FramesEnv(env, cfg.evaluation.frames) for env in asking]
    keep_shown = shown_keeper(folder, plans, map_drawer(cfg.world, plans, rows))
    with progress(len(left), "asking") as bar, path.open("a") as file:

        def keep(episode: Episode) -> None:
            keep_shown(episode)
            if (row := prediction_row(episode)) is not None:
                file.write(json.dumps(row) + "\n")
                file.flush()
            bar.advance()

        run_plans(left, envs, actor or DummyAsker(asking), finished=keep)
    wanted = {plan.id for plan in plans}
    answers = [row for row in load_predictions(path) if row["episode_id"] in wanted]
    if not answers:
        raise DataError("no question could be asked: the log names the errors")
    return plain_report(answers) | {"failed": len(plans) - len(answers)}


def shown_keeper(
    folder: Path, plans: Sequence[EpisodeSpec], draw: Callable[[Episode], Episode]
) -> Callable[[Episode], None]:
    """Keeps the episodes of the first plans in `folder`, to be looked at; what is there from before stays."""
    store, shown = EpisodeStore(folder / EPISODES), {plan.id for plan in plans[:EVALUATION_KEPT]}
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


def drop_torn_line(path: Path) -> None:
    """Cut what a killed evaluation left of a last line."""
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def fingerprint(checkpoint: Path) -> dict[str, Any]:
    """Tells one checkpoint from another at the same place, without reading its weights."""
    files = sorted(checkpoint.rglob("*.safetensors"))
    return {"checkpoint": str(checkpoint), "files": [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]}


def _aside(path: Path, described: str) -> Path:
    return path.with_name(f"{path.stem}-{hashlib.sha256(described.encode()).hexdigest()[:8]}{path.suffix}")
