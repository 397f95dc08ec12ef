//! Makes text safe to show: without control characters that steer a terminal, and with asterisks in place of secrets.

mod secrets;

pub use self::secrets::{hide_secrets, is_secret_name, is_secret_variable};

const ELLIPSIS: &str = "…";

/// The text without what steers a terminal; the same number of characters.
pub fn escape_controls(text: &str) -> String {
    text.chars().map(escape_control).collect()
}

fn escape_control(c: char) -> char {
    match c {
        '\t' => ' ',
        // The pictures of the control characters: ␊, ␍, ␛, ….
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{FFFD}'),
        '\x7f' => '\u{2421}',
        // C1; soft hyphen; zero width and direction marks; line and paragraph separators; byte order mark.
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{FFFD}',
        c => c,
    }
}

/// The words of a command line, each with its secrets as stars: [`hide_secrets`], and the word that follows `--token`.
pub fn hide_in_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut is_value = false;
    let hide = |word: &'a str| {
        let hidden =
            if is_value && !word.starts_with('-') { "*".repeat(word.chars().count()) } else { hide_secrets(word) };
        is_value = word.starts_with('-') && !word.contains('=') && is_secret_name(word);
        hidden
    };
    words.into_iter().map(hide).collect()
}

/// At most three stars in a row: they show that a secret was there, and not how long it was.
pub fn few_stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut stars = 0;
    for c in text.chars() {
        stars = if c == '*' { stars + 1 } else { 0 };
        if stars <= 3 {
            out.push(c);
        }
    }
    out
}

/// A text as it leaves the process that read it: one line without secrets, that steers no terminal, of so many bytes at most.
pub fn sanitize_line(text: &str, max_bytes: usize) -> String {
    bounded(&few_stars(&escape_controls(&hide_secrets(text))), max_bytes)
}

/// `text`, or as much of it as fits, ended by `…`.
pub fn bounded(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests;
