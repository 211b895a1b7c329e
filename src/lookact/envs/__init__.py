"""Worlds to look at and act in."""

from gymnasium import register

register(id="lookact/Navigation-v0", entry_point="lookact.envs.rooms.navigation:Navigation")
register(id="lookact/SpatialVQA-v0", entry_point="lookact.envs.rooms.spatial_vqa:SpatialVQA")
register(id="lookact/Tabletop-v0", entry_point="lookact.envs.tabletop.env:Tabletop")
register(id="lookact/ManiSkill-v0", entry_point="lookact.envs.maniskill.env:ManiSkillTable")
register(id="lookact/Hidden-v0", entry_point="lookact.envs.testbeds.memory_curtain:Hidden")
