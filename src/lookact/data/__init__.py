"""Episodes, demonstrations and preferences: on disk and as batches."""

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "episode_store": "EpisodeStore load_episode",
        "replay": "Replay Transitions",
        "preferences": "PreferenceStore",
        "sequences": "TokenSequences SequenceReplay",
        "packing": "Segment collate micro_batches to_segments",
        "quality": "Quality judge_quality summarise",
        "demonstrations": "demo_episode",
        "lerobot.read": "read_demonstrations",
        "lerobot.write": "write_demonstrations",
        "lerobot.video": "read_video write_video",
    },
)
