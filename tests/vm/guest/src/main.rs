//! One static program for everything that the guest runs beside the real agent and helper, chosen by its own name or by its
//! first argument: the first process in the initial file system, the stand-in kubelet, the loads, the recorder, and the
//! one that does what the test says.

mod conduct;
mod init;
mod kubelet;
mod load;
mod packets;
mod place;
mod record;
mod scrape;
mod tables;

use std::error::Error;
use std::path::Path;

/// What goes wrong is told in words: the test prints them.
type Outcome = Result<(), Box<dyn Error>>;

fn main() {
    let mut words = std::env::args();
    let own = words.next().unwrap_or_default();
    let name = Path::new(&own)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let done = match name.as_deref() {
        Some("init") => init::run(),
        Some("kubelet") => kubelet::run(words),
        _ => match words.next().as_deref() {
            Some("conduct") => conduct::run(words),
            Some("record") => record::run(words),
            Some("scrape") => scrape::run(words),
            Some("grow") => load::grow(words),
            Some("touch") => load::touch(words),
            Some("write") => load::write(words),
            Some("read") => load::read(words),
            other => Err(format!("there is no {other:?} here").into()),
        },
    };
    if let Err(error) = done {
        eprintln!("guest: {error}");
        std::process::exit(1);
    }
}

/// The value after `--name`, as the kind that is wanted.
fn flag<T: std::str::FromStr>(words: &[String], name: &str) -> Option<T> {
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1)?.parse().ok()
}
