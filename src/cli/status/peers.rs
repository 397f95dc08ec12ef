//! Whom the daemon depends on, a line each: its identity, the API server, the helper, the bus.

use jiff::Timestamp;

use super::{age, with_detail};
use crate::status::{self, ApiState, IdentityKind, PeerState, StatusFile};

/// So far apart the clocks are certainly not alike, whatever the answers' ways were.
const CLOCK_IS_WRONG_SECS: i64 = 5;

pub(super) fn identity(file: &StatusFile) -> String {
    let kind = match file.identity.kind {
        IdentityKind::Own => "its own",
        IdentityKind::Kubelet => "the kubelet's",
        IdentityKind::None => "none, nothing is published",
        IdentityKind::Unknown => "unknown",
    };
    with_detail(kind, file.identity.detail.as_deref())
}

pub(super) fn api(file: &StatusFile, now: Timestamp) -> String {
    let api = &file.api;
    let state = match api.state {
        ApiState::Connected => "connected",
        ApiState::Connecting => "connecting",
        ApiState::Retrying => "retrying",
        ApiState::NodeMissing => "connected, but this Node is not there",
        ApiState::None => "not used",
        ApiState::Unknown => "unknown",
    };
    let mut parts = vec![state.to_owned()];
    parts.extend(
        api.last_success_at
            .map(|at| format!("last success {} ago", age(at, now))),
    );
    if api.failures > 0 {
        parts.push(format!("{} failures since", api.failures));
    }
    parts.extend(api.clock_ahead_secs.and_then(clock));
    with_detail(&parts.join(", "), api.last_error.as_deref())
}

/// Whether this machine's clock is the API server's, if it clearly is not.
fn clock(ahead_secs: i64) -> Option<String> {
    let (secs, where_to) = match ahead_secs {
        CLOCK_IS_WRONG_SECS.. => (ahead_secs, "ahead of"),
        _ if ahead_secs <= -CLOCK_IS_WRONG_SECS => (-ahead_secs, "behind"),
        _ => return None,
    };
    Some(format!(
        "this machine's clock is {secs} s {where_to} the API server's"
    ))
}

pub(super) fn peer(peer: &status::Peer) -> String {
    let state = match peer.state {
        PeerState::Ok => "ok",
        PeerState::Unavailable => "unavailable",
        PeerState::Unknown => "unknown",
    };
    with_detail(state, peer.detail.as_deref())
}
