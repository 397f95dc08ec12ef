//! The evidence: what a kubelet said last is read by the helper from the journal's files, so that a crash is told with its cause.
//! Its sandbox must leave them to it.

use super::{Ground, line::Lines};
use crate::{checks::kubelet::Run, helper::journal};

const ADVICE: &str = "a crash would be told without the kubelet's last words; does the sandbox of nodevigil-helper.service hide the journal?";

/// Has the helper read what the kubelet said in the run at hand.
pub(super) async fn look(lines: &Lines, ground: &Ground, invocation: Option<String>) {
    let unit = &ground.settings.kubelet.unit;
    let Some(invocation) = invocation else {
        return lines.skip("evidence", "no run of a kubelet's unit is known");
    };
    let words = match ground.helper.last_words(&Run::Invocation(invocation)).await {
        Ok(words) => words,
        Err(error) => return lines.warn("evidence", error.to_string(), ADVICE),
    };
    if words.line.is_some() || words.compressed {
        return lines.ok(
            "evidence",
            format!("the helper reads what {unit} said last"),
        );
    }
    // From outside its sandbox, and for who may look.
    match journal::files(&ground.root).first() {
        Some(file) => lines.warn(
            "evidence",
            format!(
                "the helper finds nothing of {unit} in the journal, and there is {}",
                file.display()
            ),
            ADVICE,
        ),
        None => lines.skip("evidence", "no journal is kept on this host"),
    }
}
