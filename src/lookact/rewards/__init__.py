"""Where rewards come from."""
