//! Turns TOML fragments into [`Settings`], or into an error that names file, line and key.
//!
//! Three steps, three types: [`fragment::Fragment`] is one file as written, [`fragment::Merged`] the last word on each
//! key with the place where it was said, [`Settings`] what the agent may rely on. Everything works with no file at all.

mod error;
mod fragment;
mod kept;
mod keys;
mod kubernetes;
mod reasons;
mod settings;
mod sources;
mod values;

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use self::{error::Source, fragment::Merged};
pub use self::{
    error::{ConfigError, EX_CONFIG},
    kept::{Keeper, StandIn},
    keys::{KEYS, Key, Kind},
    kubernetes::KubernetesSettings,
    settings::{
        EventSettings, KubeletSettings, MetricsSettings, NodeSettings, RuntimeSettings, Settings,
        SocketPlace,
    },
    values::{absolute_path, cloud_provider, node_ip, node_labels, node_name, provider_id},
};
use crate::host::{
    files::Root,
    trusted::{self, NotTrusted, Why},
};

/// Reads the configuration: the files and folders in `given`, in that order, or where there are none the fragments in
/// `nodevigil/config.d/` below `/usr/lib`, `/run` and `/etc`. Also says which files had something to say, in the order
/// in which they were read (the later one wins, key by key).
///
/// A path in `given` that is not there is an error; the default folders may be missing.
pub fn load(root: &Root, given: &[PathBuf]) -> Result<(Settings, Vec<PathBuf>), ConfigError> {
    let files = read_all(root, given)?;
    let settings = settle(&files)?;
    Ok((settings, files.into_iter().map(|file| file.path).collect()))
}

/// The same for the daemon, which goes on with the last configuration that could be used if this one cannot.
///
/// # Errors
/// When this one cannot be used and `keeper` has none.
pub fn load_or_last_good(
    root: &Root,
    given: &[PathBuf],
    keeper: Option<&Keeper>,
) -> Result<Loaded, ConfigError> {
    let written = read_all(root, given).and_then(|files| {
        let settings = settle(&files)?;
        Ok(Loaded { settings, files })
    });
    match (written, keeper) {
        (Err(refused), Some(keeper)) => keeper.stand_in(refused),
        (written, _) => written,
    }
}

/// A file of the configuration that has something to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Where it lies.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// A configuration in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What it comes to.
    pub settings: Settings,
    /// What it was read from.
    pub files: Vec<Written>,
}

/// The same of those files alone that only root can have written, for whoever acts as root: `/run/nodevigil` is the agent's own
/// folder. Also says what was left out.
///
/// # Errors
/// As of [`load`].
pub fn load_roots(
    root: &Root,
    given: &[PathBuf],
) -> Result<(Settings, Vec<NotTrusted>), ConfigError> {
    let left_out = RefCell::new(Vec::new());
    let is_roots = |path: &Path| match trusted::find(root, path) {
        Ok(_) => true,
        // Every link on the way is root's.
        Err(NotTrusted {
            why: Why::Missing | Why::NotAFile { .. },
            ..
        }) if sources::is_mask(root, path) => true,
        Err(error) => {
            left_out.borrow_mut().push(error);
            false
        }
    };
    let settings = settle(&read_those(root, given, &is_roots)?)?;
    Ok((settings, left_out.into_inner()))
}

fn read_all(root: &Root, given: &[PathBuf]) -> Result<Vec<Written>, ConfigError> {
    read_those(root, given, &|_| true)
}

fn read_those(
    root: &Root,
    given: &[PathBuf],
    is_read: &dyn Fn(&Path) -> bool,
) -> Result<Vec<Written>, ConfigError> {
    let paths = if given.is_empty() {
        sources::default_files(root, is_read)?
    } else {
        let mut files = sources::given_files(root, given)?;
        files.retain(|path| is_read(path));
        files
    };
    let mut read = Vec::new();
    for path in paths {
        let text = sources::read(root, &path)?;
        if text.trim().is_empty() {
            continue; // it only masks the files of its name in lower folders
        }
        read.push(Written { path, text });
    }
    Ok(read)
}

fn settle(files: &[Written]) -> Result<Settings, ConfigError> {
    let mut merged = Merged::default();
    for Written { path, text } in files {
        merged.absorb(&Source::new(path, text))?;
    }
    Settings::try_from(merged)
}

#[cfg(test)]
mod tests;
