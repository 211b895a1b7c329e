"""Text in and out of chat policies: prompts, actions, answers, verdicts."""
