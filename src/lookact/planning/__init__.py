"""Does it fit, and how long does it take."""
