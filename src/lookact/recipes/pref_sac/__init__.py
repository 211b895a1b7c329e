"""SAC on a reward that is learned from preferences."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, {"config": "Config PRESETS", "train": "main"})
