"""A folder a recipe; its `train.py` shows the algorithm, to be read from top to bottom."""
