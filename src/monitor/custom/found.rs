//! What each source of a check answers.

/// What a check has found, with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Nothing(String),
    Problem(String),
    /// It is about to be known: what is shown stays.
    Pending(String),
    /// What is known does not tell.
    Unknown(String),
    /// Somebody wants it so.
    Intended(String),
}
