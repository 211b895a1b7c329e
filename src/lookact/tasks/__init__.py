"""What is to be learned: environments, starts, demonstrations, and how success is told."""
