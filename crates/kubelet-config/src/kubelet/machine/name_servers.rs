//! The name servers that pods get from the node: the file of `resolvConf`, resolv.conf(5).

use std::path::Path;

use super::FileState;
use crate::kubelet::effective::Settings;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::{numbered, word};
use crate::kubelet::tree::Tree;

/// How many name servers are kept: libc takes three.
const MAX_SERVERS: usize = 16;

pub(super) fn read(tree: &dyn Tree, settings: &Settings) -> FileState<Vec<Located<String>>> {
    let Some(path) = settings.text("resolvConf") else { return FileState::NotAsked };
    match FileState::read(tree, path, |at, bytes| Ok(servers(at, &String::from_utf8_lossy(bytes)))) {
        FileState::Missing { at } => {
            stub(tree, path).map_or(FileState::Missing { at }, |server| FileState::Present(vec![server]))
        }
        found => found,
    }
}

fn servers(file: &Location, text: &str) -> Vec<Located<String>> {
    numbered(text)
        .filter_map(|(number, line)| {
            let mut words = line.split_whitespace();
            (words.next()? == "nameserver").then_some(())?;
            Some(word(file, number, line, words.next()?))
        })
        .take(MAX_SERVERS)
        .collect()
}

/// A link to systemd-resolved's stub file, there while that runs; its name server is always the same one.
fn stub(tree: &dyn Tree, path: &str) -> Option<Located<String>> {
    let target = tree.read_link(Path::new(path)).ok()?;
    target
        .ends_with("systemd/resolve/stub-resolv.conf")
        .then(|| Located { value: "127.0.0.53".to_owned(), at: Location::file(path) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::machine::tests::settings;
    use crate::kubelet::tree::MemoryTree;

    fn of(tree: &MemoryTree) -> FileState<Vec<Located<String>>> {
        read(tree, &settings(&[("resolvConf", "/etc/resolv.conf")]))
    }

    #[test]
    fn name_servers_have_lines() {
        let text = "search x\nnameserver 10.0.0.2\n#nameserver 1\nnameserver\t::1 \nnameserver\n";
        let FileState::Present(found) = of(&MemoryTree::new().file("/etc/resolv.conf", text)) else {
            panic!("the file is there");
        };
        let found: Vec<_> =
            found.iter().map(|server| (server.value.as_str(), server.at.line, server.at.column)).collect();
        assert_eq!(found, [("10.0.0.2", 2, 12), ("::1", 4, 12)]);
    }

    #[test]
    fn a_missing_file_and_a_link_to_the_stub_are_told_apart() {
        assert!(matches!(of(&MemoryTree::new()), FileState::Missing { .. }));
        let linked = |target: &str| of(&MemoryTree::new().link("/etc/resolv.conf", target));
        assert!(matches!(linked("/run/x"), FileState::Missing { .. }));
        let FileState::Present(found) = linked("../run/systemd/resolve/stub-resolv.conf") else {
            panic!("the stub's name server is known");
        };
        assert_eq!(found[0].value, "127.0.0.53");
        assert_eq!(read(&MemoryTree::new(), &Settings::default()), FileState::NotAsked);
    }
}
