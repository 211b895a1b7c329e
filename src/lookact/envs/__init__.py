"""Worlds to look at and act in."""
