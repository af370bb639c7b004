"""Messages of sessions for the search rows: turns with a tool call, each text different."""

import json
from random import Random
from typing import Any

FEW, ALL = "zeppelin", "everywhere"  # a word in every thousandth session, and one in every session
_TURNS = 3
_SYLLABLES = [
    f"{first}{rest}"
    for first in "bcdfghklmnprstvz"
    for rest in ("a", "e", "i", "o", "an", "er", "il", "us")
]


class Conversations:
    """Makes the messages of sessions of 8 kB from the keys of a question and an answer that gptsh wrote."""

    def __init__(self, question: dict[str, Any], answer: dict[str, Any]) -> None:
        self._question, self._answer = question, answer
        self._random = Random(7)
        words = [
            "".join(self._random.choices(_SYLLABLES, k=self._random.randint(1, 3)))
            for _ in range(3000)
        ]
        self._pool = [
            " ".join(self._random.choices(words, k=12)).capitalize() + ".\n" for _ in range(2000)
        ]

    def messages(self, number: int) -> list[dict[str, Any]]:
        """The messages of session ``number``."""
        messages: list[dict[str, Any]] = []
        for turn in range(_TURNS):
            call_id = f"call_{self._random.getrandbits(64):016x}"
            function = {
                "name": "files__read_file",
                "arguments": json.dumps({"path": f"src/{self._text(1)[:8]}.py"}),
            }
            call = {"id": call_id, "type": "function", "function": function}
            question = f"{self._text(3)}{f'And {ALL}?' if turn else ''}"
            answer = f"{self._text(3)}{FEW if turn and number % 1000 == 0 else ''}"
            messages += [
                self._question | {"content": question},
                self._answer
                | {"content": None, "finish_reason": "tool_calls", "tool_calls": [call]},
                {
                    "role": "tool",
                    "content": self._text(7),
                    "tool_call_id": call_id,
                    "name": function["name"],
                },
                self._answer | {"content": answer},
            ]
        ids = [self._id() for _ in messages]
        time = self._question["timestamp"]
        links = [
            {"id": ident, "parent": parent, "timestamp": time}
            for ident, parent in zip(ids, [None, *ids], strict=False)
        ]
        return [
            link | message | link for link, message in zip(links, messages, strict=True)
        ]  # ids come first

    def _text(self, sentences: int) -> str:
        return "".join(self._random.choices(self._pool, k=sentences))

    def _id(self) -> str:
        raw = f"{self._random.getrandbits(128):032x}"
        return f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"
