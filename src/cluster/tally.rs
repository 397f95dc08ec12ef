//! The requests to the API server, counted by what they were for and how they ended. Fixed arrays, pure.

use std::time::Duration;

use super::{api::ApiError, gate::RequestKind};
use crate::{clock::Now, metrics::Histogram};

/// How a request ended: what [`ApiError`] tells apart, without what it says.
pub const OUTCOMES: [&str; 12] = [
    "ok",
    "network",
    "timeout",
    "unauthorized",
    "forbidden",
    "not_found",
    "conflict",
    "expired",
    "too_many",
    "server",
    "refused",
    "nonsense",
];

fn outcome(result: Result<(), &ApiError>) -> usize {
    match result {
        Ok(()) => 0,
        Err(ApiError::Network(_)) => 1,
        Err(ApiError::Timeout) => 2,
        Err(ApiError::Unauthorized) => 3,
        Err(ApiError::Forbidden(_)) => 4,
        Err(ApiError::NotFound) => 5,
        Err(ApiError::Conflict(_)) => 6,
        Err(ApiError::Expired(_)) => 7,
        Err(ApiError::TooMany(_)) => 8,
        Err(ApiError::Server { .. }) => 9,
        Err(ApiError::Refused { .. }) => 10,
        Err(ApiError::Nonsense(_)) => 11,
    }
}

/// The requests so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    kinds: [OfKind; RequestKind::ALL.len()],
}

#[derive(Debug, Clone, Copy, Default)]
struct OfKind {
    outcomes: [u64; OUTCOMES.len()],
    took: Histogram,
    /// When the last one went out (uptime), while it is under way. There is one of each kind at a time.
    sent_at: Option<Duration>,
}

impl Tally {
    /// A request goes out.
    pub(super) fn sent(&mut self, kind: RequestKind, now: Now) {
        self.kinds[kind as usize].sent_at = Some(now.uptime);
    }

    /// It ended.
    pub(super) fn answered(&mut self, kind: RequestKind, result: Result<(), &ApiError>, now: Now) {
        let row = &mut self.kinds[kind as usize];
        row.outcomes[outcome(result)] += 1;
        if let Some(at) = row.sent_at.take() {
            row.took.observe(now.uptime.saturating_sub(at));
        }
    }

    /// How long the answers took, by kind.
    pub fn took(&self) -> impl Iterator<Item = (RequestKind, &Histogram)> {
        let rows = RequestKind::ALL.into_iter().zip(&self.kinds);
        rows.map(|(kind, row)| (kind, &row.took))
    }

    /// How often each kind ended how.
    pub fn outcomes(&self) -> impl Iterator<Item = (RequestKind, &'static str, u64)> {
        let rows = RequestKind::ALL.into_iter().zip(&self.kinds);
        rows.flat_map(|(kind, row)| {
            let counts = OUTCOMES.into_iter().zip(row.outcomes);
            counts.map(move |(outcome, count)| (kind, outcome, count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_once_and_timed_once() {
        let now = |secs| Now {
            uptime: Duration::from_secs(secs),
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut tally = Tally::default();
        tally.sent(RequestKind::Apply, now(1));
        tally.answered(RequestKind::Apply, Err(&ApiError::Timeout), now(6));
        tally.sent(RequestKind::Apply, now(7));
        tally.answered(RequestKind::Apply, Ok(()), now(7));
        // An answer to what nobody had announced has no time.
        tally.answered(RequestKind::Watch, Ok(()), now(8));
        let some: Vec<_> = tally
            .outcomes()
            .filter(|(_, _, count)| *count > 0)
            .collect();
        assert_eq!(
            some,
            [
                (RequestKind::Apply, "ok", 1),
                (RequestKind::Apply, "timeout", 1),
                (RequestKind::Watch, "ok", 1)
            ]
        );
        let took: Vec<_> = tally
            .took()
            .map(|(_, took)| (took.count(), took.sum()))
            .collect();
        assert_eq!(took[0], (2, Duration::from_secs(5)));
        assert_eq!(took[RequestKind::Watch as usize].0, 0);
    }
}
