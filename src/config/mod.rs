//! Turns TOML fragments into [`Settings`], or into an error that names file, line and key.
//!
//! Three steps, three types: [`fragment::Fragment`] is one file as written, [`fragment::Merged`] the last word on each
//! key with the place where it was said, [`Settings`] what the agent may rely on. Everything works with no file at all.

mod error;
mod fragment;
mod keys;
mod settings;
mod sources;
mod values;

use std::path::PathBuf;

use self::{error::Source, fragment::Merged};
pub use self::{
    error::{ConfigError, EX_CONFIG},
    keys::{KEYS, Key, Kind},
    settings::{
        EventSettings, KubeletSettings, KubernetesSettings, MetricsSettings, NodeSettings,
        RuntimeSettings, Settings, SocketPlace,
    },
    values::{absolute_path, cloud_provider, node_ip, node_labels, node_name, provider_id},
};
use crate::host::files::Root;

/// Reads the configuration: the files and folders in `given`, in that order, or where there are none the fragments in
/// `nodevigil/config.d/` below `/usr/lib`, `/run` and `/etc`. Also says which files had something to say, in the order
/// in which they were read (the later one wins, key by key).
///
/// A path in `given` that is not there is an error; the default folders may be missing.
pub fn load(root: &Root, given: &[PathBuf]) -> Result<(Settings, Vec<PathBuf>), ConfigError> {
    let paths = if given.is_empty() {
        sources::default_files(root)?
    } else {
        sources::given_files(root, given)?
    };
    let mut merged = Merged::default();
    let mut read = Vec::new();
    for path in paths {
        let text = sources::read(root, &path)?;
        if text.trim().is_empty() {
            continue; // it only masks the files of its name in lower folders
        }
        merged.absorb(&Source::new(&path, &text))?;
        read.push(path);
    }
    Ok((Settings::try_from(merged)?, read))
}

#[cfg(test)]
mod tests;
