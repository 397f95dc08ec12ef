//! Another program on this host that may be away: said once when it goes, once when it is back.

use tracing::{info, warn};

use crate::host::journal::Kind;

/// Whether a peer answers.
#[derive(Debug)]
pub(super) struct Peer {
    name: &'static str,
    kinds: (Kind, Kind),
    state: State,
    changed: bool,
    /// Whether the check of ourselves has yet to hear of a change.
    unheard: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Unknown,
    Answers,
    Away(String),
}

impl Peer {
    /// `kinds`: of the line that says it went, and of the one that says it is back.
    pub(super) fn new(name: &'static str, kinds: (Kind, Kind)) -> Self {
        Self {
            name,
            kinds,
            state: State::Unknown,
            changed: false,
            unheard: false,
        }
    }

    pub(super) fn answers(&mut self) {
        if matches!(self.state, State::Away(_)) {
            info!(
                message_id = self.kinds.1.id(),
                peer = self.name,
                "{} answers again",
                self.name
            );
        }
        let is_new = self.state != State::Answers;
        self.changed |= is_new;
        self.unheard |= is_new;
        self.state = State::Answers;
    }

    pub(super) fn is_away(&mut self, why: &str) {
        if !matches!(self.state, State::Away(_)) {
            (self.changed, self.unheard) = (true, true);
            warn!(
                message_id = self.kinds.0.id(),
                peer = self.name,
                error = why,
                "{} does not answer; going on without it",
                self.name
            );
        }
        self.state = State::Away(why.to_owned());
    }

    /// Whether it came or went since this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether it came or went since the check of ourselves was told last.
    pub(super) fn take_unheard(&mut self) -> bool {
        std::mem::take(&mut self.unheard)
    }

    /// `None` until it was asked; then whether it answers, else why not.
    pub(super) fn known(&self) -> Option<Result<(), &str>> {
        match &self.state {
            State::Unknown => None,
            State::Answers => Some(Ok(())),
            State::Away(why) => Some(Err(why)),
        }
    }
}
