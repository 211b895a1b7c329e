"""One room, one start, one goal, one question, each chosen by name; then a route of landmarks, walked stop by stop.

    python examples/real_room.py
    python examples/real_room.py --scenes arkitscenes_meta_info_val.json --scene 41069025 --goal stove
    python examples/real_room.py --scenes data/Training/42445173 --scene 42445173

Without arguments the room is a generated one. The walker is a scripted expert, so nothing is downloaded or trained.
"""

from __future__ import annotations

import argparse

from lookact import Navigation
from lookact.envs import ask, expert_for


def main(words: list[str] | None = None) -> None:
    arguments = read(words)
    env = Navigation(scenes=arguments.scenes, max_turns=20)

    # load a scene: by its id, with a goal and a start of its own
    _, info = env.reset(seed=0, options={"scene": arguments.scene, "goal": arguments.goal})
    start = env.walker.pose
    print(f"{info['scene_id']}: {info['question']} It is {info['shortest_path']:.1f} m away.")

    # the same start once more, with a question in our own words
    asked = {"scene": arguments.scene, "goal": info["goal"], "pose": (start.x, start.y, start.yaw)}
    _, info = env.reset(options={**asked, "question": f"Please show me the way to the {info['goal']}."})
    expert, over = expert_for(env), False
    while not over:
        reply = expert.act(env.walker.view, info)
        _, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
        print(f"{info['turn']:>3}  {reply}")
    print(f"{'reached' if info['success'] else 'not reached'} in {info['turn']} turns, SPL {info['spl']:.2f}")

    # a route in VSI-Bench's form: its landmarks are stops, its right option the turns
    for route in ask(env.task.sim.scene, seed=0, types=["route_planning"]):
        _, info = env.reset(options={"route": route, "scene": arguments.scene})
        print(f"{info['question']}\n{info['shortest_path']:.1f} m by way of {', '.join(env.task.route.stops)}")


def read(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--scenes", action="append", help="an ARKitScenes folder or a file of scene notes")
    parser.add_argument("--scene", default="room-7", help="which of them, by id")
    parser.add_argument("--goal", help="a label that one object bears")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
