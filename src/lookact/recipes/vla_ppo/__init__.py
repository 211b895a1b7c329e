"""Behaviour cloning, then PPO, for a vision-language-action policy."""
