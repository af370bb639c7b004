"""What llm kept before its message store: a row for each response, with the question that it answers."""

from typing import Any

from gptsh.core.messages import Block, parts_of
from gptsh.formats.database import Database, Row
from gptsh.formats.llm_parts import Facts, Parts, Said, answer, call_of, facts, simple, text, thought, with_result

_TABLE, _FIRST_TABLE = "responses", "logs"  # the latter of the first versions
TABLES = ("conversations", _TABLE, _FIRST_TABLE)


class Responses:
    """The responses of a database but for those that its message store has too."""

    def __init__(self, db: Database, parts: Parts, *, but: set[str]) -> None:
        self._db, self._parts = db, parts
        self._rows: dict[str, list[tuple[str, str, int]]] = {}  # by session: id, table, number
        for row in db.index(_TABLE, "id", "conversation_id"):
            ident = text(row.get("id")) or f"row-{row['rowid']}"
            if ident not in but:
                self._take(text(row.get("conversation_id")) or ident, ident, _TABLE, row["rowid"])
        for row in db.index(_FIRST_TABLE, "id", "chat_id"):
            chat = row.get("chat_id") if isinstance(row.get("chat_id"), int) else row["rowid"]
            self._take(f"logs-{chat}", f"logs-{row['rowid']:09}", _FIRST_TABLE, row["rowid"])
        self._calls = self._numbers("tool_calls")
        self._results = self._numbers("tool_results")

    def _take(self, session: str, ident: str, table: str, number: int) -> None:
        self._rows.setdefault(session, []).append((ident, table, number))

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
        return [(ident, self._db.row(table, number)) for ident, table, number in sorted(self._rows.get(session, ()))]

    def messages(self, ident: str, row: Row) -> list[Said]:
        """The system prompt, the tools' results, the question and the answer, as far as they are there."""
        known = facts(row)
        results, question = self._tool_results(ident), self._question(ident, row)
        if _is_repeated(question, results):
            question = []
        said = [*self._system(ident, row), *results, *question, self._answer(ident, row, known)]
        return [{**message, "timestamp": known.moment} for message in said]

    def _system(self, ident: str, row: Row) -> list[Said]:
        pieces = [*self._fragments("system_fragments", ident), text(row.get("system")) or ""]
        whole = "\n\n".join(piece.strip() for piece in pieces if piece.strip())
        return [{"role": "system", "id": f"{ident}:system", "content": whole}] if whole else []

    def _question(self, ident: str, row: Row) -> list[Said]:
        prompt = text(row.get("prompt"))
        whole = "\n".join([*self._fragments("prompt_fragments", ident), *([prompt] if prompt else [])])
        content = [{"type": "text", "text": whole}] if whole else []
        content += self._attachments("prompt_attachments", response_id=ident)
        return [{"role": "user", "id": f"{ident}:prompt", "content": simple(content)}] if content else []

    def _tool_results(self, ident: str) -> list[Said]:
        return [self._result(f"{ident}:result:{number}", number) for number in self._results.get(ident, ())]

    def _result(self, ident: str, number: int) -> Said:
        row = self._db.row("tool_results", number)
        output, media = (
            text(row.get("output")) or "",
            self._attachments("tool_results_attachments", tool_result_id=number),
        )
        content = [{"type": "text", "text": output}, *media] if media else output
        names = {key: name for key in ("tool_call_id", "name") if isinstance(name := row.get(key), str)}
        return with_result({"role": "tool", "id": ident, "content": content, **names}, row.get("exception"))

    def _answer(self, ident: str, row: Row, known: Facts) -> Said:
        blocks: list[Block] = [*thought(text(row.get("reasoning")) or "", {})]
        if said := text(row.get("response")):
            blocks.append(("text", {"type": "text", "text": said}))
        for number in self._calls.get(ident, ()):
            call = self._db.row("tool_calls", number)
            blocks.append(
                ("tool_call", call_of(*(text(call.get(key)) for key in ("tool_call_id", "name", "arguments"))))
            )
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
