"""Load a file of weights over a served model: checked before anything is changed, and with tied weights packed again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from longrein_vllm.fit import Shapes, header, misfit


@dataclass
class Init(WeightTransferInitInfo):
    """What a trainer says once."""

    folder: str
    """The only folder that files are loaded from."""


@dataclass
class Update(WeightTransferUpdateInfo):
    """One version of the weights."""

    path: str
    """A safetensors file, whole: parameters under their names in the checkpoint, any float dtype."""
    version: int


class SharedMemoryEngine(WeightTransferEngine[Init, Update]):
    """Takes whole versions from files on this host; with tensor parallelism every worker takes its share of the same file.

    Nothing of the served model changes before a whole file was found to fit it, so a trainer that dies half-way leaves the
    old weights, and neither `start_weight_update` nor `finish_weight_update` has anything to do.
    """

    init_info_cls, update_info_cls = Init, Update
    supports_draft_weight_update = False
    _folder: Path | None = None

    def init_transfer_engine(self, init_info: Init) -> None:
        """Remember the folder; a new trainer names its own."""
        folder = Path(init_info.folder).resolve()
        if not folder.is_dir():
            raise ValueError(f"no folder {folder} on this host: longrein-shm needs the trainer and vLLM on one host")
        self._folder = folder

    def start_weight_update(self) -> None:
        """Nothing is prepared: the served weights stay as they are until a whole file is there."""

    def receive_weights(self, update_info: Update) -> None:
        """Load one version.

        Raises:
            ValueError: the file is elsewhere, damaged or does not fit; the old weights stay.
        """
        path = self._allowed(update_info.path)
        try:
            file = safe_open(path, "pt", device="cpu")
        except Exception as error:  # safetensors has an error class of its own for damage, and OSError
            raise ValueError(f"cannot read weights from {path.name}: {error}; the old weights stay") from error
        with file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            tied = bool(getattr(self.model_config.hf_config, "tie_word_embeddings", False))
            if problem := misfit(shapes, self._served(), tied=tied):
                raise ValueError(f"weights in {path.name} do not fit the served model: {problem}; the old weights stay")
            with torch.device(self.device):
                initialize_layerwise_reload(self.model)
                self.model.load_weights((name, file.get_tensor(name)) for name in shapes)
                finalize_layerwise_reload(self.model, self.model_config)
                pack_tied(self.model)

    def finish_weight_update(self) -> None:
        """Nothing is left to do: a version is loaded whole or not at all."""

    def shutdown(self) -> None:
        """Nothing is held."""

    def _allowed(self, path: str) -> Path:
        real = Path(path).resolve()  # links are followed first
        if self._folder is None or not real.is_relative_to(self._folder):
            raise ValueError(f"refused to load {path}: only files below {self._folder} are loaded")
        return real

    def _served(self) -> Shapes | None:
        """Return names and shapes of the checkpoint that is served; None where it is no folder with safetensors."""
        files = sorted(Path(self.model_config.model).glob("*.safetensors"))
        return {name: shape for file in files for name, shape in header(file).items()} or None


def pack_tied(model: torch.nn.Module) -> None:
    """Let layers that share a parameter with another one make their packed copy of it again.

    vLLM processes a layer after a reload when weights were loaded under its own name. A head that is tied to the embedding has
    none, so on CPUs, where it multiplies with a packed copy, it would go on with the old values.
    """
    owners: dict[int, list[Any]] = {}
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and weight.numel() and getattr(layer, "quant_method", None) is not None:
            owners.setdefault(weight.data_ptr(), []).append(layer)
    for layers in owners.values():
        for layer in layers if len(layers) > 1 else ():
            layer.quant_method.process_weights_after_loading(layer)
