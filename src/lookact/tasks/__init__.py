"""What is to be learned: environments, starts, demonstrations, and how success is told."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "gym_task": "GymTask",
        "navigation": "NavigationTask",
        "registry": "find_task make_task",
        "settings": "NavigationConfig SpatialVQAConfig",
        "spatial_vqa": "SpatialVQATask",
    },
)
