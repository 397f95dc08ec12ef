//! The end of a message that says since when a problem has really been there, where it could be published only later: the API
//! server could not be reached, or there was no Node yet.

use jiff::Timestamp;

use super::{MAX_MESSAGE_BYTES, bounded};

/// What stands before the time.
pub(super) const MARK: &str = "began at ";
const WHY: &str = ", before it could be published";

/// The message, and since when it has really been so.
pub fn note(message: &str, began: Timestamp) -> String {
    let note = format!("; {MARK}{began:.0}{WHY}");
    bounded(message, MAX_MESSAGE_BYTES - note.len()) + &note
}

/// Since when it has really been so, if the message says that.
pub fn began(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.rsplit_once(&format!("; {MARK}"))?;
    rest.strip_suffix(WHY)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_again_and_bounded() {
        let began_at: Timestamp = "2026-11-23T05:12:07.9Z".parse().unwrap();
        for message in ["m".to_owned(), "x".repeat(MAX_MESSAGE_BYTES)] {
            let noted = note(&message, began_at);
            assert!(noted.len() <= MAX_MESSAGE_BYTES);
            assert_eq!(began(&noted).unwrap().as_second(), began_at.as_second());
        }
        assert_eq!(
            note("m", began_at),
            "m; began at 2026-11-23T05:12:07Z, before it could be published"
        );
        for message in ["m", "m; began at noon", "; began at 2026-11-23T05:12:07Z"] {
            assert_eq!(began(message), None, "{message}");
        }
    }
}
