"""What layers leave behind a forward pass."""

from typing import Any


class Saved:
    """What a layer's `forward` leaves in it; in a `ConvChain` it is computed when it is asked for.

    A layer keeps no chain alive, so that a model's memory is free as soon as the model is gone: from then on
    it is None.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, layer: Any, owner: type) -> Any:
        if layer is None:
            return self
        if layer.chain is not None:
            if (chain := layer.chain()) is None:
                return None
            chain.unfold()
        return vars(layer).get(self.name)

    def __set__(self, layer: Any, value: Any) -> None:
        layer.chain = None
        vars(layer)[self.name] = value
