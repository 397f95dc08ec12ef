//! When a request may go out: one gate for all of them, so that an API server in trouble is asked by one request at a
//! time, ever more slowly, whatever it is that we want of it.
//!
//! A failure of the way (nobody there, silence, 5xx, 429, 401, nonsense) shuts the gate for everything. At its time
//! one request goes, the most important that is due, and its success opens the gate for all. A refusal that concerns
//! one kind of request (403, 404, 409, other 4xx) is kept for that kind; refused kinds take turns, so that together
//! they ask no more often than one alone would.
//!
//! Pure: the caller asks [`Gate::opens_at`], tells [`Gate::sent`] and [`Gate::answered`].

use std::time::Duration;

pub use super::request_kind::RequestKind;
use super::{
    api::{ApiError, REQUEST_TIMEOUT},
    backoff::{Backoff, MAX_RETRY_AFTER},
    episode::{Episode, Line},
    tally::Tally,
};
use crate::clock::Now;

/// Failures further apart than this are not of one trouble. A success alone proves little: it may be one in a row of both.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);
/// A request of which nothing was heard for so long is lost.
const LOST_AFTER: Duration = Duration::from_secs(3 * REQUEST_TIMEOUT.as_secs());
/// A watch that ends sooner than this was not ended in time.
const SHORT_WATCH: Duration = Duration::from_secs(30);

/// The first 403 is waited out like a failure that is already the third in a row: some seconds.
const EARLY: u32 = 3;

/// What to do about a failure, besides waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing more.
    Wait,
    /// The request may still land: its connection must die.
    Reconnect,
    /// Read the credential anew, once.
    ReadCredential,
    /// The Node is not the one that we knew: read it before the next try.
    ReadAnew,
}

/// The gate.
#[derive(Debug)]
pub struct Gate {
    random: Backoff,
    shut: Option<Shut>,
    failures: Failures,
    kinds: [Kind; RequestKind::ALL.len()],
    /// When the next of the refused kinds may be tried.
    turn_at: Duration,
    /// Failures since all was well.
    count: u32,
    credential_was_read: bool,
    episode: Episode,
    tally: Tally,
}

#[derive(Debug)]
struct Shut {
    /// Whose failure shut it.
    by: RequestKind,
    error: ApiError,
    until: Duration,
    /// When the one request went out, whose answer is waited for.
    tried_at: Option<Duration>,
}

impl Shut {
    /// What failed may have been the watch alone: news for the Node is tried once before it waits. Who knows us not, or
    /// has told us to wait, is not asked again for that.
    fn may_be_of_another_kind(&self) -> bool {
        let told = matches!(
            self.error,
            ApiError::Unauthorized
                | ApiError::TooMany(_)
                | ApiError::Server {
                    retry_after: Some(_),
                    ..
                }
        );
        self.by != RequestKind::Apply && self.tried_at.is_none() && !told
    }
}

#[derive(Debug, Default)]
struct Kind {
    failures: Failures,
    held: Option<Held>,
}

/// Why one kind waits.
#[derive(Debug)]
struct Held {
    /// What it was refused with; `None` for a pause that is nobody's fault.
    error: Option<ApiError>,
    not_before: Duration,
}

#[derive(Debug, Default)]
struct Failures {
    count: u32,
    last: Duration,
}

impl Failures {
    /// How many in a row, this one included.
    fn another(&mut self, now: Now) -> u32 {
        if now.uptime.saturating_sub(self.last) > FORGOTTEN_AFTER {
            self.count = 0;
        }
        self.last = now.uptime;
        self.count = self.count.saturating_add(1);
        self.count
    }
}

impl Gate {
    /// An open gate; the waits of each node are its own.
    pub fn new(node: &str) -> Self {
        Self {
            random: Backoff::new(node, "gate"),
            shut: None,
            failures: Failures::default(),
            kinds: Default::default(),
            turn_at: Duration::ZERO,
            count: 0,
            credential_was_read: false,
            episode: Episode::default(),
            tally: Tally::default(),
        }
    }

    /// The Node's name is another than was thought: the waits to come are those of that name.
    pub fn spread_by(&mut self, node: &str) {
        self.random = Backoff::new(node, "gate");
    }

    /// From when on (uptime) a request of that kind may go out.
    pub fn opens_at(&self, kind: RequestKind) -> Duration {
        match &self.shut {
            None => {}
            Some(shut) if kind == RequestKind::Apply && shut.may_be_of_another_kind() => {}
            Some(shut) => return shut.tried_at.map_or(shut.until, |at| at + LOST_AFTER),
        }
        let of_kind = &self.kinds[kind as usize];
        match &of_kind.held {
            None => Duration::ZERO,
            // What we are here for gets its second chance at once.
            Some(held) if held.error.is_none() || first(kind, of_kind) => held.not_before,
            Some(held) => held.not_before.max(self.turn_at),
        }
    }

    /// Whether a request of that kind may go out now.
    pub fn is_open(&self, kind: RequestKind, now: Now) -> bool {
        self.opens_at(kind) <= now.uptime
    }

    /// A request of that kind goes out.
    pub fn sent(&mut self, kind: RequestKind, now: Now) {
        self.tally.sent(kind, now);
        if let Some(shut) = &mut self.shut {
            shut.tried_at = Some(now.uptime);
        } else if self.is_refused(kind) {
            self.turn_at = now.uptime + REQUEST_TIMEOUT;
        }
    }

    /// How a request of that kind ended.
    pub fn answered(
        &mut self,
        kind: RequestKind,
        result: Result<(), &ApiError>,
        now: Now,
    ) -> Remedy {
        self.tally.answered(kind, result, now);
        let Err(error) = result else {
            self.succeeded(kind, now);
            return Remedy::Wait;
        };
        self.count = self.count.saturating_add(1);
        self.episode.trouble(error, now);
        match error {
            ApiError::Network(_)
            | ApiError::Timeout
            | ApiError::Unauthorized
            | ApiError::TooMany(_)
            | ApiError::Server { .. }
            | ApiError::Nonsense(_) => self.shut(kind, error, now),
            ApiError::Forbidden(_)
            | ApiError::NotFound
            | ApiError::Conflict(_)
            | ApiError::Expired(_)
            | ApiError::Refused { .. } => self.hold(kind, error, now),
        }
    }

    fn shut(&mut self, by: RequestKind, error: &ApiError, now: Now) -> Remedy {
        let told = match error {
            ApiError::TooMany(wait) => *wait,
            ApiError::Server { retry_after, .. } => *retry_after,
            _ => None,
        };
        let told = told.map_or(Duration::ZERO, |wait| wait.min(MAX_RETRY_AFTER));
        match &mut self.shut {
            // It was under way when another failed: one trouble, not two.
            Some(shut) if shut.tried_at.is_none() => {
                shut.until = shut.until.max(now.uptime + told);
            }
            _ => {
                let failures = self.failures.another(now);
                let wait = match error {
                    ApiError::Unauthorized => self.random.refused(),
                    // Everybody was told the same number: spread behind it, never before.
                    _ => told + self.random.step(failures),
                };
                self.shut = Some(Shut {
                    by,
                    error: error.clone(),
                    until: now.uptime + wait,
                    tried_at: None,
                });
            }
        }
        match error {
            ApiError::Timeout => Remedy::Reconnect,
            ApiError::Unauthorized if !self.credential_was_read => {
                self.credential_was_read = true;
                Remedy::ReadCredential
            }
            _ => Remedy::Wait,
        }
    }

    fn hold(&mut self, kind: RequestKind, error: &ApiError, now: Now) -> Remedy {
        // Whoever refuses is there.
        self.shut = None;
        // Those that wait for a reading are not tried meanwhile.
        let waiting =
            |error: &ApiError| matches!(error, ApiError::NotFound | ApiError::Conflict(_));
        let others = (0..self.kinds.len())
            .filter(|index| *index != kind as usize)
            .filter_map(|index| refusal(&self.kinds[index]))
            .filter(|error| !waiting(error))
            .count();
        let of_kind = &mut self.kinds[kind as usize];
        let failures = of_kind.failures.another(now);
        let read_anew = kind != RequestKind::Watch && waiting(error);
        let mut not_before = now.uptime;
        if matches!(error, ApiError::Forbidden(_)) {
            // An API server that has just started refuses until it has read its roles: the first refusal may be that.
            not_before += match failures {
                1 => self.random.step(EARLY),
                _ => self.random.refused(),
            };
        } else {
            let wait = match (read_anew, failures) {
                (true, 1) => Duration::ZERO,
                (true, more) => self.random.read_anew(more - 1),
                (false, failures) => self.random.step(failures),
            };
            self.turn_at = now.uptime + wait;
            not_before += wait * u32::try_from(1 + others).unwrap_or(1);
        }
        of_kind.held = Some(Held {
            error: Some(error.clone()),
            not_before,
        });
        if read_anew {
            Remedy::ReadAnew
        } else {
            Remedy::Wait
        }
    }

    fn succeeded(&mut self, kind: RequestKind, now: Now) {
        let was_shut = self.shut.take().is_some();
        let held = self.kinds[kind as usize].held.take();
        let recovered = held.and_then(|held| held.error);
        self.credential_was_read = false;
        for other in &mut self.kinds {
            if let Some(Held {
                error: Some(error),
                not_before,
            }) = &mut other.held
            {
                let with_it = recovered
                    .as_ref()
                    .is_some_and(|one| one.code() == error.code());
                if with_it || (was_shut && !matches!(error, ApiError::Forbidden(_))) {
                    *not_before = now.uptime;
                    self.turn_at = now.uptime;
                }
            }
        }
        self.well_if_nothing_is_wrong(now);
    }

    /// The watch was open and has ended: in time (`None`), or by a failure of its own stream, which says little about
    /// the API server. The next one waits; nothing else does.
    pub fn watch_ended(&mut self, opened_at: Duration, early: bool, now: Now) {
        let watch = &mut self.kinds[RequestKind::Watch as usize];
        let short = now.uptime.saturating_sub(opened_at) < SHORT_WATCH;
        let failures = if early || short {
            watch.failures.another(now)
        } else {
            1
        };
        watch.held = Some(Held {
            error: None,
            not_before: now.uptime + self.random.step(failures),
        });
    }

    /// Whatever was under way will not come back: its connection was dropped.
    pub fn forget_in_flight(&mut self) {
        if let Some(shut) = &mut self.shut {
            shut.tried_at = None;
        }
    }

    /// There is another credential: what the old one was refused, the new one may be granted.
    pub fn credential_renewed(&mut self, now: Now) {
        if let Some(shut) = &mut self.shut
            && shut.error == ApiError::Unauthorized
        {
            (shut.until, shut.tried_at) = (now.uptime, None);
        }
        for kind in &mut self.kinds {
            if let Some(held) = &mut kind.held {
                held.not_before = held.not_before.min(now.uptime);
            }
        }
        self.turn_at = now.uptime;
    }

    /// The Node is known not to be there: a 404 was for that, and is no trouble of the API server's.
    pub fn node_is_missing(&mut self, now: Now) {
        for kind in &mut self.kinds {
            if refusal(kind) == Some(&ApiError::NotFound) {
                kind.held = None; // its failures still count: a server that takes both back is not asked more often
            }
        }
        self.well_if_nothing_is_wrong(now);
    }

    fn well_if_nothing_is_wrong(&mut self, now: Now) {
        if self.failure().is_none() {
            self.count = 0;
            self.episode.well(now);
        }
    }

    /// What is wrong, and how many requests have failed since all was well.
    pub fn failure(&self) -> Option<(&ApiError, u32)> {
        let shut = self.shut.as_ref().map(|shut| &shut.error);
        let error = shut.or_else(|| self.kinds.iter().find_map(refusal))?;
        Some((error, self.count))
    }

    /// The requests so far, counted.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// When something is to be said though nothing happens (uptime).
    pub fn next_deadline(&self) -> Option<Duration> {
        self.episode.next_deadline()
    }

    /// What is to be said now, once.
    pub fn line(&mut self, now: Now) -> Option<Line> {
        self.episode.line(now)
    }

    fn is_refused(&self, kind: RequestKind) -> bool {
        refusal(&self.kinds[kind as usize]).is_some()
    }
}

fn refusal(kind: &Kind) -> Option<&ApiError> {
    kind.held.as_ref()?.error.as_ref()
}

fn first(kind: RequestKind, of_kind: &Kind) -> bool {
    kind == RequestKind::Apply && of_kind.failures.count <= 1
}

#[cfg(test)]
mod tests;
