"""Walk through a room with a chat model, see what became of it, and collect episodes to disk.

    python examples/navigate.py
    python examples/navigate.py --scene data/Training/42445173 --checkpoint runs/nav-rloo/small-seed0/best

Without arguments a room is generated and a tiny model made, one that was never trained: it talks nonsense, and shows
that a bad reply is kept, counted and told, but never crashes anything.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from lookact import (
    ChatEnv,
    Episode,
    EpisodeSpec,
    EpisodeStore,
    HFSampler,
    Navigation,
    Sampling,
    collect,
    load_chat,
    make_tiny,
)
from lookact.data import judge_quality, summarise
from lookact.envs import draw_map
from lookact.envs.rooms.navigation import observe
from lookact.plots import draw_episode

TEXTS = ("Find the chair.", 'I see it. {"rotation_angle_degrees": 30, "forward_meters": 0.5}')
"""What a tiny model's tokenizer is made from."""


def main(words: list[str] | None = None) -> None:
    arguments = read(words)

    # a world: ARKitScenes folders, or rooms generated from the seed of each episode
    worlds = [Navigation(scenes=arguments.scene, max_turns=10) for _ in range(4)]
    envs = [ChatEnv(world, observe) for world in worlds]

    # an actor: a checkpoint in the Hugging Face layout, and how it speaks
    chat = load_chat(arguments.checkpoint or make_tiny(arguments.out / "model", corpus=TEXTS))
    actor = HFSampler(chat, Sampling(max_tokens=12, temperature=1.0, min_action_tokens=3, max_action_tokens=12))

    # one episode
    (episode,) = collect([EpisodeSpec("ep000", group=0, seed=7)], envs[:1], actor)
    tell(episode)
    draw(episode, worlds[0], arguments.out / "ep000.png")

    # many, four at a time; run again, it goes on where it was interrupted
    store = EpisodeStore(arguments.out / "episodes")
    plans = [EpisodeSpec(f"ep{number:03d}", group=number, seed=number) for number in range(1, arguments.episodes + 1)]
    collect([plan for plan in plans if plan.id not in store.ids()], envs, actor, finished=store.add)
    summary = summarise(store.episodes())
    print(f"{summary.episodes} episodes in {store.folder}, {summary.dropout_rate:.0%} dropped: {dict(summary.reasons)}")
    print(f"how actions were found: {dict(summary.methods)}; quality: {dict(summary.qualities)}")


def tell(episode: Episode) -> None:
    """What was asked, said and reached, and whether it can be learned from."""
    for turn in episode.turns:
        print(f"{turn.observation.text}\n    {turn.decision.action!r}")
    last = episode.turns[-1].info
    print(f"{'reached' if last['success'] else 'not reached'}, {last['distance_to_goal']:.2f} m left")
    quality = judge_quality(episode)
    if quality.is_valid:
        print(f"valid episode with quality: {quality.quality}")
    else:
        print(f"dropped episode: {quality.dropout_reason}")


def draw(episode: Episode, world: Navigation, path: Path) -> None:
    """The episode on one sheet: the path on the map, every view, every reply."""
    seen = [turn.observation for turn in episode.turns] + [episode.last]
    path_walked = np.array([observation.state[:2] for observation in seen], dtype=np.float64)
    room = draw_map(world.task.sim.scene, paths=[path_walked], goal=world.task.goal)
    views = [observation.images["head"] for observation in seen]
    replies = [str(turn.decision.action) for turn in episode.turns]
    sheet = draw_episode(views, replies, room, title=world.task.question, outcome=episode.terminated)
    Image.fromarray(sheet).save(path)
    print(f"drew {path}")


def read(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--scene", action="append", help="an ARKitScenes folder; again for more")
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/navigate"))
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
