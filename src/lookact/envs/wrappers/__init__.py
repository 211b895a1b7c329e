"""Gymnasium environments as what a recipe acts in."""
