//! A recording of a terminal, as an asciicast (<https://docs.asciinema.org/manual/asciicast/v2/>) whose events are whole lines.

use std::fs::File;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// The terminal's width, to which tests/e2e/src/demo.rs keeps.
pub const COLUMNS: usize = 96;
/// And its height, in lines, as in templates/terminal.svg.
pub const ROWS: usize = 34;
/// The terminal clears a line of progress by it (`EL` of ECMA-48).
const CLEAR: &str = "\x1b[K";
/// Ends a color.
const RESET: &str = "\x1b[0m";

#[derive(Debug)]
pub struct Recording {
    pub lines: Vec<Line>,
}

#[derive(Debug)]
pub struct Line {
    /// When it came, in seconds.
    pub at: f64,
    /// With escape sequences for colors.
    pub text: String,
}

/// Writes standard input to `path`, and passes it on to standard output.
pub fn record(path: &Path) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
    writeln!(file, "{}", json!({"version": 2, "width": COLUMNS, "height": ROWS, "title": "make demo"}))?;
    let begun = Instant::now();
    for line in stdin().lock().lines() {
        let line = cut(&line?.replace(CLEAR, ""));
        let at = (begun.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        writeln!(file, "{}", json!([at, "o", format!("{}\r\n", line.trim_end())]))?;
        writeln!(stdout(), "{}", line.trim_end())?;
    }
    Ok(())
}

/// What of a line fits into the terminal.
fn cut(line: &str) -> String {
    let (mut fitting, mut columns, mut is_escape) = (String::new(), 0, false);
    for c in line.trim_end().chars() {
        is_escape |= c == '\x1b';
        columns += usize::from(!is_escape);
        if is_escape || columns <= COLUMNS {
            fitting.push(c);
        }
        is_escape &= c != 'm';
    }
    fitting
}

/// A line that fills the terminal was cut: the last character makes room for an ellipsis.
fn with_ellipsis(line: &str) -> String {
    let (text, end) = line.strip_suffix(RESET).map_or((line, ""), |text| (text, RESET));
    let is_cut = Line { at: 0.0, text: line.to_owned() }.plain().chars().count() == COLUMNS;
    let mut text = text.to_owned();
    if is_cut && text.pop().is_some() {
        text.push('…');
    }
    text + end
}

impl Recording {
    /// Reads an asciicast that [`record`] wrote.
    pub fn read(cast: &str) -> Result<Self> {
        let line = |json: &str| -> Result<Line> {
            let event: Value = serde_json::from_str(json)?;
            let at = event[0].as_f64().context("an event begins with its time")?;
            let text = event[2].as_str().context("an event ends with its text")?;
            // A line of progress was replaced before.
            Ok(Line { at, text: with_ellipsis(text.replace('\r', "").trim_end()) })
        };
        // The first line is about the terminal.
        Ok(Self { lines: cast.lines().skip(1).map(line).collect::<Result<_>>()? })
    }

    /// The words of the line that begins with `word`.
    pub fn row(&self, word: &str) -> Result<Vec<String>> {
        let rows = self.lines.iter().map(|line| line.plain().split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let mut rows = rows.filter(|row| row.first().is_some_and(|first| first == word));
        rows.next().with_context(|| format!("docs/demo.cast has no line that begins with {word:?}"))
    }

    /// The message of a condition, for XML: the line after the one with its reason.
    pub fn message(&self, reason: &str) -> Result<String> {
        let mut lines = self.lines.iter().map(Line::plain).skip_while(|line| !line.contains(reason));
        let message = lines.nth(1).with_context(|| format!("docs/demo.cast has no message of {reason}"))?;
        Ok(message.trim().replace('&', "&amp;").replace('<', "&lt;"))
    }
}

impl Line {
    /// Without escape sequences, each of which is a color's.
    pub fn plain(&self) -> String {
        let mut parts = self.text.split("\x1b[");
        let first = parts.next().unwrap_or_default().to_owned();
        first + &parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text)).collect::<String>()
    }
}
