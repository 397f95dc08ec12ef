//! bash's reader of the text of an array: words between blanks and line ends, quotes, backslashes, comments, `$X` and
//! `${X}`. What needs a running shell (`$(…)`, `${X:-y}`, `$1`) is not guessed at.

use std::iter::Peekable;
use std::str::Chars;

use super::{
    super::{super::location::Location, Oddity},
    Environment, Split, position,
};

/// How far behind an open brace its end is looked for, so that a line of braces stays linear.
const MAX_BRACES_CHARS: usize = 256;

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
        quote: None,
    };
    while reader.step().is_some() {}
    match reader.quote.take() {
        Some((_, opened)) if reader.split.unknown.is_none() => reader.odd(Oddity::QuoteNotClosed, opened),
        _ => {}
    }
    reader.end_word();
    reader.split
}

/// A word while it is read.
struct Word {
    text: String,
    at: Location,
    has_quotes: bool,
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
    /// The open quote, and where it is.
    quote: Option<(char, Location)>,
}

/// The end of the text, or a reason to stop.
type Going = Option<()>;

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

impl Reader<'_> {
    /// Reads one character, or one expansion.
    fn step(&mut self) -> Going {
        let character = self.take()?;
        let quote = self.quote.as_ref().map(|(quote, _)| *quote);
        match (character, quote) {
            (_, Some(quote)) if quote == character => self.quote = None,
            (_, Some('\'')) => self.push(character),
            ('$', _) => self.dollar(quote.is_some())?,
            ('`', _) => return self.give_up(),
            ('\\', Some(_)) => match self.rest.peek() {
                Some('\n') => _ = self.take(),
                Some('$' | '`' | '"' | '\\') => self.push_next('\\'),
                _ => self.push('\\'),
            },
            (_, Some(_)) => self.push(character),
            (blank, None) if is_blank(blank) => self.end_word()?,
            ('#', None) if self.word.is_none() => {
                while self.rest.peek().is_some_and(|next| *next != '\n') {
                    self.take();
                }
            }
            ('\\', None) if self.rest.peek() == Some(&'\n') => _ = self.take(),
            ('\\', None) => self.push_next('\\'),
            ('\'' | '"', None) => {
                self.quote = Some((character, self.here(1)));
                self.word().has_quotes = true;
            }
            (_, None) => {
                let is_syntax = matches!(character, '<' | '>' | '|' | '&' | ';' | '(' | ')');
                if is_syntax || character == '{' && self.braces_expand() {
                    let at = self.here(1);
                    self.odd(Oddity::ShellSyntax(character), at);
                }
                self.push(character);
            }
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

    fn odd(&mut self, what: Oddity, at: Location) {
        let line = usize::try_from(at.line).ok().and_then(|line| self.lines.get(line.checked_sub(1)?));
        let line = line.copied().unwrap_or_default();
        self.split.odd(what, at, line);
    }

    fn give_up(&mut self) -> Going {
        let at = self.here(1);
        self.word = None;
        self.split.give_up(at, "has an expansion that needs a running shell".to_owned());
        None
    }

    /// The word that is being read; a new one if there is none.
    fn word(&mut self) -> &mut Word {
        let at = self.here(0);
        self.word.get_or_insert_with(|| Word { text: String::new(), at, has_quotes: false })
    }

    fn push(&mut self, character: char) {
        self.word().text.push(character);
    }

    /// Adds the next character, whatever it means; at the end of the text `last`.
    fn push_next(&mut self, last: char) {
        // The word begins at the backslash.
        self.word();
        let next = self.take().unwrap_or(last);
        self.push(next);
    }

    fn end_word(&mut self) -> Going {
        let Some(mut word) = self.word.take() else {
            return Some(());
        };
        if word.text.is_empty() {
            if !word.has_quotes {
                return Some(());
            }
            self.odd(Oddity::EmptyQuotes, word.at.clone());
        }
        // A word of several lines has no width that could be drawn.
        if usize::try_from(word.at.line) == Ok(self.line) {
            word.at.width = position(self.column).saturating_sub(word.at.column);
        }
        self.split.push(word.text, word.at).then_some(())
    }

    /// What follows a `$`.
    fn dollar(&mut self, quoted: bool) -> Going {
        match self.rest.peek().copied() {
            Some('{') => {
                self.take();
                let name = self.name();
                if name.is_empty() || self.take() != Some('}') {
                    return self.give_up();
                }
                self.expand(&name, quoted)
            }
            Some(next) if next == '_' || next.is_ascii_alphabetic() => {
                let name = self.name();
                self.expand(&name, quoted)
            }
            Some('\'' | '"') if !quoted => self.give_up(),
            Some('(' | '[' | '0'..='9' | '?' | '$' | '-' | '@' | '*' | '#' | '!') => self.give_up(),
            _ => {
                self.push('$');
                Some(())
            }
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(next) = self.rest.next_if(|next| *next == '_' || next.is_ascii_alphanumeric()) {
            name.push(next);
            self.column += 1;
        }
        name
    }

    /// Puts a variable's value in: whole between quotes, else split at blanks.
    fn expand(&mut self, name: &str, quoted: bool) -> Going {
        let environment = self.environment;
        let value = environment.get(name).map_or("", String::as_str);
        let of_word = self.word.as_ref().map_or(0, |word| word.text.len());
        if self.split.bytes.saturating_add(of_word).saturating_add(value.len()) > super::MAX_EXPANDED_BYTES {
            return self.give_up();
        }
        if quoted {
            self.word().text.push_str(value);
            return Some(());
        }
        for part in value.split_inclusive(is_blank) {
            let text = part.trim_end_matches(is_blank);
            if !text.is_empty() {
                self.word().text.push_str(text);
            }
            if text.len() < part.len() {
                self.end_word()?;
            }
        }
        Some(())
    }

    /// Whether the brace that was taken begins a brace expansion: a comma or `..` before its end, in the same word.
    fn braces_expand(&self) -> bool {
        let ahead: String = self.rest.clone().take(MAX_BRACES_CHARS).take_while(|next| !is_blank(*next)).collect();
        ahead.split_once('}').is_some_and(|(inner, _)| inner.contains(',') || inner.contains(".."))
    }
}
