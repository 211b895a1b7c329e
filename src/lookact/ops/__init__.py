"""Pure tensor functions: they import nothing else of the package."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "advantages": "leave_one_out group_centre group_normalise anchor_groups zero_variance_groups "
        "gae discounted_returns lambda_returns credit_rewards monte_carlo turn_gae bilevel_gae",
        "losses": "reinforce ppo_clip gspo cispo aggregation_weights entropy_bonus k1 k2 k3 kl_loss AdaptiveKL "
        "clipped_value_loss huber_value_loss explained_variance nll gaussian_nll action_mse token_accuracy",
        "logprobs": "adjust_logits gather_logprobs entropy_of score_tokens sample_tokens "
        "gaussian_logprob gaussian_entropy gaussian_kl",
        "sac_loss": "critic_target critic_loss actor_loss temperature_loss polyak_update squashed_logprob",
        "preference": "bradley_terry disagreement pair_entropy",
        "curiosity": "token_uncertainty ensemble_disagreement memory_divergence knn_entropy_reward",
        "mismatch": "importance_weights truncated_importance",
        "masked": "masked_sum masked_mean masked_max masked_variance whiten RunningMoments",
    },
)
