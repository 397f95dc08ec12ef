//! Where in a text secrets stand: known by the name before them, by what they are in (a URL, a header), or by their looks.
//!
//! Texts are written by others and may be long: every character is looked at a bounded number of times, whatever the text.

use std::ops::Range;

use super::{
    looks::{by_looks, hide_pem},
    names::{is_of_signature, is_secret_name, is_secret_parameter, is_secret_variable},
    run,
};

/// A signature is no shorter.
const SIGNATURE_CHARS: usize = 16;
/// A password with a slash in it is looked for so far behind `://`.
const MAX_PASSWORD_CHARS: usize = 256;
/// What follows `Bearer` in sentences.
const ORDINARY: &[&str] = &[
    "auth",
    "authentication",
    "authenticator",
    "authorization",
    "credential",
    "credentials",
    "header",
    "is",
    "realm",
    "scheme",
    "token",
    "tokens",
    "was",
];

/// The text with secrets as stars, as many as they had characters: the values of passwords, tokens and keys, what stands
/// behind `Bearer` and `Basic`, users in URLs, signatures of presigned URLs, PEM blocks, tokens and keys that are known by
/// their looks.
pub fn hide_secrets(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut hidden = chars.clone();
    let mut hide = |range: Range<usize>| {
        for star in hidden.get_mut(range).into_iter().flatten() {
            *star = '*';
        }
    };
    let mut scan = Scan::of(&chars);
    let mut start = 0;
    let mut last = 0..0;
    while start < chars.len() {
        if !is_name(chars[start]) {
            start += 1;
            continue;
        }
        let end = run(&chars, start, is_name);
        let value = scan.value_after(start, end);
        start = end;
        // In `token=token=…` each value lies in the one before it: no character is hidden again and again.
        let is_within = last.start <= value.start && value.end <= last.end;
        if !value.is_empty() && !is_within {
            last = value.clone();
            hide(value);
        }
    }
    for range in by_looks(&chars) {
        hide(range);
    }
    hide_pem(&chars, hide);
    hidden.into_iter().collect()
}

/// A text that is gone through, with the ends of the words that were looked for last.
struct Scan<'a> {
    chars: &'a [char],
    word: Range<usize>,
    parameter: Range<usize>,
}

/// A name, and what the text says of it.
struct Name {
    text: String,
    /// Where its value's separator is looked for.
    end: usize,
    /// Whether it is a parameter of a URL's query.
    is_parameter: bool,
}

impl<'a> Scan<'a> {
    fn of(chars: &'a [char]) -> Self {
        Self { chars, word: 0..0, parameter: 0..0 }
    }

    /// Where the secret value stands that follows the name there, if it names one.
    fn value_after(&mut self, start: usize, end: usize) -> Range<usize> {
        let chars = self.chars;
        if chars.get(end..end + 3) == Some(&[':', '/', '/']) {
            return user_of_url(chars, end + 3);
        }
        let name = name_at(chars, start, end);
        match name.text.to_ascii_lowercase().as_str() {
            "bearer" => self.after_scheme(end, is_no_sentence),
            "basic" => self.after_scheme(end, is_like_a_token),
            header if header.ends_with("authorization") => self.of_authorization(end),
            _ if name.is_parameter => self.of_parameter(&name),
            _ => self.of_name(&name),
        }
    }

    /// `Bearer abc`, where what follows is not the next word of a sentence.
    fn after_scheme(&mut self, end: usize, is_secret: fn(&[char]) -> bool) -> Range<usize> {
        let from = run(self.chars, end, |c| c == ' ');
        let value = self.value_at(from);
        if from > end && is_secret(&self.chars[value.clone()]) { value } else { 0..0 }
    }

    /// `Authorization: Basic abc`, `Authorization:[Bearer abc]`, `"authorization":"abc"`.
    fn of_authorization(&mut self, end: usize) -> Range<usize> {
        let chars = self.chars;
        let after_name = run(chars, end, |c| " '\"\\".contains(c));
        if !matches!(chars.get(after_name), Some('=' | ':')) {
            return 0..0;
        }
        let from = run(chars, after_name + 1, |c| " '\"\\[".contains(c));
        let scheme = run(chars, from, is_name);
        let behind = run(chars, scheme, |c| c == ' ');
        if scheme > from && behind > scheme && behind - scheme < 3 {
            let word: String = chars[from..scheme].iter().collect();
            let is_scheme = ["basic", "bearer", "digest", "negotiate", "ntlm", "token"]
                .contains(&word.to_ascii_lowercase().as_str());
            return if is_scheme { self.value_at(behind) } else { 0..0 };
        }
        let value = self.value_at(from);
        if is_like_a_token(&chars[value.clone()]) { value } else { 0..0 }
    }

    /// `?sig=abc&`, also percent-encoded within another URL.
    fn of_parameter(&mut self, name: &Name) -> Range<usize> {
        if !is_secret_name(&name.text) && !is_secret_parameter(&name.text) {
            return 0..0;
        }
        let from = match self.chars.get(name.end) {
            Some('=') => name.end + 1,
            Some('%') if matches!(self.chars.get(name.end + 1..name.end + 3), Some(['3', 'D' | 'd'])) => name.end + 3,
            _ => return self.of_name(name),
        };
        from..self.parameter_end(from)
    }

    /// `token: abc`, `"password":"abc"`, `--token abc`, `SSH_KEY=abc`.
    fn of_name(&mut self, name: &Name) -> Range<usize> {
        let (chars, end) = (self.chars, name.end);
        let is_set = chars.get(end) == Some(&'=');
        if !is_secret_name(&name.text) {
            let value = match is_set {
                true if is_variable(&name.text) && is_secret_variable(&name.text) => self.value_at(end + 1),
                true if is_of_signature(&name.text) => {
                    let value = self.value_at(end + 1);
                    return if value.len() < SIGNATURE_CHARS { 0..0 } else { value };
                }
                _ => return 0..0,
            };
            return if is_placeholder(&chars[value.clone()]) { 0..0 } else { value };
        }
        let after_name = run(chars, end, |c| " '\"\\".contains(c));
        let value = match chars.get(after_name) {
            Some('=' | ':') => self.value_at(run(chars, after_name + 1, |c| c == ' ')),
            _ if name.text.starts_with('-') => self.value_at(next_word(chars, end)),
            _ => 0..0,
        };
        if is_placeholder(&chars[value.clone()]) { 0..0 } else { value }
    }

    /// The value that begins there: what the quotes hold, or a word.
    fn value_at(&mut self, start: usize) -> Range<usize> {
        let chars = self.chars;
        let from = run(chars, start, |c| c == '\\');
        match chars.get(from) {
            Some(quote @ ('"' | '\'')) => {
                let from = run(chars, from, |c| c == '"' || c == '\'');
                from..run(chars, from, |c| c != *quote && c != '\\' && c != '\n')
            }
            _ => from..self.word_end(from),
        }
    }

    /// Where the word ends that `from` is in. It is kept in mind: in `token=token=…` each would be gone through to the end.
    fn word_end(&mut self, from: usize) -> usize {
        if !self.word.contains(&from) {
            let is_word = |c: char| !c.is_whitespace() && !"\"'".contains(c);
            self.word = from..run(self.chars, from, is_word);
        }
        self.word.end.max(from)
    }

    /// The same of a parameter's value.
    fn parameter_end(&mut self, from: usize) -> usize {
        if !self.parameter.contains(&from) {
            let is_value = |c: char| !c.is_whitespace() && !"\"'&\\#<>`".contains(c);
            self.parameter = from..run(self.chars, from, is_value);
        }
        self.parameter.end.max(from)
    }
}

/// The name without what it is escaped with: `&` is `\u0026` in JSON and `%26` in a URL within a URL.
fn name_at(chars: &[char], start: usize, end: usize) -> Name {
    let text: String = chars[start..end].iter().collect();
    let before = start.checked_sub(1).map(|at| chars[at]);
    let escapes: &[&str] = match before {
        Some('\\') => &["u0026", "u003f", "u003F"],
        Some('%') => &["26", "3F", "3f"],
        _ => &[],
    };
    let inner = escapes.iter().find_map(|escape| text.strip_prefix(escape));
    Name {
        is_parameter: inner.is_some() || matches!(before, Some('?' | '&' | ';')),
        text: inner.map(str::to_owned).unwrap_or(text),
        end,
    }
}

/// `user:password@` and `token@` behind `://`; a password may hold an `@`, and, though none should, a slash.
fn user_of_url(chars: &[char], from: usize) -> Range<usize> {
    let is_text = |c: char| !c.is_whitespace() && !"'\"<>`".contains(c);
    let end = run(chars, from, |c| is_text(c) && !"/?#".contains(c));
    let authority = &chars[from..end];
    if let Some(at) = authority.iter().rposition(|c| *c == '@') {
        let is_digest = authority[at + 1..].starts_with(&['s', 'h', 'a', '2', '5', '6', ':']);
        return if is_digest { 0..0 } else { from..from + at };
    }
    // `host:6443`, `[::1]:6443`
    let port = authority.iter().rposition(|c| *c == ':').map(|at| &authority[at + 1..]);
    let is_user = port.is_some_and(|port| !port.iter().all(char::is_ascii_digit)) && !authority.contains(&'[');
    if !is_user {
        return 0..0;
    }
    let to = chars.len().min(end + MAX_PASSWORD_CHARS);
    let rest = run(&chars[..to], end, is_text);
    let at = chars[end..rest].iter().rposition(|c| *c == '@');
    at.map_or(0..0, |at| from..end + at)
}

/// Whether what follows `Bearer` is no word that follows it in a sentence.
fn is_no_sentence(word: &[char]) -> bool {
    let word: String = word.iter().collect::<String>().to_ascii_lowercase();
    let plain = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    !plain.is_empty() && !ORDINARY.contains(&plain) && !word.starts_with("realm=")
}

/// Whether a word looks made up by a machine: digits, capitals within, or what base64 has beside letters. Stars stand for what
/// was hidden of it before; what ends a sentence is no part of it.
fn is_like_a_token(word: &[char]) -> bool {
    const LONG: usize = 20;
    let end = word.iter().rposition(|c| !";,.:)]}".contains(*c));
    let word = &word[..end.map_or(0, |last| last + 1)];
    let is_odd = |c: &char| c.is_ascii_digit() || c.is_ascii_uppercase() || "+/=_~*".contains(*c);
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "+/=_~*-.".contains(*c);
    word.len() >= 4 && word.iter().all(is_plain) && (word.len() >= LONG || word.iter().skip(1).any(is_odd))
}

/// As a variable's name is written.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What a sentence says in place of a value: `KEY=VALUE`.
fn is_placeholder(value: &[char]) -> bool {
    let value: String = value.iter().take(8).collect();
    value.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()) == "VALUE"
}

/// Where the word begins that follows a flag: `--token abc`, and over the end of a line `'--token' \` and `'abc'`. The end of
/// the text if it is a flag itself.
fn next_word(chars: &[char], end: usize) -> usize {
    let quotes = run(chars, end, |c| "'\"".contains(c));
    let from = run(chars, quotes, |c| " \t\r\n\\".contains(c));
    let first = run(chars, from, |c| "'\"".contains(c));
    if from == quotes || chars.get(first) == Some(&'-') { chars.len() } else { from }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
