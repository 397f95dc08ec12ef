//! Regular expressions of Go (RE2) as patterns of log lines, in which `*` is for any text.

use std::iter::Peekable;
use std::str::Chars;

/// A regular expression with more alternatives is refused.
const MAX_PATTERNS: usize = 16;
/// A class with more characters is any text.
const MAX_CLASS_CHARS: usize = 4;
/// A pattern that may match more than its regular expression has a text of this length, or it would match nearly every line.
const MIN_TEXT_CHARS: usize = 4;

/// Patterns of which one matches each line that the regular expression matches.
pub(super) fn patterns(regex: &str) -> Result<Vec<String>, String> {
    let body =
        regex.strip_suffix("\\z").or(regex.strip_suffix('$').filter(|body| !body.ends_with('\\'))).unwrap_or(regex);
    let mut chars = body.chars().peekable();
    let found = alternatives(&mut chars, true)?;
    if chars.next().is_some() {
        return Err(format!("the regular expression {regex:?} has an unmatched parenthesis"));
    }
    let wanted = if regex.contains(['.', '*', '+', '?', '{', '[', '\\']) { MIN_TEXT_CHARS } else { 1 };
    let tidy = |mut text: String| {
        while text.contains("**") {
            text = text.replace("**", "*");
        }
        let text = text.strip_suffix('*').filter(|text| !text.is_empty()).map_or(text.clone(), str::to_owned);
        if text.split('*').any(|part| part.trim().chars().count() >= wanted) {
            Ok(text)
        } else {
            Err(format!(
                "the regular expression {regex:?} has too little text, so a check would match nearly every line"
            ))
        }
    };
    found.into_iter().map(tidy).collect()
}

/// Up to the end, or to the parenthesis that closes the group. An anchor holds for its alternative alone.
fn alternatives(regex: &mut Peekable<Chars<'_>>, is_outermost: bool) -> Result<Vec<String>, String> {
    let start = |regex: &mut Peekable<Chars<'_>>| {
        let is_anywhere = is_outermost && regex.next_if_eq(&'^').is_none();
        vec![if is_anywhere { "*".to_owned() } else { String::new() }]
    };
    let (mut all, mut current) = (Vec::new(), start(regex));
    while let Some(c) = regex.next_if(|c| *c != ')') {
        let mut atom = match c {
            '|' => {
                all.append(&mut current);
                current = start(regex);
                continue;
            }
            '.' | '*' => any(),
            '[' => {
                let chars = class(regex)?;
                if all.len() + current.len() * chars.len() > MAX_PATTERNS { any() } else { chars }
            }
            '(' => group(regex)?,
            '\\' => escape(regex)?,
            '^' | '$' => return Err("it has an anchor within the regular expression".into()),
            c => vec![c.to_string()],
        };
        match quantifier(regex) {
            None => {}
            Some(0) => atom = any(),
            Some(_) => atom.iter_mut().for_each(|text| text.push('*')),
        }
        current = current.iter().flat_map(|before| atom.iter().map(move |after| format!("{before}{after}"))).collect();
        if all.len() + current.len() > MAX_PATTERNS {
            return Err(format!("the regular expression has more than {MAX_PATTERNS} alternatives"));
        }
    }
    all.append(&mut current);
    Ok(all)
}

/// How often the atom before it is there at least; none if no quantifier follows. A brace without numbers is text.
fn quantifier(regex: &mut Peekable<Chars<'_>>) -> Option<u16> {
    let least = match regex.peek()? {
        '?' | '*' => 0,
        '+' => 1,
        '{' => {
            let numbers: String = regex.clone().skip(1).take_while(|c| *c != '}').collect();
            let least = numbers.split(',').next()?.parse().ok()?;
            regex.nth(numbers.chars().count())?;
            least
        }
        _ => return None,
    };
    regex.next();
    // Of a quantifier that takes as little as possible.
    regex.next_if_eq(&'?');
    Some(least)
}

fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

fn group(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    if regex.next_if_eq(&'?').is_some() && regex.next() != Some(':') {
        return Err("the regular expression has a flag or a name in a group, such as (?i)".into());
    }
    let found = alternatives(regex, false)?;
    regex.next().map(|_| found).ok_or_else(|| "the regular expression has an unmatched parenthesis".into())
}

/// A class of characters: each of them if they are few, or any text.
fn class(regex: &mut Peekable<Chars<'_>>) -> Result<Vec<String>, String> {
    let mut is_listed = regex.next_if_eq(&'^').is_none();
    let mut chars: Vec<char> = regex.next_if_eq(&']').into_iter().collect();
    while let Some(c) = regex.next() {
        match c {
            '\\' => (_, is_listed) = (regex.next(), false),
            '[' if regex.peek() == Some(&':') => (_, is_listed) = (regex.by_ref().find(|c| *c == ']'), false),
            ']' if is_listed && chars.len() <= MAX_CLASS_CHARS && !chars.contains(&'-') => {
                return Ok(chars.iter().map(char::to_string).collect());
            }
            ']' => return Ok(any()),
            c => chars.push(c),
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
            (r"^(?:foo|ba[rz]+)? x{2,3}y: z{0,1} is late", vec!["* x*y: * is late"]),
            (r"Starting (a|b\.service)\.\.\.", vec!["*Starting a...", "*Starting b.service..."]),
            (r"three|seven+?", vec!["*three", "*seven"]),
            (r"OOM|lost", vec!["*OOM", "*lost"]),
            (r"[[:alpha:]\]]+ = \$5", vec!["* = $5"]),
            (r"^panic: |fatal error:", vec!["panic: ", "*fatal error:"]),
            (r"none|^two: (?:three|four)", vec!["*none", "two: three", "two: four"]),
            (r"x{3}y{failed", vec!["*x*y{failed"]),
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
            "a$b",
            ".*",
            "",
            "(a",
            "a)",
            "[a",
            r"\bword",
            "(a|b|c)(a|b|c)(a|b|c)",
            "[0-9]+:[a-z]",
            "a.*b|long enough",
        ] {
            assert!(patterns(regex).is_err(), "{regex}");
        }
    }
}
