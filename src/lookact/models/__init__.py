"""Policies, critics, world models and reward models."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "vlm.loading": "load_chat save_chat LoraSpec",
        "vlm.policy": "ChatVLM",
        "vlm.tiny": "TinySpec make_tiny",
        "vlm.reference": "make_reference",
        "vla.policy": "VLA PolicySpec",
        "vla.checkpoint": "make_vla load_vla",
        "world_model.model": "WorldModel WorldModelSpec",
        "reward_model": "StateRewards ImageRewards",
        "sac": "SAC",
    },
)
