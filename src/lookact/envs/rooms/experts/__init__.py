"""Agents that know how: they show the way to learners, and say what they see."""
