//! bash's reader of the text of an array: words between blanks and line ends, quotes, backslashes, comments, `$X` and
//! `${X}`. What needs a running shell (`$(…)`, `${X:-y}`, `$1`) is not guessed at.

use std::iter::Peekable;
use std::str::Chars;

use super::{Environment, Split};
use crate::kubelet::layers::Oddity;
use crate::kubelet::location::Location;
use crate::kubelet::systemd::Arg;
use crate::kubelet::text::to_u32;

/// How far after an open brace its end is looked for, so that a line of braces stays linear.
const MAX_BRACES_CHARS: usize = 256;

pub(in super::super) fn split(file: &Location, text: &str, environment: &Environment) -> Split {
    let mut reader = Reader {
        here: file.at(1, 0, 1),
        rest: text.chars().peekable(),
        environment,
        split: Split::default(),
        word: None,
        quote: None,
    };
    if reader.read_all().is_some() {
        if let Some((_, opened)) = reader.quote.take() {
            reader.split.odd(Oddity::QuoteNotClosed, opened);
        }
        reader.end_word();
    }
    reader.split
}

struct Reader<'a> {
    /// The place of the character that was taken last.
    here: Location,
    rest: Peekable<Chars<'a>>,
    environment: &'a Environment,
    split: Split,
    /// The word that is being read. One that is empty has quotes.
    word: Option<Arg>,
    /// The open quote, and where it is.
    quote: Option<(char, Location)>,
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

/// Each method that may give up returns `None` then.
impl Reader<'_> {
    fn read_all(&mut self) -> Option<()> {
        while let Some(character) = self.take() {
            let quote = self.quote.as_ref().map(|(quote, _)| *quote);
            match (character, quote) {
                (_, Some(quote)) if quote == character => self.quote = None,
                (_, Some('\'')) => self.push(character),
                ('$', _) => self.dollar(quote.is_some())?,
                ('`', _) => self.give_up()?,
                ('\\', _) => self.backslash(quote.is_some()),
                (_, Some(_)) => self.push(character),
                (blank, None) if is_blank(blank) => self.end_word()?,
                ('#', None) if self.word.is_none() => {
                    while self.rest.peek().is_some_and(|next| *next != '\n') {
                        self.take();
                    }
                }
                ('\'' | '"', None) => {
                    self.quote = Some((character, self.here.clone()));
                    self.word();
                }
                (_, None) => {
                    let is_syntax = matches!(character, '<' | '>' | '|' | '&' | ';' | '(' | ')');
                    if is_syntax || character == '{' && self.braces_expand() {
                        self.split.odd(Oddity::ShellSyntax(character), self.here.clone());
                    }
                    self.push(character);
                }
            }
        }
        Some(())
    }

    fn take(&mut self) -> Option<char> {
        let character = self.rest.next()?;
        if character == '\n' {
            (self.here.line, self.here.column) = (self.here.line.saturating_add(1), 0);
        } else {
            self.here.column = self.here.column.saturating_add(1);
        }
        Some(character)
    }

    fn give_up(&mut self) -> Option<()> {
        self.split.give_up(self.here.clone(), "has an expansion that needs a running shell".to_owned())
    }

    /// The word that is being read; a new one if there is none.
    fn word(&mut self) -> &mut Arg {
        self.word.get_or_insert_with(|| Arg::new("", self.here.clone()))
    }

    fn push(&mut self, character: char) {
        self.word().text.push(character);
    }

    fn end_word(&mut self) -> Option<()> {
        let Some(mut word) = self.word.take() else { return Some(()) };
        // A word of several lines has no width that could be drawn.
        let columns =
            self.here.column.checked_sub(word.declared.column).filter(|_| word.declared.line == self.here.line);
        word.declared.width = columns.unwrap_or(0);
        self.split.push(word)
    }

    /// Takes what follows a backslash: between quotes it stays before most characters.
    fn backslash(&mut self, is_quoted: bool) {
        let next = self.take();
        if next.is_none_or(|next| is_quoted && !matches!(next, '$' | '`' | '"' | '\\' | '\n')) {
            self.push('\\');
        }
        if let Some(next) = next.filter(|next| *next != '\n') {
            self.push(next);
        }
    }

    /// Takes what follows a `$`.
    fn dollar(&mut self, is_quoted: bool) -> Option<()> {
        let has_brace = self.rest.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(next) = self.rest.next_if(|next| *next == '_' || next.is_ascii_alphanumeric()) {
            name.push(next);
        }
        let taken = name.len() + usize::from(has_brace);
        self.here.column = self.here.column.saturating_add(to_u32(taken));
        if taken == 0 && self.rest.peek().is_none_or(|next| is_blank(*next) || is_quoted && *next == '"') {
            self.push('$');
            return Some(());
        }
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || has_brace && self.take() != Some('}') {
            return self.give_up();
        }
        self.expand(&name, is_quoted)
    }

    /// Puts a variable's value in: whole between quotes, else split at blanks.
    fn expand(&mut self, name: &str, is_quoted: bool) -> Option<()> {
        let value = self.environment.get(name).map_or("", String::as_str);
        let of_word = self.word.as_ref().map_or(0, |word| word.text.len());
        if self.split.bytes.saturating_add(of_word).saturating_add(value.len()) > super::MAX_EXPANDED_BYTES {
            return self.give_up();
        }
        if is_quoted {
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
