"""Where rewards come from."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "functions": "WeightedParts load_rewards invalid_action trl_reward answer_score well_formed",
        "intrinsic": "IntrinsicRewards intrinsic_rewards",
        "intrinsic_env": "IntrinsicReward IntrinsicWeights",
    },
)
