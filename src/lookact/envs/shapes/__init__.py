"""Synthetic scenes of coloured shapes with questions about them: what a general tiny VLM learns from."""
