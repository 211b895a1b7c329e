import os

from lookact.viewer.gallery import list_media


def test_pictures_videos_and_texts_by_folder_and_kind_newest_first(tmp_path):
    names = {
        "run/samples/old.png": 1,
        "run/samples/new.png": 2,
        "run/samples/words.txt": 3,
        "run/videos/update-1/a.mp4": 4,
        "run/plots/curve.png": 5,
        "run/top.jpg": 6,
        "run/samples/weights.pt": 7,
        "run/tensorboard/x.png": 8,
        "run/checkpoint-1/y.png": 9,
    }
    for name, changed in names.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
        os.utime(tmp_path / name, (changed, changed))
    rows = list_media(tmp_path, "run")
    told = [(row["folder"], row["name"], row["kind"]) for row in rows]
    assert told == [
        (".", "top.jpg", "picture"),
        ("plots", "curve.png", "picture"),
        ("samples", "new.png", "picture"),
        ("samples", "old.png", "picture"),
        ("samples", "words.txt", "text"),
        ("videos/update-1", "a.mp4", "video"),
    ]
    assert rows[0]["place"] == "run/top.jpg"
    assert rows[0]["bytes"] == 5


def test_links_are_left_out(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/a.png").touch()
    (tmp_path / "run/samples").mkdir(parents=True)
    (tmp_path / "run/samples/link.png").symlink_to(tmp_path / "secret/a.png")
    (tmp_path / "run/plots").symlink_to(tmp_path / "secret")
    assert list_media(tmp_path, "run") == []
