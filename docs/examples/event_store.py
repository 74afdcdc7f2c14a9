"""An event store over HTTP: streams of text events, appended, read and followed live.

    pip install starlette uvicorn
    python docs/examples/event_store.py DIRECTORY 8000

    curl -d 'first event' localhost:8000/streams/7                  {"event":0}
    curl 'localhost:8000/streams/7?first=0'                         ["first event"]
    curl -N localhost:8000/streams/7/live                           each event as it becomes durable

All requests of one pass of the event loop share one sync. An answer with an event's number is sent when a
crash can no longer lose the event. Ctrl-C or SIGTERM ends the live streams and closes the store.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import ledgerstore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from socket import socket

    from starlette.requests import Request
    from starlette.responses import Response


def first_event(request: Request) -> int:
    """Return the number in `?first=`, 0 if there is none; answer 400 if it is not a number."""
    text = request.query_params.get("first", "0")
    if not (text.isascii() and text.isdigit()):
        raise HTTPException(400, "first is the number of an event")
    return int(text)


async def append(request: Request) -> Response:
    stream = request.app.state.store.ledger(request.path_params["stream"])
    event = await request.body()
    try:
        event.decode()  # checked before it is stored, because every later reader decodes it
    except UnicodeDecodeError:
        raise HTTPException(400, "an event is text in UTF-8") from None
    return JSONResponse({"event": await stream.append(event)}, status_code=201)


async def read(request: Request) -> Response:
    stream = request.app.state.store.ledger(request.path_params["stream"])
    first = first_event(request)
    try:
        return JSONResponse([payload.decode() async for payload in stream.payloads(first)])
    except ledgerstore.NoSuchLedger:
        return JSONResponse({"error": f"there is no stream {stream.id}"}, status_code=404)


async def live(request: Request) -> Response:
    stream = request.app.state.store.ledger(request.path_params["stream"])
    first = first_event(request)

    async def events() -> AsyncIterator[str]:
        async for entry in stream.follow(first):
            lines = entry.payload.decode().splitlines() or [""]  # each line of an event has its own "data:"
            yield f"id: {entry.entry_id}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def application(directory: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with ledgerstore.open_async(directory) as app.state.store:
            yield

    routes = [
        Route("/streams/{stream:int}", append, methods=["POST"]),
        Route("/streams/{stream:int}", read),
        Route("/streams/{stream:int}/live", live),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


class Server(uvicorn.Server):
    """A server that ends its live streams when it is asked to stop.

    uvicorn waits for open connections before it ends the lifespan, which closes the store. A live stream
    never ends by itself, so its follower is stopped first; otherwise the server waits for its clients.
    """

    def __init__(self, app: Starlette, port: int) -> None:
        super().__init__(uvicorn.Config(app, host="127.0.0.1", port=port))
        self._app = app

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._app.state.store.stop_followers()
        await super().shutdown(sockets)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory, port]:
            Server(application(directory), int(port)).run()
        case _:
            sys.exit(__doc__)
