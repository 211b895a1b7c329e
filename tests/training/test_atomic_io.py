from lookact.training.atomic_io import link_tree, place, recover, write_text


def test_a_replacement_cut_in_two_is_undone(tmp_path):
    (tmp_path / ".old-best").mkdir()
    (tmp_path / ".old-best/x").write_text("before")
    (tmp_path / ".tmp-best").mkdir()
    recover(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best/x").read_text() == "before"


def test_a_finished_replacement_stays(tmp_path):
    for name in (".old-best", "best"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_text(name)
    (tmp_path / ".tmp-config.yaml").write_text("half")
    recover(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best/x").read_text() == "best"


def test_place_replaces_a_whole_folder(tmp_path):
    for name in ("best", ".tmp-best"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name.strip(".")).write_text("")
    place(tmp_path / ".tmp-best", tmp_path / "best")
    assert [path.name for path in tmp_path.rglob("*")] == ["best", "tmp-best"]


def test_write_text_replaces_and_leaves_nothing_behind(tmp_path):
    write_text(tmp_path / "a", "one")
    write_text(tmp_path / "a", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "two")]


def test_a_linked_copy_outlives_the_original(tmp_path):
    (tmp_path / "one/inner").mkdir(parents=True)
    (tmp_path / "one/inner/x").write_text("kept")
    link_tree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "one/inner/x").unlink()
    assert (tmp_path / "two/inner/x").read_text() == "kept"
