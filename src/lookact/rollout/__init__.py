"""Rollouts: environments meet samplers and control policies."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "collect": "make_specs",
        "vector_rollout": "collect_rollout Rollout ControlActor",
        "weight_sync": "WeightSync",
        "samplers.hf": "HFSampler",
        "samplers.settings": "Sampling VllmSpec",
        "samplers.vllm": "VllmSampler VllmEngine",
        "samplers.vllm_server": "VllmServer",
        "samplers.random_actor": "RandomActor",
        "ray.pool": "RayPool",
    },
)
