"""The Panda at ManiSkill's table, simulated and drawn by SAPIEN (extra `maniskill`)."""
