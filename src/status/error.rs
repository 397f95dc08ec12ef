//! Why a status file cannot be used.

use std::path::PathBuf;

use super::VERSION;
use crate::host::files::FileError;

/// A status file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It could not be read or written.
    #[error("status file: {0}")]
    File(FileError),
    /// It is not what it should be.
    #[error("status file {}: {problem}; restart nodevigil.service, which writes it anew", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: String,
    },
    /// It was written by a later nodevigil.
    #[error(
        "status file {}: version {found}, and this nodevigil knows up to {VERSION}; use the nodevigil that runs as \
         the daemon",
        path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

impl StatusError {
    /// Whether there simply is no file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::File(error) if error.is_not_found())
    }
}
