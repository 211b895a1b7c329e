"""Runs, checkpoints, trackers and optimisers."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "run": "open_run Run",
        "checkpoint": "Checkpoint save_checkpoint load_checkpoint latest_checkpoint",
        "optim": "build_adamw clip_and_step accumulate",
        "evaluation": "Report make_report wilson_interval bootstrap_interval keep_episodes",
        "trackers": "JsonlTracker TensorBoardTracker WandbTracker",
        "distributed": "init_distributed rank world_size is_main shard",
        "progress": "Progress",
    },
)
