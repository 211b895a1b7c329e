"""Does it fit, and how long does it take."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "token_memory": "TokenStep",
        "token_plan": "TokenRun plan_tokens plan_server",
        "report": "Plan Phase",
        "devices": "GPUS Device Layout parse_gpus predict",
        "costs": "ModelShape shape_of Work planned_work Rates rollout_seconds update_seconds",
    },
)
