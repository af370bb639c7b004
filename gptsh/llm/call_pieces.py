"""Join the pieces in which tool calls arrive from chat completions.

Only an answer that calls tools imports this file.
"""

import json

from gptsh.jsonio import JsonObject, as_dict, as_str, parse_json
from gptsh.messages import Call


class CallPieces:
    """The tool calls of an answer, in their order, while their pieces arrive."""

    def __init__(self) -> None:
        self._calls: list[_GrowingCall] = []
        # Which call got the last piece: of all, of each index, of each id, of both together.
        self._last: _GrowingCall | None = None
        self._at_index: dict[int, _GrowingCall] = {}
        self._with_id: dict[str, _GrowingCall] = {}
        self._at_index_with_id: dict[tuple[int, str], _GrowingCall] = {}

    def add(self, piece: JsonObject, *, is_complete: bool) -> None:
        """Add a piece to the call that it continues, or begin a call with it.

        A complete call is always a new one.
        """
        index = piece.get("index")
        if not isinstance(index, int):
            index = None
        call_id = as_str(piece.get("id"))
        call = self._find(index, call_id, piece)
        if call is None or is_complete or call.is_followed_by(piece):
            call = _GrowingCall()
            self._calls.append(call)
        call.add(piece)

        self._last = call
        if index is not None:
            self._at_index[index] = call
        if call_id:
            self._with_id[call_id] = call
        if index is not None and call_id:
            self._at_index_with_id[index, call_id] = call

    def complete(self) -> list[Call]:
        """Return the calls with all that has arrived."""
        return [call.complete() for call in self._calls]

    def _find(self, index: int | None, call_id: str, piece: JsonObject) -> "_GrowingCall | None":
        """Return the call that a piece belongs to, unless it begins another; None: a new one."""
        if index is None:
            # Some servers send no indexes, and the id with the first piece only.
            return self._with_id.get(call_id, self._last)
        # Some servers give each call the same index.
        call = self._at_index_with_id.get((index, call_id), self._at_index.get(index))
        if call is None and not call_id and not as_dict(piece.get("function")).get("name"):
            return self._last  # only arguments, which cannot begin a call
        return call


class _GrowingCall:
    """A tool call while its pieces arrive.

    Some servers send an empty id or name with a piece (Mistral, Dashscope, Groq): it is ignored.
    """

    def __init__(self) -> None:
        self._function: JsonObject = {"name": "", "arguments": ""}
        self._call: JsonObject = {"id": "", "type": "function", "function": self._function}
        self._arguments: list[str] = []  # pieces

    def is_followed_by(self, piece: JsonObject) -> bool:
        """Return whether a piece that may belong to this call begins another one.

        A piece does so if it has another id. If there are no ids, it does so if it has a name after
        complete arguments.
        """
        call_id = as_str(piece.get("id"))
        if call_id and self._call["id"]:
            return bool(call_id != self._call["id"])
        function = as_dict(piece.get("function"))
        name = as_str(function.get("name"))
        arguments = function.get("arguments") or ""
        if not name:
            return False
        if not arguments and name == self._function["name"]:
            return False  # some servers repeat the name
        if isinstance(arguments, str) and arguments.lstrip()[:1] not in ("", "{", "["):
            return False
        return self._has_complete_arguments()

    def _has_complete_arguments(self) -> bool:
        """Return whether the arguments so far are an object.

        The arguments may have megabytes, so they are parsed only if they end as an object does.
        """
        if not self._arguments or not self._arguments[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(parse_json("".join(self._arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def add(self, piece: JsonObject) -> None:
        """Add the name, the arguments and the unknown keys of a piece, such as signatures."""
        function = as_dict(piece.get("function"))
        self._call["id"] = self._call["id"] or as_str(piece.get("id"))
        self._function["name"] = self._function["name"] or as_str(function.get("name"))
        arguments = function.get("arguments")
        if arguments not in (None, ""):
            if not isinstance(arguments, str):  # some servers send an object
                arguments = json.dumps(arguments)
            self._arguments.append(arguments)
        for key, value in function.items():
            self._function.setdefault(key, value)
        for key, value in piece.items():
            if key != "index" and value not in (None, ""):
                self._call.setdefault(key, value)

    def complete(self) -> Call:
        """Return the call with all that has arrived."""
        function = {**self._function, "arguments": "".join(self._arguments)}
        return {**self._call, "function": function}
