//! The ways in which the proxy fails.

use std::time::Duration;

/// How long a slow answer takes: longer than any deadline of a request, and then it comes all the same.
pub(crate) const SLOW: Duration = Duration::from_secs(8);
/// The `Retry-After` of the 429.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(20);
/// The size of a huge answer.
pub(crate) const HUGE_BYTES: usize = 64 * 1024 * 1024;

/// One way to fail, until it is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody listens; what was open is reset.
    Refuse,
    /// Every connection, old and new, is reset.
    Reset,
    /// Connections are accepted and requests taken; none is ever answered, and open watches fall silent.
    Hang,
    /// What was open is never read or written again and the client is not told; new connections work.
    HalfOpen,
    /// A connection is accepted and never read: its TLS handshake hangs.
    HandshakeHang,
    /// Requests of that kind ([`super::Asked`]) wait until this is over, and open watches fall silent if it is `watch`;
    /// everything else is served.
    Hold(&'static str),
    /// Every request is answered with that status.
    Status(u16),
    /// Every request is answered 429, with [`RETRY_AFTER`].
    TooMany,
    /// Every request is carried out, and answered, [`SLOW`] later, whether or not the client still waits.
    Slow,
    /// The server's certificate is of another authority.
    WrongCa,
    /// The server's certificate has expired.
    Expired,
    /// Every request is answered 200 with [`HUGE_BYTES`].
    Huge,
    /// Every request is answered 200 with JSON that breaks off.
    BrokenJson,
    /// Behind the TLS handshake something speaks that is no HTTP.
    NotHttp,
    /// No failure: every answer's `Date` is so many seconds ahead, as if the node's clock were behind the cluster's.
    DateAhead(u32),
}

impl Fault {
    /// Whether it begins by resetting what is open, as a server does that comes back ill.
    pub(super) fn resets_connections(self) -> bool {
        !matches!(
            self,
            Self::Hang | Self::HalfOpen | Self::Hold(_) | Self::Slow | Self::DateAhead(_)
        )
    }
}
