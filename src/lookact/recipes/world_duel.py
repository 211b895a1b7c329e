"""world-duel: a world model learns to foresee, an explorer learns to surprise it, and each makes the other better.

Phase teacher: random actions, and the next wrist frame's tokens foreseen from frames, actions, state and memory. Phase
student: the world model stands still, and an explorer is paid for moving its memory and for what it could not foresee.
Phase adversarial: both in turn.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

from lookact.recipes.world_data import World
from lookact.recipes.world_model import Model, Tokens
from lookact.recipes.world_phases import (
    begin_phase,
    fight,
    gather_data,
    is_due,
    open_players,
    phase_at,
    planned,
    study,
    teach,
)
from lookact.recipes.world_report import EpisodeLines
from lookact.recipes.world_runs import collect, evaluate, finish, report_on
from lookact.train.config import setting
from lookact.train.control_ppo import PPO
from lookact.train.run import Run

__all__ = ["PRESETS", "Config", "collect", "evaluate", "main"]


@dataclass(frozen=True)
class Teacher:
    """How the world model learns."""

    episodes: int = setting(384, help="recorded with random actions", least=1)
    steps: int = setting(280, help="batches of episodes", least=0)
    batch: int = setting(8, help="episodes of each, over all processes", least=2)
    bptt_length: int = setting(8, help="steps of a window: gradients reach back that far", least=1)
    sequential_training: bool = setting(True, help="windows in turn with memory carried on; else anywhere")
    lr: float = setting(2e-3, help="peak learning rate", above=0)
    warmup: int = setting(10, help="steps until the peak", least=0)
    weight_decay: float = setting(0.01, help="of matrices", least=0)
    clip_norm: float = setting(1.0, help="largest gradient norm", above=0)
    head_share: float = setting(0.5, help="share of episodes that show the head camera too", least=0, most=1)
    action_weight: float = setting(0.0, help="weight of foretelling the actions taken, by flow or Gaussian", least=0)


@dataclass(frozen=True)
class Rewards:
    """What the explorer is paid for, in units of what random actions earn."""

    memory_weight: float = setting(0.1, help="for how far a step moves the world model's memory", least=0)
    uncertainty_weight: float = setting(1.0, help="for the world model's uncertainty about the step's end", least=0)
    novelty_weight: float = setting(0.2, help="for leading the tool where few steps of the same batch do", least=0)
    uncertainty: Literal["entropy", "surprise", "disagreement"] = setting(
        "surprise",
        help="its tokens' entropy, the nats it erred by, or its members' disagreement, which noise can't buy",
    )


@dataclass(frozen=True)
class Student:
    """How the explorer learns."""

    steps: int = setting(100, help="episodes of every environment, each followed by PPO", least=0)
    lr: float = setting(2e-3, help="learning rate of the action expert and of what understands", above=0)
    critic_lr: float = setting(5e-3, help="learning rate of the critic", above=0)
    ppo: PPO = PPO(gamma=0.95, epochs=4, minibatch=196, entropy=0.001, max_kl=0.05)


@dataclass(frozen=True)
class Adversarial:
    """How both learn from each other."""

    steps: int = setting(9, help="rounds: the explorer acts and learns, then the world model", least=0)
    episodes: int = setting(256, help="episodes of random actions recorded anew, beside the teacher's", least=0)
    world_updates: int = setting(8, help="batches of the world model a round", least=1)
    random_batch: int = setting(12, help="episodes of random actions in each, over all processes", least=1)
    explorer_batch: int = setting(4, help="episodes of the explorer's in each, over all processes", least=1)
    lr: float = setting(5e-4, help="peak learning rate of the world model", above=0)
    replay: int = setting(12, help="rounds whose episodes are kept", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On scenes that training never shows."""

    times: int = setting(2, help="evaluations of each phase, each followed by a checkpoint", least=1)
    episodes: int = setting(32, help="held-out random episodes", least=1)
    keep: int = setting(8, help="checkpoints kept, the newest", least=1)
    ahead: int = setting(4, help="steps foreseen without seeing", least=1)
    starts: int = setting(3, help="places in an episode to foresee them from", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    phase: Literal["teacher", "student", "adversarial", "all"] = setting("all", help="which part of the duel to run")
    teacher_path: str | None = setting(None, help="checkpoint whose world model to start from", exists=True)
    student_path: str | None = setting(None, help="checkpoint whose explorer to start from", exists=True)
    world: World = World()
    model: Model = Model()
    tokens: Tokens = Tokens()
    teacher: Teacher = Teacher()
    rewards: Rewards = Rewards()
    student: Student = Student()
    adversarial: Adversarial = Adversarial()
    evaluation: Evaluation = Evaluation()


PRESETS = {
    "debug": Config(
        world=World(rows=4, steps_per_episode=8, distractors=0),
        model=Model(width=32, layers=1, memory=32, members=2),
        tokens=Tokens(codes=16, latent=8, width=8, steps=4, batch=16),
        teacher=Teacher(episodes=4, steps=2, batch=4, bptt_length=4),
        student=Student(steps=2, ppo=replace(Student().ppo, minibatch=18)),
        adversarial=Adversarial(steps=2, episodes=4, world_updates=1, random_batch=4, explorer_batch=4),
        evaluation=Evaluation(times=1, episodes=4, ahead=2, starts=1),
    ),
    "small": Config(),
    "full": Config(
        world=World(image_size=128, rows=16, workers=8, steps_per_episode=50, scene_reuse=50, appearance=False),
        model=Model(
            width=768, layers=12, heads=12, memory=2048, memory_layers=4, text="bert-base-uncased", device="cuda"
        ),
        tokens=Tokens(codes=4096, latent=32, width=128, scales=(1, 2, 4, 8, 16), steps=50_000, batch=256),
        teacher=Teacher(episodes=10_000, steps=20_000, batch=64, lr=1e-4, warmup=500),
        student=Student(steps=5_000, lr=1e-4, critic_lr=2e-3),
        adversarial=Adversarial(
            steps=10_000, episodes=10_000, world_updates=2, random_batch=96, explorer_batch=32, lr=5e-5, replay=64
        ),
        evaluation=Evaluation(times=100, episodes=128),
    ),
}


def main(cfg: Config, run: Run) -> dict[str, Any]:
    players = open_players(cfg, run)
    weights, state = players.weights(cfg), players.state()
    data = gather_data(players, cfg, run)
    run.restore(weights=weights, state=state)
    lines = EpisodeLines(run.folder, run.done)
    report: dict[str, Any] = {}

    for step in run.steps(sum(planned(cfg).values()), cfg.phase):
        phase, number = phase_at(cfg, step)
        began = time.perf_counter()
        if number == 1:
            begin_phase(players, data, cfg, phase)

        # look, act and learn
        if phase == "teacher":
            metrics = teach(players, data, cfg, number)
        elif phase == "student":
            metrics, _ = study(players, cfg, number)
        else:
            metrics = fight(players, data, cfg, number)
        learned = time.perf_counter()
        metrics |= {"time/learn": learned - began, "time/cpu": time.process_time()}

        # report
        shown = "world/accuracy" if "world/accuracy" in metrics else "reward/total"
        if not is_due(number, planned(cfg)[phase], cfg.evaluation.times):
            lines.add(step, phase, metrics)
            run.log(metrics, step, show=shown)
            continue
        report, numbers = report_on(players, data, cfg, run, phase, step)
        metrics |= numbers | {"time/evaluate": time.perf_counter() - learned}
        lines.add(step, phase, metrics)
        run.log(metrics, step, show=shown)
        run.save(step, weights=weights, state=state, metrics=metrics, keep=cfg.evaluation.keep)
    players.worlds.close()
    return finish(players, data, cfg, run, report)
