//! `nodevigil replay`: replays a recording of a host's memory through the memory monitor.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::{GOOD, print};
use crate::monitor::memory::recording::{Replayed, Transition};

/// Replay a recording of a host's memory through the memory monitor
///
/// Prints a JSON line for each change of state, with the reason. The states are calm, imminent, thrashing (which the Node shows after a
/// minute) and oom.
///
/// Exit code: 0 the whole recording was replayed, 1 it cannot be read.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// The recording: JSON lines, a header and then samples
    file: PathBuf,
}

impl Replay {
    pub fn run(self) -> anyhow::Result<u8> {
        replay(&self.file, |transition| print(&(serde_json::to_string(&transition)? + "\n")))?;
        Ok(GOOD)
    }
}

/// Replays a recording; calls `changed` for each change of state.
fn replay(path: &Path, mut changed: impl FnMut(Transition) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let file = path.display();
    let mut replayed = None::<Replayed>;
    for (number, line) in (1..).zip(BufReader::new(File::open(path).with_context(|| file.to_string())?).lines()) {
        let at = || format!("{file}:{number}");
        let line = line.with_context(at)?;
        match &mut replayed {
            _ if line.trim().is_empty() => {}
            None => replayed = Some(Replayed::new(&line).map_err(anyhow::Error::msg).with_context(at)?),
            Some(replayed) => {
                let transition = replayed.take(&line).map_err(anyhow::Error::msg).with_context(at)?;
                transition.map_or(Ok(()), &mut changed)?;
            }
        }
    }
    ensure!(replayed.is_some(), "{file}:1: the recording is empty: there is no header");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_change_of_state_is_a_line_and_an_error_names_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recording.jsonl");
        let replayed = |text: &str| {
            fs::write(&path, text).unwrap();
            let mut lines = Vec::new();
            let result = replay(&path, |transition| {
                lines.push(serde_json::to_string(&transition)?);
                Ok(())
            });
            result.map(|()| lines).map_err(|error| format!("{error:#}"))
        };
        let sample = |at: u32| {
            let available = 900 - 50 * at;
            format!("{{\"t_s\": {at}, \"available_mib\": {available}, \"pgscan_per_s\": 9, \"oom_kills\": 0}}\n")
        };
        let falls: String = (0..15).map(sample).collect();
        let header = "{\"total_mib\": 1000}\n";
        let why = "200 MiB (20 %) of the host's memory is available, falling by 50 MiB/s: it is used up in about 4 s";
        let line = format!(r#"{{"t_s":14.0,"from":"calm","to":"imminent","why":"{why}"}}"#);
        assert_eq!(replayed(&format!("{header}\n{falls}")), Ok(vec![line]));
        for (text, number, what) in
            [(String::new(), 1, "there is no header"), (format!("{header}{}nonsense\n", sample(0)), 3, "not a sample")]
        {
            let error = replayed(&text).unwrap_err();
            assert!(error.contains(&format!("recording.jsonl:{number}: ")) && error.contains(what), "{error}");
        }
    }
}
