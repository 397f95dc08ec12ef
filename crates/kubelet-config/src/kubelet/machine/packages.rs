//! Versions of Debian packages, from dpkg's status file. (An RPM database is no text: the caller gives the versions.)

use std::collections::BTreeMap;
use std::path::Path;

use crate::kubelet::location::{Located, Location};
use crate::kubelet::text;
use crate::kubelet::tree::Tree;

const STATUS: &str = "/var/lib/dpkg/status";

/// The largest status file that is read: one of a full desktop has 10 MB, a node's one.
const MAX_STATUS_BYTES: usize = 16 << 20;

/// The packages whose versions say something about the node.
const PACKAGES: &[&str] = &["containerd", "containerd.io", "cri-o", "kubelet", "systemd"];

/// Versions of installed packages, as dpkg writes them (`1:2.1.4-1`), each with its line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages(BTreeMap<&'static str, Located<String>>);

impl Packages {
    /// Reads the status file, if there is one.
    pub fn read(tree: &dyn Tree) -> Self {
        let Ok(bytes) = tree.read_bounded(Path::new(STATUS), MAX_STATUS_BYTES) else { return Self::default() };
        let mut found = BTreeMap::new();
        let file = Location::file(STATUS);
        // Of each paragraph `Package:`, then `Status:`, then `Version:`.
        let mut package = None;
        for (number, line) in text::numbered(&String::from_utf8_lossy(&bytes)) {
            if let Some(name) = line.strip_prefix("Package: ") {
                package = PACKAGES.iter().find(|known| **known == name.trim());
            } else if let Some(status) = line.strip_prefix("Status: ") {
                package = package.filter(|_| status.trim_end().ends_with(" installed"));
            } else if let (Some(package), Some(version)) = (package, line.strip_prefix("Version: ")) {
                found.insert(*package, text::word(&file, number, line, version.trim()));
            }
        }
        Self(found)
    }

    /// The upstream version of the first of these packages that is installed: `2.1.4` of `1:2.1.4~ds1-1+deb12u1`.
    pub fn upstream(&self, names: &[&str]) -> Option<Located<String>> {
        let found = names.iter().find_map(|name| self.0.get(*name))?;
        let bare = found.value.rsplit(':').next().unwrap_or_default();
        let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
        let value = bare.get(..end)?.trim_end_matches('.').to_owned();
        (!value.is_empty()).then(|| Located { value, at: found.at.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::tree::MemoryTree;

    #[test]
    fn versions_of_installed_packages_are_found() {
        let status = "Package: kubelet\nStatus: hold ok installed\nVersion: 1.33.4-1.1\n\n\
            Package: cri-o\nStatus: deinstall ok config-files\nVersion: 1.33.0\n\n\
            Package: containerd-doc\nStatus: install ok installed\nVersion: 9\n\n\
            Package: containerd\nStatus: install ok installed\nVersion: 1:1.6.20~ds1-1+deb12u1";
        let tree = MemoryTree::new().file(STATUS, status);
        let packages = Packages::read(&tree);
        let kubelet = packages.upstream(&["kubelet"]).unwrap();
        assert_eq!(kubelet.value, "1.33.4");
        assert_eq!(kubelet.at.to_string(), "/var/lib/dpkg/status:3");
        let containerd = packages.upstream(&["containerd.io", "containerd"]);
        assert_eq!(containerd.unwrap().value, "1.6.20");
        assert_eq!(packages.upstream(&["cri-o"]), None);
        assert_eq!(Packages::read(&MemoryTree::new()).upstream(&["kubelet"]), None);
    }

    #[test]
    fn a_status_file_that_is_none_gives_nothing() {
        for status in [
            &b"Version: 1\n\n\n"[..],
            b"Package: kubelet\nVersion: \xff\nStatus: x installed\n",
            b"Package: kubelet\nStatus: install ok installed\nVersion: \n",
        ] {
            let tree = MemoryTree::new().file(STATUS, status);
            assert_eq!(Packages::read(&tree).upstream(&["kubelet"]), None);
        }
    }
}
