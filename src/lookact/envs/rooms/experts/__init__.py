"""Scripted experts for demonstrations, with reasoning in words."""
