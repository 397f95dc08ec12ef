//! bash's reader of the text of an array: words between blanks and line ends, quotes, backslashes, comments, `$X` and
//! `${X}`. What needs a running shell (`$(…)`, `${X:-y}`, `$1`) is not guessed at.

use std::iter::Peekable;
use std::str::Chars;

use super::{
    super::{super::location::Location, Oddity},
    Environment, Split, position,
};

/// Splits a file's text.
pub(in super::super) fn split(file: &Location, text: &str, environment: &Environment) -> Split {
    let mut reader = Reader {
        file,
        lines: text.split('\n').collect(),
        rest: text.chars().peekable(),
        line: 1,
        column: 0,
        environment,
        split: Split::default(),
        word: None,
    };
    while reader.step().is_some() {}
    reader.end_word();
    reader.split
}

/// A word while it is read.
struct Word {
    text: String,
    at: Location,
    quoted: bool,
}

struct Reader<'a> {
    file: &'a Location,
    lines: Vec<&'a str>,
    rest: Peekable<Chars<'a>>,
    line: usize,
    column: usize,
    environment: &'a Environment,
    split: Split,
    word: Option<Word>,
}

/// The end of the text, or a reason to stop.
type Going = Option<()>;

impl Reader<'_> {
    /// Reads one character, or one quotation or expansion.
    fn step(&mut self) -> Going {
        match self.take()? {
            ' ' | '\t' | '\n' => self.end_word()?,
            '#' if self.word.is_none() => self.comment(),
            '\\' => match self.take() {
                Some('\n') => {}
                Some(character) => self.push(character),
                None => self.push('\\'),
            },
            '\'' => self.quotation('\'')?,
            '"' => self.quotation('"')?,
            '$' => self.dollar(false)?,
            '`' => return self.give_up("has a command substitution"),
            character @ ('<' | '>' | '|' | '&' | ';' | '(' | ')') => {
                self.odd(Oddity::ShellSyntax(character), 1);
                self.push(character);
            }
            '{' => {
                if self.braces_expand() {
                    self.odd(Oddity::ShellSyntax('{'), 1);
                }
                self.push('{');
            }
            character => self.push(character),
        }
        Some(())
    }

    fn take(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        self.column += 1;
        if character == '\n' {
            self.line += 1;
            self.column = 0;
        }
        Some(character)
    }

    fn here(&self, width: u32) -> Location {
        self.file.at(position(self.line), position(self.column), width)
    }

    fn odd(&mut self, what: Oddity, width: u32) {
        let at = self.here(width);
        self.odd_at(what, at);
    }

    fn odd_at(&mut self, what: Oddity, at: Location) {
        let line = usize::try_from(at.line)
            .ok()
            .and_then(|line| self.lines.get(line.checked_sub(1)?))
            .copied()
            .unwrap_or_default();
        self.split.odd(what, at, line);
    }

    fn give_up(&mut self, reason: &str) -> Going {
        let at = self.here(1);
        self.word = None;
        self.split.give_up(at, format!("{reason}, which needs a running shell"));
        None
    }

    /// The word that is being read; a new one if there is none.
    fn word(&mut self) -> &mut Word {
        let at = self.here(0);
        self.word.get_or_insert_with(|| Word { text: String::new(), at, quoted: false })
    }

    fn push(&mut self, character: char) {
        self.word().text.push(character);
    }

    fn end_word(&mut self) -> Going {
        let Some(word) = self.word.take() else {
            return Some(());
        };
        let mut at = word.at;
        if word.text.is_empty() {
            if !word.quoted {
                return Some(());
            }
            self.odd_at(Oddity::EmptyQuotes, at.clone());
        }
        // A word of several lines has no width that could be drawn.
        if usize::try_from(at.line) == Ok(self.line) {
            at.width = position(self.column).saturating_sub(at.column);
        }
        self.split.push(word.text, at).then_some(())
    }

    fn comment(&mut self) {
        while self.rest.peek().is_some_and(|next| *next != '\n') {
            self.take();
        }
    }

    /// What stands between quotes; the opening one is taken.
    fn quotation(&mut self, quote: char) -> Going {
        let opened = self.here(1);
        self.word().quoted = true;
        loop {
            match self.take() {
                None => {
                    self.odd_at(Oddity::QuoteNotClosed, opened);
                    return None;
                }
                Some(character) if character == quote => return Some(()),
                Some('\\') if quote == '"' => match self.take() {
                    Some('\n') => {}
                    Some(character @ ('$' | '`' | '"' | '\\')) => self.push(character),
                    Some(character) => {
                        self.push('\\');
                        self.push(character);
                    }
                    None => self.push('\\'),
                },
                Some('$') if quote == '"' => self.dollar(true)?,
                Some('`') if quote == '"' => {
                    return self.give_up("has a command substitution");
                }
                Some(character) => self.push(character),
            }
        }
    }

    /// What follows a `$`.
    fn dollar(&mut self, quoted: bool) -> Going {
        match self.rest.peek().copied() {
            Some('{') => {
                self.take();
                let name = self.name();
                if name.is_empty() || self.take() != Some('}') {
                    return self.give_up("has an expansion with an operator");
                }
                self.expand(&name, quoted)
            }
            Some(next) if next == '_' || next.is_ascii_alphabetic() => {
                let name = self.name();
                self.expand(&name, quoted)
            }
            Some('"') if !quoted => Some(()),
            Some('(' | '\'' | '[') if !quoted => self.give_up("has a substitution or a quotation of bash's own"),
            Some('(' | '[') => self.give_up("has a substitution"),
            Some('0'..='9' | '?' | '$' | '-' | '@' | '*' | '#' | '!') => {
                self.give_up("has a parameter of the script's own")
            }
            _ => {
                self.push('$');
                Some(())
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(next) = self.rest.peek().copied() {
            if next != '_' && !next.is_ascii_alphabetic() && (name.is_empty() || !next.is_ascii_digit()) {
                break;
            }
            name.push(next);
            self.take();
        }
        name
    }

    /// Puts a variable's value in: whole between quotes, else split at blanks.
    fn expand(&mut self, name: &str, quoted: bool) -> Going {
        let environment = self.environment;
        let value = environment.get(name).map_or("", String::as_str);
        if self.split.bytes.saturating_add(value.len()) > super::MAX_EXPANDED_BYTES
            || self.word.as_ref().is_some_and(|word| word.text.len() > super::MAX_EXPANDED_BYTES)
        {
            return self.give_up("expands to more text than is read");
        }
        if quoted {
            self.word().text.push_str(value);
            return Some(());
        }
        let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
        if value.starts_with(blank) {
            self.end_word()?;
        }
        let mut words = value.split(blank).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            self.word().text.push_str(word);
            if words.peek().is_some() {
                self.end_word()?;
            }
        }
        if value.ends_with(blank) {
            self.end_word()?;
        }
        Some(())
    }

    /// Whether the brace that was taken begins a brace expansion: a comma or `..` before its end, in the same word.
    /// Looks at what follows within bounds, so that a line of braces stays linear.
    fn braces_expand(&self) -> bool {
        const MAX_AHEAD: usize = 256;
        let mut list = false;
        let mut before = '{';
        for next in self.rest.clone().take(MAX_AHEAD) {
            match next {
                '}' => return list,
                ' ' | '\t' | '\n' => return false,
                ',' => list = true,
                '.' if before == '.' => list = true,
                _ => {}
            }
            before = next;
        }
        false
    }
}
