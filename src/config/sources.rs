//! Which files make up the configuration, after the UAPI group's configuration files specification.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::error::{ConfigError, Source};
use crate::host::files::{FileError, Root};

/// The default folders, the weakest first: a file in a later one masks the file of the same name in an earlier one.
const FOLDERS: [&str; 3] = [
    "/usr/lib/nodevigil/config.d",
    "/run/nodevigil/config.d",
    "/etc/nodevigil/config.d",
];

/// No fragment comes near this; it bounds our memory, whatever the path leads to.
const MAX_BYTES: usize = 256 * 1024;

/// The fragments below the default folders that are to be read, sorted by file name wherever they lie. None of the folders has to
/// exist.
pub(super) fn default_files(
    root: &Root,
    is_read: &dyn Fn(&Path) -> bool,
) -> Result<Vec<PathBuf>, ConfigError> {
    let mut by_name = BTreeMap::new();
    for folder in FOLDERS {
        match fragments_in(root, Path::new(folder)) {
            Ok(names) => by_name.extend(
                names
                    .into_iter()
                    .map(|name| (name.clone(), Path::new(folder).join(name)))
                    .filter(|(_, path)| is_read(path)),
            ),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(ConfigError::File(error)),
        }
    }
    Ok(by_name.into_values().collect())
}

/// The files that were named, and in the place of each named folder its fragments by name. A relative path counts from
/// the folder where the program was started, as in every other program.
pub(super) fn given_files(root: &Root, given: &[PathBuf]) -> Result<Vec<PathBuf>, ConfigError> {
    let mut files = Vec::new();
    for path in given {
        // Fails without a current folder; reading it below then says which path is meant.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if root.is_dir(&path) {
            let names = fragments_in(root, &path).map_err(ConfigError::File)?;
            files.extend(names.into_iter().map(|name| path.join(name)));
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The text of one fragment; empty for a link to `/dev/null`, which masks (and need not exist below a root).
pub(super) fn read(root: &Root, path: &Path) -> Result<String, ConfigError> {
    if is_mask(root, path) {
        return Ok(String::new());
    }
    let bytes = root.read(path, MAX_BYTES).map_err(ConfigError::File)?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        Source::new(path, &text).not_text(valid)
    })
}

/// Whether the fragment only masks those of its name in lower folders.
pub(super) fn is_mask(root: &Root, path: &Path) -> bool {
    let target = root.read_link(path);
    target.is_ok_and(|target| target == Path::new("/dev/null"))
}

fn fragments_in(root: &Root, folder: &Path) -> Result<Vec<String>, FileError> {
    let mut names = root.list(folder)?;
    names.retain(|name| {
        !name.starts_with('.') && Path::new(name).extension().is_some_and(|e| e == "toml")
    });
    Ok(names)
}
