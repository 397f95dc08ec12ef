//! What the API server says.

use http::StatusCode;
use nodevigil::cluster::{
    api::{self, ApiError, AskedPause, MAINTENANCE_SIGNS, NodeView},
    watch::{NodeEvent, read_line},
};

/// What is kept of a text that somebody else wrote.
const MAX_TEXT_BYTES: usize = 512;
/// What stands around it in an error.
const MAX_ERROR_BYTES: usize = MAX_TEXT_BYTES + 100;

/// A line of a watch; the same as a list, as a Lease, and as a refusal.
pub fn node(bytes: &[u8]) {
    let mut version = "1".to_owned();
    match read_line(bytes, &mut version) {
        Ok(Some(NodeEvent::Seen(node))) => {
            assert_eq!(node.version, version);
            is_bounded(&node);
        }
        Ok(_) => assert!(version.len() <= bytes.len()),
        Err(error) => is_short(&error),
    }
    match api::read_list(bytes) {
        Ok((node, _)) => node.iter().for_each(is_bounded),
        Err(error) => is_short(&error),
    }
    if let Err(error) = api::read_lease(bytes) {
        is_short(&error);
    }
    for code in [
        StatusCode::FORBIDDEN,
        StatusCode::CONFLICT,
        StatusCode::GONE,
        StatusCode::UNPROCESSABLE_ENTITY,
        StatusCode::INTERNAL_SERVER_ERROR,
    ] {
        let error = api::classify(code, None, bytes);
        is_short(&error);
    }
}

fn is_short(error: &ApiError) {
    let text = error.to_string();
    assert!(text.len() <= MAX_ERROR_BYTES, "{} bytes", text.len());
    assert!(!text.contains('\n'), "{text:?}");
}

/// What is said of a Node in a line or on it stays short, whatever stands there.
fn is_bounded(node: &NodeView) {
    assert!(node.readiness.words.len() <= MAX_TEXT_BYTES);
    assert!(!node.readiness.words.contains('\n'));
    assert!(!node.readiness.is_ready || node.readiness.words.is_empty());
    assert!(
        node.standing_down
            .as_ref()
            .is_none_or(|text| text.len() <= 1024)
    );
    for owner in &node.owners {
        assert!(owner.foreign.as_ref().is_none_or(|name| name.len() <= 128));
    }
    let will = &node.facts.will;
    assert!(will.maintenance.len() <= MAINTENANCE_SIGNS.len());
    if let Some(pause) = &will.pause
        && let AskedPause::UntilRemoved(why) | AskedPause::Unclear(why) = &pause.asks
    {
        assert!(why.len() <= 200, "{} bytes", why.len());
        assert!(!why.contains(char::is_control), "{why:?}");
    }
}
