"""Pause, load and resume of a vLLM server, over the HTTP routes of its development mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from longrein.capture.endpoint import PolicyEndpoint
from longrein.errors import ServeError


class VllmControl:
    """The calls that `ControlClient` has for the embedded server, for vLLM with longrein-vllm; every call blocks until it is done.

    Args:
        endpoint: where it serves.
        timeout_s: how long a call may take; a pause waits for the replies under way.
    """

    def __init__(self, endpoint: PolicyEndpoint, *, timeout_s: float = 120.0) -> None:
        self.endpoint, self.timeout_s = endpoint, timeout_s
        self._root = endpoint.url.rstrip("/").removesuffix("/v1")

    def use(self, folder: Path) -> None:
        """Name the only folder that weights are loaded from.

        Raises:
            ServeError: vLLM was started without longrein-vllm's weight transfer, or the folder is not on its host.
        """
        self._post("init_weight_transfer_engine", json={"init_info": {"folder": str(folder)}})

    def pause(self, mode: str = "wait") -> None:
        """Let the replies under way end, start no other and forget the prefixes computed with the old weights."""
        self._post("pause", params={"mode": mode, "clear_cache": "true"})

    def load(self, weights: Path, version: int) -> None:
        """Swap the weights.

        Raises:
            ServeError: the file is outside the folder in use or does not fit; the old weights stay.
        """
        try:
            self._post("start_weight_update")
        except ServeError as error:
            if "already" not in str(error):  # a trainer that died had begun one; nothing of it was loaded
                raise
            self._post("finish_weight_update")
            self._post("start_weight_update")
        self._post("update_weights", json={"update_info": {"path": str(weights), "version": version}})
        self._post("finish_weight_update", json={"weight_version": str(version)})

    def resume(self) -> None:
        """Answer the requests that have queued up, and new ones."""
        self._post("resume")

    def add_adapter(self, folder: Path) -> None:
        """Serve a LoRA adapter under its folder's name."""
        self._post("v1/load_lora_adapter", json={"lora_name": folder.name, "lora_path": str(folder), "load_inplace": False})

    def healthy(self) -> bool:
        """True when the server answers."""
        try:
            return self._ask("GET", "health", timeout=5.0).status_code == 200
        except ServeError:
            return False

    def info(self) -> dict[str, Any]:
        """Return vLLM's resolved config."""
        answer: dict[str, Any] = self._checked(self._ask("GET", "server_info", params={"config_format": "json"})).json()["vllm_config"]
        return answer

    def models(self) -> list[dict[str, Any]]:
        """Return the models served, with their max_model_len."""
        answer: list[dict[str, Any]] = self._checked(self._ask("GET", "v1/models")).json()["data"]
        return answer

    def _post(self, call: str, **values: Any) -> None:
        self._checked(self._ask("POST", call, **values))

    def _ask(self, method: str, call: str, timeout: float | None = None, **values: Any) -> httpx.Response:
        uds, key = self.endpoint.uds, self.endpoint.api_key
        transport = httpx.HTTPTransport(uds=str(uds)) if uds else None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with httpx.Client(transport=transport, timeout=timeout or self.timeout_s, headers=headers, trust_env=False) as client:
                return client.request(method, f"{self._root}/{call}", **values)
        except httpx.TimeoutException as error:
            raise ServeError(f"vLLM did not finish {call!r} within {timeout or self.timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise ServeError(f"vLLM does not answer {call!r} at {uds or self._root}: {type(error).__name__}: {error}") from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        call = answer.request.url.path.removeprefix("/")
        if answer.status_code == 404:
            raise ServeError(f"vLLM has no route {call!r}: start it with VLLM_SERVER_DEV_MODE=1, or with `longrein serve --engine vllm`")
        if answer.status_code != 200:
            raise ServeError(f"vLLM refused {call!r} ({answer.status_code}): {_reason(answer)}")
        return answer


def _reason(answer: httpx.Response) -> str:
    try:
        body = answer.json()
        error = body.get("error", body.get("detail", body))
        return str(error["message"] if isinstance(error, dict) and "message" in error else error)[:800]
    except (ValueError, AttributeError):
        return answer.text[:800]
