import numpy as np
import PIL.Image
import pytest

from lookact.cli import main
from lookact.cli.scenes import read_scene
from scene_notes import living_room, note, room, write_notes


def output(capsys, *words) -> str:
    assert main(words) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_rooms_made_are_sound_and_read_back_as_their_seed(tmp_path, capsys):
    assert "2 rooms are in rooms" in output(capsys, "scenes", "make", "--count", "2", "--seed", "5", "--out", "rooms")
    assert output(capsys, "scenes", "check", "rooms") == "2 scenes are sound\n"
    folders = sorted((tmp_path / "rooms").iterdir())
    assert len(folders) == 2
    assert np.array_equal(read_scene(str(folders[0])).vertices, read_scene("seed:5").vertices)


def test_a_damaged_room_is_named_with_exit_code_2(tmp_path, capsys):
    output(capsys, "scenes", "make", "--out", "rooms")
    next((tmp_path / "rooms").rglob("*.ply")).write_bytes(b"not a mesh")
    assert main(["scenes", "check", "rooms"]) == 2
    captured = capsys.readouterr()
    assert ".ply" in captured.out
    assert "1 problems in 1 scenes of rooms" in captured.err


@pytest.mark.slow
def test_pictures_are_drawn(tmp_path, capsys):
    output(capsys, "scenes", "show", "seed:7", "--out", "deep/map.png")
    output(capsys, "scenes", "sheet", "--count", "2", "--out", "sheet.png")
    assert np.asarray(PIL.Image.open(tmp_path / "deep/map.png")).std() > 10
    assert PIL.Image.open(tmp_path / "sheet.png").height > 400


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["show", "seed:x"], "seed:x names no room: write seed:7, or a scene's folder"),
        (["show", "no/such"], "no/such: is not a folder"),
        (["check", "no/such"], "no/such is not a folder: check the path"),
        (["check", "."], ". holds no scenes"),
        (["make"], "the following arguments are required: --out; see lookact scenes --help"),
        (["mak"], "invalid choice: 'mak'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, line, capsys):
    assert main(["scenes", *words]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_real_rooms_are_furnished_from_notes_and_what_cannot_be_had_is_told(tmp_path, capsys):
    hidden = {"table": [note(2.5 + x, 2.5 + y, (1.05, 1.05, 0.7)) for x in (-1, 0, 1) for y in (-1, 0, 1) if x or y],
              "chair": [note(2.5, 2.5, (0.4, 0.4, 0.9))]}  # fmt: skip
    write_notes(tmp_path / "notes.json", {"home": living_room(), "full": room(hidden, size=36.0, centre=(2.5, 2.5))})
    told = output(capsys, "scenes", "from-notes", "notes.json", "--scene", "home", "--out", "layouts")
    assert told.startswith("home: 4 objects on 20.0 m², of which one can stand on ")
    assert told.endswith("1 rooms are in layouts\n")
    assert output(capsys, "scenes", "check", "layouts") == "1 scenes are sound\n"
    written, read = read_scene("layouts/home"), read_scene("notes.json#home")
    assert np.array_equal(written.vertices, read.vertices)
    assert np.array_equal(written.floor, read.floor)
    assert "  full/chair/0: no free floor within 0.8 m of it\n" in output(capsys, "scenes", "from-notes", "notes.json")
    assert main(["scenes", "from-notes", "notes.json", "--scene", "attic"]) == 2
    assert "no scene is called attic: 2 are given" in capsys.readouterr().err
