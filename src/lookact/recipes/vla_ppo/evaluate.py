"""Evaluation of vla-ppo: success in distribution and out of it, with intervals, episodes and films of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lookact.algorithms.control_episodes import control_turn, table_observation
from lookact.data.lerobot.video import write_video
from lookact.envs.vector.vector_env import VectorEnv
from lookact.models.vla.policy import VLA
from lookact.recipes.vla_ppo.config import Evaluation, World
from lookact.recipes.vla_ppo.demos import FPS, cores
from lookact.recipes.vla_ppo.task import OUTSIDE, table_maker
from lookact.rollout.vector_rollout import ControlActor
from lookact.seeding import derive, numpy_rng
from lookact.training.distributed import gather, rank, world_size
from lookact.training.evaluation import bootstrap_interval, wilson_interval
from lookact.training.kept_episodes import KEPT, keep_evaluation
from lookact.training.progress import Progress, progress
from lookact.types import Episode, Image, Observation, Turn, VectorObservation, VectorStep

START_SECONDS, STEP_SECONDS = 600.0, 60.0
"""An evaluation would rather wait for a busy machine than count an episode as failed."""
ENLARGED = 4
"""Pixels of a film for each pixel a policy sees."""
IN_DISTRIBUTION = "in_distribution"
Keep = Callable[[str, Iterator[Episode]], None]
"""Told what an evaluation's episodes are called, and those of this process."""


@dataclass
class EpisodeResult:
    """One episode."""

    number: int
    success: bool = False
    steps: int = 0
    reward: float = 0.0
    error: str | None = None
    """Why its worker was started again, if it was: it counts as a failure."""
    turns: list[Turn] = field(default_factory=list)
    """Its steps, where it is kept to be looked at."""
    last: Observation | None = None

    @property
    def frames(self) -> list[Image]:
        """All cameras side by side, enlarged, step by step."""
        views = [list(turn.observation.images.values()) for turn in self.turns]
        return [np.concatenate(view, axis=1).repeat(ENLARGED, 0).repeat(ENLARGED, 1) for view in views]


class EvalActor:
    """Whoever acts on all rows: begins, decides, and is told which rows begin anew."""

    def __init__(self, policy: VLA | None, rows: int, *, greedy: bool, seed: int, action_size: int) -> None:
        """Without a policy, actions are uniformly random."""
        self.actor = None if policy is None else ControlActor(policy, rows)
        self.greedy, self.seed, self.action_size = greedy, seed, action_size
        self.streams: dict[int, np.random.Generator] = {}

    def begin(self, row: int, number: int) -> None:
        """An episode begins on this row, with a random stream of its own."""
        self.streams[row] = numpy_rng(self.seed, "acting", number)
        if self.actor is not None:
            self.actor.reset_rows([row])

    @torch.no_grad()
    def decide(self, seen: VectorObservation) -> NDArray[np.float32]:
        """(rows, a) in -1..1."""
        rows = range(len(self.streams))
        if self.actor is None:
            return np.stack([self.streams[row].uniform(-1, 1, self.action_size) for row in rows]).astype(np.float32)
        output = self.actor.policy.actor(self.actor.observe(seen))
        noise = np.stack([self.streams[row].normal(size=self.action_size) for row in rows])
        spread = 0.0 if self.greedy else output.log_std.exp()
        actions = (output.mean[:, 0] + spread * torch.from_numpy(noise).to(output.mean)).clamp(-1.0, 1.0)
        self.actor.update(actions, output.carry)
        return actions.cpu().numpy()


def run_episodes(
    policy: VLA | None,
    world: World,
    *,
    shift: str,
    seed: int,
    split: str,
    episodes: int,
    rows: int,
    workers: int,
    greedy: bool,
    kept: int = 0,
) -> list[EpisodeResult]:
    """This process's share of the `episodes` episodes of a split, always the same ones however many rows there are.

    The steps of the first `kept` of them are kept.
    """
    own = list(range(rank(), episodes, world_size()))
    rows = min(rows, len(own))
    if rows == 0:
        return []
    numbers = [own[row::rows] for row in range(rows)]

    def plan(row: int, episode: int) -> tuple[int, dict[str, Any]]:
        # a row that is through repeats its last episode, unseen, until all are
        number = numbers[row][min(episode, len(numbers[row]) - 1)]
        return derive(seed, split, shift, number), {}

    worlds = VectorEnv(
        table_maker(world, shift=shift),
        rows,
        workers=min(workers, rows),
        plan_episode=plan,
        start_seconds=START_SECONDS,
        step_seconds=STEP_SECONDS,
    )
    chooser = EvalActor(policy, rows, greedy=greedy, seed=derive(seed, split, shift), action_size=world.action_size)
    try:
        with progress(len(own), f"evaluating {'in distribution' if shift == 'none' else shift}") as bar:
            return sorted(_run(worlds, chooser, numbers, kept, bar), key=lambda course: course.number)
    finally:
        worlds.close()


def _run(
    worlds: VectorEnv, chooser: EvalActor, numbers: Sequence[Sequence[int]], kept: int, bar: Progress[int]
) -> list[EpisodeResult]:
    seen, _ = worlds.reset()
    waiting = [list(row) for row in numbers]
    running = [EpisodeResult(waiting[row].pop(0)) for row in range(worlds.num_envs)]
    ended: list[EpisodeResult] = []
    for row, course in enumerate(running):
        chooser.begin(row, course.number)
    while len(ended) < sum(map(len, numbers)):
        shown = {row: table_observation(seen.row(row)) for row, one in enumerate(running) if 0 <= one.number < kept}
        actions = chooser.decide(seen)
        step = worlds.step(actions)
        for row, course in enumerate(running):
            course.reward += float(step.rewards[row])
            course.steps += 1
            if row in shown:
                _record(course, shown[row], actions[row], step, row)
            if row not in step.finals:
                continue
            if course.number >= 0:
                course.success = bool(step.infos[row].get("success"))
                course.error = step.infos[row].get("reason")
                ended.append(course)
                bar.advance()
            running[row] = EpisodeResult(waiting[row].pop(0) if waiting[row] else -1)
            chooser.begin(row, running[row].number)
        seen = step.observations
    return ended


def _record(course: EpisodeResult, seen: Observation, action: NDArray[np.float32], step: VectorStep, row: int) -> None:
    course.turns.append(
        control_turn(
            seen,
            action,
            step.rewards[row],
            terminated=step.terminated[row],
            truncated=step.truncated[row],
            info={"success": bool(step.infos[row].get("success"))},
        )
    )
    if row in step.finals:
        course.last = table_observation(step.finals[row])


def episodes_of(courses: Sequence[EpisodeResult], *, shift: str, seed: int, split: str) -> Iterator[Episode]:
    """Those of which steps were kept."""
    for course in courses:
        if course.turns:
            yield Episode(
                id=f"{split}-{name_of(shift)}-{course.number:04d}",
                group=course.number,
                seed=derive(seed, split, shift, course.number),
                turns=tuple(course.turns),
                last=course.last,
                error=course.error,
            )


def summarise(courses: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Rates and means with their 95% intervals, over the episodes of all processes."""
    own = [(course.success, course.steps, course.reward, course.error is not None) for course in courses]
    told = [numbers for part in gather(own) for numbers in part]
    success, steps, reward, broken = (np.array(column, np.float64) for column in zip(*told))
    return {
        "success_rate": float(success.mean()),
        "return": float(reward.mean()),
        "steps": float(steps.mean()),
        "broken": int(broken.sum()),
        "episodes": len(told),
        "ci": {
            "success_rate": list(wilson_interval(int(success.sum()), len(told))),
            "return": list(bootstrap_interval(reward)),
            "steps": list(bootstrap_interval(steps)),
        },
    }


def measure(
    policy: VLA | None,
    world: World,
    evaluation: Evaluation,
    *,
    seed: int,
    split: str,
    episodes: int,
    greedy: bool,
    outside: int = 0,
    folder: Path | None = None,
    keep: Keep | None = None,
) -> dict[str, Any]:
    """In distribution, and `outside` episodes along each way out of it; films go to `folder`, a few episodes to `keep`.

    `ood` holds a success rate for each way out, and `ci` the 95% intervals of everything under its name.
    """
    found: dict[str, Any] = {}
    for shift in ("none", *OUTSIDE) if outside else ("none",):
        courses = run_episodes(
            policy,
            world,
            shift=shift,
            seed=seed,
            split=split,
            episodes=episodes if shift == "none" else outside,
            rows=evaluation.rows,
            workers=evaluation.workers or max(1, cores() // world_size()),
            greedy=greedy,
            kept=max(evaluation.films if folder is not None else 0, KEPT if keep is not None else 0),
        )
        found[shift] = summarise(courses)
        if folder is not None:
            write_films([course for course in courses if course.number < evaluation.films], folder, name_of(shift))
        if keep is not None:
            keep(name_of(shift), episodes_of(courses, shift=shift, seed=seed, split=split))
    report: dict[str, Any] = found.pop("none")
    if found:
        report["ood"] = {shift: each["success_rate"] for shift, each in found.items()}
        report["ci"]["ood"] = {shift: each["ci"]["success_rate"] for shift, each in found.items()}
    return report


def name_of(shift: str) -> str:
    """What an evaluation's films and episodes are called."""
    return IN_DISTRIBUTION if shift == "none" else shift


def keep_in(run_folder: Path, name: str) -> Keep:
    """Keeps a run's evaluation in distribution under `name`."""

    def keep(kind: str, episodes: Iterator[Episode]) -> None:
        if kind == IN_DISTRIBUTION:
            keep_evaluation(run_folder, name, episodes)

    return keep


def write_films(courses: Sequence[EpisodeResult], folder: Path, name: str) -> None:
    """One mp4 for each episode that was filmed."""
    for course in courses:
        if course.frames:
            outcome = "done" if course.success else "failed"
            write_video(folder / f"{name}-{course.number:03d}-{outcome}.mp4", course.frames, fps=FPS)


def metrics_of(report: Mapping[str, Any], prefix: str = "eval") -> dict[str, float]:
    """A report's numbers for the tracker."""
    plain = {f"{prefix}/{name}": float(report[name]) for name in ("success_rate", "return", "steps", "broken")}
    return plain | {f"{prefix}/ood_{shift}": float(rate) for shift, rate in report.get("ood", {}).items()}
