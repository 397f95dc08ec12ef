//! `make picture`: records what `make demo` prints as docs/demo.cast, and draws the pictures of docs/ from it.
//!
//!     picture record    writes standard input to docs/demo.cast, each line with the time at which it came
//!     picture draw      writes the pictures
#![expect(unreachable_pub, reason = "a binary: `pub` says what other modules use")]

mod play;
mod recording;
mod still;
mod timeline;

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};
use recording::Recording;

/// Of both pictures. In an `<img>`, the browser's color scheme decides.
const STYLE: &str = include_str!("../templates/style.css");

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("record") => recording::record(&docs("demo.cast")),
        Some("draw") => pictures()?.iter().try_for_each(|(name, svg)| Ok(fs::write(docs(name), svg)?)),
        _ => bail!("usage: picture record|draw"),
    }
}

/// The commands of which there is a picture, by their beginning.
const STILLS: [(&str, &str); 3] =
    [("check.svg", "nodevigil check"), ("status.svg", "nodevigil status"), ("records.svg", "nodevigil records show")];

fn pictures() -> Result<Vec<(&'static str, String)>> {
    let recording = Recording::read(&fs::read_to_string(docs("demo.cast"))?)?;
    let performance = fs::read_to_string(docs("performance.md"))?;
    let stills = STILLS.into_iter().map(|(name, command)| Ok((name, still::draw(&recording, command)?)));
    let mut pictures = stills.collect::<Result<Vec<_>>>()?;
    pictures.push(("demo.svg", play::draw(&recording)));
    pictures.push(("timeline.svg", timeline::draw(&recording, &performance)?));
    Ok(pictures)
}

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pictures_are_those_of_the_recording() {
        for (name, svg) in pictures().unwrap() {
            let committed = fs::read_to_string(docs(name)).unwrap_or_default();
            assert!(
                committed == svg,
                "docs/{name} is not what `make picture` draws of docs/demo.cast and docs/performance.md"
            );
            assert!(svg.len() < 300_000, "docs/{name} has {} bytes", svg.len());
        }
    }

    #[test]
    fn the_play_takes_at_most_a_minute_and_no_line_is_wider_than_the_terminal() {
        let recording = Recording::read(&fs::read_to_string(docs("demo.cast")).unwrap()).unwrap();
        let seconds = play::seconds(&recording);
        assert!((20.0..60.0).contains(&seconds), "{seconds}");
        let wide = recording.lines.iter().find(|line| line.plain().chars().count() > recording::COLUMNS);
        assert!(wide.is_none(), "{wide:?}");
    }
}
