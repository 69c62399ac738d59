"""Links calls by exact token prefix; holds each token once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from attrs import define, field


@define(eq=False)
class Node:
    """A call in the graph: the bytes of its tokens after its parent's end."""

    call_id: str
    index: int
    prompt_end: int
    """Bytes of the whole prompt; `end` is that of prompt and sample together."""
    end: int
    tokens: bytes
    parent: Node | None
    children: list[Node] = field(factory=list)
    delivered: bool = True


def packed(ids: Sequence[int]) -> bytes:
    """Return ids as bytes, so that prefixes compare at memory speed.

    Raises:
        TypeError, OverflowError: something among them is not a token id.
    """
    return array("i", ids).tobytes()


WIDTH = array("i").itemsize


class Linker:
    """The graph of one session."""

    def __init__(self) -> None:
        self._root = Node("", -1, 0, 0, b"", None)
        """Continued by whatever continues no call."""

    def add(self, call_id: str, index: int, prompt: bytes, sampled: bytes) -> tuple[Node, list[Node]]:
        """Place a call.

        Args:
            call_id, index: the call's name and order of arrival.
            prompt, sampled: its tokens, packed.

        Returns:
            Its node, whose parent is None for a root; and the nodes of calls that arrived before it and continue it.
        """
        whole = prompt + sampled
        parent, adopted = self._root, []
        stack = [self._root]
        while stack:
            node = stack.pop()
            for child in node.children:
                if child.prompt_end >= len(whole) > node.end and child.tokens.startswith(whole[node.end :]):
                    adopted.append(child)
                elif whole.startswith(child.tokens, node.end):
                    stack.append(child)
                    if child.end <= len(prompt) and child.prompt_end < len(prompt) and _nearer(child, parent):
                        parent = child
        new = Node(call_id, index, len(prompt), len(whole), whole[parent.end :], None if parent is self._root else parent)
        adopted = [child for child in adopted if child.prompt_end > len(prompt)]
        for child in adopted:
            self._move(child, new)
        parent.children.append(new)
        return new, adopted

    def _move(self, child: Node, new: Node) -> None:
        old = child.parent or self._root
        old.children.remove(child)
        child.tokens = child.tokens[new.end - old.end :]
        child.parent = new
        new.children.append(child)


def _nearer(child: Node, best: Node) -> bool:
    # Two calls may end alike (a retry that got the same tokens): the one whose reply arrived is the one continued.
    return (child.end, child.delivered, -child.index) > (best.end, best.delivered, -best.index)
