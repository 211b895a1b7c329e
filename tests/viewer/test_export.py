import base64
import html.parser
import json

import pytest

from lookact.errors import DataError
from lookact.viewer import export as exporting
from lookact.viewer.export import downsampled_metrics, export


class Reader(html.parser.HTMLParser):
    """Notes the tags of a document, what they load, and the data it holds."""

    def __init__(self):
        super().__init__()
        self.open, self.loads, self.data, self.held = [], [], "", False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.held = attrs.get("id") == "embedded"
        self.loads += [attrs[name] for name in ("src", "href") if name in attrs]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.held:
            self.data += data
            self.held = False


@pytest.fixture
def folder(tmp_path, write_run, write_episodes):
    run = write_run(tmp_path / "nav-rloo/a", [{"step": 1, "a": 0.123456789}, {"step": 2, "a": 2}], log="a line\n")
    (run / "samples").mkdir()
    (run / "samples/small.png").write_bytes(b"x" * 300)
    (run / "samples/large.png").write_bytes(b"x" * 300_000)
    (run / "samples/huge.mp4").write_bytes(b"x" * 3_000_000)
    write_episodes(tmp_path / "episodes")
    return tmp_path


def read(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader, json.loads(reader.data)


def test_one_file_holds_everything_and_loads_nothing(folder):
    page, left_out = export(folder, most_bytes=1 << 30)
    reader, data = read(page)
    assert left_out == data["left_out"] == []
    assert reader.loads == ["data:,"]
    assert data["metrics"]["nav-rloo/a|metrics.jsonl"]["columns"] == {"step": [1, 2], "a": [0.123457, 2]}
    assert data["log"] == {"nav-rloo/a": {"text": "a line\n"}}
    assert base64.b64decode(data["media"]["nav-rloo/a/samples/small.png"].partition(",")[2]) == b"x" * 300
    assert [row["id"] for row in data["episodes"]["episodes"]] == ["one", "two"]
    # three turns and the end of one episode, one turn of the other
    assert len(data["picture"]) == 5
    assert str(folder) not in page


def test_what_does_not_fit_is_counted_and_no_longer_listed(folder):
    page, left_out = export(folder, most_bytes=200_000)
    _, data = read(page)
    assert left_out == ["1 picture", "1 video"]
    assert [row["name"] for row in data["run"]["nav-rloo/a"]["media"]] == ["small.png"]
    assert len(page) < 300_000


def test_numbers_go_in_even_where_nothing_else_does(folder):
    _, data = read(export(folder, most_bytes=1)[0])
    assert data["metrics"]["nav-rloo/a|metrics.jsonl"]["columns"]["step"] == [1, 2]
    assert data["left_out"] == ["2 episodes", "2 pictures", "1 video"]
    assert data["episodes"] == {"episodes": []}


def test_a_full_file_is_not_filled_any_further(tmp_path, write_episodes, monkeypatch):
    for number in range(9):
        write_episodes(tmp_path / f"s{number}")
    tried = []
    told = exporting.episode_detail

    def counted(root, store, id, **how):
        tried.append(id)
        return told(root, store, id, **how)

    monkeypatch.setattr(exporting, "episode_detail", counted)
    _, data = read(export(tmp_path, most_bytes=1)[0])
    assert len(tried) == exporting.MAX_MISSES
    assert data["left_out"] == ["18 episodes"]
    assert [store["episodes"] for store in data["runs"]["stores"]] == [0] * 9


def test_the_map_goes_with_its_episode(tmp_path, write_walk):
    write_walk(tmp_path / "s")
    _, data = read(export(tmp_path, most_bytes=1 << 20)[0])
    assert data["picture"]["s|walk|map"].startswith("data:image/png;base64,")
    assert len(data["picture"]) == 4


def test_long_files_are_thinned_and_keep_their_last_line(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "LINES", 4)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step}) + "\n" for step in range(10)))
    assert downsampled_metrics(path) == ({"step": [0, 3, 6, 9]}, 6)


@pytest.mark.parametrize("name", ["nothing", "notes"])
def test_a_folder_without_runs_is_one_clear_line(tmp_path, name):
    (tmp_path / name).mkdir()
    if name == "notes":
        (tmp_path / "notes/todo.txt").touch()
    with pytest.raises(DataError, match=rf"{name} holds no run and no episodes"):
        export(tmp_path / name, most_bytes=1 << 20)
