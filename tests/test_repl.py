"""``-i``: each line a turn, as a run of its own would be."""

from tests.conftest import Home, texts
from tests.screens import Tmux, needs_tmux


@needs_tmux
def test_repl_preload_and_append(home: Home) -> None:
    home.run("-m", "echo", "one")
    with Tmux(home, "-i", "-s", "0") as tmux:
        tmux.until(r"^> *$")
        tmux.say("two")
        tmux.until(r"You said: two\n> ")
        assert texts(home.doc()) == ["user: one", "assistant: You said: one", "user: two", "assistant: You said: two"]
        tmux.say("three")
        tmux.until(r"You said: three\n> ")
        tmux.keys("C-d")
        assert tmux.code() == 0
        assert f"gptsh -i -s {home.doc()['id']}" in tmux.screen()
    assert home.doc()["stats"]["turns"] == 3
