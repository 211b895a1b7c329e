"""Evaluation of vla-ppo: success in distribution and out of it, with intervals, kept episodes and videos."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn, table_observation
from lookact.data.lerobot.video import write_video
from lookact.envs.tabletop.randomise import SHIFTS, instruction_corpus
from lookact.envs.tabletop.scene import COLOURS
from lookact.envs.vector.vector_env import VectorEnv
from lookact.models.vla.checkpoint import load_vla
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import Config, EnvConfig, Evaluation
from lookact.recipes.vla_ppo.task import Attempt, table_maker, worker_count
from lookact.rollout.vector_rollout import ControlActor
from lookact.seeding import derive, numpy_rng
from lookact.training.distributed import all_reduce_sum, rank, unsharded, world_size
from lookact.training.evaluation import (
    EPISODES,
    KEPT,
    camera_frames,
    flat_metrics,
    gather_numbers,
    keep_episodes,
    keep_evaluation,
    make_report,
    step_name,
)
from lookact.training.progress import Progress, progress
from lookact.types import Episode, Observation, Turn, VectorObservation, VectorStep

STEP_SECONDS = 60.0
"""An evaluation would rather wait for a busy machine than count an episode as failed."""
IN_DISTRIBUTION = "in_distribution"
OOD_SHIFTS = SHIFTS[1:]
"""Several factors together, and each alone."""
INSTRUCTIONS = ("empty", "wrong")
"""What a policy is told instead of the true instruction: one that is heeded must fail then."""
Keep = Callable[[str, Iterator[Episode]], None]
"""Given an evaluation's name and those of its episodes that this process has."""
Instruct = Callable[[int, str], str]
"""An episode's number and its true instruction -> what the policy is told."""


@dataclass
class EpisodeResult:
    """One episode."""

    number: int
    success: bool = False
    steps: int = 0
    reward: float = 0.0
    error: str | None = None
    """Why its worker was restarted, if it was: it counts as a failure."""
    turns: list[Turn] = field(default_factory=list)
    """Its steps, where it is kept."""
    last: Observation | None = None


class EvalActor:
    """Acts on all rows, each episode with a random stream of its own."""

    def __init__(
        self,
        policy: VLA | None,
        rows: int,
        *,
        greedy: bool,
        seed: int,
        action_size: int,
        instruct: Instruct | None = None,
    ) -> None:
        """Without a policy, actions are uniformly random; `instruct` replaces the true instruction."""
        self.instruct, self.numbers = instruct, dict[int, int]()
        self.actor = None if policy is None else ControlActor(policy, rows)
        self.greedy, self.seed, self.action_size = greedy, seed, action_size
        self.streams: dict[int, np.random.Generator] = {}

    def begin(self, row: int, number: int) -> None:
        """An episode begins on this row."""
        self.streams[row], self.numbers[row] = numpy_rng(self.seed, "acting", number), number
        if self.actor is not None:
            self.actor.reset_rows([row])

    @torch.no_grad()
    def act(self, observation: VectorObservation) -> NDArray[np.float32]:
        """Actions (rows, a) in -1..1."""
        rows = range(len(self.streams))
        if self.actor is None:
            return np.stack([self.streams[row].uniform(-1, 1, self.action_size) for row in rows]).astype(np.float32)
        policy = self.actor.policy
        if self.instruct is not None:
            told = [self.instruct(self.numbers[row], text) for row, text in enumerate(observation.texts["instruction"])]
            observation = replace(observation, texts={**observation.texts, "instruction": tuple(told)})
        noise = np.stack([self.streams[row].normal(size=policy.spec.sample_size) for row in rows])
        drawn = torch.from_numpy(0.0 * noise if self.greedy else noise).to(policy.device, torch.float32)
        found, output = policy.sample(self.actor.observe(observation), drawn)
        actions = policy.executed(found).clamp(-1.0, 1.0)
        self.actor.update(actions, output.carry)
        return actions.cpu().numpy()


def evaluate(
    cfg: Config, *, checkpoint: Path | None, episodes: int, greedy: bool, dummy: bool, folder: Path
) -> dict[str, Any]:
    """A checkpoint, or random actions, on test episodes in distribution and as many of each shift out of it."""
    policy = None
    if not dummy:
        assert checkpoint is not None
        policy = load_vla(checkpoint, device=cfg.model.device)
        policy.freeze_encoders()
    return measure(
        policy,
        cfg.env,
        cfg.evaluation,
        seed=cfg.seed,
        split="test",
        episodes=episodes,
        ood_episodes=episodes,
        instruction_episodes=episodes,
        greedy=greedy,
        videos=folder,
        keep=lambda kind, kept: keep_episodes(folder / EPISODES / kind, kept),
    )


def validate(policy: VLA, cfg: Config, folder: Path, step: int) -> dict[str, float]:
    """Greedy success on validation scenes."""
    began = time.perf_counter()
    how: dict[str, Any] = {"videos": folder / "videos" / f"update-{step}" if cfg.render else None}
    how |= {"keep": keep_in(folder, step_name(step)), "seed": cfg.seed, "split": "validate", "greedy": True}
    with unsharded(policy):
        report = measure(policy, cfg.env, cfg.evaluation, episodes=cfg.evaluation.episodes, **how)
    return flat_metrics(report) | {"time/evaluate": time.perf_counter() - began}


def final_reports(policy: VLA, cfg: Config, folder: Path, when: str) -> dict[str, Any]:
    """Greedy and sampled on test episodes; out of distribution, with videos, only what comes `after` all training."""
    count = cfg.evaluation.final_episodes
    if not count:
        return {}
    last = when == "after" or cfg.stage == "bc"
    extras: dict[str, dict[str, Any]] = {
        "greedy": {
            "ood_episodes": cfg.evaluation.ood_episodes if last else 0,
            "instruction_episodes": cfg.evaluation.instruction_episodes,
            "videos": folder / "videos" if last else None,
        },
        "sampled": {},
    }
    common: dict[str, Any] = {"seed": cfg.seed, "split": "test", "episodes": count}
    return {
        kind: measure(
            policy,
            cfg.env,
            cfg.evaluation,
            greedy=kind == "greedy",
            keep=keep_in(folder, f"{when}-{kind}"),
            **common,
            **extra,
        )
        for kind, extra in extras.items()
    }


def measure(
    policy: VLA | None,
    env: EnvConfig,
    evaluation: Evaluation,
    *,
    seed: int,
    split: str,
    episodes: int,
    greedy: bool,
    ood_episodes: int = 0,
    instruction_episodes: int = 0,
    videos: Path | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """In distribution, and `ood_episodes` episodes of each shift; videos go to a folder, a few episodes to `keep`.

    `ood` holds a success rate for each shift, `instruction` one for an empty and a wrong instruction on the first
    `instruction_episodes` in distribution, and `ci` the 95% intervals of everything under its name.
    """
    found: dict[str, Any] = {}
    how: dict[str, Any] = {"seed": seed, "split": split, "num_envs": evaluation.num_envs, "greedy": greedy}
    how["workers"] = worker_count(evaluation.workers)
    # the shifts are the tabletop's
    for shift in ("none", *OOD_SHIFTS) if ood_episodes and env.is_tabletop else ("none",):
        results = run_episodes(
            policy,
            env,
            shift=shift,
            episodes=episodes if shift == "none" else ood_episodes,
            **how,
            kept=max(evaluation.videos if videos is not None else 0, KEPT if keep is not None else 0),
        )
        found[shift] = summarise(results)
        name = IN_DISTRIBUTION if shift == "none" else shift
        if videos is not None:
            write_videos(
                [result for result in results if result.number < evaluation.videos], videos, name, fps=env.rate
            )
        if keep is not None:
            keep(name, to_episodes(results, name=f"{split}-{name}", seed=seed, split=split, shift=shift))
    report: dict[str, Any] = found.pop("none")
    if found:
        report["ood"] = {shift: each["success_rate"] for shift, each in found.items()}
        report["ci"]["ood"] = {shift: each["ci"]["success_rate"] for shift, each in found.items()}
    if instruction_episodes and env.is_tabletop and policy is not None:
        told = {
            kind: summarise(
                run_episodes(policy, env, shift="none", episodes=instruction_episodes, instruction=kind, **how)
            )
            for kind in INSTRUCTIONS
        }
        report["instruction"] = {kind: each["success_rate"] for kind, each in told.items()}
        report["ci"]["instruction"] = {kind: each["ci"]["success_rate"] for kind, each in told.items()}
    return report


def replacement(env: EnvConfig, kind: str, seed: int) -> Instruct | None:
    """None for the true instruction; else what is told in its place: nothing, or to put another thing elsewhere."""
    if kind == "true":
        return None
    corpus = sorted(set(instruction_corpus(env.task, env.object_kind))) if kind == "wrong" else []

    def instruct(number: int, true: str) -> str:
        others = [text for text in corpus if named(text).isdisjoint(named(true))]
        return str(numpy_rng(seed, "instruction", number).choice(others)) if others else ""

    return instruct


def named(instruction: str) -> set[tuple[str, str]]:
    """The colours that an instruction names, each with its thing: what it means, whatever its wording."""
    words = re.findall(r"\w+", instruction.lower())
    return {(colour, thing) for colour, thing in pairwise(words) if colour in COLOURS}


def run_episodes(
    policy: VLA | None,
    env: EnvConfig,
    *,
    shift: str,
    seed: int,
    split: str,
    episodes: int,
    num_envs: int,
    workers: int,
    greedy: bool,
    kept: int = 0,
    instruction: str = "true",
) -> list[EpisodeResult]:
    """This process's share of a split's episodes, the same for any `num_envs`; the first `kept` keep their steps."""
    own = list(range(rank(), episodes, world_size()))
    rows = min(num_envs, len(own))
    if rows == 0:
        return []
    numbers = [own[row::rows] for row in range(rows)]

    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        # a row that is through repeats its last episode, uncounted, until all are
        number = numbers[row][min(episode, len(numbers[row]) - 1)]
        return derive(seed, split, shift, number), {}

    envs = VectorEnv(
        table_maker(env, shift=shift),
        rows,
        workers=min(workers, rows),
        plan_episode=plan,
        step_seconds=STEP_SECONDS,
    )
    size, own_seed = env.shapes.action_size, derive(seed, split, shift)
    instruct = replacement(env, instruction, own_seed)
    actor = EvalActor(policy, rows, greedy=greedy, seed=own_seed, action_size=size, instruct=instruct)
    try:
        with progress(len(own), f"evaluating {'in distribution' if shift == 'none' else shift}") as bar:
            return sorted(_run(envs, actor, numbers, kept, bar), key=lambda result: result.number)
    finally:
        envs.close()


def attempts(policy: VLA, cfg: Config, *, split: str, episodes: int) -> list[Attempt]:
    """Seeds and actions of a policy's sampled episodes."""
    how: dict[str, Any] = {"seed": cfg.seed, "num_envs": cfg.evaluation.num_envs, "greedy": False, "kept": episodes}
    how["workers"] = worker_count(cfg.evaluation.workers)
    results = run_episodes(policy, cfg.env, shift="none", split=split, episodes=episodes, **how)
    return [
        (derive(cfg.seed, split, "none", each.number), [np.asarray(turn.decision.action) for turn in each.turns])
        for each in results
    ]


def _run(
    envs: VectorEnv, actor: EvalActor, numbers: Sequence[Sequence[int]], kept: int, bar: Progress[int]
) -> list[EpisodeResult]:
    observation, _ = envs.reset()
    waiting = [list(row) for row in numbers]
    running = [EpisodeResult(waiting[row].pop(0)) for row in range(envs.num_envs)]
    ended: list[EpisodeResult] = []
    for row, result in enumerate(running):
        actor.begin(row, result.number)
    while len(ended) < sum(map(len, numbers)):
        shown = {row: table_observation(observation.row(row)) for row, r in enumerate(running) if 0 <= r.number < kept}
        actions = actor.act(observation)
        step = envs.step(actions)
        for row, result in enumerate(running):
            result.reward += float(step.rewards[row])
            result.steps += 1
            if row in shown:
                _record(result, shown[row], actions[row], step, row)
            if row not in step.finals:
                continue
            if result.number >= 0:
                result.success = bool(step.infos[row].get("success"))
                result.error = step.infos[row].get("reason")
                ended.append(result)
                bar.advance()
            running[row] = EpisodeResult(waiting[row].pop(0) if waiting[row] else -1)
            actor.begin(row, running[row].number)
        observation = step.observations
    return ended


def _record(result: EpisodeResult, seen: Observation, action: NDArray[np.float32], step: VectorStep, row: int) -> None:
    ends = {"terminated": step.terminated[row], "truncated": step.truncated[row]}
    info = {"success": bool(step.infos[row].get("success"))}
    result.turns.append(control_turn(seen, action, step.rewards[row], **ends, info=info))
    if row in step.finals:
        result.last = table_observation(step.finals[row])


def summarise(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Rates and means with their 95% intervals, over the episodes of all processes."""
    columns = {
        "success_rate": [result.success for result in results],
        "return": [result.reward for result in results],
        "steps": [result.steps for result in results],
    }
    numbers = gather_numbers({name: np.array(column, np.float64) for name, column in columns.items()})
    failed = int(all_reduce_sum(sum(result.error is not None for result in results)))
    return make_report(numbers, rates=("success_rate",), counts={"failed": failed}).plain()


def to_episodes(results: Sequence[EpisodeResult], *, name: str, seed: int, split: str, shift: str) -> Iterator[Episode]:
    """Those whose steps were kept."""
    for result in results:
        if result.turns:
            yield Episode(
                id=f"{name}-{result.number:04d}",
                group=result.number,
                seed=derive(seed, split, shift, result.number),
                turns=tuple(result.turns),
                last=result.last,
                error=result.error,
            )


def keep_in(run_folder: Path, name: str) -> Keep:
    """Keeps a run's evaluation in distribution under `name`."""

    def keep(kind: str, episodes: Iterator[Episode]) -> None:
        if kind == IN_DISTRIBUTION:
            keep_evaluation(run_folder, name, episodes)

    return keep


def write_videos(results: Sequence[EpisodeResult], folder: Path, name: str, *, fps: int) -> None:
    """One mp4 for each episode whose steps were kept, all cameras side by side."""
    for result in results:
        if result.turns:
            outcome = "done" if result.success else "failed"
            write_video(folder / f"{name}-{result.number:03d}-{outcome}.mp4", camera_frames(result.turns), fps=fps)
