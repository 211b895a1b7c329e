import json

import httpx
import pytest


@pytest.fixture
def folder(tmp_path, write_run, write_episodes):
    """A folder with one finished run, its episodes and a picture, beside things that are nobody's business."""
    root = tmp_path / "runs"
    lines = [{"step": 1, "eval/score": 0.5}, {"step": 2, "eval/score": float("nan")}]
    run = write_run(root / "nav-rloo/a", lines, result={"after": {"score": 0.5, "ci": {"score": [0.4, 0.6]}}})
    (run / "samples").mkdir()
    (run / "samples/a.png").write_bytes(b"\x89PNG pixels")
    (run / "model.safetensors").write_bytes(b"weights")
    write_episodes(run / "episodes")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "out").symlink_to(tmp_path)
    return root


CLIENT = httpx.Client(verify=False, timeout=30)
"""One for all: making one takes longer than asking."""


def get(url, route, **words):
    return CLIENT.get(f"{url}{route}", params=words)


def test_the_page_and_its_parts(serve_folder, folder):
    url = serve_folder(folder)
    page = get(url, "/")
    assert page.status_code == 200
    assert 'src="static/main.js"' in page.text
    assert get(url, "/static/main.js").headers["content-type"].startswith("text/javascript")
    assert get(url, "/static/style.css").headers["content-type"].startswith("text/css")
    assert "default-src 'self'" in page.headers["content-security-policy"]


def test_records_of_a_run(serve_folder, folder):
    url = serve_folder(folder)
    listing = get(url, "/api/runs").json()
    assert [run["place"] for run in listing["runs"]] == ["nav-rloo/a"]
    # what belongs to a run is told with it
    assert listing["stores"] == []
    detail = get(url, "/api/run", place="nav-rloo/a").json()
    assert detail["stores"] == [{"place": "nav-rloo/a/episodes", "episodes": 2}]
    assert detail["result"]["after"]["ci"]["score"] == [0.4, 0.6]
    numbers = get(url, "/api/metrics", place="nav-rloo/a", file="metrics.jsonl").json()
    assert numbers["columns"] == {"step": [1, 2], "eval/score": [0.5, None]}
    assert get(url, "/api/log", place="nav-rloo/a").json() == {"text": ""}
    assert get(url, "/api/media", place="nav-rloo/a/samples/a.png").content == b"\x89PNG pixels"


def test_a_run_that_grows_between_two_polls_sends_what_is_new(serve_folder, folder):
    url = serve_folder(folder)
    asked = {"place": "nav-rloo/a", "file": "metrics.jsonl"}
    first = get(url, "/api/metrics", **asked).json()
    with (folder / "nav-rloo/a/metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "eval/score": 0.75}) + "\n" + '{"step": 4, "ev')
    second = get(url, "/api/metrics", **asked, offset=first["offset"], version=first["version"]).json()
    assert second["columns"] == {"step": [3], "eval/score": [0.75]}
    assert not second["restart"]
    assert get(url, "/api/runs").json()["runs"][0]["steps"] == 3


def test_episodes_and_their_pictures(serve_folder, folder):
    url = serve_folder(folder)
    store = "nav-rloo/a/episodes"
    assert [row["id"] for row in get(url, "/api/episodes", store=store).json()] == ["one", "two"]
    assert len(get(url, "/api/episode", store=store, id="one").json()["turns"]) == 3
    picture = get(url, "/api/picture", store=store, id="one", turn=1, camera="head")
    assert picture.headers["content-type"] == "image/png"
    assert picture.content.startswith(b"\x89PNG")


REFUSED = (
    ("/api/media", {"place": "../secret.png"}),
    ("/api/media", {"place": "link.png"}),
    ("/api/media", {"place": "out/secret.png"}),
    ("/api/media", {"place": "/etc/hostname"}),
    ("/api/media", {"place": "nav-rloo/a/model.safetensors"}),
    ("/api/media", {"place": "nav-rloo/a/config.yaml"}),
    ("/api/media", {"place": "nav-rloo"}),
    ("/api/run", {"place": "out/runs/nav-rloo/a"}),
    ("/api/run", {"place": "nav-rloo"}),
    ("/api/log", {"place": "../runs/nav-rloo/a"}),
    ("/api/metrics", {"place": "nav-rloo/a", "file": "../a/metrics.jsonl"}),
    ("/api/metrics", {"place": "nav-rloo/a", "file": "config.yaml"}),
    ("/api/episodes", {"store": ".."}),
    ("/api/episode", {"store": "nav-rloo/a/episodes", "id": "../one"}),
    ("/api/picture", {"store": "nav-rloo/a/episodes", "id": "one", "turn": 9, "camera": "head"}),
    ("/static/..%2Fapp.py", {}),
    ("/static/app.py", {}),
    ("/openapi.json", {}),
)


def test_what_is_not_in_the_folder_or_not_meant_to_be_seen_is_not_found(serve_folder, folder):
    url = serve_folder(folder)
    for route, words in REFUSED:
        answer = get(url, route, **words)
        assert answer.status_code == 404, (route, words)
        assert "secret" not in answer.text


def test_nothing_can_be_written(serve_folder, folder):
    url = serve_folder(folder)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for route in ("/", "/api/runs", "/api/media?place=nav-rloo/a/samples/a.png"):
            assert CLIENT.request(method, f"{url}{route}").status_code == 405


def test_a_name_that_was_made_to_point_here_is_refused(serve_folder, folder):
    url = serve_folder(folder)
    assert CLIENT.get(f"{url}/api/runs", headers={"Host": "evil.example"}).status_code == 400
    assert CLIENT.get(f"{url}/api/runs", headers={"Host": "localhost:1234"}).status_code == 200


def test_a_video_can_be_read_in_parts(serve_folder, folder):
    (folder / "nav-rloo/a/samples/b.mp4").write_bytes(bytes(range(100)))
    asked = {"place": "nav-rloo/a/samples/b.mp4"}
    answer = CLIENT.get(f"{serve_folder(folder)}/api/media", params=asked, headers={"Range": "bytes=10-12"})
    assert (answer.status_code, answer.content) == (206, bytes([10, 11, 12]))


def test_an_empty_folder_and_one_without_runs_are_empty_lists(serve_folder, tmp_path):
    url = serve_folder(tmp_path)
    assert get(url, "/api/runs").json()["runs"] == []
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/todo.txt").write_text("nothing")
    assert get(url, "/api/runs").json() == {"folder": tmp_path.name, "runs": [], "stores": []}


def test_a_viewed_run_is_the_folder_itself(serve_folder, folder):
    listing = get(serve_folder(folder / "nav-rloo/a"), "/api/runs").json()
    assert [(run["place"], run["recipe"]) for run in listing["runs"]] == [(".", "nav-rloo")]
