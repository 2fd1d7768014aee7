#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the pages: *.md and docs/**/*.md.

- Every block of C++ is either a quote, whose text equals a region of a source that is compiled,

      <!-- quote: examples/04_shift.cpp region -->

  or an outline, which nobody compiles: <!-- outline -->. The line stands directly above the block.
  A region lies between the lines `// [region]` and `// [/region]`; its indentation is left out.
- Every link to a file of the project, and to a heading of a page, leads somewhere.
- No decision in docs/decisions.md is longer than eight lines.
- Each item of a list has a line of its own.
- The pages of the ten tasks in docs/building.md quote the sources beside them.
- A page in docs/ begins with a recommendation: it has bold words before its first section. Lists of answers need none.

usage: check.py [--update] <the project's folder>

  --update  writes the text of the regions into the quotes first
"""
import re
import sys
import textwrap
from pathlib import Path

COMPILED = ("examples/", "tests/")  # quotes come from here
LANGUAGES = {"cpp", "c++", "cuda"}
DECISIONS = "docs/decisions.md"
LISTS = {DECISIONS, "docs/cheat-sheet.md", "docs/faq.md", "docs/index.md"}
MOST_LINES = 8

BLOCK = re.compile(r"^(?P<above>[^\n]*)\n```(?P<language>[^\n]*)\n(?P<text>.*?)^```[ \t]*$", re.M | re.S)
QUOTE = re.compile(r"<!-- quote: (\S+) (\S+) -->")
OUTLINE = "<!-- outline -->"


def pages(root):
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def region(root, path, name):
    """The text of a region, or why there is none."""
    source = root / path
    if not path.startswith(COMPILED) or source.suffix not in (".cpp", ".hpp", ".cu"):
        return None, f"{path} is not compiled, expected a source in {' or '.join(COMPILED)}"
    if not source.is_file():
        return None, f"{path} does not exist"
    found = re.findall(
        rf"^[ \t]*// \[{re.escape(name)}\][ \t]*\n(.*?)^[ \t]*// \[/{re.escape(name)}\][ \t]*$",
        source.read_text(), flags=re.M | re.S)
    if len(found) != 1:
        return None, f"{path} has {len(found)} regions [{name}], expected one"
    inner = re.sub(r"^[ \t]*// \[/?[\w-]+\][ \t]*\n", "", found[0], flags=re.M)  # of regions within
    return textwrap.dedent(inner).strip("\n") + "\n", None


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_blocks(root, page, text):
    for block in BLOCK.finditer(text):
        where = f"{page}:{line_of(text, block.start()) + 1}"
        quote = QUOTE.fullmatch(block["above"].strip())
        if quote:
            expected, problem = region(root, *quote.groups())
            if problem:
                yield f"{where}: {problem}"
            elif block["text"] != expected:
                yield f"{where}: differs from region [{quote[2]}] of {quote[1]}; --update repairs it"
        elif block["language"].strip() in LANGUAGES and block["above"].strip() != OUTLINE:
            yield f"{where}: C++ that is neither a quote nor an outline"


def updated(root, text):
    def replace(block):
        quote = QUOTE.fullmatch(block["above"].strip())
        expected = region(root, *quote.groups())[0] if quote else None
        if expected is None:
            return block[0]
        return f"{block['above']}\n```{block['language']}\n{expected}```"

    return BLOCK.sub(replace, text)


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```[ \t]*$", "", text, flags=re.M | re.S))


def anchors(text):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ +(.*?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(root, page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (root / page).parent / path if path else root / page
        if not file.exists():
            yield f"{page}: the link to {target} leads nowhere"
        elif anchor and anchor not in anchors(file.read_text()):
            yield f"{page}: the link to {target} leads to no heading"


def check_tasks(root, page, text):
    for row in re.findall(r"^\|.*", text.partition("### Ten tasks\n")[2].partition("\n#")[0], re.M)[2:]:
        answer, *sources = re.findall(r"\]\(([^)#\s]+)", row) or [""]
        folder = (root / page).parent
        for source in sources:
            quoted = (folder / source).resolve().relative_to(root.resolve()).as_posix()
            if f"<!-- quote: {quoted} " not in (folder / answer).read_text():
                yield f"{page}: {answer} does not quote {quoted}, as the ten tasks say"
        if not sources:
            yield f"{page}: a row of the ten tasks has no source, expected a page and its sources"


def check_opening(page, text):
    opening = without_code(text).split("\n## ")[0]
    if page.startswith("docs/") and page not in LISTS and "**" not in opening:
        yield f"{page}: no recommendation before the first section, expected bold words, as in '**If unsure**, ...'"


def check_lists(page, text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\S - (\*\*|`|\[)", re.sub(r"`[^`]*`", "`", line)) and not line.startswith("|"):
            yield f"{page}:{number}: an item of a list within a line, expected a line of its own"


def check_decisions(text):
    for section in re.split(r"^## +", text, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        lines = len([line for line in body.splitlines() if line.strip()])
        if lines > MOST_LINES:
            yield f"{DECISIONS}: '{title}' has {lines} lines, expected at most {MOST_LINES}"


def check(root):
    root = Path(root)
    for path in pages(root):
        page = path.relative_to(root).as_posix()
        text = path.read_text()
        yield from check_blocks(root, page, text)
        yield from check_links(root, page, text)
        yield from check_opening(page, text)
        yield from check_lists(page, text)
        if page == DECISIONS:
            yield from check_decisions(text)
        yield from check_tasks(root, page, text)


def update(root):
    root = Path(root)
    for path in pages(root):
        text = path.read_text()
        if updated(root, text) != text:
            path.write_text(updated(root, text))
            print(f"updated {path.relative_to(root)}")


def report(problems):
    """Prints them. Returns the exit status."""
    problems = list(problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def main(arguments):
    if arguments[:1] == ["--update"]:
        arguments = arguments[1:]
        update(*arguments)
    return report(check(*arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
