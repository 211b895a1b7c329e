"""Environments to look at and act in: rooms, a tabletop arm, classic control, grids, and wrappers for yours."""

from gymnasium import register

from lookact.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "rooms.navigation": "Navigation",
        "rooms.spatial_vqa": "SpatialVQA",
        "rooms.generate": "generate_room RoomStyle",
        "rooms.scene": "Scene Box",
        "rooms.arkit": "load_scene save_scene",
        "rooms.notes": "load_layout",
        "rooms.questions": "ask",
        "rooms.experts.demonstrate": "expert_for",
        "rooms.maps": "draw_map floor_map",
        "rooms.render": "Renderer Camera",
        "tabletop.env": "Tabletop",
        "control.fixed_horizon": "make_control_env",
        "control.control_task": "ControlTask",
        "control.gym_control": "GymControl",
        "wrappers.chat_env": "ChatEnv",
        "wrappers.gym_chat": "GymChat",
        "wrappers.tool_chat": "ToolChat",
        "vector.vector_env": "VectorEnv InlineVectorEnv PipelinedVectorEnv",
    },
)

register(id="lookact/Navigation-v0", entry_point="lookact.envs.rooms.navigation:Navigation")
register(id="lookact/SpatialVQA-v0", entry_point="lookact.envs.rooms.spatial_vqa:SpatialVQA")
register(id="lookact/Tabletop-v0", entry_point="lookact.envs.tabletop.env:Tabletop")
register(id="lookact/TwoArms-v0", entry_point="lookact.envs.tabletop.two_arms:TwoArms")
register(id="lookact/ManiSkill-v0", entry_point="lookact.envs.maniskill.env:ManiSkillTable")
register(id="lookact/MemoryCurtain-v0", entry_point="lookact.envs.testbeds.memory_curtain:MemoryCurtain")
# its own frozen world model may pay for it, so that it stands with the recipe
register(id="lookact/F1-v0", entry_point="lookact.recipes.world_duel.f1.env:make_f1_env")
# the id of version 0.1
register(id="lookact/Hidden-v0", entry_point="lookact.envs.testbeds.memory_curtain:MemoryCurtain")
