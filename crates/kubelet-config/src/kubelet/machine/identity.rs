//! Who the host is: its name, its distribution, its kubelet's version.

use std::path::Path;

use super::Packages;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::systemd::{Unit, os_release};
use crate::kubelet::text::find_word;
use crate::kubelet::tree::Tree;
use crate::kubelet::version::Version;

/// The host's name, where the caller gives it, else the first line of `/etc/hostname` that says one: hostname(5).
pub fn hostname(tree: &dyn Tree, given: Option<&str>) -> Option<Located<String>> {
    const PATH: &str = "/etc/hostname";
    if let Some(given) = given {
        return Some(Located { value: given.to_owned(), at: Location::file(PATH) });
    }
    find_word(tree, PATH, |line| Some(line.trim()).filter(|name| !name.is_empty() && !name.starts_with('#')))
}

/// `ID` and `ID_LIKE` of os-release(5).
pub(super) fn os_ids(tree: &dyn Tree) -> Vec<String> {
    let values = os_release(tree);
    let ids = ["ID", "ID_LIKE"].into_iter().filter_map(|key| values.get(key));
    ids.flat_map(|ids| ids.split_whitespace()).map(str::to_owned).collect()
}

/// The version of the kubelet that the unit runs, where a file on the host says it: dpkg for `/usr/bin/kubelet`, the
/// name of RKE2's data directory, a snap's metadata.
pub fn kubelet_version(tree: &dyn Tree, unit: &Unit, packages: &Packages) -> Option<Located<Version>> {
    let runs = |program: &str| unit.argv.iter().any(|word| word.text == program);
    let found = if runs("/usr/bin/kubelet") {
        packages.upstream(&["kubelet"])
    } else if unit.name.starts_with("rke2-") {
        rke2(tree)
    } else {
        let snap_name = unit.name.strip_prefix("snap.")?.split('.').next()?;
        find_word(tree, &format!("/snap/{snap_name}/current/meta/snap.yaml"), |line| {
            Some(line.strip_prefix("version:")?.trim().trim_matches(['"', '\'']))
        })
    }?;
    Some(Located { value: found.value.parse().ok()?, at: found.at })
}

/// `/var/lib/rancher/rke2/bin` is a link to `data/v1.33.5-rke2r1-<digest>/bin`.
fn rke2(tree: &dyn Tree) -> Option<Located<String>> {
    const LINK: &str = "/var/lib/rancher/rke2/bin";
    let target = tree.read_link(Path::new(LINK)).ok()?;
    let release = target.parent()?.file_name()?.to_str()?;
    let (version, rest) = release.split_once("-rke2r")?;
    let revision = rest.split('-').next()?;
    Some(Located { value: format!("{version}+rke2r{revision}"), at: Location::file(LINK) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::systemd::{Arg, Manager, resolve_unit};
    use crate::kubelet::tree::MemoryTree;

    fn unit(name: &str, program: &str) -> Unit {
        let mut unit = resolve_unit(&MemoryTree::new(), name, &Manager::default());
        unit.argv = vec![Arg::new(program, Location::file("/u"))];
        unit
    }

    #[test]
    fn the_name_is_the_first_line_that_says_something() {
        let named = |text: &str| hostname(&MemoryTree::new().file("/etc/hostname", text), None);
        let found = named("# set by the image\n\n  node-1.example \n").unwrap();
        assert_eq!(found.value, "node-1.example");
        assert_eq!((found.at.line, found.at.column), (3, 3));
        assert_eq!(named("\n#x\n"), None);
        assert_eq!(hostname(&MemoryTree::new(), None), None);
    }

    #[test]
    fn the_distribution_and_its_kin_are_listed() {
        let text = "ID_LIKE=\"rhel centos fedora\"\nNAME=x\nID='rocky'\n";
        let etc = MemoryTree::new().file("/etc/os-release", text);
        assert_eq!(os_ids(&etc), ["rocky", "rhel", "centos", "fedora"]);
        let usr = MemoryTree::new().file("/usr/lib/os-release", "ID=debian\n");
        assert_eq!(os_ids(&usr), ["debian"]);
    }

    #[test]
    fn the_version_belongs_to_the_kubelet_that_the_unit_runs() {
        let status = "Package: kubelet\nStatus: install ok installed\nVersion: 1.33.4-1.1\n";
        let tree = MemoryTree::new()
            .file("/var/lib/dpkg/status", status)
            .link("/var/lib/rancher/rke2/bin", "/var/lib/rancher/rke2/data/v1.33.5-rke2r1-0a1b/bin")
            .file("/snap/microk8s/current/meta/snap.yaml", "name: microk8s\nversion: v1.32.3\n");
        let packages = Packages::read(&tree);
        let version = |name, program| {
            kubelet_version(&tree, &unit(name, program), &packages).map(|found| found.value.to_string())
        };
        assert_eq!(version("kubelet.service", "/usr/bin/kubelet").unwrap(), "1.33.4");
        assert_eq!(version("kubelet.service", "/opt/bin/kubelet"), None);
        let rke2 = version("rke2-agent.service", "/usr/local/bin/rke2");
        assert_eq!(rke2.unwrap(), "1.33.5+rke2r1");
        let snap = version("snap.microk8s.daemon-kubelite.service", "/usr/bin/snap");
        assert_eq!(snap.unwrap(), "1.32.3");
    }
}
