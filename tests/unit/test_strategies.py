"""The ways to send a session shorter: what stands in the place of what is older, how it is told and counted."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptsh.core.choice import FULL, Shortened
from gptsh.core.context import spoken
from gptsh.core.messages import parts_of, starts_turn, text_of, text_part
from gptsh.core.pruning import pruned
from gptsh.core.strategies import BY_NAME, STRATEGIES, Past, full, minimal, pruned_tools, summary
from gptsh.core.tokens import estimate, of_message
from tests.support import vocabulary

BEGINNING = "[Shortened by gptsh: the conversation up to here.]"
WORDS = "What the user said, word for word:"
SUMMARY = "What the answers and tools came to:"
TASK = "The task as it was first put:"
FILES = "Files touched:"
LAST = "The last answer, shortened:"
END = "[The conversation goes on:]"
LETTERS = "abcdefghij" * 1000
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}, "source": "a.png"}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": LETTERS}}
PLENTY = 100_000  # tokens


def lately(left: int) -> str:
    return f"What the user said lately, word for word ({left:,} earlier questions do not fit and are left out):"


def session(*said: tuple[str, Any]) -> list[Any]:
    return [{"id": f"m{at}", "role": role, "content": content} for at, (role, content) in enumerate(said)]


def call(name: str, call_id: str = "c1", **given_arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(given_arguments)}
    return {"id": call_id, "type": "function", "function": function}


def calls(*made: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made), "id": "a"}


def gives(content: str, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, "id": "r", **more}


def told(shortened: Shortened) -> str:
    """The block that stands in front of the recent messages."""
    block = next(message for message in shortened.messages if message["role"] != "system")
    assert block["role"] == "user"
    assert isinstance(block["content"], str)
    return block["content"]


def sections(shortened: Shortened) -> list[str]:
    """What it says between its first and its last line."""
    text = told(shortened)
    assert text.startswith(f"{BEGINNING}\n\n")
    assert text.endswith(f"\n\n{END}")
    inner = text[len(BEGINNING) + 2 : -len(END)].removesuffix("\n\n")
    return inner.split("\n\n") if inner else []


OLDER = session(
    ("user", "Build a parser"), ("assistant", "Sure, I begin."), ("user", "In Rust, please"), ("assistant", "Done."),
)  # fmt: skip
RECENT = [{"id": "n0", "role": "user", "content": "And now?"}, {"id": "n1", "role": "assistant", "content": "Ready."}]


# ---- the table


def test_the_table_has_the_strategies_in_the_order_in_which_they_are_tried() -> None:
    assert [(one.name, one.least) for one in STRATEGIES] == [
        (FULL, 0), ("pruned-tools", 2000), ("summary", 1500), ("minimal", 0),
    ]  # fmt: skip
    assert {name: one.shorten for name, one in BY_NAME.items()} == {
        "full": full, "pruned-tools": pruned_tools, "summary": summary, "minimal": minimal,
    }  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
def test_with_nothing_older_nothing_changes(strategy: Any) -> None:
    assert strategy.shorten(Past([], RECENT, room=PLENTY)) == Shortened(RECENT, 2)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
@given(
    older=vocabulary.messages("o"), recent=vocabulary.messages("r", most=3), room=st.integers(-1, 500),
    share=st.floats(0, 1), about=st.sampled_from(["", "They built a parser.", LETTERS]),
)  # fmt: skip
def test_every_row_counts_every_message_once_keeps_what_is_recent_and_changes_nothing(
    strategy: Any, older: list[Any], recent: list[Any], room: int, share: float, about: str
) -> None:
    past = Past(spoken(older), spoken(recent), about, round(share * len(spoken(older))) if about else 0, room)
    before = json.dumps(past)
    found = strategy.shorten(past)
    assert strategy.shorten(past) == found
    assert json.dumps(past) == before
    assert found.included + found.summarized + found.left_out == len(past.older) + len(past.recent)
    assert min(found[1:]) >= 0
    assert found.questions <= found.left_out
    assert list(found.messages[len(found.messages) - len(past.recent) :]) == past.recent
    assert [m for m in found.messages if m["role"] == "system"] == [
        m for m in (*past.older, *past.recent) if m["role"] == "system"
    ]
    json.dumps(found)


# ---- full, pruned-tools


def test_full_is_everything() -> None:
    assert full(Past(OLDER, RECENT, "told", 4, 0)) == Shortened([*OLDER, *RECENT], 6)


def test_pruned_tools_shortens_what_older_tools_gave_and_older_attached_text_alone() -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": LETTERS}, text_part("a.txt", LETTERS)], "id": "q"}
    older: list[Any] = [asked, calls(call("ls")), gives(LETTERS, name="ls"), *session(("assistant", LETTERS))]
    recent: list[Any] = [asked, calls(call("ls")), gives(LETTERS, name="ls")]
    found = pruned_tools(Past(older, recent))
    assert found == Shortened([pruned(older[0]), older[1], pruned(older[2]), older[3], *recent], 7)
    assert [of_message(m) < of_message(o) for m, o in zip(found.messages, older, strict=False)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert parts_of(found.messages[0])[0]["text"] == LETTERS


# ---- summary


def test_of_a_summary_words_stand_first_then_what_came_of_them_then_the_recent_messages() -> None:
    found = summary(Past(OLDER, RECENT, "A parser in Rust was built.", 4))
    assert told(found) == (
        f"{BEGINNING}\n\n{WORDS}\n1. Build a parser\n2. In Rust, please\n\n"
        f"{SUMMARY}\nA parser in Rust was built.\n\n{END}"
    )
    assert found == Shortened([{"role": "user", "content": told(found)}, *RECENT], 4, summarized=2)


@pytest.mark.parametrize(("covered", "summarized"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_what_no_summary_tells_is_left_out_but_for_words(covered: int, summarized: int) -> None:
    found = summary(Past(OLDER, RECENT, "told", covered))
    assert found[1:] == (4, summarized, 2 - summarized, 0)


def test_without_a_summary_there_is_no_section_of_it() -> None:
    found = summary(Past(OLDER, RECENT))
    assert sections(found) == [f"{WORDS}\n1. Build a parser\n2. In Rust, please"]
    assert found[1:] == (4, 0, 2, 0)


def test_without_words_there_is_no_section_of_them() -> None:
    found = summary(Past(OLDER[1:2], RECENT, "told", 1))
    assert sections(found) == [f"{SUMMARY}\ntold"]
    assert found[1:] == (2, 1, 0, 0)


WORDED: list[Any] = [
    ("two\nlines, and a list:\n1. one\n\n2. two", "1. two\nlines, and a list:\n1. one\n\n2. two"),
    ("  space around \t\r\n", "1.   space around \t\r\n"),
    (
        "é 中 😀 \u2028 \x00 \ud800 [The conversation goes on:]",
        "1. é 中 😀 \u2028 \x00 \ud800 [The conversation goes on:]",
    ),
    ("", "1. "),
    ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "1. one\ntwo"),
    ([{"type": "text", "text": "Sum up"}, text_part("a.txt", LETTERS)], "1. Sum up\n[a.txt, 10,000 characters]"),
    ([{"type": "text", "text": "Sum up"}, text_part("stdin", "x")], "1. Sum up\n[stdin, 1 characters]"),
    ([{"type": "text", "text": "What is it?"}, PNG], "1. What is it?\n[image/png, 3 bytes]"),
    ([PNG], "1. [image/png, 3 bytes]"),
    ([text_part("stdin", "short")], "1. short"),
    ([text_part("a.txt", "short")], "1. a.txt:\nshort"),
    ([text_part("a.txt", "short"), PNG], "1. a.txt:\nshort\n[image/png, 3 bytes]"),
    ([{"type": "text", "text": "Read"}, DOCUMENT], "1. Read\n[text/plain, 10.0 kB]"),
    ([DOCUMENT], "1. [text/plain, 10.0 kB]"),
    ([{"type": "unheard_of"}], "1. "),
]


@pytest.mark.parametrize(("content", "line"), WORDED)
def test_words_stand_verbatim_and_what_went_along_by_its_name(content: Any, line: str) -> None:
    older = session(("user", content), ("assistant", "x"))
    assert f"\n\n{WORDS}\n{line}\n\n{END}" in told(summary(Past(older, RECENT)))
    assert f"\n\n{TASK}\n{line}\n\n{LAST}\nx\n\n{END}" in told(minimal(Past(older, RECENT, room=PLENTY)))


def test_of_a_question_without_words_the_ends_of_what_was_piped_stand_for_them() -> None:
    older: list[Any] = session(("user", [text_part("stdin", LETTERS)]), ("assistant", "x"))
    text = text_of(pruned(older[0]))
    assert 500 < len(text) < 2000
    assert sections(summary(Past(older, RECENT))) == [f"{WORDS}\n1. {text}"]


def test_questions_have_their_number_in_the_conversation() -> None:
    older = session(*[(role, f"{role} {at}") for at in range(12) for role in ("user", "assistant")])
    lines = sections(summary(Past(older, RECENT)))[0].split("\n")[1:]
    assert lines == [f"{at + 1}. user {at}" for at in range(12)]


def test_system_messages_among_the_older_stay_as_they_are() -> None:
    older = session(("system", "Brief."), ("user", "Hi"), ("system", "In French."), ("assistant", "Salut"))
    for found in (summary(Past(older, RECENT)), minimal(Past(older, RECENT, room=PLENTY))):
        assert list(found.messages[:2]) == [older[0], older[2]]
        assert found.included == 5
        assert "In French." not in told(found)
    nothing = minimal(Past(older, RECENT, room=-1))
    assert list(nothing.messages) == [older[0], older[2], *RECENT]
    assert nothing[1:] == (4, 0, 2, 1)


# ---- a turn of many rounds


ROUNDS: list[Any] = [
    *OLDER,
    {"id": "q", "role": "user", "content": [{"type": "text", "text": "Mend it"}, text_part("log.txt", LETTERS), PNG]},
    calls(call("ls")),
    gives("a.txt"),
]
GOING_ON: list[Any] = [{**calls(call("ls", "c2")), "id": "b"}, {**gives("b.txt", "c2"), "id": "s"}]


ASKED_OF_ROUNDS = f"3. {text_of(pruned(ROUNDS[4]))}"
OF_PNG = 1600  # tokens of an image whose size nobody knows


@pytest.mark.parametrize("room", [-1, 0, 40, PLENTY])
def test_the_question_that_is_answered_stays_with_the_ends_of_what_was_attached(room: int) -> None:
    assert "Mend it\n\nlog.txt:\nabc" in ASKED_OF_ROUNDS
    for found in (summary(Past(ROUNDS, GOING_ON)), minimal(Past(ROUNDS, GOING_ON, room=room))):
        assert f"\n{ASKED_OF_ROUNDS}\n" in f"{parts_of(found.messages[0])[0]['text']}\n"
        assert list(found.messages[1:]) == GOING_ON
    assert "[log.txt, 10,000 characters]" in told(summary(Past(ROUNDS, [*GOING_ON, *RECENT])))


def test_the_image_of_the_question_that_is_answered_is_not_lost_in_its_own_rounds_of_tools() -> None:
    for found in (summary(Past(ROUNDS, GOING_ON, "Built.", 7)), minimal(Past(ROUNDS, GOING_ON, "Built.", 7, PLENTY))):
        said, image, end = parts_of(found.messages[0])
        assert image == PNG
        assert end == {"type": "text", "text": END}
        assert said["text"].startswith(f"{BEGINNING}\n\n")
        assert "Built." in said["text"]
        assert "[image/png" not in said["text"]
        assert of_message(found.messages[0]) > OF_PNG
        assert found[1:] == (5, 4, 0, 0)


def test_images_of_questions_that_are_answered_are_named() -> None:
    for recent in (RECENT, [*GOING_ON, *RECENT]):
        for found in (summary(Past(ROUNDS, recent)), minimal(Past(ROUNDS, recent, room=PLENTY))):
            assert "3. Mend it\n[log.txt, 10,000 characters]\n[image/png, 3 bytes]\n" in told(found)


def test_of_what_a_question_carries_only_what_fits_goes_along_and_the_rest_is_named() -> None:
    other = {**PNG, "image_url": {"url": "data:image/png;base64,YWJjZA=="}}
    older: list[Any] = session(("user", [{"type": "text", "text": "Compare"}, PNG, other]))
    words = "1. Compare\n[image/png, 3 bytes]\n[image/png, 4 bytes]"
    exactly = 100 + estimate(words) + 1 + 2 * OF_PNG
    said = [parts_of(minimal(Past(older, GOING_ON, room=exactly - less)).messages[0]) for less in (0, 1, OF_PNG + 1)]
    assert [part for part in said[0] if part["type"] == "image_url"] == [PNG, other]
    assert [part for part in said[1] if part["type"] == "image_url"] == [PNG]
    assert "1. Compare\n\n" in f"{said[0][0]['text']}\n\n"
    assert "1. Compare\n[image/png, 4 bytes]" in said[1][0]["text"]
    assert f"{words}\n\n{END}" in said[2][0]["text"]
    assert len(said[2]) == 1


@given(st.integers(0, 6000), st.integers(0, 2000), st.booleans())
def test_what_minimal_makes_within_a_turn_takes_no_more_than_its_room(room: int, length: int, carries: bool) -> None:
    """As long as the question that is answered does not."""
    asked: list[Any] = session(("user", [{"type": "text", "text": LETTERS[:length]}, *([PNG] if carries else [])]))
    made = [calls(call("write_file", path=f"src/{at}.py")) for at in range(60)]
    past = Past([*questions(60), *asked, *made], GOING_ON, "told " * 500, 4, room)
    alone = of_message(minimal(past._replace(room=-1)).messages[0])
    assert of_message(minimal(past).messages[0]) <= max(room + of_message({"role": "user", "content": ""}), alone)


@pytest.mark.parametrize("room", [-1, 0, 40])
def test_in_no_room_the_question_that_is_answered_stands_alone(room: int) -> None:
    found = minimal(Past(ROUNDS, GOING_ON, room=room))
    assert told(found) == f"{BEGINNING}\n\n{lately(2)}\n{ASKED_OF_ROUNDS}\n[image/png, 3 bytes]\n\n{END}"
    assert found[1:] == (3, 0, 6, 2)


# ---- minimal


def test_minimal_tells_the_task_the_files_how_things_stand_and_the_words() -> None:
    older: list[Any] = [
        *OLDER[:2], calls(call("write_file", path="src/a.rs"), call("read_file", "c2", path="b.txt")), gives("ok"),
        gives("text", "c2"), *OLDER[2:],
    ]  # fmt: skip
    found = minimal(Past(older, RECENT, room=PLENTY))
    assert sections(found) == [
        f"{TASK}\n1. Build a parser",
        f"{FILES}\n- src/a.rs (modified)\n- b.txt (read)",
        f"{LAST}\nDone.",
        f"{WORDS}\n2. In Rust, please",
    ]
    assert found[1:] == (4, 0, 5, 0)


def test_the_newest_summary_stands_in_the_place_of_the_last_answer() -> None:
    found = minimal(Past(OLDER, RECENT, "A parser was built.", 2, PLENTY))
    assert sections(found)[1] == f"{SUMMARY}\nA parser was built."
    assert LAST not in told(found)
    assert found[1:] == (4, 1, 1, 0)


def test_a_summary_that_there_is_no_room_for_tells_of_nothing() -> None:
    found = minimal(Past(OLDER, RECENT, "A parser was built. " * 100, 4, 110))
    assert SUMMARY not in told(found)
    assert found[1:] == (3, 0, 3, 1)


def test_of_a_long_summary_the_beginning_stands_as_far_as_there_is_room() -> None:
    text = " ".join(f"word{number}" for number in range(2000))
    found = minimal(Past(OLDER, RECENT, text, 4, 900))
    said = next(section for section in sections(found) if section.startswith(SUMMARY)).removeprefix(f"{SUMMARY}\n")
    assert said.endswith(" […]")
    assert text.startswith(said.removesuffix(" […]"))
    assert 150 < estimate(said) <= 200
    assert found.summarized == 2


def test_of_a_long_last_answer_both_ends_stand() -> None:
    answer = "".join(f"{number:,} " for number in range(2000))
    older = session(("user", "Count"), ("assistant", answer), ("assistant", ""))
    found = minimal(Past(older, RECENT, room=PLENTY))
    assert f"{LAST}\n{answer[:400]}\n[…]\n{answer[-400:]}" in told(found)
    short = session(("user", "Count"), ("assistant", answer[:1200]))
    assert f"{LAST}\n{answer[:1200]}\n" in told(minimal(Past(short, RECENT, room=PLENTY)))


def test_the_newest_files_that_fit_are_told() -> None:
    made = [call("write_file", f"c{at}", path=f"src/module_{at}.py") for at in range(200)]
    found = minimal(Past([*OLDER, calls(*made)], RECENT, room=1300))
    lines = next(section for section in sections(found) if section.startswith(FILES)).split("\n")[1:]
    assert 5 < len(lines) < 40
    assert lines == [f"- src/module_{at}.py (modified)" for at in range(200 - len(lines), 200)]


class Unread(dict[str, Any]):
    """What must not be looked at."""

    def get(self, *key: Any) -> Any:
        raise AssertionError(key)


def test_calls_before_the_files_that_fit_are_not_parsed() -> None:
    made = [call("write_file", f"c{at}", path=f"src/module_{at}.py") for at in range(200)]
    older: list[Any] = [*OLDER, calls({**call("write_file"), "function": Unread()}), calls(*made)]
    assert FILES in told(minimal(Past(older, RECENT, room=1300)))
    with pytest.raises(AssertionError):
        minimal(Past(older, RECENT, room=PLENTY))


def questions(count: int) -> list[Any]:
    return session(*[("user", f"Question {at}: what is {at} times {at}, and why is it so?") for at in range(count)])


def size_of(numbers: Any) -> int:
    """Tokens that these questions take as lines."""
    return sum(estimate(f"{at + 1}. {questions(at + 1)[at]['content']}") + 1 for at in numbers)


def test_the_first_question_and_the_newest_that_fit_are_sent() -> None:
    room = 100 + size_of([0, 99, 98, 97, 96])
    found = minimal(Past(questions(100), RECENT, room=room))
    lines = [f"{at + 1}. {questions(at + 1)[at]['content']}" for at in range(100)]
    assert sections(found) == [f"{TASK}\n{lines[0]}", "\n".join([lately(95), *lines[-4:]])]
    assert found[1:] == (7, 0, 95, 95)
    one_less = minimal(Past(questions(100), RECENT, room=room - 1))
    assert (lines[96] in told(one_less), lines[97] in told(one_less)) == (False, True)


def test_one_that_is_too_long_makes_room_for_the_older_ones_that_fit() -> None:
    older = questions(10)
    older[8]["content"] = LETTERS
    found = minimal(Past(older, RECENT, room=100 + size_of([*range(8), 9])))
    assert LETTERS not in told(found)
    assert found[1:] == (11, 0, 1, 1)


def test_just_enough_room_for_all_words_leaves_none_out() -> None:
    exactly = 100 + size_of(range(20))
    assert [minimal(Past(questions(20), RECENT, room=exactly - less))[1:] for less in (0, 1)] == [
        (22, 0, 0, 0), (21, 0, 1, 1),
    ]  # fmt: skip


def test_a_first_question_of_more_than_its_share_waits_for_its_turn() -> None:
    older = session(("user", LETTERS), ("assistant", "x"), ("user", "And?"), ("assistant", "y"))
    size = estimate(f"1. {LETTERS}") + 1
    narrow, wide = (minimal(Past(older, RECENT, room=room)) for room in (2 * size, 5 * size))
    assert TASK not in told(narrow)
    assert f"{WORDS}\n1. {LETTERS}\n2. And?" in told(narrow)
    assert f"{TASK}\n1. {LETTERS}\n\n" in told(wide)


@pytest.mark.parametrize("room", [0, 1, 40, 100])
def test_in_hardly_any_room_the_block_says_what_is_missing(room: int) -> None:
    found = minimal(Past(OLDER, RECENT, "told", 4, room))
    assert sections(found) == [lately(2)]
    assert found[1:] == (2, 0, 4, 2)


def test_in_no_room_at_all_nothing_stands_in_place_of_what_is_older() -> None:
    assert minimal(Past(OLDER, RECENT, "told", 4, -1)) == Shortened(RECENT, 2, left_out=4, questions=2)


@given(st.integers(0, 2000), st.integers(1, 60), st.sampled_from(["", "told " * 100, "done. " * 5]))
def test_what_minimal_makes_takes_no_more_than_its_room_and_a_fixed_rest(room: int, count: int, about: str) -> None:
    older = [
        message
        for at, asked in enumerate(questions(count))
        for message in (asked, *session(("assistant", f"{at} {LETTERS}")))
    ]
    made = [calls(call("write_file", path=f"src/{at}.py")) for at in range(count)]
    found = minimal(Past([*older, *made], RECENT, about, 4, room))
    assert of_message(found.messages[0]) <= max(room, 100) + of_message({"role": "user", "content": ""})
    lines = told(found).split("\n")
    sent = [asked for at, asked in enumerate(questions(count)) if f"{at + 1}. {asked['content']}" in lines]
    assert len(sent) == count - found.questions
    assert found.included == len(sent) + 2


@given(vocabulary.messages("o"), st.integers(0, 3000))
def test_words_that_minimal_does_not_tell_of_are_counted(older: list[Any], room: int) -> None:
    past = Past(spoken(older), RECENT, room=room)
    asked = sum(map(starts_turn, past.older))
    everything, found = (minimal(past._replace(room=size)) for size in (PLENTY, room))
    assert everything.questions == 0
    assert found.included - len(RECENT) - sum(m["role"] == "system" for m in past.older) == asked - found.questions
