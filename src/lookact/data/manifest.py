"""The name of the file that lists a folder's episodes, one line each; loads no torch."""

MANIFEST = "episode_manifest.jsonl"
