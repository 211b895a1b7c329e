"""A world model and an explorer, trained in turn and against each other."""
