"""Grid worlds that others wrote the rules of, seen as pictures: Gymnasium's FrozenLake and MiniGrid."""
