import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookact.text.file_names import file_name


@pytest.mark.parametrize("id", ["nav-000012-3", "arkitscenes-17", "scene0000_00 navigation", "größe.1", "a" * 180])
def test_an_ordinary_id_is_its_own_name(id):
    assert file_name(id) == id


@pytest.mark.parametrize(
    ("id", "name"),
    [("../../escaped", "%2E.%2F..%2Fescaped"), ("/etc/passwd", "%2Fetc%2Fpasswd"), (".", "%2E"), ("a%2Fb", "a%252Fb")],
)
def test_what_would_lead_elsewhere_is_written_out(id, name):
    assert file_name(id) == name


@given(st.lists(st.text(), unique=True, max_size=20))
def test_names_stay_in_the_folder_and_apart(tmp_path_factory, ids):
    folder = tmp_path_factory.getbasetemp()
    names = [file_name(id) for id in [*ids, "", "x" * 5000, "x" * 5001]]
    assert len(set(names)) == len(names) - ids.count("")
    for name in names:
        (folder / f"{name}_tensors.partial").touch()
        assert (folder / f"{name}_tensors.partial").parent == folder
