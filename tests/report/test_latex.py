"""LaTeX from text of unknown source."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacbayes_control.report.latex import Column, checked_label, escape, figure, table

COMMANDS = (  # all that a text may come out with; an accent is a command of one sign or letter
    "textbackslash|textasciitilde|textasciicircum|ensuremath|ldots|ss|ae|AE|oe|OE|o|O|l|L|i|j|S|"
    "copyright|allowbreak|[`'^~=.\"urHvc]"
)
NUMBERS = Column("Cost", "number")


def harmless(written: str) -> bool:
    """Whether LaTeX meets no special character, and no command but ours, outside mathematics."""
    rest = re.sub(r"\\ensuremath\{(?:[^{}]|\{[^{}]*\})*\}", "", written)
    rest = re.sub(r"\\[{}$&#%_]", "", rest)
    rest = re.sub(rf"\\(?:{COMMANDS})(?![A-Za-z])", "", rest)
    rest = re.sub(r"\\[`'^~=.\"]", "", rest)
    depth = 0
    for letter in rest:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return False
    return depth == 0 and not re.search(r"[\\$&#%_^]", rest)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("$x_1$ 50% & #", r"\$x\_1\$ 50\% \& \#"),
        ("a~b^c", r"a\textasciitilde{}b\textasciicircum{}c"),
        ("δ ≤ D′ √N C₁ 10⁻⁶", None),
        ("“Zoë” – naïve…", r"``Zo\"{e}'' -- na\"{\i}ve\ldots{}"),
        ("a--b ''c''", "a-{}-b '{}'c'{}'"),
        ("木", "{[}U+6728]"),
        ("a\x1b[2K\u202eb", r"a\textbackslash{}x1b{[}2K\textbackslash{}u202eb"),
        ("one\n\n\\end{table}", r"one \textbackslash{}end\{table\}"),
        ("[x]*", "{[}x]{*}"),
    ],
)
def test_text_is_printed_and_never_acted_on(text: str, written: str | None):
    assert written is None or escape(text) == written
    assert escape(text).isascii()
    assert harmless(escape(text))


def test_the_check_rejects_text_that_was_not_escaped():
    for text in (r"\input{x}", "$x$", "a & b", "50%", "{", "}", "x_1"):
        assert not harmless(text)


@given(st.text(max_size=40), st.booleans())
def test_any_text_is_harmless(text: str, breaks: bool):
    written = escape(text, breaks=breaks)
    assert written.isascii()
    assert "\n" not in written
    assert harmless(written)


def test_long_words_may_be_broken_in_a_column_of_words():
    assert escape("checkpoint_12", breaks=True) == r"checkpoint\_\allowbreak{}12"
    assert r"\allowbreak{}" in escape("a" * 60, breaks=True)
    assert r"\allowbreak{}" not in escape("a" * 60)


def test_a_table_has_rules_a_caption_and_a_label():
    text = table([Column("Name"), NUMBERS], [("a_b", "0.12")], caption="50 %", label="tab:x-1")
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{50 \%}", r"\label{tab:x-1}"):
        assert text.count(part) == 1
    assert r"a\_b & 0.12 \tabularnewline" in text
    assert r"\begin{tabular}{@{}lr@{}}" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1


def test_a_row_cannot_give_an_option_to_the_end_of_the_row_before():
    text = table([NUMBERS], [("[9cm]",), ("*",)], caption="", label="t")
    assert not re.search(r"(tabularnewline|rule)\s*[\[*]", text)


def test_a_wide_table_spans_two_columns():
    columns = [Column(f"heading {i}", "number") for i in range(9)]
    text = table(columns, [["1"] * 9], caption="", label="t")
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 1
    assert r"\setlength{\tabcolsep}" in text


def test_a_table_without_room_for_its_words_spans_two_columns():
    columns = [Column("Environment", "words"), *[Column("a parameter", "number")] * 3]
    rows = [["hall", "1.2345", "1.2345", "1.2345"]]
    assert r"\begin{table*}" in table(columns, rows, caption="", label="t")
    assert r"\begin{table}" in table(columns[:2], [rows[0][:2]], caption="", label="t")


@pytest.mark.parametrize("label", ["", "a b", "a}", "tab:ü", r"\x"])
def test_a_label_is_plain(label: str):
    with pytest.raises(ValueError, match="is no label"):
        checked_label(label)


def test_a_figure_includes_its_file():
    text = figure("run-figure-x.pdf", caption="δ", label="fig:x", width=3.4)
    narrower = r"\ifdim\linewidth<3.4in \linewidth\else 3.4in\fi"
    assert rf"\includegraphics[width={narrower}]{{run-figure-x.pdf}}" in text
    assert r"\caption{\ensuremath{\delta}}" in text
