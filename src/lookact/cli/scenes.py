"""Make, draw and check rooms. SCENE is an ARKitScenes folder, a room of scene notes (FILE.json#ID), or seed:N for a
generated room."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lookact.cli.output import save_picture, say, show_log
from lookact.cli.parser import Arguments, Parser, positive_int
from lookact.errors import ConfigError, DataError

if TYPE_CHECKING:
    from lookact.envs.rooms.scene import Scene

EXAMPLES = (
    "lookact scenes make --count 20 --seed 0 --out rooms",
    "lookact scenes show seed:7 --out map.png",
    "lookact scenes sheet --count 6 --out sheet.png",
    "lookact scenes check rooms",
    "lookact scenes from-notes arkitscenes_meta_info_val.json --scene 41069025 --out layouts",
)
SEED = "seed:"


def add_options(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = actions.add_parser("make", help="write generated rooms as ARKitScenes folders", allow_abbrev=False)
    make.add_argument("--count", metavar="N", type=positive_int, default=1, help="how many rooms (default: 1)")
    make.add_argument("--seed", metavar="S", type=int, default=0, help="the first room's seed (default: 0)")
    make.add_argument("--out", metavar="DIR", type=Path, required=True, help="a folder for the rooms")
    show = actions.add_parser("show", help="draw a room's map with its labels and path", allow_abbrev=False)
    show.add_argument("scene", metavar="SCENE", help="an ARKitScenes folder, FILE.json#ID, or seed:N")
    show.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("map.png"), help="the picture (default: map.png)"
    )
    sheet = actions.add_parser("sheet", help="draw views and maps of several rooms on one sheet", allow_abbrev=False)
    sheet.add_argument("--count", metavar="N", type=positive_int, default=6, help="how many rooms (default: 6)")
    sheet.add_argument("--seed", metavar="S", type=int, default=0, help="the first room's seed (default: 0)")
    sheet.add_argument("--out", metavar="FILE", type=Path, default=Path("sheet.png"), help="(default: sheet.png)")
    check = actions.add_parser("check", help="name every damaged or missing file of scene folders", allow_abbrev=False)
    check.add_argument("folder", metavar="DIR", type=Path, help="a scene's folder, or a folder of them")
    notes = actions.add_parser("from-notes", help="furnish real rooms from VSI-Bench's notes", allow_abbrev=False)
    notes.add_argument("notes", metavar="FILE", type=Path, help="scene notes, such as arkitscenes_meta_info_val.json")
    notes.add_argument("--scene", metavar="ID", action="append", help="a room's id; again for more (default: all)")
    notes.add_argument("--out", metavar="DIR", type=Path, help="write the rooms as ARKitScenes folders")
    for action in (make, show, sheet, check, notes):
        action.error = parser.error  # type: ignore[method-assign]


def run(arguments: Arguments, words: list[str], parser: Parser) -> None:
    show_log()
    {"make": make, "show": show, "sheet": sheet, "check": check, "from-notes": from_notes}[arguments.action](arguments)


def make(arguments: Arguments) -> None:
    """Write rooms to disk, one folder each."""
    from lookact.envs.rooms.arkit import save_scene
    from lookact.envs.rooms.generate import generate_room
    from lookact.training.progress import progress

    for seed in progress(range(arguments.seed, arguments.seed + arguments.count), "rooms"):
        scene = generate_room(seed)
        save_scene(scene, arguments.out / scene.id)
    say(f"{arguments.count} rooms are in {arguments.out}")


def show(arguments: Arguments) -> None:
    """Draw one room's map, with the walk that was recorded in it."""
    from lookact.envs.rooms.maps import draw_map
    from lookact.envs.rooms.space import free_space

    scene = read_scene(arguments.scene)
    walk = scene.trajectory
    picture = draw_map(
        scene,
        space=free_space(scene),
        paths=[walk[:, :2, 3]] if len(walk) else [],
        poses=walk[:: max(1, len(walk) // 8)],
    )
    save_picture(picture, arguments.out)


def sheet(arguments: Arguments) -> None:
    """Draw a row of views and a map for each of several rooms."""
    from lookact.envs.rooms.generate import generate_room
    from lookact.plots.navigation import draw_rooms

    rooms = [generate_room(seed) for seed in range(arguments.seed, arguments.seed + arguments.count)]
    save_picture(draw_rooms(rooms), arguments.out)


def check(arguments: Arguments) -> None:
    """Say what is wrong with scene folders; nothing wrong is success."""
    from lookact.envs.rooms.arkit import check_folder

    folders = scene_folders(arguments.folder)
    problems = [problem for folder in folders for problem in check_folder(folder)]
    for problem in problems:
        say(problem)
    if problems:
        raise DataError(f"{len(problems)} problems in {len(folders)} scenes of {arguments.folder}: see the lines above")
    say(f"{len(folders)} scenes are sound")


def from_notes(arguments: Arguments) -> None:
    """Furnish rooms as the notes have them, and say what can't be had so."""
    from lookact.envs.rooms.arkit import save_scene
    from lookact.envs.rooms.notes import load_layout
    from lookact.envs.rooms.questions.facts import polygon_area
    from lookact.envs.rooms.scene_sources import scene_id, scene_sources
    from lookact.envs.rooms.space import free_space

    sources = scene_sources([str(arguments.notes)], arguments.scene or ())
    for name in map(scene_id, sources):
        layout = load_layout(arguments.notes, name)
        space = free_space(layout.scene)
        free, size = space.free.sum() * space.cell**2, polygon_area(layout.scene.floor)
        say(f"{name}: {len(layout.scene.boxes)} objects on {size:.1f} m², of which one can stand on {free:.1f}")
        for problem in layout.problems:
            say(f"  {problem}")
        if arguments.out is not None:
            save_scene(layout.scene, arguments.out / name)
    if arguments.out is not None:
        say(f"{len(sources)} rooms are in {arguments.out}")


def read_scene(name: str) -> Scene:
    """A scene from a folder or from notes, or the generated one of `seed:N`."""
    from lookact.envs.rooms.arkit import load_scene
    from lookact.envs.rooms.generate import generate_room
    from lookact.envs.rooms.notes import load_layout
    from lookact.envs.rooms.scene_sources import BETWEEN

    if BETWEEN in name:
        return load_layout(*name.rsplit("#", 1)).scene

    if not name.startswith(SEED):
        return load_scene(Path(name))
    try:
        return generate_room(int(name.removeprefix(SEED)))
    except ValueError as error:
        raise ConfigError(f"{name} names no room: write seed:7, or a scene's folder") from error


def scene_folders(folder: Path) -> list[Path]:
    """The folder itself if it is a scene, else every scene below it."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: check the path")
    found = sorted(path.parent for path in folder.rglob("*_3dod_annotation.json"))
    if not found:
        raise DataError(f"{folder} holds no scenes: expected folders with a *_3dod_annotation.json")
    return found
