//! Regular expressions of Go (RE2) as patterns of log lines, in which `*` is for any text.

use std::iter::Peekable;
use std::str::Chars;

/// A regular expression with more alternatives is refused.
const MAX_PATTERNS: usize = 16;

/// Patterns of which one matches each line that the regular expression matches.
pub(super) fn patterns(regex: &str) -> Result<Vec<String>, String> {
    let (start, body) = regex.strip_prefix('^').map_or(("*", regex), |body| ("", body));
    let body = body.strip_suffix("\\z").or(body.strip_suffix('$').filter(|body| !body.ends_with('\\'))).unwrap_or(body);
    let mut chars = body.chars().peekable();
    let found = alternatives(&mut chars)?;
    if chars.next().is_some() {
        return Err(format!("the regular expression {regex:?} has an unmatched parenthesis"));
    }
    let tidy = |pattern: String| {
        let mut text = format!("{start}{pattern}");
        while text.contains("**") {
            text = text.replace("**", "*");
        }
        let text = text.strip_suffix('*').filter(|text| !text.is_empty()).map_or(text.clone(), str::to_owned);
        let has_text = text.chars().any(|c| c != '*' && c != ' ');
        if has_text { Ok(text) } else { Err(format!("the regular expression {regex:?} matches lines of any text")) }
    };
    found.into_iter().map(tidy).collect()
}

/// Up to the end, or to the parenthesis that closes the group.
fn alternatives(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    let (mut all, mut current) = (Vec::new(), vec![String::new()]);
    while let Some(c) = regex.next_if(|c| *c != ')') {
        let mut atom = match c {
            '|' => {
                all.append(&mut current);
                current.push(String::new());
                continue;
            }
            '.' | '*' => any(),
            '[' => class(regex)?,
            '(' => group(regex)?,
            '\\' => escape(regex)?,
            '^' | '$' => return Err("it has an anchor within the regular expression".into()),
            c => vec![c.to_string()],
        };
        match regex.next_if(|c| "?*+{".contains(*c)) {
            None => {}
            Some('+') => atom.iter_mut().for_each(|text| text.push('*')),
            Some(quantifier) => {
                if quantifier == '{' {
                    regex.by_ref().find(|c| *c == '}');
                }
                atom = any();
            }
        }
        // Of a quantifier that takes as little as possible.
        regex.next_if_eq(&'?');
        current = current.iter().flat_map(|before| atom.iter().map(move |after| format!("{before}{after}"))).collect();
        if all.len() + current.len() > MAX_PATTERNS {
            return Err(format!("the regular expression has more than {MAX_PATTERNS} alternatives"));
        }
    }
    all.append(&mut current);
    Ok(all)
}

fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

fn group(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    if regex.next_if_eq(&'?').is_some() && regex.next() != Some(':') {
        return Err("the regular expression has a flag or a name in a group, such as (?i)".into());
    }
    let found = alternatives(regex)?;
    regex.next().map(|_| found).ok_or_else(|| "the regular expression has an unmatched parenthesis".into())
}

/// A class of characters: any text.
fn class(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    regex.next_if_eq(&'^');
    regex.next_if_eq(&']');
    while let Some(c) = regex.next() {
        match c {
            '\\' => _ = regex.next(),
            '[' if regex.peek() == Some(&':') => _ = regex.by_ref().find(|c| *c == ']'),
            ']' => return Ok(any()),
            _ => {}
        }
    }
    Err("the regular expression has an unmatched bracket".into())
}

fn escape(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    match regex.next() {
        Some('d' | 'D' | 'w' | 'W' | 's' | 'S' | '*') => Ok(any()),
        Some(c) if !c.is_ascii_alphanumeric() => Ok(vec![c.to_string()]),
        other => Err(format!("the regular expression has \\{}", other.map(String::from).unwrap_or_default())),
    }
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
            (r"^(?:foo|ba[rz]+)? x{2,3}y", vec!["* *y"]),
            (r"Starting (a|b\.service)\.\.\.", vec!["*Starting a...", "*Starting b.service..."]),
            (r"one|two+?", vec!["*one", "*two"]),
            (r"[[:alpha:]\]]+=\$5", vec!["*=$5"]),
        ] {
            assert_eq!(patterns(regex).unwrap(), wanted, "{regex}");
        }
    }

    #[test]
    fn what_cannot_be_expressed_is_refused() {
        for regex in ["(?i)error", "a$b", ".*", "", "(a", "a)", "[a", r"\bword", "(a|b|c)(a|b|c)(a|b|c)"] {
            assert!(patterns(regex).is_err(), "{regex}");
        }
    }
}
