"""The Panda at ManiSkill's table, simulated and rendered by SAPIEN (extra `maniskill`)."""
