"""PPO with a critic for multi-turn token policies."""
