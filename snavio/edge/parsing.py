"""Reads lexemes into a tree by walking the table of directives, and says every mistake of form at once.

Never recurses deeper than the language nests, and gives up no file at its first mistake: what cannot be read is left
out, and reading goes on behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from snavio.edge.findings import FindingLog, TextPosition, closest_word, quoted
from snavio.edge.language import FILE, LANGUAGE, PATH, Directive, DirectiveArgument, LanguageBlock
from snavio.edge.lexer import MOST_DEPTH, Lexeme, LexemeKind, decoded, lexemes_of
from snavio.edge.tree import DirectiveBlock, Remark, Statement


def parse(data: bytes, findings: FindingLog) -> DirectiveBlock | None:
    """The tree of a file; None when it could not even be read as text. Mistakes are in `findings`."""
    text = decoded(data, findings)
    if text is None:
        return None
    lexemes = lexemes_of(text, findings)
    depth = deepest = 0
    for each in lexemes:
        depth = max(0, depth + (each.kind is LexemeKind.OPEN) - (each.kind is LexemeKind.CLOSE))
        if depth > deepest:
            deepest = depth
            if deepest > MOST_DEPTH:
                findings.mistake(each.at, "too-deep", f"Blocks nest at most {MOST_DEPTH} deep.")
                return None
    return _Parser(lexemes, findings).file()


@dataclass
class _Parser:
    lexemes: list[Lexeme]
    findings: FindingLog
    place: int = 0
    last_line: int = 0
    """The line of the last lexeme that was taken, to see what stands beside it and what behind a blank line."""

    def file(self) -> DirectiveBlock:
        return self._block(FILE, opened=None)

    # Lexemes.

    def _peek(self) -> Lexeme | None:
        return self.lexemes[self.place] if self.place < len(self.lexemes) else None

    def _next_is(self, kind: LexemeKind) -> bool:
        return self.place < len(self.lexemes) and self.lexemes[self.place].kind is kind

    def _take(self) -> Lexeme:
        taken = self.lexemes[self.place]
        self.place += 1
        self.last_line = taken.at.line
        return taken

    def _beside(self) -> str:
        """The comment on the line of the last lexeme, if one stands there."""
        ahead = self._peek()
        if ahead is None or ahead.kind is not LexemeKind.COMMENT or ahead.at.line != self.last_line:
            return ""
        return self._take().raw

    def _blank(self, ahead: Lexeme) -> bool:
        return self.last_line > 0 and ahead.at.line - self.last_line > 1

    # Blocks.

    def _block(self, name: str, opened: Lexeme | None) -> DirectiveBlock:
        language = LANGUAGE[name]
        statements: list[Statement] = []
        remarks: list[Remark] = []
        opening = self._beside() if opened else ""
        closed_line = 0
        while True:
            ahead = self._peek()
            if ahead is None:
                if opened is not None:
                    self.findings.mistake(
                        opened.at, "unclosed-block", "The block that opens here is not closed."
                    )
                break
            match ahead.kind:
                case LexemeKind.COMMENT:
                    blank = self._blank(ahead)
                    remarks.append(Remark(self._take().raw, blank))
                case LexemeKind.END:
                    self._take()
                case LexemeKind.CLOSE:
                    self._take()
                    if opened is not None:
                        closed_line = ahead.at.line
                        break
                    self.findings.mistake(
                        ahead.at, "stray-brace", "Nothing is open that this brace would close."
                    )
                case LexemeKind.OPEN:
                    self.findings.mistake(
                        ahead.at, "stray-brace", "A block belongs to a directive; none stands before it."
                    )
                    self._skip_block()
                case LexemeKind.WORD:
                    read = self._statement(language, remarks)
                    if read is not None:
                        statements.append(read)
                        remarks = []
        inline = opened is not None and opened.at.line == closed_line
        return DirectiveBlock(name, tuple(statements), opening, tuple(remarks), inline)

    def _statement(self, language: LanguageBlock, before: list[Remark]) -> Statement | None:
        blank = self._blank(self.lexemes[self.place])
        first = self.lexemes[self.place]
        row = self._row(language, first)
        if row is None:
            return None
        hoisted: list[Remark] = []
        words = [self._word(hoisted) for _ in row.name]
        values = [("", word) for word in words[-1:]] if row.patterns else []
        complete = self._values(language, row, words, values, hoisted)
        if row.refused:
            self.findings.mistake(first.at, "refused", row.refused)
        self._extra(language, row, words)
        hoisted += self._hoist_before_block()
        block = None
        if self._next_is(LexemeKind.OPEN):
            brace = self.lexemes[self.place]
            if row.opens:
                self._take()
                block = self._block(row.opens, brace)
            else:
                if not row.refused:
                    self.findings.mistake(brace.at, "no-block", f"`{row.key}` has no block.")
                self._skip_block()
        elif row.opens and not row.closed and complete:
            self.findings.mistake(first.at, "block-missing", f"`{row.key}` needs a block: `{row.usage}`.")
        if self._next_is(LexemeKind.END):
            self._take()
        trailing = self._beside()
        # A comment inside of the words moves above them. The blank line before the statement stays above it.
        moved = bool(hoisted)
        if moved and blank:
            hoisted[0] = replace(hoisted[0], blank_before=True)
        return Statement(
            row,
            tuple(words),
            tuple(values),
            block,
            (*before, *hoisted),
            trailing,
            blank_before=blank and not moved,
        )

    # Words.

    def _word(self, hoisted: list[Remark]) -> Lexeme:
        hoisted += self._hoist()
        return self._take()

    def _hoist(self) -> list[Remark]:
        """Comments between the words of one statement."""
        found = []
        while self._next_is(LexemeKind.COMMENT):
            found.append(Remark(self._take().raw))
        return found

    def _hoist_before_block(self) -> list[Remark]:
        """Comments between the last word and a brace; they stay where they are when no brace follows."""
        ahead = self.place
        while ahead < len(self.lexemes) and self.lexemes[ahead].kind is LexemeKind.COMMENT:
            ahead += 1
        follows = ahead < len(self.lexemes) and self.lexemes[ahead].kind is LexemeKind.OPEN
        return self._hoist() if follows else []

    def _ahead(self, count: int) -> list[Lexeme]:
        """The next words, comments left out, as far as no brace or semicolon divides them."""
        found: list[Lexeme] = []
        place = self.place
        while len(found) < count and place < len(self.lexemes):
            lexeme = self.lexemes[place]
            if lexeme.kind is LexemeKind.WORD:
                found.append(lexeme)
            elif lexeme.kind is not LexemeKind.COMMENT:
                break
            place += 1
        return found

    def _next_word(self) -> Lexeme | None:
        """The next word, comments left out; None when a brace or a semicolon comes first."""
        for place in range(self.place, len(self.lexemes)):
            lexeme = self.lexemes[place]
            if lexeme.kind is not LexemeKind.COMMENT:
                return lexeme if lexeme.kind is LexemeKind.WORD else None
        return None

    def _fitting(self, language: LanguageBlock) -> Directive | None:
        """The row whose name the next words are."""
        first = self._next_word()
        if first is None:
            return None
        rows = language.candidates(first.text, bare=first.bare)
        if len(rows) == 1 and len(rows[0].name) == 1:
            return rows[0]
        ahead = self._ahead(3)
        for row in rows:
            rest = list(zip(row.name[1:], ahead[1:], strict=False))
            if len(rest) == len(row.name) - 1 and all(_fits(name, word) for name, word in rest):
                return row
        return None

    def _begins(self, language: LanguageBlock) -> bool:
        """True when the next word begins a directive of this block."""
        ahead = self._next_word()
        return ahead is not None and ahead.bare and ahead.text in language.by_first

    def _row(self, language: LanguageBlock, first: Lexeme) -> Directive | None:
        row = self._fitting(language)
        if row is not None:
            return row
        family = language.by_first.get(first.text, ()) if first.bare else ()
        ahead = self._ahead(2)
        if family:
            second = [each.name[1] for each in reversed(family) if len(each.name) > 1]
            known = list(dict.fromkeys(second))
            given = ahead[1].text if len(ahead) > 1 else ""
            shown = ", ".join(f"`{first.text} {'<path>' if each == PATH else each}`" for each in known)
            self.findings.mistake(
                ahead[1].at if given else first.at,
                "unknown-directive",
                f"`{first.text}` is followed by one of these: {shown}.",
                closest_word(given, known),
            )
        elif language.name in (FILE, "channel") and not first.bare:
            self.findings.mistake(
                first.at,
                "bad-path",
                f"The path of a route begins with `/`, and {quoted(first.text)} does not.",
            )
        else:
            where = "at the level of the file" if language.name == FILE else f"in `{language.name}`"
            self.findings.mistake(
                first.at,
                "unknown-directive",
                f"There is no directive {quoted(first.text)} {where}.",
                closest_word(first.text, language.starters()),
            )
        self._skip_statement(language)
        return None

    def _values(
        self,
        language: LanguageBlock,
        row: Directive,
        words: list[Lexeme],
        values: list[tuple[str, Lexeme]],
        hoisted: list[Remark],
    ) -> bool:
        """Take the values of a directive; False when one is missing."""
        complete = True
        keywords = row.keywords
        for argument in row.arguments:
            if argument.keyword:
                continue
            count = 0
            while self._value_follows(language, row, argument, count):
                word = self._word(hoisted)
                words.append(word)
                values.append(("", word))
                count += 1
                if not argument.many:
                    break
            if not count and argument.required:
                self._missing(row, words[-1].at)
                complete = False
                break
        seen: set[str] = set()
        while (
            keywords and complete and (ahead := self._next_word()) and ahead.bare and ahead.text in keywords
        ):
            keyword = self._word(hoisted)
            words.append(keyword)
            if self._next_word() is None:
                self._missing(row, keyword.at)
                complete = False
                break
            value = self._word(hoisted)
            words.append(value)
            if keyword.text in seen:
                self.findings.mistake(keyword.at, "duplicate", f"`{keyword.text}` is there twice.")
            seen.add(keyword.text)
            values.append((keyword.text, value))
        absent = [each for each in keywords.values() if each.required and each.keyword not in seen]
        if absent and complete:
            self._missing(row, words[0].at)
            complete = False
        return complete

    def _value_follows(
        self, language: LanguageBlock, row: Directive, argument: DirectiveArgument, count: int
    ) -> bool:
        ahead = self._next_word()
        if ahead is None:
            return False
        if not ahead.bare:
            return True
        if any(each.keyword == ahead.text for each in row.arguments) and not argument.required:
            return False
        if ahead.text not in language.by_first:
            # Routes begin with a slash: one that follows a list is no value of it.
            return not (PATH in language.by_first and ahead.text.startswith("/") and not argument.required)
        # Newlines mean nothing, but a value that was forgotten must not swallow the directive below it.
        return argument.required and not count and ahead.at.line == self.last_line

    def _missing(self, row: Directive, at: TextPosition) -> None:
        self.findings.mistake(at, "value-missing", f"`{row.key}` needs a value: `{row.usage}`.")

    def _extra(self, language: LanguageBlock, row: Directive, words: list[Lexeme]) -> None:
        """Refuse words behind the last value, on its line."""
        ahead = self._peek()
        while ahead is not None and ahead.kind is LexemeKind.WORD and ahead.at.line == self.last_line:
            if self._fitting(language) is not None or self._begins(language):
                return
            self.findings.mistake(
                ahead.at,
                "value-too-many",
                f"`{row.key}` is written `{row.usage}`; {quoted(ahead.text)} is too much.",
            )
            self._take()
            ahead = self._peek()

    # What cannot be read.

    def _skip_statement(self, language: LanguageBlock) -> None:
        """Leave out a directive that is not known, with the rest of its line and its block."""
        line = self._take().at.line
        while (ahead := self._peek()) is not None and ahead.kind is LexemeKind.WORD:
            if ahead.at.line != line or (self._begins(language) and self._fitting(language)):
                break
            self._take()
        if self._next_is(LexemeKind.OPEN):
            self._skip_block()
        if self._next_is(LexemeKind.END):
            self._take()

    def _skip_block(self) -> None:
        depth = 0
        while self._peek() is not None:
            taken = self._take()
            depth += (taken.kind is LexemeKind.OPEN) - (taken.kind is LexemeKind.CLOSE)
            if depth <= 0:
                return


def _fits(name: str, word: Lexeme) -> bool:
    return word.text.startswith("/") if name == PATH else word.bare and word.text == name
