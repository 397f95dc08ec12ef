//! One line a capability: how it looks to people and to programs.

use std::sync::mpsc;

use serde::Serialize;

/// How a capability is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// There.
    Ok,
    /// Missing or lame; the agent does its work without it, less well.
    Warn,
    /// Missing, and what the agent is for is lost with it.
    Fail,
    /// Could not be looked at from here, or is not wanted.
    Skip,
}

/// What was found of one capability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// The capability, in a word.
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What was found.
    pub(super) text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

impl Line {
    /// The line for people; an API server's or a file's words cannot move the cursor.
    pub(super) fn show(&self, colour: bool) -> String {
        let (word, shade) = match self.state {
            State::Ok => ("ok", "32"),
            State::Warn => ("warn", "33"),
            State::Fail => ("FAIL", "31"),
            State::Skip => ("skip", "2"),
        };
        let mut word = format!("{word:<5}");
        if colour {
            word = format!("\x1b[{shade}m{word}\x1b[0m");
        }
        let mut text = self.text.clone();
        if let Some(advice) = &self.advice {
            text = format!("{text}; {advice}");
        }
        let text: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!("{word} {:<10} {text}\n", self.check)
    }
}

/// Where the checks put their lines. Nobody listens any more once the deadline has passed.
#[derive(Debug, Clone)]
pub(super) struct Lines(pub(super) mpsc::Sender<Line>);

impl Lines {
    pub(super) fn ok(&self, check: &'static str, text: impl Into<String>) {
        self.put(check, State::Ok, text.into(), None);
    }

    pub(super) fn skip(&self, check: &'static str, text: impl Into<String>) {
        self.put(check, State::Skip, text.into(), None);
    }

    pub(super) fn warn(&self, check: &'static str, text: impl Into<String>, advice: &str) {
        self.put(check, State::Warn, text.into(), Some(advice));
    }

    pub(super) fn fail(&self, check: &'static str, text: impl Into<String>, advice: &str) {
        self.put(check, State::Fail, text.into(), Some(advice));
    }

    fn put(&self, check: &'static str, state: State, text: String, advice: Option<&str>) {
        let advice = advice
            .filter(|advice| !advice.is_empty())
            .map(str::to_owned);
        let line = Line {
            check,
            state,
            text,
            advice,
        };
        self.0.send(line).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_line_whatever_it_quotes() {
        let line = Line {
            check: "api",
            state: State::Fail,
            text: "no\n\x1b[2Janswer".to_owned(),
            advice: Some("look".to_owned()),
        };
        assert_eq!(line.show(false), "FAIL  api        no  [2Janswer; look\n");
        assert!(line.show(true).starts_with("\x1b[31mFAIL \x1b[0m api "));
    }
}
