import json

from lookact.judges.server.errors import error_response, place


def test_an_error_is_one_line_of_json_whatever_it_says():
    response = error_response(422, "two\nlines and half a \ud800 pair", {"Retry-After": "3"})
    assert b"\n" not in response.body
    error = json.loads(response.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", 422)
    assert error["message"].startswith("two lines")
    assert response.headers["retry-after"] == "3"
    assert json.loads(error_response(500, "x").body)["error"]["type"] == "server_error"


def test_a_place_is_told_without_the_names_of_types():
    assert place(("body", "messages", 0, "content", "list[tagged-union[A,B]]", 1)) == "messages.0.content.1"
    assert place(("body",)) == "body"
