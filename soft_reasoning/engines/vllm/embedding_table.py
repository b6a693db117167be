"""A model's embedding table on the CPU, for engines whose backend does not show its weights."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging

CHUNK = 8192


class EmbeddingTable:
    """``rows`` (V, D): every token's embedding in the model's dtype, as its own lookup returns it."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self._norms = torch.cat([some.float().norm(dim=-1) for some in rows.split(CHUNK)]).clamp_min(1e-12)

    @classmethod
    def load(cls, name: str, config: Any, *, dtype: torch.dtype, **options: Any) -> EmbeddingTable:
        """Load the table of the model ``name`` without its layers.

        The rows come from the model's own lookup, so a scale that it applies (Gemma's) is included.

        Args:
            name: A folder or a name on the hub.
            config: The model's configuration.
            dtype: The model's dtype.
            options: Passed to ``from_pretrained``.
        """
        config = deepcopy(config)
        text = config.get_text_config()
        text.num_hidden_layers = 0
        if getattr(text, "layer_types", None):
            text.layer_types = []
        if hasattr(config, "quantization_config"):
            del config.quantization_config  # embeddings are stored as they are
        verbosity = logging.get_verbosity()
        logging.set_verbosity_error()  # of the weights that are left out
        try:
            model = AutoModel.from_pretrained(name, config=config, dtype=dtype, **options)
        finally:
            logging.set_verbosity(verbosity)
        lookup = model.get_input_embeddings()
        with torch.inference_mode():
            chunks = torch.arange(lookup.weight.shape[0]).split(CHUNK)
            return cls(torch.cat([lookup(ids) for ids in chunks]))

    def __len__(self) -> int:
        return self.rows.shape[0]

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Return embeddings (len(ids), D) float32."""
        return self.rows[torch.tensor(list(ids), dtype=torch.long)].float()

    def rms(self) -> float:
        """Return the root mean square over the entries."""
        squares = sum(float(chunk.double().square().sum()) for chunk in self.rows.split(CHUNK))
        return (squares / self.rows.numel()) ** 0.5

    def nearest(self, x: Tensor, count: int) -> list[list[tuple[int, float]]]:
        """Return the ``count`` tokens most similar by cosine to each row of ``x`` (n, D), best first."""
        x = torch.nn.functional.normalize(x.float().cpu(), dim=-1)
        cosines = torch.cat([x @ some.float().T for some in self.rows.split(CHUNK)], dim=-1) / self._norms
        best = cosines.topk(min(count, len(self)), dim=-1)
        return [
            list(zip(tokens, values, strict=True))
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
