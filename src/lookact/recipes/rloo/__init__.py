"""REINFORCE with a leave-one-out baseline for multi-turn token policies."""
