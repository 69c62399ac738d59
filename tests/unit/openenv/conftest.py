"""openenv's own servers, in threads of their own."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from longrein.capture.listen import loopback_listener

HERE = Path(__file__).parent


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an app on loopback and yield its address."""
    with loopback_listener() as listener:
        listener.listen(64)
        server = uvicorn.Server(uvicorn.Config(app, ws="websockets-sansio", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="session")
def guess_module() -> Any:
    """The module with the guessing environment."""
    sys.path.insert(0, str(HERE))
    try:
        return importlib.import_module("guess_server")
    finally:
        sys.path.remove(str(HERE))


@pytest.fixture(scope="session")
def guess_url(guess_module: Any) -> Iterator[str]:
    """A running server with the guessing environment."""
    with served(guess_module.app) as url:
        yield url


@pytest.fixture
def spoil(guess_module: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Spoil the guessing environment in one way."""
    return lambda way: monkeypatch.setattr(guess_module, "SPOILT", way)


@pytest.fixture(scope="session")
def echo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server with the echo environment that openenv's `init` command writes; it takes actions, not tools."""
    import openenv.cli.templates as templates

    source, folder = Path(str(templates.__file__)).with_name("openenv_env"), tmp_path_factory.mktemp("echo")
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for mark, name in (("__ENV_CLASS_NAME__", "Echo"), ("__ENV_TITLE_NAME__", "Echo"), ("__ENV_NAME__", "echo")):
            text = text.replace(mark, name)
        place = folder / "written_echo" / str(path.relative_to(source)).replace("__ENV_NAME__", "echo")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        app = importlib.import_module("written_echo.server.app").app
    finally:
        sys.path.remove(str(folder))
    with served(app) as url:
        yield url
