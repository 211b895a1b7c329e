"""Old names of settings and metrics, kept for one release; a warning names the new one."""

SETTINGS: dict[str, dict[str, str]] = {
    "nav-rloo": {},
    "vqa-ppo": {},
    "vla-ppo": {},
    "pref-sac": {},
    "world-duel": {},
}
"""A recipe's old dotted names to the new ones. A name that ends in a dot stands for all that begin with it."""

METRICS: dict[str, str] = {"rollout/useless_share": "rollout/zero_variance_groups"}
"""Old keys of `metrics.jsonl` to the new ones, for reading runs of earlier versions."""
