# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long the functions of a header are, and how many members its classes have. Reads braces, as .clang-format sets
them, and not C++: no compiler reads all headers, because some need Kokkos or a device."""
import re
from dataclasses import dataclass

SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'' r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    flags=re.S | re.M,
)
NO_MEMBER = re.compile(
    r"(using|static_assert|enum|(template\s*<.*>\s*)?(struct|class)\s+\w+$)\b|.*\bfriend\b", flags=re.S
)


@dataclass
class Scope:
    kind: str  # namespace, class, function, or other: an initializer, an enum, a block
    name: str
    line: int
    members: int = 0


def kind_of(head):
    """What begins with the brace behind these words, in a namespace or a class: its kind and its name."""
    words = re.sub(r"\[\[.*?\]\]|\b(public|private|protected):(?!:)", " ", head, flags=re.S).strip()
    if re.match(r"(inline\s+)?namespace\b", words):
        return "namespace", words
    found = re.search(
        r"\b(?:class|struct|union)\s+(?:alignas\([^()]*\)\s*)?(\w[\w:<>, ]*?)(?:<.*>)?(?:\s+final)?(?:\s*:(?!:)[^()]*)?$", words
    )
    if found and not re.match(r"enum\b", words):
        return "class", found.group(1)
    # A member that is initialized has no space in front of its brace.
    found = re.search(r"(operator[^(]+|[\w~:]+)\s*\(", re.sub(r"\b(requires|noexcept|explicit|decltype)\s*\(", " ", words))
    if found and head != head.rstrip() and not words.endswith("="):
        return "function", found.group(1)
    return "other", ""


def sizes_of(text):
    """Yields each class as ("class", name, line, members) and each function as ("function", name, line, lines).

    A member is a variable or a function; types, aliases and friends do not count. Raises ValueError if a brace has no
    partner, which an #if can do."""
    code = SKIPPED.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    scopes = [Scope("namespace", "", 0)]
    start = parentheses = 0
    for found in re.finditer(r"[(){};]", code):
        brace, here = found.group(), scopes[-1]
        declares = here.kind in ("namespace", "class")
        if brace in "()":
            parentheses += 0 if not declares else 1 if brace == "(" else -1
        elif brace == "{":
            head = code[start : found.start()]
            kind, name = kind_of(head) if declares and parentheses == 0 else ("other", "")
            scopes.append(Scope(kind, name, code.count("\n", 0, found.start()) + 1))
            if kind in ("namespace", "class"):
                start = found.end()
        elif brace == "}":
            if len(scopes) == 1:
                raise ValueError("a brace has no partner")
            scopes.pop()
            if here.kind == "class":
                yield "class", here.name, here.line, here.members
            elif here.kind == "function":
                yield "function", here.name, here.line, max(0, code.count("\n", 0, found.start()) - here.line)
                scopes[-1].members += 0 if NO_MEMBER.match(code[start : found.start()].strip()) else 1
            if here.kind in ("namespace", "class", "function"):
                start = found.end()
        elif declares and parentheses == 0:
            declared = re.sub(r"\b(public|private|protected):(?!:)", " ", code[start : found.start()]).strip()
            here.members += 1 if declared and not NO_MEMBER.match(declared) else 0
            start = found.end()
    if len(scopes) != 1:
        raise ValueError("a brace has no partner")
