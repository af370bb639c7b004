"""The modules that a run imports."""

import subprocess
import sys

from tests.support.home import Home

MARKDOWN = {
    "rich",
    "markdown_it",
    "pygments",
    "gptsh.render.canvas",
    "gptsh.render.layout",
    "gptsh.render.markdown_parser",
}


def modules_after(home: Home, *args: str) -> set[str]:
    code = (
        "import sys, os\n"
        "sys.stdout = open(os.devnull, 'w')\n"
        "from gptsh.cli.entrypoint import main\n"
        f"code = main({list(args)!r})\n"
        "print(*sys.modules, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=home.env, cwd=home.cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())
