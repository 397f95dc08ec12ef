//! What to do about a reason or a trouble: the rows of docs/operate.md, which is their one source.

const OPERATE: &str = include_str!("../../docs/operate.md");
const URL: &str = "https://github.com/nodevigil/nodevigil/blob/main/docs/operate.md";

/// The row of a name, and the section that contains it.
#[derive(Debug, PartialEq, Eq)]
pub struct Advice {
    pub text: String,
    /// What to run on the way, one command a line; empty if the section has none.
    pub commands: String,
    pub url: String,
}

/// The advice about the reason or the trouble with this name.
pub fn of(name: &str) -> Option<Advice> {
    OPERATE.split("\n#").find_map(|section| {
        let cell = format!("\n| `{name}` | ");
        let (before, row) = section.split_once(&cell)?;
        let row = row.lines().next()?.trim_end_matches(" |");
        let heading = section.lines().next()?.trim_start_matches('#').trim();
        let commands = before.split("\n```sh").nth(1).and_then(|block| block.split_once('\n'));
        let commands = commands.and_then(|(_, block)| block.split("```").next()).unwrap_or_default();
        Some(Advice { text: plain(row), commands: commands.to_owned(), url: format!("{URL}#{}", anchor(heading)) })
    })
}

/// Markdown without the targets of links.
fn plain(text: &str) -> String {
    let mut parts = text.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](").and_then(|(words, rest)| Some((words, rest.split_once(')')?.1))) {
            Some((words, rest)) => plain.extend([words, rest]),
            None => plain.extend(["[", part]),
        }
    }
    plain
}

/// The anchor that GitHub gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Reason;
    use crate::trouble::Trouble;

    #[test]
    fn every_reason_and_trouble_has_advice() {
        let is_health = |reason: &Reason| reason.spec().condition.is_some_and(|kind| Reason::healthy(kind) == *reason);
        let reasons = Reason::ALL.iter().filter(|reason| !is_health(reason)).map(|reason| reason.spec().name);
        let missing: Vec<_> =
            reasons.chain(Trouble::ALL.map(|(_, name, _)| name)).filter(|name| of(name).is_none()).collect();
        assert!(missing.is_empty(), "docs/operate.md has no row | `NAME` | … | for {missing:?}");
    }

    #[test]
    fn advice_has_the_commands_and_the_address_of_its_section() {
        let advice = of("KubeletUnkillable").unwrap();
        assert!(advice.text.starts_with("SIGKILL does not end the kubelet"), "{advice:?}");
        assert!(advice.commands.starts_with("nodevigil status KubeletHealthy\ncat /proc/"), "{advice:?}");
        assert_eq!(advice.url, format!("{URL}#the-kubelet-does-not-answer"));
        assert!(of("KubeletOOMKilled").unwrap().text.contains("(see NodeMemoryHealthy)"));
        assert_eq!(of("KubeletIsHealthy"), None);
    }
}
