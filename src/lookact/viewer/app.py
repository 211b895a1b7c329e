"""The viewer's routes: the page, and the records behind it. Every one only reads, and only below one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import FileResponse, Response

from lookact import __version__
from lookact.viewer.episodes import episode_detail, list_episodes, list_stores, map_picture, picture
from lookact.viewer.folder import NotFound, find, inside, loose_stores
from lookact.viewer.judge_pairs import list_pairs
from lookact.viewer.metrics import metric_files, read_metrics
from lookact.viewer.page import STATIC_TYPES, static_files
from lookact.viewer.runs import MEDIA_TYPES, list_runs, media_file, run_detail, run_log

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}
HOSTS = ["127.0.0.1", "localhost", "[::1]"]
"""A page from elsewhere whose name was made to point here is refused."""


def create_app(root: Path, *, tokenizer: Path | None = None) -> FastAPI:
    """The viewer of one folder as an ASGI application. Records are JSON already: FastAPI need not look into them."""
    app = FastAPI(title="LookAct viewer", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers.update(HEADERS)
        return response

    @app.exception_handler(NotFound)
    async def refuse(request: Request, error: NotFound) -> Response:
        return json_response({"error": "not in the viewed folder"}, 404)

    app.include_router(run_routes(root))
    app.include_router(episode_routes(root, tokenizer))
    app.include_router(page_routes())
    return app


def run_routes(root: Path) -> APIRouter:
    """Runs: the list, one of them, its log, its numbers, its pictures and videos."""
    routes = APIRouter(prefix="/api")

    @routes.get("/runs")
    def runs() -> Response:
        found = find(root)
        stores = list_stores(root, loose_stores(found))
        return json_response({"folder": root.name, "runs": list_runs(root, found), "stores": stores})

    @routes.get("/run")
    def run(place: str) -> Response:
        found = find(root)
        if place not in found.runs:
            raise NotFound(place)
        return json_response(run_detail(root, place, found))

    @routes.get("/log")
    def log(place: str) -> Response:
        return json_response(run_log(root, place))

    @routes.get("/pairs")
    def pairs(place: str) -> Response:
        return json_response(list_pairs(root, place))

    @routes.get("/metrics")
    def metrics(place: str, file: str, offset: int = Query(0, ge=0), version: str = "") -> Response:
        folder = inside(root, place)
        if file not in metric_files(folder):
            raise NotFound(file)
        return json_response(read_metrics(inside(folder, file), offset=offset, version=version))

    @routes.get("/media")
    def media(place: str) -> Response:
        path = media_file(root, place)
        return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()])

    return routes


def episode_routes(root: Path, tokenizer: Path | None) -> APIRouter:
    """Episodes: the list of a store, one of them, what its cameras saw, and its room from above."""
    routes = APIRouter(prefix="/api")

    @routes.get("/episodes")
    def episodes(store: str) -> Response:
        return json_response(list_episodes(root, store))

    @routes.get("/episode")
    def episode(store: str, id: str) -> Response:
        return json_response(episode_detail(root, store, id, tokenizer=tokenizer))

    @routes.get("/picture")
    def episode_picture(store: str, id: str, turn: int, camera: str) -> Response:
        return Response(picture(root, store, id, turn, camera), media_type="image/png")

    @routes.get("/map")
    def episode_map(store: str, id: str) -> Response:
        return Response(map_picture(root, store, id), media_type="image/png")

    return routes


def page_routes() -> APIRouter:
    """The page and what it is made of."""
    routes = APIRouter()

    @routes.get("/static/{name}")
    def static(name: str) -> Response:
        return page(name)

    @routes.get("/")
    def index() -> Response:
        return page("index.html")

    return routes


def page(name: str) -> Response:
    """One of the page's own files."""
    if name not in static_files():
        raise NotFound(name)
    return Response(static_files()[name], media_type=STATIC_TYPES[Path(name).suffix])


def json_response(value: Any, status: int = 200) -> Response:
    """A record as JSON in ASCII, so that no text of a file can break the answer."""
    return Response(json.dumps(value, allow_nan=False, separators=(",", ":")), status, media_type="application/json")
