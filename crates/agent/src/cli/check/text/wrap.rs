//! Text in columns.

/// Breaks `text` at blanks into lines of at most `width` characters; a longer word has a line of its own. The first line is shorter by `taken`
/// characters, and the others begin with `indent` blanks.
pub fn hang(text: &str, width: usize, taken: usize, indent: usize) -> String {
    let width = width.saturating_sub(indent);
    let mut used = taken.saturating_sub(indent);
    let mut out = String::new();
    let line_break = format!("\n{}", " ".repeat(indent));
    for (number, paragraph) in text.split('\n').enumerate() {
        if number > 0 {
            out.push_str(&line_break);
            used = 0;
        }
        let mut is_first = true;
        for word in words(paragraph, width) {
            let length = word.chars().count();
            let blank = usize::from(!is_first);
            if used + blank + length > width && used > 0 {
                out.push_str(&line_break);
                used = 0;
            } else if blank > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(&word);
            used += length;
            is_first = false;
        }
    }
    out
}

/// The words. What is between backquotes is to be copied, so it is one word if a line has room for it.
fn words(paragraph: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut parts = paragraph.split(' ').filter(|part| !part.is_empty());
    while let Some(part) = parts.next() {
        let mut word = part.to_owned();
        let mut rest = parts.clone();
        let is_open = |word: &str| word.matches('`').count() % 2 == 1;
        while is_open(&word)
            && let Some(next) = rest.next()
        {
            word = format!("{word} {next}");
        }
        if is_open(&word) || word.chars().count() > width {
            words.push(part.to_owned());
        } else {
            parts = rest;
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        let wrap = |text: &str, width, taken| hang(text, width, taken, 0);
        assert_eq!(wrap("aa bb cc", 5, 0), "aa bb\ncc");
        assert_eq!(wrap("aa bb cc", 5, 3), "aa\nbb cc");
        assert_eq!(wrap("aa bb", 5, 4), "\naa bb");
        assert_eq!(wrap("a\nb cccccccc d", 4, 0), "a\nb\ncccccccc\nd");
        assert_eq!(wrap("", 4, 0), "");
        assert_eq!(wrap("ab `cd ef` g", 9, 0), "ab\n`cd ef` g");
        assert_eq!(wrap("a `bc de` f", 6, 0), "a `bc\nde` f");
        assert_eq!(wrap("a `b c", 4, 0), "a `b\nc");
        assert_eq!(hang("aa bb cc", 6, 0, 2), "aa\n  bb\n  cc");
    }
}
