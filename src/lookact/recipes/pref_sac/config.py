"""Settings and presets of pref-sac."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lookact.config import setting
from lookact.rollout.samplers.settings import Strategy

SEEING = ("embedded", "server")
"""Judges that look at pictures; the others are told the true rewards."""
LABELS = "labels.safetensors"
NO_PATH = (None, "", "None", "none", "null", "~")
"""What people and their tools write where there is no path."""

WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class World:
    """Which task, and how it is seen."""

    task: str = setting("Pendulum-v1", help="a classic or MetaWorld task, tabletop/reach, or a Gymnasium id")
    goal: str = setting("", help="the goal in words; empty: by the task's name")
    horizon: int = setting(0, help="decisions an episode; 0: the task's own", least=0)
    action_repeat: int = setting(1, help="simulator steps a decision", least=1)
    image_size: int = setting(64, help="pixels a side, a multiple of 32 for an embedded judge", least=16)
    camera: str = setting("corner2", help="of MetaWorld")
    crop: tuple[float, float, float, float] = setting(
        WHOLE, help="part of MetaWorld's picture to keep: top, left, bottom, right", least=0, most=1
    )


@dataclass(frozen=True)
class Asking:
    """How a VLM judge is asked."""

    variant: Literal["two_step", "single", "rating"] = setting(
        "single", help="describe both pictures and then decide, decide at once, or rate each picture"
    )
    url: str = setting("", help="of a server that runs already; empty: by SERVER_HOST and SERVER_PORT")
    checkpoint: str = setting("", help="an embedded judge that was taught before; empty: teach one")
    concurrency: int = setting(16, help="requests under way at once", least=1)
    patience: float = setting(60.0, help="seconds to wait for a server that is busy or away", least=0)
    lost: Literal["wait", "stop"] = setting(
        "wait", help="when the server stays away: wait for it (ours is started again), or stop the run"
    )


@dataclass(frozen=True)
class Teaching:
    """How the embedded judge is taught."""

    pictures: int = setting(4000, help="pictures to teach it with", least=10)
    held_out: int = setting(400, help="pictures, and pairs of them, that only measure it", least=2)
    looks: int = setting(2, help="passes over the pictures to learn to see; only then come words", least=0)
    lessons: int = setting(6000, help="questions about pairs", least=1)
    epochs: int = setting(2, help="passes over the questions", least=1)
    rows: int = setting(32, help="pictures or questions a learning step", least=1)
    lr: float = setting(1e-3, help="peak learning rate; twice that for the eyes alone", above=0)
    margin: float = setting(
        0.05, help="pairs closer than this share of the way are taught as no preference", least=0, below=1
    )


@dataclass(frozen=True)
class Judge:
    """Who compares."""

    kind: Literal["embedded", "server", "oracle", "mistake", "noisy", "skip", "myopic", "equal"] = setting(
        "embedded", help="a tiny VLM taught and served on the spot, a server that runs, or a simulated teacher"
    )
    asking: Asking = Asking()
    teaching: Teaching = Teaching()


@dataclass(frozen=True)
class Feedback:
    """How often, and about what, the judge is asked."""

    total: int = setting(400, help="pairs put to the judge in all", least=1)
    session: int = setting(40, help="pairs a session, on average", least=1)
    every: int = setting(5, help="episodes between two sessions", least=1)
    schedule: Literal["uniform", "decaying", "growing"] = setting(
        "uniform", help="sessions of one size, or ever smaller or larger ones"
    )
    strategy: Strategy = setting("uniform", help="which of the candidates are asked about")
    candidates: int = setting(10, help="candidates for each pair that is asked about", least=1)
    segment: int = setting(1, help="steps of a segment; the judge is shown the last", least=1)
    cached_label_path: str | None = setting(
        None, help="labels of an earlier run, or its folder, to begin with; they count towards the total"
    )


@dataclass(frozen=True)
class Reward:
    """The ensemble that becomes the reward."""

    inputs: Literal["state", "frame"] = setting("state", help="what the reward is read from; the judge sees pictures")
    members: int = setting(3, help="of the ensemble", least=1)
    hidden: tuple[int, ...] = setting((256, 256), help="widths of its perceptrons, where it reads states", least=1)
    lr: float = setting(3e-4, help="learning rate", above=0)
    epochs: int = setting(10, help="most passes over the labels in a session", least=1)
    rows: int = setting(128, help="pairs a gradient step", least=1)
    enough: float = setting(0.97, help="share of labels it agrees with that ends a session early", above=0, most=1)
    peak: float = setting(
        0.0, help="how much more the best is paid: by exp(peak) times what the worst is; 0: evenly rising", least=0
    )
    bootstrap: bool = setting(False, help="each member learns from a draw of the labels of its own")


@dataclass(frozen=True)
class Learn:
    """Soft actor-critic. A step of a run is one episode of the task."""

    episodes: int = setting(100, help="episodes in all", least=1)
    random: int = setting(2, help="episodes of uniformly random actions at the start", least=1)
    held: float = setting(
        0.0, help="chance that a random action is held for another decision: lone ones cancel out", least=0, below=1
    )
    wander: int = setting(8, help="episodes after them that only seek what is new, before the first question", least=0)
    hidden: tuple[int, ...] = setting((256, 256, 256), help="widths of actor and critics", least=1)
    lr: float = setting(3e-4, help="learning rate", above=0)
    rows: int = setting(512, help="transitions a gradient step", least=1)
    every: int = setting(1, help="decisions a gradient step", least=1)
    updates: int = setting(1, help="gradient steps at a time", least=1)
    gamma: float = setting(0.99, help="discount", least=0, below=1)
    tau: float = setting(0.005, help="how much of the critics the targets take over at a time", above=0, most=1)
    target_every: int = setting(1, help="gradient steps between two updates of the targets", least=1)
    reward_scale: float = setting(1.0, help="what the true reward is multiplied by, where it is learned from", above=0)
    alpha: float = setting(0.1, help="temperature at the start", above=0)
    entropy: float = setting(
        -1.0, help="of the policy that the temperature aims at, in nats for each number of an action"
    )
    after_reset: int = setting(100, help="gradient steps when the critics start anew on the first reward", least=0)
    capacity: int = setting(
        200_000, help="transitions in the replay; with frames each takes size x size x 3 bytes", least=1
    )


@dataclass(frozen=True)
class Evaluation:
    """By the true reward, at starts that training never shows."""

    every: int = setting(10, help="episodes between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(10, help="of each evaluation while training", least=1)
    final_episodes: int = setting(50, help="of the evaluation at the end", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    reward: Literal["learned", "true"] = setting("learned", help="true: plain SAC on the true reward, to compare with")
    world: World = World()
    judge: Judge = Judge()
    feedback: Feedback = Feedback()
    model: Reward = Reward()
    learn: Learn = Learn()
    evaluation: Evaluation = Evaluation()
    device: str = setting("cpu", help="of the agent and the learned reward: cpu, cuda or cuda:N")
    keep: int = setting(1, help="checkpoints to keep; each holds the replay", least=1)


SMALL = Config(
    world=World(action_repeat=2),
    feedback=Feedback(total=400, session=40, every=2),
    model=Reward(epochs=50, lr=1e-3, hidden=(128, 128)),
    learn=Learn(episodes=30, random=2, wander=3, hidden=(128, 128), lr=1e-3, rows=128, tau=0.01, capacity=10_000),
    evaluation=Evaluation(every=5, episodes=5, final_episodes=30),
)
PRESETS = {
    "debug": Config(
        world=World(horizon=20),
        judge=Judge(teaching=Teaching(pictures=64, held_out=16, looks=1, lessons=64, epochs=1)),
        feedback=Feedback(total=12, session=6, every=1),
        model=Reward(epochs=2, hidden=(16,)),
        learn=Learn(episodes=4, random=1, wander=1, hidden=(16,), rows=16, after_reset=4, capacity=60),
        evaluation=Evaluation(every=1, episodes=1, final_episodes=2),
    ),
    "small": SMALL,
    "arm": Config(
        world=World(task="door-close-v3", horizon=30, action_repeat=4),
        judge=Judge(teaching=Teaching(pictures=2000, looks=4, lessons=5000)),
        feedback=Feedback(total=1280, session=80, every=6),
        model=replace(SMALL.model, epochs=20, peak=5.0),
        learn=replace(
            SMALL.learn,
            episodes=120,
            random=20,
            held=0.8,
            wander=10,
            updates=2,
            gamma=0.97,
            reward_scale=0.1,
            alpha=0.05,
            entropy=-0.25,
        ),
        evaluation=Evaluation(every=10, episodes=5, final_episodes=30),
    ),
    "full": Config(
        world=World(task="sweep-into-v3", horizon=250, action_repeat=2, image_size=128),
        judge=Judge(kind="server", asking=Asking(variant="two_step", patience=600.0)),
        feedback=Feedback(total=20_000, session=40, every=16),
        model=Reward(inputs="frame"),
        learn=Learn(episodes=4000, random=4, wander=36, capacity=100_000),
        evaluation=Evaluation(every=40, final_episodes=100),
        device="cuda",
    ),
}


def label_path(text: str | None) -> Path | None:
    """The path, or None for each of the ways to write that there is none."""
    return None if text in NO_PATH else Path(str(text))


def needs_frames(cfg: Config) -> bool:
    """Whether the replay keeps pictures: for a judge that sees, or for a reward that is read from them."""
    return cfg.reward == "learned" and (cfg.judge.kind in SEEING or cfg.model.inputs == "frame")
