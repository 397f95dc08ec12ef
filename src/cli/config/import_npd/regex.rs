//! Regular expressions of Go (RE2) as patterns of log lines, in which `*` is for any text.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassBytesRange, Hir, HirKind, Look};

/// What stands for more patterns is any text.
const MAX_PATTERNS: usize = 16;
/// A class with more characters is any text.
const MAX_CLASS_CHARS: usize = 4;
/// A pattern that may match more than its regular expression has a text of this length, or it would match nearly every line.
const MIN_TEXT_CHARS: usize = 4;
/// Where a line begins, in the texts that [`texts`] returns.
const START: char = '\u{2}';

/// Patterns of which one matches each line that the regular expression matches.
pub(super) fn patterns(regex: &str) -> Result<Vec<String>, String> {
    if regex.contains("(?i") {
        return Err(format!("the regular expression {regex:?} ignores case, and a pattern does not"));
    }
    // As in Go, `\d` and the like stand for characters of ASCII.
    let hir = ParserBuilder::new().unicode(false).utf8(false).build().parse(regex);
    let hir = hir.map_err(|_| format!("the regular expression {regex:?} is invalid"))?;
    let min_chars = if hir.properties().is_alternation_literal() { 1 } else { MIN_TEXT_CHARS };
    texts(&hir)
        .iter()
        .map(|text| pattern(text, min_chars).map_err(|why| format!("the regular expression {regex:?} {why}")))
        .collect()
}

fn pattern(text: &str, min_chars: usize) -> Result<String, &'static str> {
    // Of several lines the last one counts, wherever it has the text: up to Linux 5.0 an OOM kill was two lines, and now it is one.
    let (from_start, text) = match text.trim_end_matches(['\n', '*']).rsplit_once('\n') {
        Some((_, last)) => (false, last),
        None => text.strip_prefix(START).map_or((false, text), |rest| (true, rest)),
    };
    if text.contains(START) {
        return Err("has an anchor within");
    }
    if !text.split('*').any(|part| part.trim().chars().count() >= min_chars) {
        return Err("has too little text or too many alternatives: a check would match nearly every line");
    }
    let mut pattern = if from_start { String::new() } else { "*".to_owned() };
    for c in text.trim_end_matches('*').chars() {
        if c != '*' || !pattern.ends_with('*') {
            pattern.push(c);
        }
    }
    Ok(pattern)
}

/// Texts with `*` for any text, of which one fits whatever the expression matches; a single `*` if they would be too many, or none.
fn texts(hir: &Hir) -> Vec<String> {
    let found = match hir.kind() {
        HirKind::Literal(literal) => vec![String::from_utf8_lossy(&literal.0).into_owned()],
        HirKind::Class(Class::Bytes(class))
            if class.iter().map(ClassBytesRange::len).sum::<usize>() <= MAX_CLASS_CHARS =>
        {
            class
                .iter()
                .flat_map(|range| range.start()..=range.end())
                .map(|byte| char::from(byte).to_string())
                .collect()
        }
        HirKind::Repetition(repetition) if repetition.min > 0 => {
            texts(&repetition.sub).into_iter().map(|text| text + "*").collect()
        }
        HirKind::Class(_) | HirKind::Repetition(_) => any(),
        HirKind::Look(Look::Start) => vec![START.to_string()],
        // Another, such as a word boundary or the end of the line, takes no text.
        HirKind::Look(_) | HirKind::Empty => vec![String::new()],
        HirKind::Capture(capture) => texts(&capture.sub),
        HirKind::Alternation(alternatives) => alternatives.iter().flat_map(texts).collect(),
        HirKind::Concat(parts) => {
            parts.iter().fold(vec![String::new()], |before, part| followed_by(&before, &texts(part)))
        }
    };
    if (1..=MAX_PATTERNS).contains(&found.len()) { found } else { any() }
}

fn followed_by(before: &[String], part: &[String]) -> Vec<String> {
    let any = any();
    let part = if before.len() * part.len() > MAX_PATTERNS { &any } else { part };
    before.iter().flat_map(|before| part.iter().map(move |after| format!("{before}{after}"))).collect()
}

fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_expression_becomes_patterns_that_match_at_least_its_lines() {
        for (regex, wanted) in [
            (
                r"task [\S ]+:\w+ blocked for more than \w+ seconds\.",
                vec!["*task *:* blocked for more than * seconds."],
            ),
            (r"divide error: 0000 \[#\d+\] SMP", vec!["*divide error: 0000 [#*] SMP"]),
            (r".*\[Hardware Error\]: event severity: fatal$", vec!["*[Hardware Error]: event severity: fatal"]),
            (r"EXT4-fs error .*", vec!["*EXT4-fs error "]),
            (r"^(?:foo|ba[rz]+)? x{2,3}y: z{0,1} is late", vec!["* x*y: * is late"]),
            (r"Starting (a|b\.service)\.\.\.", vec!["*Starting a...", "*Starting b.service..."]),
            (r"three|seven+?", vec!["*three", "*seven"]),
            (r"OOM|lost", vec!["*OOM", "*lost"]),
            (r"[[:alpha:]\]]+ = \$5", vec!["* = $5"]),
            (r"^panic: |fatal error:", vec!["panic: ", "*fatal error:"]),
            (r"none|^two: (?:three|four)", vec!["*none", "two: three", "two: four"]),
            (r"x{3}y\{failed", vec!["*x*y{failed"]),
            ("Kill process \\d+\nKilled process \\d+ total-vm", vec!["*Killed process * total-vm"]),
            ("^one:\n.* two: (three|four)\n?", vec!["* two: three", "* two: four"]),
            (r"\bword\b", vec!["*word"]),
            (
                r"[Tt]ask blocked|[^a]b-bus-0|[a-z]-device",
                vec!["*Task blocked", "*task blocked", "*b-bus-0", "*-device"],
            ),
        ] {
            assert_eq!(patterns(regex).unwrap(), wanted, "{regex}");
        }
        let many = patterns("[ab][ab][ab][ab][ab] rest").unwrap();
        assert_eq!((many.len(), many[1].as_str()), (16, "*aaab* rest"));
    }

    #[test]
    fn what_cannot_be_expressed_is_refused() {
        for regex in [
            "(?i)error",
            ".*",
            "",
            "(a",
            "a)",
            "[a",
            r"x{3}y{failed",
            "a$|b c ^d e f",
            "(a|b|c)(a|b|c)(a|b|c)",
            "[0-9]+:[a-z]",
            "a.*b|long enough",
        ] {
            assert!(patterns(regex).is_err(), "{regex}");
        }
    }
}
