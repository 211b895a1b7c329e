"""One file a recipe, read from top to bottom."""
