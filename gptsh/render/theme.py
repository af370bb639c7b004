"""The colours and styles of Markdown on a terminal: of headings, links, list marks, and of the words in code."""

from rich.style import Style

# Two of the terminal's own colours, which are legible on white and on black: yellow, green and cyan are not legible on
# white, xterm's blue is not on black.
PLAIN = Style()
DIM = Style(dim=True)
CODE = Style(color="magenta")
BULLET = Style(color="magenta")
LINK = Style(underline=True)
HEADING = Style(bold=True)  # of the third level and below
HEADINGS = {"h1": Style(bold=True, underline=True, color="magenta"), "h2": Style(bold=True, color="magenta")}
TABLE_HEAD = Style(bold=True)
INLINE = {"em": Style(italic=True), "strong": Style(bold=True), "s": Style(strike=True), "a": LINK}  # by HTML tag
TOKENS = {  # the kinds of words in code, as Pygments names them
    DIM: "Comment",
    CODE: "Keyword Operator.Word Name.Decorator Name.Attribute Generic.Subheading",
    HEADING: "Name.Function Name.Class Name.Tag Generic.Inserted Generic.Heading",
    Style(color="red"): "Name.Exception Literal.String Literal.Number Generic.Deleted",
}
