"""What two recipes or more share: supervised phases, PPO over tokens and over steps, SAC, reward learning."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "group_advantages": "episode_advantages turn_advantages rewards_to_go scale_advantages",
        "behaviour_cloning": "bc_loss",
        "vision_pretraining": "pretrain_vision",
        "reward_learning": "RewardLearner LearnedReward",
        "judge_training": "train_judge",
        "world_model": "fit_tokenizer encode_sequences",
        "evaluation": "Evaluator",
        "rollouts": "LocalRollouts RayRollouts",
        "sft": "supervised_start fit",
    },
)
