//! The last accepted settings. The agent uses them if it is restarted with invalid settings.

use std::io;
use std::path::Path;

use super::{MAX_FILE_BYTES, Settings};
use crate::files;

/// Where they are kept.
pub const PATH: &str = "/var/lib/nodevigil/accepted-settings.toml";

/// Keeps the settings, unless the file has them already. A failure is logged. It waits for the disk.
pub fn save(path: &Path, settings: &Settings) {
    let result = toml::to_string(settings).map_err(io::Error::other).and_then(|text| {
        let is_kept = files::read(path, MAX_FILE_BYTES).is_ok_and(|kept| kept == text);
        if is_kept { Ok(()) } else { files::replace(path, 0o600, &text) }
    });
    if let Err(error) = result {
        tracing::warn!("{}: cannot keep the accepted settings: {error}", path.display());
    }
}

/// The kept settings; none if there are none, or if they are invalid in this version.
pub fn read(path: &Path) -> Option<Settings> {
    toml::from_str(&files::read(path, MAX_FILE_BYTES).ok()?).ok()
}
