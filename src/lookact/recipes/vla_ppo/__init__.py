"""Behaviour cloning, then PPO, for a vision-language-action policy."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, {"config": "Config PRESETS", "train": "main"})
