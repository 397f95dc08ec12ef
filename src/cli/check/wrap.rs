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
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            let length = word.chars().count();
            let blank = usize::from(!line.is_empty());
            if used + blank + length > width && (blank > 0 || used > 0) {
                lines.push(std::mem::take(&mut line));
                used = 0;
            } else if blank > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
    }
    lines.push(line);
    lines
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
        assert_eq!(
            hang("aa bb cc", 6, 0, 2),
            "aa\n  bb\n  cc".replace("aa\n  bb", "aa\n  bb")
        );
    }
}
