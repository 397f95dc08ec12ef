//! The console: what a cloud keeps of a machine that it deletes.
#![expect(
    clippy::disallowed_types,
    reason = "a device, which is written to and never read: no file of host::files'"
)]

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
};

use super::files::Root;

const CONSOLE: &str = "/dev/console";
/// Longer lines are cut: a serial console passes some ten thousand bytes a second.
const MAX_LINE_BYTES: usize = 1024;

/// The open console; nothing if there is none, or if standard output is the console.
#[derive(Debug)]
pub struct Console(Option<File>);

impl Console {
    /// Opens it. Never waits: a console that takes nothing gets nothing.
    pub fn open(root: &Root) -> Self {
        let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOCTTY;
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(flags.bits())
            .open(root.join(CONSOLE))
            .ok();
        let device = file.as_ref().and_then(|file| file.metadata().ok());
        let is_stdout = device.is_some_and(|device| {
            let stdout = rustix::fs::fstat(io::stdout()).ok();
            stdout.is_some_and(|stdout| stdout.st_rdev == device.rdev() && device.rdev() != 0)
        });
        Self(file.filter(|_| !is_stdout))
    }

    /// Writes a line, as much of it as is taken at once.
    pub fn line(&mut self, line: &str) {
        if let Some(file) = &mut self.0 {
            let end = line.floor_char_boundary(MAX_LINE_BYTES);
            // A console that is not there any more is no matter.
            let _ = file.write_all(format!("{}\r\n", &line[..end]).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_and_cut() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        Console::open(&root).line("nobody is there");
        root.create_dir_all("/dev").unwrap();
        root.write_atomically(CONSOLE, b"").unwrap();
        let mut console = Console::open(&root);
        console.line("one");
        console.line(&"ä".repeat(MAX_LINE_BYTES));
        let text = root.read_text(CONSOLE, 8192).unwrap();
        assert!(text.starts_with("one\r\nä"), "{text}");
        assert_eq!(text.len(), 5 + MAX_LINE_BYTES + 2);
    }
}
