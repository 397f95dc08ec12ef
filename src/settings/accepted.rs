//! The last accepted settings: the agent goes on with them when it is restarted with settings that are refused.

use std::{io, path::Path};

use super::{MAX_FILE_BYTES, Settings};
use crate::files;

/// Where they are kept.
pub const PATH: &str = "/var/lib/nodevigil/accepted-settings.toml";

/// Keeps the settings, if they are not there yet. A failure is logged: the agent works without. It waits for the disk.
pub fn save(path: &Path, settings: &Settings) {
    let result = toml::to_string(settings).map_err(io::Error::other).and_then(|text| {
        let is_kept = files::read(path, MAX_FILE_BYTES).is_ok_and(|kept| kept == text);
        if is_kept { Ok(()) } else { files::replace(path, 0o600, &text) }
    });
    if let Err(error) = result {
        tracing::warn!("{}: cannot keep the accepted settings: {error}", path.display());
    }
}

/// The kept settings; none if there are none, or if this version refuses them.
pub fn read(path: &Path) -> Option<Settings> {
    toml::from_str(&files::read(path, MAX_FILE_BYTES).ok()?).ok()
}
