"""LookAct: reinforcement-learning post-training of agents that look and act."""

__version__ = "0.1.0"
