"""Runs, checkpoints, trackers and optimisers."""
