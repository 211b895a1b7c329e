"""Settings and presets of vqa-ppo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lookact.algorithms.vlm_settings import (
    QWEN3_VL_2B,
    QWEN3_VL_4B,
    QWEN3_VL_8B,
    SFT,
    Model,
    RaySettings,
    VisionPretraining,
)
from lookact.config import setting
from lookact.rollout.samplers.settings import Concurrency, Sampler, Sampling, VllmSpec
from lookact.tasks.settings import SpatialVQAConfig
from lookact.training.settings import ImportanceSampling, Parallel

INSTRUCTIONS = (
    "You look around a room through a camera to answer a question about it. In each turn say in one sentence what you "
    "see that matters to the question, then give one JSON object: a move, as in "
    '{"rotation_angle_degrees": 90, "forward_meters": 0.5}, or your answer, as in {"answer": "B"} or '
    '{"answer": "2.4"}, which ends the episode. You turn first, a positive angle to the left, then walk forward.'
)
"""For models that were never shown the task."""


@dataclass(frozen=True)
class Expert:
    """The expert whose demonstrations SFT imitates."""

    guess_fraction: float = setting(0.0, help="share of demonstrations that answer at the first turn", least=0, most=1)


@dataclass(frozen=True)
class Rewards:
    """Weights of the reward's parts, each logged under reward/."""

    answer: float = setting(1.0, help="for VSI-Bench's score of the answer", least=0)
    format: float = setting(0.1, help="taken for a reply that is no action, or an answer of the wrong kind", least=0)
    turn: float = setting(0.0, help="taken for every turn that does not answer", least=0)
    progress: float = setting(
        0.0, help="for the share of what the question is about that comes into view; telescopes", least=0
    )
    progress_kept: bool = setting(True, help="what was seen stays paid at the end; else no policy gains by progress")


@dataclass(frozen=True)
class Credit:
    """Credit assignment: from rewards to advantages."""

    method: Literal["monte_carlo", "gae", "turn", "bilevel"] = setting(
        "gae", help="Monte Carlo returns, or GAE over tokens, over turns, or over turns and then tokens (bi-level)"
    )
    gamma: float = setting(1.0, help="discount a token (monte_carlo, gae, and bilevel inside a turn)", above=0, most=1)
    lam: float = setting(0.95, help="GAE's lambda over tokens", least=0, most=1)
    gamma_turn: float = setting(1.0, help="discount a turn (turn, bilevel)", above=0, most=1)
    lam_turn: float = setting(0.95, help="GAE's lambda over turns (turn, bilevel)", least=0, most=1)
    whiten: bool = setting(True, help="centre and scale advantages over the step")


@dataclass(frozen=True)
class Critic:
    """The value function."""

    backbone: Literal["shared", "separate"] = setting("shared", help="a head on the policy, or a model of its own")
    lr: float = setting(1e-3, help="peak learning rate of the head, or of the separate model", above=0)
    warmup: int = setting(5, help="first iterations in which only the critic learns", least=0)
    loss: Literal["clipped", "huber"] = setting("clipped", help="value loss")
    clip: float = setting(
        0.2, help="clipped: how far a value may move in a step; huber: where it turns linear", above=0
    )
    coef: float = setting(0.5, help="weight of the value loss", least=0)


@dataclass(frozen=True)
class Learn:
    """Proximal policy optimisation."""

    iterations: int = setting(60, help="iterations of rollouts and update", least=0)
    episodes: int = setting(96, help="episodes an iteration", least=1)
    epochs: int = setting(2, help="passes over an iteration's episodes", least=1)
    minibatch_size: int = setting(48, help="segments a gradient step", least=1)
    lr: float = setting(3e-4, help="peak learning rate of the policy", above=0)
    adam_eps: float = setting(1e-5, help="Adam epsilon; 1e-8 amplifies gradient noise on rare tokens", above=0)
    lr_warmup: int = setting(3, help="iterations of linear learning-rate warmup", least=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("linear", help="learning-rate decay after warmup")
    clip: float = setting(0.2, help="PPO clip range of the probability ratio below 1", above=0, below=1)
    clip_high: float | None = setting(0.28, help="clip range above 1 (clip-higher); none: as below", above=0)
    dual_clip: float | None = setting(3.0, help="dual clip: bound on the ratio of negative advantages", above=1)
    max_kl: float | None = setting(0.05, help="approximate KL that ends an iteration's epochs early", above=0)
    max_grad_norm: float = setting(1.0, help="gradient clipping norm", above=0)
    loss_on: Literal["action", "reply"] = setting("reply", help="tokens in the loss: the JSON action's, or all sampled")
    entropy_coef: float = setting(0.0, help="weight of the entropy bonus", least=0)
    max_logprob_gap: float | None = setting(
        None,
        help="nats from the sampler's log-prob beyond which a token is left out of the loss, and 0.1% of tokens stop "
        "the run; none: 1e-3 in float32, 0.5 in bfloat16",
        above=0,
    )
    max_mean_logprob_gap: float | None = setting(
        None, help="the same of the mean over tokens, which stops the run; none: 1e-4, 0.05", above=0
    )
    token_budget: int = setting(8192, help="padded tokens a micro-batch", least=64)


@dataclass(frozen=True)
class KL:
    """KL regularisation to the policy after SFT."""

    reference: Literal["none", "frozen"] = setting("frozen", help="reference policy")
    use: Literal["reward", "loss"] = setting("reward", help="take k1 from each token's reward, or add k3 to the loss")
    coef: float = setting(0.01, help="weight, as reward or in the loss", least=0)
    target: float | None = setting(None, help="target KL a token for an adaptive weight; none: fixed", above=0)
    horizon: int = setting(10_000, help="episodes over which the adaptive weight moves", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On rooms that training never shows, or on VSI-Bench."""

    every: int = setting(20, help="iterations between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(96, help="questions of each evaluation while training", least=1)
    final_episodes: int = setting(384, help="questions before and after RL; 0 leaves them out", least=0)
    num_envs: int = setting(64, help="episodes run in parallel", least=1)
    keep: int = setting(3, help="newest checkpoints to keep, beside the best", least=1)
    question_file: str | None = setting(
        None, help="VSI-Bench rows, parquet or JSONL; none: generated questions", exists=True
    )
    scenes: tuple[str, ...] = setting((), help="ARKitScenes folders of those rows, named by scene", exists=True)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    task: str = setting("spatial-vqa", help="what is learned: a task's name, MODULE:NAME or FILE.py:NAME")
    sampler: Sampler = setting(
        "hf", help="who samples: the learner's own model, vLLM in this process, or a vLLM server that the run starts"
    )
    instructions: str = setting("", help="system prompt; a model that was never shown the task needs one")
    model: Model = Model()
    env: SpatialVQAConfig = SpatialVQAConfig()
    sampling: Sampling = Sampling()
    rollout: Concurrency = Concurrency()
    vllm: VllmSpec = VllmSpec()
    vision_pretraining: VisionPretraining = VisionPretraining()
    sft: SFT = SFT()
    expert: Expert = Expert()
    rewards: Rewards = Rewards()
    credit: Credit = Credit()
    critic: Critic = Critic()
    learn: Learn = Learn()
    importance_sampling: ImportanceSampling = ImportanceSampling()
    kl: KL = KL()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()
    ray: RaySettings = RaySettings()
    reward_functions: tuple[str, ...] = setting(
        (), help="added to the reward: functions of an episode, MODULE:NAME or MODULE:NAME*WEIGHT"
    )
    max_error_rate: float = setting(0.2, help="share of failed episodes in a step that stops the run", least=0, most=1)


EASY_ROOMS = SpatialVQAConfig(
    types=(
        # asked twice as often: it is learned last, and lost when others begin where they can be answered at once
        "object_counting",
        "object_counting",
        "room_size_estimation",
        "object_rel_direction_easy",
        "object_rel_direction_medium",
    ),
    prompts="brief",
    max_turns=4,
    objects=(3, 6),
    classes=("oven", "dishwasher", "sink", "chair"),
    side=(2.0, 7.0),
    shapes=("rectangle",),
    distance_choices=2,
    start_as_asked=True,
)
"""What a model of a million parameters can learn to see and answer."""
SHORT_REPLIES = Sampling(max_tokens=40, min_action_tokens=3, max_action_tokens=12)
PRESETS = {
    "debug": Config(
        env=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        vision_pretraining=VisionPretraining(rooms=8, epochs=1),
        sft=SFT(demonstrations=16, epochs=1),
        critic=Critic(warmup=1),
        learn=Learn(iterations=2, episodes=8, minibatch_size=4),
        evaluation=Evaluation(every=1, episodes=6, final_episodes=6),
    ),
    "small": Config(
        env=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        vision_pretraining=VisionPretraining(rooms=1000),
        sft=SFT(demonstrations=6000, noise=0.0, batch_size=8),
        rewards=Rewards(progress=0.2),
        credit=Credit(method="turn"),
        # a critic on the policy's own backbone pulls at what SFT has taught it
        critic=Critic(backbone="separate", lr=5e-4, warmup=2),
        learn=Learn(iterations=30, lr=1e-4),
        kl=KL(reference="none"),
        evaluation=Evaluation(every=10, episodes=96, final_episodes=400),
    ),
    "full": Config(
        model=QWEN3_VL_8B,
        env=SpatialVQAConfig(image_size=448),
        instructions=INSTRUCTIONS,
        sampling=Sampling(max_tokens=256, max_context=16_384),
        sft=SFT(demonstrations=2000, epochs=1, lr=1e-4),
        rewards=Rewards(turn=0.01, progress=0.1),
        credit=Credit(method="bilevel"),
        critic=Critic(lr=1e-4, warmup=20),
        learn=Learn(iterations=500, episodes=128, minibatch_size=64, lr=2e-5, token_budget=32_768),
        kl=KL(target=0.02),
        rollout=Concurrency(max_concurrent_episodes=32),
        evaluation=Evaluation(num_envs=16),
    ),
}
ONE_CARD = replace(
    PRESETS["full"],
    learn=replace(PRESETS["full"].learn, episodes=64, minibatch_size=32, token_budget=8192),
    evaluation=Evaluation(num_envs=8),
)
"""For 24 GB, as `lookact plan` says."""
PRESETS["2b"] = replace(
    ONE_CARD,
    model=QWEN3_VL_2B,
    sampling=replace(ONE_CARD.sampling, max_tokens=128),
    rollout=Concurrency(max_concurrent_episodes=16),
)
PRESETS["4b"] = replace(
    ONE_CARD,
    model=QWEN3_VL_4B,
    sampling=replace(ONE_CARD.sampling, max_tokens=128),
    rollout=Concurrency(max_concurrent_episodes=8),
)
