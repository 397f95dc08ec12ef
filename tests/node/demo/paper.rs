//! What the demonstration prints: a line a step with the time since the start, and a table at the end.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Standard output, and the table that fills while the story is told.
pub(crate) struct Paper {
    start: Instant,
    colour: bool,
    rows: Vec<[String; 3]>,
}

impl Paper {
    /// An empty one. `start` is time zero.
    pub(crate) fn new(start: Instant, colour: bool) -> Self {
        Self {
            start,
            colour,
            rows: Vec::new(),
        }
    }

    /// The next part.
    pub(crate) fn heading(&self, text: &str) {
        print(&format!("\n{}\n", self.paint("1", text)));
    }

    /// A step that has just been taken.
    pub(crate) fn line(&self, text: &str) {
        self.line_at(Instant::now(), text);
    }

    /// A step and its moment.
    pub(crate) fn line_at(&self, at: Instant, text: &str) {
        let elapsed = at.saturating_duration_since(self.start).as_secs_f64();
        print(&format!("{elapsed:8.3} s  {}\n", self.shade(text)));
    }

    /// More about the step before.
    pub(crate) fn detail(&self, text: &str) {
        let mut lines = String::new();
        for line in text.trim_end().lines() {
            let line = format!("            {}", self.paint("2", line));
            writeln!(lines, "{}", line.trim_end()).expect("writing to a String cannot fail");
        }
        print(&lines);
    }

    /// What ended the story before its end.
    pub(crate) fn failure(&self, text: &str) {
        print(&format!(
            "\n{} {}\n",
            self.paint("31", "FAILED:"),
            text.trim_end()
        ));
    }

    /// One more row of the table.
    pub(crate) fn row(&mut self, event: &str, said: String, after: String) {
        self.rows.push([event.to_owned(), said, after]);
    }

    /// The table so far.
    pub(crate) fn table(&self, head: [&str; 3]) {
        let rows: Vec<[String; 3]> = [head.map(str::to_owned)]
            .into_iter()
            .chain(self.rows.iter().cloned())
            .collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths = [width(0), width(1)];
        let mut text = String::new();
        for [event, said, after] in &rows {
            let gap = " ".repeat(widths[1] - said.chars().count());
            writeln!(
                text,
                "  {event:<first$}   {}{gap}   {after}",
                self.shade(said),
                first = widths[0]
            )
            .expect("writing to a String cannot fail");
        }
        print(&text);
    }

    /// Colours the words of a condition.
    fn shade(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, colour) in [("=True", "32"), ("=False", "31"), ("=Unknown", "33")] {
            text = text.replace(word, &format!("={}", self.paint(colour, &word[1..])));
        }
        text
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A duration for people.
pub(crate) fn took(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1000.0),
    }
}

/// A closed standard output is nobody's failure.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
