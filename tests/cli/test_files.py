"""What ``-f`` attaches beside single files: quoted patterns, folders, the pipe; and patterns that were not quoted."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.attached import make_png, nested_folders
from tests.support.home import Home
from tests.support.programs import needs
from tests.support.server import ModelServer

ECHO = ("-m", "echo", "--no-save")


def put(folder: Path, **files: str) -> None:
    """Write files; two underscores in a name are a slash, one before the suffix is a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


def test_a_quoted_pattern_is_expanded_in_order_and_each_file_is_sent_once(home: Home) -> None:
    put(home.cwd, b_py="B", a_py="A", src__c_py="C", src__deep__d_py="D", src__deep__e_md="E")
    (home.cwd / ".hidden.py").write_text("H")
    assert (
        home.run(*ECHO, "-f", "*.py", "what?").stdout == "You said: what?\n\na.py:\nA\n\nb.py:\nB\n"
    )
    said = home.run(*ECHO, "-f", "src/deep/d.py", "-f", "src/**/*.py", "what?").stdout
    assert said == "You said: what?\n\nsrc/deep/d.py:\nD\n\nsrc/c.py:\nC\n"
    assert (
        home.run(*ECHO, "-f", "*", "what?").stdout.count(":\n") == 2
    )  # a pattern matches no folder


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(home: Home) -> None:
    put(home.cwd, a_py="A")
    (home.cwd / "[a].py").write_text("B")
    assert home.run(*ECHO, "-f", "[a].py", "what?").stdout == "You said: what?\n\n[a].py:\nB\n"


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("src [x]/*.py", ["src [x]/a.py"]),
        ("src [x]/in*/[b].py", ["src [x]/inner/b.py"]),
        ("src [x]/**/b.py", ["src [x]/inner/b.py"]),
        ("src*/[!b].py", ["src [x]/a.py", "src x/a.py"]),
        ("up/src [?]/*.py", ["up/src [?]/a.py"]),
        ("*/src [?]/*.py", ["up/src [?]/a.py"]),
    ],
)
def test_a_folder_whose_name_looks_like_a_pattern_is_that_folder(
    home: Home, pattern: str, names: list[str]
) -> None:
    for folder in ("src [x]", "src [x]/inner", "src x", "up/src [?]"):
        (home.cwd / folder).mkdir(parents=True, exist_ok=True)
        (home.cwd / folder / ("b.py" if "inner" in folder else "a.py")).write_text("A")
    said = home.run(*ECHO, "-f", pattern, "what?").stdout
    assert re.findall("^(.*):$", said, re.MULTILINE) == names


def test_a_file_that_is_missing_in_such_a_folder_is_named(home: Home) -> None:
    (home.cwd / "src [x]").mkdir()
    problem = "gptsh: src [x]/a.py: No such file or directory\n"
    assert home.run(*ECHO, "-f", "src [x]/a.py", "what?") == ("", problem, 2)


def test_a_pattern_that_matches_nothing_is_an_error_and_the_pipe_is_not_read(home: Home) -> None:
    assert home.run(*ECHO, "-f", "*.py", "hi", stdin="x") == (
        "",
        "gptsh: no file matches *.py\n",
        2,
    )


def test_a_folder_means_its_text_files_without_hidden_ones(home: Home) -> None:
    put(home.cwd, src__b_txt="B", src__sub__a_txt="A", src__z_txt="Z" * 4000)
    put(home.cwd, src__sub__big_txt="x" * 1_000_001)
    (home.cwd / "src" / ".env").write_text("KEY=1")
    (home.cwd / "src" / ".cache").mkdir()
    (home.cwd / "src" / ".cache" / "x").write_text("X")
    (home.cwd / "src" / "logo.png").write_bytes(make_png())
    (home.cwd / "src" / "link").symlink_to("b.txt")
    run = home.run(*ECHO, "-f", "src", "what?")
    assert (
        run.stdout
        == f"You said: what?\n\nsrc/b.txt:\nB\n\nsrc/sub/a.txt:\nA\n\nsrc/z.txt:\n{'Z' * 4000}\n"
    )
    assert run.stderr == (
        "gptsh: src: 3 files, 4.0 kB, about 1,009 tokens\n"
        "gptsh: src: left out: src/.cache (hidden), src/.env (hidden), src/link (a link), "
        "src/logo.png (image/png), src/sub/big.txt (1.0 MB)\n"
    )
    assert home.run(*ECHO, "-f", ".", "what?", cwd=home.cwd / "src").stdout.startswith(
        "You said: what?\n\nb.txt:\nB\n"
    )
    assert (
        "../b.txt:\nB" in home.run(*ECHO, "-f", "..", "what?", cwd=home.cwd / "src" / "sub").stdout
    )


@needs("git")
def test_in_a_repository_a_folder_means_what_git_knows_or_would_add(home: Home) -> None:
    git(home.cwd, "init", "-q")
    put(
        home.cwd,
        known_txt="K",
        new_txt="N",
        gone_txt="G",
        build__out_txt="O",
        _gitignore="build\n*.log\n",
        a_log="L",
    )
    git(home.cwd, "add", "known.txt", "gone.txt", ".gitignore")
    (home.cwd / "gone.txt").unlink()
    said = home.run(*ECHO, "-f", ".", "what?").stdout
    assert (
        said == "You said: what?\n\n.gitignore:\nbuild\n*.log\n\n\nknown.txt:\nK\n\nnew.txt:\nN\n"
    )
    assert (
        "build/out.txt:\nO" in home.run(*ECHO, "-f", "build", "what?").stdout
    )  # named, though ignored


@needs("git")
def test_a_folder_sends_no_hidden_file_that_git_does_not_track_and_no_key(home: Home) -> None:
    git(home.cwd, "init", "-q")
    put(
        home.cwd,
        a_txt="A",
        deploy_PEM="K",
        sub__credentials="K",
        _netrc="K",
        _env_local="K",
        _notes="N",
    )
    put(home.cwd, _ci__build_yml="B")
    (home.cwd / "sub" / "id_rsa").write_text("K")
    git(home.cwd, "add", "a.txt", "deploy.PEM", ".ci", ".env.local")
    run = home.run(*ECHO, "-f", ".", "what?")
    assert run.stdout == "You said: what?\n\n.ci/build.yml:\nB\n\na.txt:\nA\n"
    assert run.stderr.splitlines()[1] == (
        "gptsh: .: left out: .env.local (may contain a key), .netrc (hidden), .notes (hidden), "
        "deploy.PEM (may contain a key), sub/credentials (may contain a key), sub/id_rsa (may contain a key)"
    )
    assert (
        home.run(*ECHO, "-f", ".env.local", "what?").stdout == "You said: what?\n\n.env.local:\nK\n"
    )  # named


def test_a_pattern_sends_no_link_no_hidden_file_and_no_key(home: Home) -> None:
    put(
        home.cwd, src__a_txt="A", src__b_key="K", src___notes="N", outside_txt="O", other__c_txt="C"
    )
    (home.cwd / "src" / "link.txt").symlink_to("../outside.txt")
    (home.cwd / "src" / "other").symlink_to("../other")
    run = home.run(*ECHO, "-f", "src/**/*", "-f", "src/.*", "-f", "src/a.txt", "what?")
    assert run.stdout == ""
    assert run.code == 2
    assert (
        run.stderr.splitlines()[1] == "gptsh: no file matches src/.*: left out: src/.notes (hidden)"
    )
    run = home.run(*ECHO, "-f", "src/**/*", "what?")
    assert run.stdout == "You said: what?\n\nsrc/a.txt:\nA\n"
    left_out = "src/b.key (may contain a key), src/link.txt (a link), src/other (a link)"
    assert run.stderr == f"gptsh: src/**/*: left out: {left_out}\n"


def test_links_in_a_circle_do_not_keep_a_pattern_busy(home: Home) -> None:
    put(home.cwd, a__a_txt="A")
    (home.cwd / "a" / "self").symlink_to(".")
    (home.cwd / "a" / "me").symlink_to(".")
    assert (
        home.run(*ECHO, "-f", "**/**/*.txt", "what?").stdout == "You said: what?\n\na/a.txt:\nA\n"
    )


@pytest.mark.parametrize("source", [".", "**/*.txt"])
def test_a_link_to_itself_is_no_folder(home: Home, source: str) -> None:
    put(home.cwd, a__b_txt="B")
    (home.cwd / "loop").symlink_to("loop")
    run = home.run(*ECHO, "-f", source, "what?")
    assert run.stdout == "You said: what?\n\na/b.txt:\nB\n"
    assert run.code == 0


@needs("git")
def test_what_git_tracks_below_a_link_is_not_sent(home: Home) -> None:
    put(home.cwd, repo__sub__a_txt="A", repo__b_txt="B", outside__a_txt="SECRET")
    git(home.cwd / "repo", "init", "-q")
    git(home.cwd / "repo", "add", ".")
    (home.cwd / "repo" / "sub" / "a.txt").unlink()
    (home.cwd / "repo" / "sub").rmdir()
    (home.cwd / "repo" / "sub").symlink_to("../outside")
    run = home.run(*ECHO, "-f", "repo", "what?")
    assert run.stdout == "You said: what?\n\nrepo/b.txt:\nB\n"
    assert run.stderr.endswith("left out: repo/sub (a link), repo/sub/a.txt (a link)\n")


def test_a_file_is_sent_once_under_all_its_names(home: Home) -> None:
    put(home.cwd, a_txt="A", b_md="B")
    (home.cwd / "hard.txt").hardlink_to(home.cwd / "a.txt")
    (home.cwd / "soft").symlink_to("a.txt")
    values = (
        "-f",
        "soft",
        "-f",
        "*.txt",
        "-f",
        "./hard.txt",
        "-f",
        "**/*",
        "-f",
        ".",
        "-f",
        "b.md",
    )
    run = home.run(*ECHO, *values, "what?")
    assert run.stdout == "You said: what?\n\nsoft:\nA\n\nb.md:\nB\n"
    assert run.code == 0


def test_folders_nested_deeper_than_a_path_may_be_long_are_walked_as_far_as_possible(
    home: Home,
) -> None:
    put(home.cwd, src__a_txt="A")
    with nested_folders(home.cwd / "src"):
        for value in ("src", "src/**/*.txt"):
            run = home.run(*ECHO, "-f", value, "what?")
            assert run.stdout == "You said: what?\n\nsrc/a.txt:\nA\n"
            assert run.code == 0
            assert run.stderr.endswith("/deep (File name too long)\n")


@pytest.mark.slow
def test_a_git_that_hangs_is_one_line_after_ten_seconds(home: Home) -> None:
    put(home.cwd, bin__git="#!/bin/sh\nsleep 60\n", src__a_txt="A")
    (home.cwd / "bin" / "git").chmod(0o700)
    run = home.run(
        *ECHO, "-f", "src", "what?", env={"PATH": f"{home.cwd / 'bin'}:{home.env['PATH']}"}
    )
    error = "gptsh: git has not listed src within 10 s: name its files, or a pattern\n"
    assert run == ("", error, 2)


@needs("git")
def test_a_repository_cannot_make_gptsh_run_a_program(home: Home) -> None:
    git(home.cwd, "init", "-q")
    put(home.cwd, a_txt="A")
    git(home.cwd, "config", "core.fsmonitor", "touch ran; false")
    assert home.run(*ECHO, "-f", ".", "what?").stdout == "You said: what?\n\na.txt:\nA\n"
    assert not (home.cwd / "ran").exists()


def test_a_folder_without_text_is_an_error_that_names_what_is_there(home: Home) -> None:
    (home.cwd / "pics").mkdir()
    assert home.run(*ECHO, "-f", "pics", "hi") == ("", "gptsh: pics has no text file to send\n", 2)
    for number in range(10):
        (home.cwd / "pics" / f"{number}.png").write_bytes(make_png())
    run = home.run(*ECHO, "-f", "pics", "hi")
    assert run.code == 2
    assert run.stderr.count(".png (image/png)") == 8
    assert run.stderr.endswith(" and 2 others\n")


def test_a_folder_that_is_too_long_for_the_window_is_exit_6(lab: Home, model: ModelServer) -> None:
    put(lab.cwd, **{f"src__{number}_txt": "word " * 20_000 for number in range(10)})
    lab.configure(
        lab.config.read_text().replace(
            "[providers.lab]\n", "[providers.lab]\ncontext_window = 32000\n"
        )
    )
    run = lab.run("-f", "src", "what?")
    assert run.code == 6
    assert run.stdout == ""
    assert run.stderr.startswith(
        "gptsh: src: 10 files, 1.0 MB, about 250,027 tokens\ngptsh: the prompt takes about "
    )
    assert not model.requests
    assert not lab.files()


def test_no_folder_fills_the_memory(home: Home) -> None:
    (home.cwd / "src").mkdir()
    for number in range(51):
        (home.cwd / "src" / str(number)).write_bytes(b"x" * 1_000_000)
    run = home.run(*ECHO, "-f", "src", "what?")
    assert run.code == 6
    assert run.stderr == "gptsh: src has more than 50.0 MB of text: name a smaller folder\n"


def test_a_dash_is_stdin_in_its_place(home: Home) -> None:
    put(home.cwd, a_txt="A", b_txt="B")
    said = home.run(
        "-m", "echo", "-f", "a.txt", "-f", "-", "-f", "b.txt", "what?", stdin="P"
    ).stdout
    assert said == "You said: what?\n\na.txt:\nA\n\nP\n\nb.txt:\nB\n"
    assert [part.get("source") for part in home.doc()["messages"][0]["content"]] == [
        None,
        "a.txt",
        "stdin",
        "b.txt",
    ]
    assert home.run(*ECHO, "-f", "-", stdin="P").stdout == "You said: P\n"
    assert (
        home.run(*ECHO, "-f", "-", stdin="P", env={"GPTSH_NO_STDIN": "1"}).stdout == "You said: P\n"
    )
    assert home.run(*ECHO, "-f", "-", stdin="").code == 2
    refused = "gptsh: -f - and --no-stdin cannot be used together\n"
    assert home.run(*ECHO, "-f", "-", "--no-stdin", "hi", stdin="P") == ("", refused, 2)


TRAPS: list[
    tuple[list[str], str]
] = [  # a command line that a shell has expanded, and the word that gave it away
    (["-f", "a.py", "b.py", "f.py", "what?"], "b.py"),
    (["what?", "-f", "a.py", "b.py"], "b.py"),
    (["-xf", "a.py", "b.py", "what?"], "b.py"),
    (["--file", "a.py", "b.py"], "b.py"),
    (["-f", "a.py", "src", "what?"], "src"),
    (["-f", "a.py", "-m", "echo", "what?", "-f", "b.py", "f.py"], "f.py"),
]


@pytest.mark.parametrize(("args", "word"), TRAPS)
def test_a_pattern_that_the_shell_expanded_is_exit_2_with_the_two_ways_around(
    home: Home, args: list[str], word: str
) -> None:
    put(home.cwd, a_py="A", b_py="B", f_py="F", src__c_py="C")
    run = home.run("-m", "echo", *args)
    assert run.stdout == ""
    assert run.code == 2
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith(f"gptsh: {word} after -f ")
    assert run.stderr.endswith(
        ": put a pattern in quotes, as in -f '*.py', or -- before the prompt\n"
    )
    assert not home.state.exists()


@pytest.mark.parametrize(
    "args",
    [["-f", "a.py", "--", "b.py"], ["b.py", "-f", "a.py"], ["-f", "a.py", "src"], ["--file=a.py", "b.py"],
     ["-f", "a.py", "-f", "b.py", "what"]],
)  # fmt: skip
def test_a_prompt_that_is_a_file_s_name_can_still_be_asked(home: Home, args: list[str]) -> None:
    put(home.cwd, a_py="A", b_py="B", src__c_py="C")
    assert home.run("-m", "echo", *args).code == 0


def test_an_unreadable_folder_is_one_line(home: Home) -> None:
    (home.cwd / "closed").mkdir(mode=0)
    if os.access(home.cwd / "closed", os.R_OK):
        pytest.skip("this user may read everything")
    error = "gptsh: closed has no text file to send: left out: closed (Permission denied)\n"
    assert home.run(*ECHO, "-f", "closed", "hi") == ("", error, 2)
