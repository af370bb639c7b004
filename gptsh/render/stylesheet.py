"""How the HTML of a session looks: on a phone and on a desk, by day and by night."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fff; --ink: #1d1f23; --soft: #5c6370; --line: #d9dce1; --panel: #f5f6f8; --user: #e9f0fb; --link: #0a58ca;
  --comment: #5f6773; --keyword: #a0187c; --name: #1f4fa3; --string: #18652c; --number: #9a3e00;
  --gone: #a61b1b; --new: #18652c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #16181c; --ink: #e4e6ea; --soft: #a0a7b3; --line: #363b44; --panel: #202329; --user: #1d2b40;
    --link: #8ab8ff; --comment: #9aa3b0; --keyword: #f291d3; --name: #93bdff; --string: #8fd69e; --number: #f5b078;
    --gone: #ff9c94; --new: #8fd69e;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 48rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
h3 { font-size: 1.25rem; } h4 { font-size: 1.1rem; } h5, h6 { font-size: 1rem; }
h3, h4, h5, h6 { line-height: 1.3; margin: 1.2em 0 .5em; }
time, .note { color: var(--soft); font-weight: normal; font-size: .85rem; margin-left: .5em; }
time, .note { display: inline-block; }
.note { border: 1px solid var(--line); border-radius: .3rem; padding: 0 .35em; }
a { color: var(--link); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; }
header { border-bottom: 1px solid var(--line); padding-bottom: 1rem; margin-bottom: 1rem; }
article { margin: 1.2rem 0; }
article.user { background: var(--user); border-radius: .6rem; padding: .8rem 1rem; }
article.tool, article.system { border-left: 3px solid var(--line); padding-left: .8rem; }
.words > :first-child { margin-top: 0; } .words > :last-child { margin-bottom: 0; }
.words + .words { margin-top: .8em; }
article > :last-child { margin-bottom: 0; }
p { margin: .7em 0; }
.raw { white-space: pre-wrap; }
.line, summary { font-size: .85rem; color: var(--soft); font-family: ui-monospace, Menlo, Consolas, monospace; }
details, .line { margin: .6rem 0; }
details { border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .7rem; background: var(--ground); }
summary { cursor: pointer; }
details[open] > summary { margin-bottom: .5rem; }
ul, ol { padding-left: 1.6em; margin: .7em 0; }
li > ul, li > ol { margin: 0; }
blockquote { margin: .7em 0; padding-left: .9em; border-left: 3px solid var(--line); color: var(--soft); }
hr { border: 0; border-top: 1px solid var(--line); }
code { font: .875em/1.5 ui-monospace, Menlo, Consolas, monospace; }
:not(pre) > code { background: var(--panel); border-radius: .25rem; padding: .1em .3em; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .8rem;
  margin: .7em 0; overflow-x: auto; overflow-wrap: normal; max-height: 40rem; }
details pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.language { font-size: .75rem; color: var(--soft); margin: .7em 0 -.5em; }
.table { overflow-x: auto; overflow-wrap: normal; margin: .7em 0; }
table { border-collapse: collapse; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--panel); } .right { text-align: right; } .center { text-align: center; }
figure { margin: .7em 0; }
img { max-width: 100%; height: auto; border-radius: .3rem; }
figcaption { font-size: .8rem; color: var(--soft); }
.c { color: var(--comment); font-style: italic; } .k { color: var(--keyword); } .f { color: var(--name); }
.s { color: var(--string); } .n { color: var(--number); } .d { color: var(--gone); } .i { color: var(--new); }
"""
