"""What llm kept before its message store: a row for each response, with the question that it answers."""

from typing import Any

from gptsh.formats.database import Database, Row
from gptsh.formats.llm_parts import (
    Facts,
    Parts,
    Said,
    answer,
    call_of,
    facts,
    ids_of,
    simple,
    text,
    thought,
    with_result,
)
from gptsh.messages import Block, parts_of

_TABLE, _FIRST_TABLE = "responses", "logs"  # the latter of the first versions
_TOLD = ("timestamp", "timestamp_utc", "datetime_utc", "model", "system", "prompt", "response")  # time and words
TABLES = ("conversations", _TABLE, _FIRST_TABLE)


class Responses:
    """The responses of a database but for those that its message store has too."""

    def __init__(self, db: Database, parts: Parts, *, but: set[str]) -> None:
        self._db, self._parts = db, parts
        self._rows: dict[str, list[tuple[str, str, str, int]]] = {}  # by session: place, id, table, number
        rows = db.index(_TABLE, "id", "conversation_id")
        names = ids_of(db, _TABLE, (row for row in rows if not text(row.get("id"))), _TOLD)
        for row in rows:
            ident = text(row.get("id")) or names[row["rowid"]]
            if ident not in but:
                self._take(text(row.get("conversation_id")) or ident, ident, _TABLE, row["rowid"])
        self._take_first_ones(db.index(_FIRST_TABLE, "id", "chat_id"))
        self._calls = self._numbers("tool_calls")
        self._results = self._numbers("tool_results")

    def _take_first_ones(self, rows: list[Row]) -> None:
        """The rows of the first versions, whose chats go by the number of a row: each by the id of its first one."""
        names = ids_of(self._db, _FIRST_TABLE, rows, _TOLD)
        sessions: dict[int, str] = {}
        for row in sorted(rows, key=lambda row: int(row["rowid"])):
            number, chat = row["rowid"], row.get("chat_id")
            session = sessions.setdefault(chat if isinstance(chat, int) else number, f"logs-{names[number]}")
            self._take(session, f"logs-{names[number]}", _FIRST_TABLE, number)

    def _take(self, session: str, ident: str, table: str, number: int) -> None:
        place = f"{number:019}" if ident.startswith(("row-", "logs-")) else ident
        self._rows.setdefault(session, []).append((place, ident, table, number))

    def _numbers(self, table: str) -> dict[Any, list[int]]:
        """The numbers of a table's rows by response: it has no index of its own."""
        found: dict[Any, list[int]] = {}
        for row in self._db.index(table, "response_id"):
            found.setdefault(row.get("response_id"), []).append(row["rowid"])
        return found

    @property
    def sessions(self) -> list[str]:
        """Their conversations; one without is a session of its own."""
        return [*self._rows]

    def rows(self, session: str) -> list[tuple[str, Row]]:
        """The responses of a session with their ids, in order."""
        found = sorted(self._rows.get(session, ()))
        return [(ident, self._db.row(table, number)) for _, ident, table, number in found]

    def messages(self, ident: str, row: Row) -> list[Said]:
        """The system prompt, the tools' results, the question and the answer, as far as they are there."""
        known = facts(row)
        results, question = self._tool_results(ident), self._question(ident, row)
        if _is_repeated(question, results):
            question = []
        said = [*self._system(ident, row), *results, *question, self._answer(ident, row, known)]
        return [{**message, "timestamp": known.moment} for message in said]

    def _system(self, ident: str, row: Row) -> list[Said]:
        pieces = [*self._fragments("system_fragments", ident), self._parts.words(row.get("system"))]
        whole = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
        return [{"role": "system", "id": f"{ident}:system", "content": whole}] if whole else []

    def _question(self, ident: str, row: Row) -> list[Said]:
        prompt = self._parts.words(row.get("prompt"))
        whole = "\n".join([*self._fragments("prompt_fragments", ident), *([prompt] if prompt else [])])
        content = [{"type": "text", "text": whole}] if whole else []
        content += self._attachments("prompt_attachments", response_id=ident)
        return [{"role": "user", "id": f"{ident}:prompt", "content": simple(content)}] if content else []

    def _tool_results(self, ident: str) -> list[Said]:
        return [self._result(f"{ident}:result:{number}", number) for number in self._results.get(ident, ())]

    def _result(self, ident: str, number: int) -> Said:
        row = self._db.row("tool_results", number)
        output, media = (
            self._parts.words(row.get("output")),
            self._attachments("tool_results_attachments", tool_result_id=number),
        )
        content = [{"type": "text", "text": output}, *media] if media else output
        names = {key: name for key in ("tool_call_id", "name") if isinstance(name := row.get(key), str)}
        return with_result({"role": "tool", "id": ident, "content": content, **names}, row.get("exception"))

    def _answer(self, ident: str, row: Row, known: Facts) -> Said:
        blocks: list[Block] = [*thought(self._parts.words(row.get("reasoning")), {})]
        if said := self._parts.words(row.get("response")):
            blocks.append(("text", {"type": "text", "text": said}))
        for number in self._calls.get(ident, ()):
            call = self._db.row("tool_calls", number)
            given = self._parts.words(call.get("arguments")) or None
            blocks.append(("tool_call", call_of(text(call.get("tool_call_id")), text(call.get("name")), given)))
        return answer({"role": "assistant", "id": ident, **known.who, **known.whole}, blocks)

    def _fragments(self, table: str, ident: str) -> list[str]:
        return [self._parts.fragment(row.get("fragment_id")) for row in self._in_order(table, response_id=ident)]

    def _attachments(self, table: str, **of: Any) -> list[Any]:
        return [self._parts.attachment(row.get("attachment_id")) for row in self._in_order(table, **of)]

    def _in_order(self, table: str, **of: Any) -> list[Row]:
        rows = list(self._db.rows(table, **of))
        return sorted(rows, key=lambda row: row["order"] if isinstance(row.get("order"), int) else len(rows))


def _is_repeated(question: list[Any], results: list[Any]) -> bool:
    """Whether a question is no more than what came with the results that it stands beside."""
    given = [part for result in results for part in parts_of(result)]
    return bool(results and question) and all(part in given for part in parts_of(question[0]))
