//! Text in columns.

/// Breaks `text` at blanks into lines of at most `width` characters, words longer than that alone; the first line may be
/// shorter by `taken` characters.
pub(in crate::cli) fn wrap(text: &str, width: usize, taken: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = taken;
    for (number, paragraph) in text.split('\n').enumerate() {
        if number > 0 {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        for word in words(paragraph, width) {
            let length = word.chars().count();
            let blank = usize::from(!line.is_empty());
            if used + blank + length > width && (blank > 0 || used > 0) {
                lines.push(std::mem::take(&mut line));
                used = 0;
            } else if blank > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(&word);
            used += length;
        }
    }
    lines.push(line);
    lines
}

/// The words; what stands between backquotes is to be copied, so it is one word if a line can hold it.
fn words(paragraph: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut parts = paragraph.split(' ').filter(|part| !part.is_empty());
    while let Some(part) = parts.next() {
        let mut word = part.to_owned();
        let mut rest = parts.clone();
        while word.matches('`').count() % 2 == 1
            && word.chars().count() <= width
            && let Some(next) = rest.next()
        {
            word.push(' ');
            word.push_str(next);
        }
        let is_closed = word.matches('`').count() % 2 == 0;
        if is_closed && word.chars().count() <= width {
            parts = rest;
            words.push(word);
        } else {
            words.push(part.to_owned());
        }
    }
    words
}

/// The lines of [`wrap`], each but the first with `indent` blanks before it.
pub(super) fn hang(text: &str, width: usize, taken: usize, indent: usize) -> String {
    let inner = width.saturating_sub(indent);
    let mut lines = wrap(text, inner, taken.saturating_sub(indent)).into_iter();
    let first = lines.next().unwrap_or_default();
    lines.fold(first, |all, line| {
        format!("{all}\n{}{line}", " ".repeat(indent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5, 0), ["aa bb", "cc"]);
        assert_eq!(wrap("aa bb cc", 5, 3), ["aa", "bb cc"]);
        assert_eq!(wrap("aa bb", 5, 4), ["", "aa bb"]);
        assert_eq!(wrap("a\nb cccccccc d", 4, 0), ["a", "b", "cccccccc", "d"]);
        assert_eq!(wrap("", 4, 0), [""]);
        assert_eq!(wrap("ab `cd ef` g", 8, 0), ["ab", "`cd ef` g"]);
        assert_eq!(wrap("a `bc de` f", 6, 0), ["a `bc", "de` f"]);
        assert_eq!(wrap("a `b c", 4, 0), ["a `b", "c"]);
        assert_eq!(
            hang("aa bb cc", 6, 0, 2),
            "aa\n  bb\n  cc"
        );
    }
}
