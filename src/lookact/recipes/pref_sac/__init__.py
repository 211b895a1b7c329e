"""SAC on a reward that is learned from preferences."""
