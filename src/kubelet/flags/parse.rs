//! An argument list, read as pflag reads it.

use super::{super::systemd::Word, CommandLine};

/// Reads the words behind the program's name.
pub fn parse(_words: &[Word]) -> CommandLine {
    CommandLine::default()
}
