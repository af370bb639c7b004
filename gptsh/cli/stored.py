"""The options about stored sessions: list, find, show, export, count, delete and archive them."""

from gptsh.cli.options import Flags
from gptsh.cli.resolve import filters_of


def list_sessions(flags: Flags) -> int:
    """``--list-sessions``."""
    from gptsh.manage import lists

    return lists.list_sessions(filters_of(flags), flags.output)


def search_sessions(flags: Flags) -> int:
    """``--search-sessions``."""
    from gptsh.manage import lists

    return lists.search_sessions(flags.search_sessions or "", filters_of(flags), flags.output)


def show_usage(flags: Flags) -> int:
    """``--usage``."""
    from gptsh.manage.usage import show_usage

    return show_usage(flags.session, filters_of(flags), flags.output)


def show_session(flags: Flags) -> int:
    """``--show-session``."""
    from gptsh.manage import show

    return show.show_session(flags.show_session or "", flags.output, full=flags.full)


def export_session(flags: Flags) -> int:
    """``--export-session``."""
    from gptsh.manage import show

    return show.export_session(flags.export_session or "", flags.format or "markdown")


def delete_sessions(flags: Flags) -> int:
    """``--delete-session``."""
    from gptsh.manage import removing

    return removing.delete_sessions(flags.delete_session, flags.output, yes=flags.yes)


def archive_sessions(flags: Flags) -> int:
    """``--archive-session``."""
    from gptsh.manage import removing

    return removing.archive_sessions(flags.archive_session, flags.output)


def delete_snapshot(flags: Flags) -> int:
    """``--delete-snapshot``."""
    from gptsh.manage import removing

    return removing.delete_snapshot(flags.delete_snapshot or "", flags.output)
