//! `ExecStart=`: prefixes, words, and the expansion of variables; systemd.service(5), "COMMAND LINES".

use super::{super::place::Place, Exec};

/// The variables that a command refers to.
pub(super) fn references(_exec: &Exec) -> Vec<(String, Place, bool)> {
    Vec::new()
}
