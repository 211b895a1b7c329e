"""Where environments meet actors."""
