//! Why the helper gave no answer.

use std::{io, path::PathBuf};

use super::Code;

/// Why the helper gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// Nobody listens: no helper is installed, its socket unit is stopped, or we may not connect.
    #[error("connect to the helper at {}: {source}; start nodevigil-helper.socket", socket.display())]
    Absent {
        /// Where it was looked for.
        socket: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// No answer within the verb's deadline: the helper is stopped, or stuck in the kernel.
    #[error(
        "ask the helper for `{verb}`: no answer within {secs} s; look at nodevigil-helper.service"
    )]
    TimedOut {
        /// The verb.
        verb: &'static str,
        /// Its deadline, in seconds.
        secs: u64,
    },
    /// The helper said no.
    #[error("ask the helper for `{verb}`: {message}")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The kind, for the program.
        code: Code,
        /// The helper's sentence.
        message: String,
    },
    /// The helper broke off, or what it said is no answer; the content is not quoted.
    #[error(
        "ask the helper for `{verb}`: {what}; agent and helper must be of one version, restart both"
    )]
    Protocol {
        /// The verb.
        verb: &'static str,
        /// What was wrong.
        what: String,
    },
}
