"""Settings and presets of nav-rloo."""

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
from lookact.tasks.settings import NavigationConfig
from lookact.training.settings import ImportanceSampling, Parallel

INSTRUCTIONS = (
    "You walk through a room and see it through a camera. In each turn say in one sentence what you see of the object "
    'that is asked for, then give one action as JSON: {"rotation_angle_degrees": 30, "forward_meters": 0.75}. '
    "You turn first, a positive angle to the left, then walk forward. Stop within a metre of the object."
)
"""For models that were never shown the task."""


@dataclass(frozen=True)
class Learn:
    """REINFORCE with a leave-one-out baseline."""

    iterations: int = setting(100, help="iterations of rollouts and update", least=0)
    groups: int = setting(8, help="starts an iteration", least=1)
    group_size: int = setting(8, help="episodes from each start; one alone has no baseline", least=2)
    lr: float = setting(2e-4, help="peak learning rate", above=0)
    adam_eps: float = setting(1e-5, help="Adam epsilon; 1e-8 amplifies gradient noise on rare tokens", above=0)
    lr_warmup: int = setting(5, help="iterations of linear learning-rate warmup", least=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("linear", help="learning-rate decay after warmup")
    max_grad_norm: float = setting(1.0, help="gradient clipping norm", above=0)
    baseline: Literal["leave_one_out", "group_mean", "group_normalised"] = setting(
        "leave_one_out", help="group baseline: RLOO's, Dr. GRPO's mean, or GRPO's mean and sample deviation"
    )
    credit: Literal["episode", "turn", "anchor"] = setting(
        "episode", help="advantage from the episode return, rewards-to-go per turn, or GiGPO's anchor states"
    )
    gamma: float = setting(1.0, help="discount a turn of the rewards-to-go (credit turn, anchor)", least=0, most=1)
    zero_variance: Literal["skip", "refill"] = setting(
        "skip", help="leave out groups of equal returns, or sample further starts until `groups` have a gradient (DAPO)"
    )
    refill_limit: int = setting(3, help="further rounds of rollouts an iteration at most (refill)", least=1)
    epochs: int = setting(1, help="passes over an iteration's episodes; the first is plain REINFORCE", least=1)
    policy_loss: Literal["ppo", "gspo", "cispo"] = setting("ppo", help="PPO's clip a token, GSPO's a row, or CISPO's")
    aggregate: Literal["token", "sequence", "constant"] = setting(
        "token", help="loss is a mean over tokens, over episodes, or over token_budget a row (Dr. GRPO)"
    )
    clip: float = setting(0.2, help="PPO clip range of the probability ratio in later passes", above=0)
    loss_on: Literal["action", "reply"] = setting("action", help="tokens in the loss: the JSON action's or all sampled")
    scale_advantages: bool = setting(True, help="divide advantages by their root mean square over the batch")
    negative_advantage_weight: float = setting(
        1.0, help="weight of negative advantages; below 1 the policy learns more from successes", least=0, most=1
    )
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
    """KL regularisation to a reference policy."""

    reference: Literal["none", "frozen", "ema"] = setting("none", help="reference: after SFT, or a moving average")
    decay: float = setting(0.99, help="decay of the ema reference", above=0, below=1)
    estimator: Literal["k1", "k2", "k3"] = setting("k3", help="KL estimator; the gradient of k1 is only noise")
    coef: float = setting(0.01, help="weight of the KL in the loss", least=0)
    target: float | None = setting(None, help="target KL a token for an adaptive weight; none: fixed", above=0)
    horizon: int = setting(10_000, help="episodes over which the adaptive weight moves", least=1)


@dataclass(frozen=True)
class Evaluation:
    """On rooms that training never shows."""

    every: int = setting(20, help="iterations between evaluations, each followed by a checkpoint", least=1)
    episodes: int = setting(64, help="starts of each evaluation while training", least=1)
    final_episodes: int = setting(256, help="starts of the evaluations before and after RL; 0 leaves them out", least=0)
    num_envs: int = setting(64, help="episodes run in parallel", least=1)
    keep: int = setting(3, help="newest checkpoints to keep, beside the best", least=1)


@dataclass(frozen=True)
class Config:
    seed: int = setting(0, help="seeds everything")
    task: str = setting("navigation", help="what is learned: a task's name, MODULE:NAME or FILE.py:NAME")
    sampler: Sampler = setting(
        "hf", help="who samples: the learner's own model, vLLM in this process, or a vLLM server that the run starts"
    )
    instructions: str = setting("", help="system prompt; a model that was never shown the task needs one")
    model: Model = Model()
    env: NavigationConfig = NavigationConfig()
    sampling: Sampling = Sampling()
    rollout: Concurrency = Concurrency()
    vllm: VllmSpec = VllmSpec()
    vision_pretraining: VisionPretraining = VisionPretraining()
    sft: SFT = SFT()
    learn: Learn = Learn()
    importance_sampling: ImportanceSampling = ImportanceSampling(level="none")
    kl: KL = KL()
    evaluation: Evaluation = Evaluation()
    parallel: Parallel = Parallel()
    ray: RaySettings = RaySettings()
    reward_functions: tuple[str, ...] = setting(
        (), help="added to the reward: functions of an episode, MODULE:NAME or MODULE:NAME*WEIGHT"
    )
    max_error_rate: float = setting(0.2, help="share of failed episodes in a step that stops the run", least=0, most=1)


EASY_ROOMS = NavigationConfig(
    objects=(2, 3),
    classes=("bed", "sofa", "refrigerator", "bathtub", "chair", "tv_monitor", "stove", "shelf"),
    side=(5.0, 6.5),
    start_distance=(2.25, 5.0),
    questions=("Find the {label}.",),
    progress_weight=1.0,
)
SHORT_REPLIES = Sampling(max_tokens=12, min_action_tokens=3, max_action_tokens=12)
PRESETS = {
    "debug": Config(
        env=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        vision_pretraining=VisionPretraining(rooms=60, epochs=1),
        sft=SFT(demonstrations=128, epochs=4, lr=2e-3),
        learn=Learn(iterations=2, groups=3, group_size=8, credit="turn", gamma=0.5),
        evaluation=Evaluation(every=2, episodes=4, final_episodes=8),
    ),
    "small": Config(
        env=EASY_ROOMS,
        sampling=SHORT_REPLIES,
        vision_pretraining=VisionPretraining(rooms=2000, epochs=4),
        sft=SFT(demonstrations=2000, epochs=3),
        learn=Learn(
            iterations=130,
            groups=12,
            group_size=12,
            credit="turn",
            gamma=0.5,
            loss_on="reply",
            negative_advantage_weight=0.5,
        ),
        evaluation=Evaluation(every=20, final_episodes=384),
    ),
    "full": Config(
        model=QWEN3_VL_8B,
        env=NavigationConfig(image_size=448),
        instructions=INSTRUCTIONS,
        sampling=Sampling(max_tokens=256),
        sft=SFT(demonstrations=2000, epochs=1, lr=1e-4),
        learn=Learn(iterations=500, groups=16, group_size=8, lr=2e-5, token_budget=32_768),
        kl=KL(reference="frozen", coef=0.01, target=0.02),
        rollout=Concurrency(max_concurrent_episodes=32),
        evaluation=Evaluation(num_envs=16),
    ),
}
ONE_CARD = replace(
    PRESETS["full"],
    learn=replace(PRESETS["full"].learn, groups=8, token_budget=8192),
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
