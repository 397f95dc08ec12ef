//! A picture of one command of the recording and what it prints.

use anyhow::{Result, ensure};

use crate::STYLE;
use crate::play::{LINE_PX, render};
use crate::recording::{Line, Recording};

/// Around the lines.
const MARGIN_PX: usize = 10;

/// The picture of the first command that begins with `command`.
pub fn draw(recording: &Recording, command: &str) -> Result<String> {
    let is_prompt = |line: &&Line| line.plain().contains("# ");
    let is_it = |line: &&Line| line.plain().split_once("# ").is_some_and(|(_, typed)| typed.starts_with(command));
    let mut lines = recording.lines.iter().skip_while(|line| !is_it(line));
    let Some(first) = lines.next() else { anyhow::bail!("docs/demo.cast has no command that begins with {command:?}") };
    // A heading follows, or the next command, or what the Node then shows.
    let is_output = |line: &&Line| !is_prompt(line) && !line.plain().starts_with("== ") && !is_time(&line.plain());
    let mut shown = vec![first.text.as_str()];
    shown.extend(lines.take_while(is_output).map(|line| line.text.as_str()));
    while shown.last().is_some_and(|line| line.is_empty()) {
        shown.pop();
    }
    ensure!(shown.len() > 1, "{command} prints nothing in docs/demo.cast");
    let height = shown.len() * LINE_PX + 2 * MARGIN_PX;
    let text = render(&shown);
    Ok(format!(include_str!("../templates/still.svg"), style = STYLE, command = command, height = height, text = text))
}

/// Whether a line of the demo begins with the time after which a condition was shown.
fn is_time(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|word| word.parse::<f64>().is_ok()) && words.next() == Some("s")
}
