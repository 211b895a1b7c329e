"""REINFORCE with a leave-one-out baseline for multi-turn token policies."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, {"config": "Config PRESETS", "train": "main"})
