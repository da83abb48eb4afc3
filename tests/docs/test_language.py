"""Plain language in the documents: short sentences that begin with their subject."""

import re
from collections.abc import Iterator

import pytest

from tests.docs import pages

MAX_WORDS = 40
# A sentence that begins with one of these has a relative clause in place of its subject.
BANNED_OPENINGS = ("Of", "What", "Whatever", "Which", "Whoever", "Whom", "Whose", "Within")
_CODE = re.compile(r"^```.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?:;])[*_)]*\s+(?=[\[(*`]*[A-Z`])")


def sentences(text: str) -> Iterator[str]:
    """Yields the sentences of a page in Markdown, without code, tables and headings."""
    text = _CODE.sub("\n\n", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        lines = [line for line in block.splitlines() if not re.match(r"\s*[|#]", line)]
        paragraph = " ".join(re.sub(r"^\s*(?:[-*>]|\d+\.)\s+", "", line) for line in lines).strip()
        paragraph = re.sub(r"\]\([^)]*\)", "]", paragraph)
        yield from filter(None, _SENTENCE_END.split(paragraph))


def faults(text: str) -> list[str]:
    """Returns the sentences of a page that are too long or have a banned opening."""
    wrong = []
    for sentence in sentences(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        opening = re.sub(r"\W", "", words[0]) if words else ""
        asks = sentence.rstrip("*_").endswith("?")
        if len(words) > MAX_WORDS or (opening in BANNED_OPENINGS and not asks):
            wrong.append(sentence)
    return wrong


@pytest.mark.parametrize("page", pages.PAGES)
def test_sentences_are_plain(page: str) -> None:
    wrong = faults((pages.ROOT / page).read_text("utf-8"))
    assert not wrong, "\n".join(wrong)
