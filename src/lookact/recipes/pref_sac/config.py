"""Settings and presets of pref-sac."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lookact.config import setting

VLM_JUDGES = ("embedded", "server", "similarity")
"""Judges that compare images; the others are simulated teachers, given the true rewards."""
LABELS = "labels"
"""Folder of labelled pairs, one file a feedback round."""
NO_PATH = (None, "", "None", "none", "null", "~")
"""What people and their tools write where there is no path."""


@dataclass(frozen=True)
class EnvConfig:
    """The task, and how it is rendered."""

    task: str = setting(
        "Pendulum-v1",
        help="a classic or MetaWorld task, tabletop/reach, deformable/rope, MODULE:NAME, FILE.py:NAME, or a Gymnasium "
        "id",
    )
    goal: str = setting("", help="the goal in words; empty: by the task's name")
    horizon: int = setting(0, help="decisions per episode; 0: the task's own", least=0)
    action_repeat: int = setting(1, help="simulator steps per decision", least=1)
    fixed_start: bool = setting(False, help="every episode begins from one and the same start (RL-VLM-F)")
    image_size: int = setting(64, help="pixels per side of the frames that the replay keeps", least=16)
    camera_name: str = setting(
        "task",
        help="MetaWorld camera, task: a view of the task's own, objects painted; or a picture of another's observation",
    )
    crop: tuple[float, float, float, float] = setting(
        (0.0, 0.0, 1.0, 1.0), help="part of MetaWorld's image to keep: top, left, bottom, right", least=0, most=1
    )
    judge_image_size: int = setting(
        0, help="pixels per side of what a VLM judge sees, kept as JPEG; 0: the replay's frames", least=0
    )


@dataclass(frozen=True)
class ClientConfig:
    """How a VLM judge is queried."""

    variant: Literal["two_step", "single", "logprob", "rating", "yes"] = setting(
        "single",
        help="describe and then decide, decide at once (by words or log P), rate each image, or log P(yes) of each",
    )
    url: str = setting("", help="of a server that runs already; empty: by SERVER_HOST and SERVER_PORT")
    checkpoint: str = setting("", help="an embedded judge that was trained before; empty: train one")
    concurrency: int = setting(16, help="concurrent requests", least=1)
    timeout_s: float = setting(60.0, help="seconds to retry a server that is busy or away", least=0)
    on_timeout: Literal["wait", "stop"] = setting(
        "wait", help="when the server stays away: wait for it (an embedded one is restarted), or stop the run"
    )
    max_wait_s: float = setting(21_600.0, help="seconds that a server may stay away before the run stops", least=0)
    model: str = setting("", help="name of the model to ask for; empty: the first that the server lists")
    key_variable: str = setting("SERVER_TOKEN", help="environment variable that holds the server's key")


@dataclass(frozen=True)
class SFTConfig:
    """Supervised training of the embedded judge."""

    images: int = setting(4000, help="training images", least=10)
    held_out: int = setting(400, help="held-out images, and pairs of them, for its accuracy", least=2)
    regression_epochs: int = setting(
        2, help="epochs of image regression (vision encoder only) before SFT; 0: none", least=0
    )
    qa_pairs: int = setting(6000, help="question-answer pairs", least=1)
    epochs: int = setting(2, help="epochs over the question-answer pairs", least=1)
    batch_size: int = setting(32, help="images or question-answer pairs per gradient step", least=1)
    lr: float = setting(1e-3, help="peak learning rate; twice that for image regression", above=0)
    margin: float = setting(
        0.05, help="pairs whose progress differs by less are labelled as no preference", least=0, below=1
    )
    tasks: tuple[str, ...] = setting(
        (), help="tasks to train the judge on in place of env.task, which it then never saw"
    )


@dataclass(frozen=True)
class JudgeConfig:
    """Who labels the queries."""

    kind: Literal["embedded", "server", "similarity", "oracle", "mistake", "noisy", "skip", "myopic", "equal"] = (
        setting(
            "embedded",
            help="a tiny VLM trained and served on the spot, a running server, CLIP's similarity to the goal, or a "
            "simulated teacher (B-Pref)",
        )
    )
    client: ClientConfig = ClientConfig()
    sft: SFTConfig = SFTConfig()
    clip_source: str = setting(
        "openai/clip-vit-base-patch32", help="folder or name of CLIP's weights, with kind=similarity"
    )
    mistake_prob: float = setting(0.1, help="share of labels turned around, with kind=mistake", least=0, most=1)


@dataclass(frozen=True)
class FeedbackConfig:
    """Feedback rounds: how often, and on which pairs, the judge is queried."""

    total: int = setting(400, help="pairs labelled in all", least=1)
    pairs_per_round: int = setting(40, help="pairs labelled per feedback round, on average", least=1)
    every: int = setting(5, help="episodes between two feedback rounds", least=1)
    schedule: Literal["uniform", "decaying", "growing"] = setting(
        "uniform", help="size of feedback rounds over the run: constant, decreasing or increasing"
    )
    strategy: Literal["uniform", "disagreement", "entropy", "k_centre"] = setting(
        "uniform", help="query selection among the candidate pairs"
    )
    candidates: int = setting(10, help="candidate pairs per query", least=1)
    segment_length: int = setting(1, help="steps per segment", least=1)
    frames: int = setting(
        1,
        help="steps of a segment that a VLM judge sees, side by side, the last among them; only these are summed",
        least=1,
    )
    cached_label_path: str | None = setting(
        None, help="labels of an earlier run, or its folder, to start with; they count towards the total"
    )


@dataclass(frozen=True)
class RewardModelConfig:
    """The reward ensemble."""

    inputs: Literal["state", "frame"] = setting("state", help="what the reward model reads; the judge sees images")
    ensemble_size: int = setting(3, help="members of the ensemble", least=1)
    hidden: tuple[int, ...] = setting((256, 256), help="hidden sizes of each MLP, for inputs=state", least=1)
    lr: float = setting(3e-4, help="learning rate", above=0)
    epochs: int = setting(10, help="maximum epochs over the labels per feedback round", least=1)
    batch_size: int = setting(128, help="pairs per gradient step", least=1)
    target_accuracy: float = setting(
        0.97, help="training accuracy on the labels that ends a round's fit early", above=0, most=1
    )
    reward_sharpness: float = setting(
        0.0, help="reward = exp(k * (level - 1)), level 0 worst to 1 best; 0: linear, standardised", least=0
    )
    bootstrap: bool = setting(False, help="each member is fitted to a bootstrap resample of the labels")


@dataclass(frozen=True)
class SACConfig:
    """Soft actor-critic. A step of a run is one episode of the task."""

    episodes: int = setting(100, help="episodes in all", least=1)
    random_episodes: int = setting(2, help="episodes of uniformly random actions at the start", least=1)
    sticky_action_prob: float = setting(
        0.0, help="probability of repeating a random action (independent ones cancel out)", least=0, below=1
    )
    unsupervised_episodes: int = setting(
        8, help="episodes of unsupervised exploration (state entropy) before the first feedback round", least=0
    )
    entropy_bonus: float = setting(
        0.0, help="weight of the state-entropy bonus beside the reward, as random actions end; 0: none", least=0
    )
    bonus_episodes: int = setting(100, help="episodes in which that weight falls to zero", least=1)
    hidden: tuple[int, ...] = setting((256, 256, 256), help="hidden sizes of actor and critics", least=1)
    layer_norm: bool = setting(False, help="layer normalisation in the critics")
    lr: float = setting(3e-4, help="learning rate", above=0)
    batch_size: int = setting(512, help="transitions per gradient step", least=1)
    train_freq: int = setting(1, help="decisions between updates", least=1)
    gradient_steps: int = setting(1, help="gradient steps per update", least=1)
    gamma: float = setting(0.99, help="discount", least=0, below=1)
    tau: float = setting(0.005, help="Polyak coefficient of the target critics", above=0, most=1)
    target_update_interval: int = setting(1, help="gradient steps between target updates", least=1)
    reward_scale: float = setting(1.0, help="factor on the true reward, with reward=true", above=0)
    alpha: float = setting(0.1, help="initial temperature", above=0)
    target_entropy: float = setting(-1.0, help="target entropy of the policy, in nats per action dimension")
    reset_gradient_steps: int = setting(
        100, help="gradient steps after the critics are reset on the first learned reward", least=0
    )
    replay_capacity: int = setting(
        200_000, help="transitions in the replay; with frames each takes size x size x 3 bytes", least=1
    )


@dataclass(frozen=True)
class EvaluationConfig:
    """By the true reward, at starts that training never shows."""

    every: int = setting(10, help="episodes between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(10, help="episodes per evaluation while training", least=1)
    final_episodes: int = setting(50, help="episodes of the final evaluation", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    reward: Literal["learned", "true"] = setting("learned", help="true: plain SAC on the true reward, as a baseline")
    env: EnvConfig = EnvConfig()
    judge: JudgeConfig = JudgeConfig()
    feedback: FeedbackConfig = FeedbackConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    learn: SACConfig = SACConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    device: str = setting("cpu", help="of the agent and the reward model: cpu, cuda or cuda:N")
    keep: int = setting(1, help="checkpoints to keep; each holds the replay", least=1)


SMALL = Config(
    env=EnvConfig(action_repeat=2),
    feedback=FeedbackConfig(total=400, pairs_per_round=40, every=2),
    reward_model=RewardModelConfig(epochs=50, lr=1e-3, hidden=(128, 128)),
    learn=SACConfig(
        episodes=30,
        unsupervised_episodes=3,
        hidden=(128, 128),
        lr=1e-3,
        batch_size=128,
        tau=0.01,
        replay_capacity=10_000,
    ),
    evaluation=EvaluationConfig(every=5, episodes=5, final_episodes=30),
)
PRESETS = {
    "debug": Config(
        env=EnvConfig(horizon=20),
        # fewer gradient steps leave a judge whose replies can't be parsed, and no reward to fit
        judge=JudgeConfig(
            sft=SFTConfig(images=64, held_out=16, regression_epochs=1, qa_pairs=320, epochs=1, batch_size=8)
        ),
        feedback=FeedbackConfig(total=12, pairs_per_round=6, every=1),
        reward_model=RewardModelConfig(epochs=2, hidden=(16,)),
        learn=SACConfig(
            episodes=4,
            random_episodes=1,
            unsupervised_episodes=1,
            hidden=(16,),
            batch_size=16,
            reset_gradient_steps=4,
            replay_capacity=60,
        ),
        evaluation=EvaluationConfig(every=1, episodes=1, final_episodes=2),
    ),
    "small": SMALL,
    "arm": Config(
        env=EnvConfig(task="door-close-v3", horizon=30, action_repeat=4),
        judge=JudgeConfig(sft=SFTConfig(images=2000, regression_epochs=4, qa_pairs=5000)),
        feedback=FeedbackConfig(total=1280, pairs_per_round=80, every=6),
        reward_model=replace(SMALL.reward_model, epochs=20, reward_sharpness=5.0),
        learn=replace(
            SMALL.learn,
            episodes=120,
            random_episodes=20,
            sticky_action_prob=0.8,
            unsupervised_episodes=10,
            gradient_steps=2,
            gamma=0.97,
            reward_scale=0.1,
            alpha=0.05,
            target_entropy=-0.25,
        ),
        evaluation=EvaluationConfig(every=10, episodes=5, final_episodes=30),
    ),
    "full": Config(
        env=EnvConfig(task="sweep-into-v3", horizon=250, action_repeat=2, judge_image_size=300),
        judge=JudgeConfig(kind="server", client=ClientConfig(variant="two_step", timeout_s=600.0)),
        feedback=FeedbackConfig(total=10_000, pairs_per_round=40, every=15),
        reward_model=RewardModelConfig(inputs="frame"),
        learn=SACConfig(episodes=4000, random_episodes=4, unsupervised_episodes=36, replay_capacity=100_000),
        evaluation=EvaluationConfig(every=40, final_episodes=100),
        device="cuda",
    ),
}


def label_file(text: str | None) -> Path | None:
    """Cached labels, by their own path or a run's folder; None for each way to write that there is none."""
    if text in NO_PATH:
        return None
    path = Path(str(text))
    return path / LABELS if path.is_dir() and path.name != LABELS else path


def needs_pictures(cfg: Config) -> bool:
    """Whether the replay keeps pictures for a VLM judge, beside or in place of frames."""
    return cfg.reward == "learned" and cfg.judge.kind in VLM_JUDGES and cfg.env.judge_image_size > 0


def needs_frames(cfg: Config) -> bool:
    """Whether the replay keeps frames: for a reward model that reads them, or for a judge without larger pictures."""
    judged = cfg.judge.kind in VLM_JUDGES and not cfg.env.judge_image_size
    return cfg.reward == "learned" and (judged or cfg.reward_model.inputs == "frame")
