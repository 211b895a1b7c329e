"""A task's environments for other people's trainers, and theirs for ours: OpenEnv, verifiers, TRL."""
