//! Text of files, as messages show it.

/// The most characters of a text in a message.
const MAX_CHARS: usize = 160;

/// A text on one line, without control characters, and not longer than a line or two.
pub fn shortened(text: &str) -> String {
    let mut letters = text.chars();
    let mut shown = String::new();
    for letter in letters.by_ref().take(MAX_CHARS) {
        match letter {
            '\n' => shown.push(' '),
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}
