//! Where a unit's file is, and which other names lead to it; systemd.unit(5), and `src/basic/unit-file.c` for aliases.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::names::{self, NameKind};
use crate::kubelet::tree::{Kind, Tree, Unreadable};

/// systemd's own search path, as 252's `systemctl show -p UnitPath` prints it.
pub(crate) const SEARCH_PATH: [&str; 13] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/run/systemd/generator.late",
];

/// The most names in the search path that are looked at.
const MAX_ENTRIES: usize = 20_000;
/// As many aliases in a row as systemd follows.
const MAX_ALIASES: usize = 8;

/// What a name in the search path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Alias(String),
    /// A file, or a link out of the search path.
    Fragment(PathBuf),
}

/// The directories of the search path, each once: after the merge of `/lib` and `/usr/lib` they are one.
pub(super) fn search_path(tree: &dyn Tree, own: Option<&[PathBuf]>) -> Vec<PathBuf> {
    let listed = own.map_or_else(|| SEARCH_PATH.iter().map(PathBuf::from).collect(), <[PathBuf]>::to_vec);
    let mut directories: Vec<PathBuf> = Vec::new();
    for directory in &listed {
        let real = tree.real_path(directory).ok();
        let directory = real.filter(|real| listed.contains(real)).unwrap_or_else(|| directory.clone());
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories
}

#[derive(Debug, Default)]
pub(super) struct Index {
    ids: BTreeMap<String, Target>,
}

#[derive(Debug)]
pub(super) struct Found {
    pub(super) fragment: Option<PathBuf>,
    /// The name of the fragment, which systemd makes the unit's id once it has read it.
    pub(super) id: String,
    /// The id first, then the others.
    pub(super) names: Vec<String>,
}

impl Index {
    /// Reads the search path; a name in an earlier directory hides those in later ones.
    pub(super) fn scan(tree: &dyn Tree, directories: &[PathBuf]) -> Self {
        let mut index = Self::default();
        let mut seen = 0;
        for directory in directories {
            for name in tree.list(directory).unwrap_or_default() {
                let Some(name) = name.to_str().filter(|name| names::kind(name).is_some()) else { continue };
                seen += 1;
                if seen > MAX_ENTRIES || index.ids.contains_key(name) {
                    continue;
                }
                if let Some(target) = target(tree, directories, directory, name) {
                    index.ids.insert(name.to_owned(), target);
                }
            }
        }
        index
    }

    fn fragment(&self, name: &str) -> Option<&Path> {
        let mut name = name.to_owned();
        for step in 0..MAX_ALIASES {
            let target = self.ids.get(&name).or_else(|| {
                // An alias may lead to an instance of which only the template exists.
                let template = names::template(&name).filter(|_| step > 0)?;
                self.ids.get(&template)
            })?;
            match target {
                Target::Fragment(path) => return Some(path),
                Target::Alias(other) => name.clone_from(other),
            }
        }
        None
    }

    pub(super) fn find(&self, tree: &dyn Tree, name: &str) -> Found {
        let fragment = self.fragment(name).or_else(|| self.fragment(&names::template(name)?)).map(Path::to_owned);
        let mut all = BTreeSet::from([name.to_owned()]);
        self.aliases(tree, name, name, fragment.as_deref(), &mut all);
        let mut id = name.to_owned();
        if let Some(base) = fragment.as_deref().and_then(base_name) {
            if base != name {
                self.aliases(tree, name, base, fragment.as_deref(), &mut all);
            }
            let preferred = unit_name(base, name);
            // An instance with a file of its own, or of a masked template, lends its name but does not become the id.
            if preferred == base || all.contains(&preferred) {
                id.clone_from(&preferred);
            }
            all.insert(preferred);
        }
        all.remove(&id);
        let names = std::iter::once(id.clone()).chain(all).collect();
        Found { fragment, id, names }
    }

    /// Adds the names that lead to `base`.
    fn aliases(&self, tree: &dyn Tree, unit: &str, base: &str, fragment: Option<&Path>, all: &mut BTreeSet<String>) {
        for source in self.ids.keys() {
            let Some(path) = self.fragment(source) else { continue };
            let leads_to_base = base_name(path).is_some_and(|file| unit_name(file, source) == base);
            if !leads_to_base || matches!(look(tree, path), Look::Null | Look::Empty | Look::Missing) {
                continue;
            }
            let name = unit_name(source, unit);
            let other = self.fragment(&name).and_then(base_name);
            if name == *source || other.is_none() || other == fragment.and_then(base_name) {
                all.insert(name);
            }
        }
    }
}

/// The unit that the file `base` gives under the name `asked`: of a template its instance.
fn unit_name(base: &str, asked: &str) -> String {
    match names::instance(asked) {
        Some(instance) if names::kind(base) == Some(NameKind::Template) => names::instantiate(base, instance),
        _ => base.to_owned(),
    }
}

fn base_name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

/// What a name in a directory leads to; `None` for a link that systemd passes over.
fn target(tree: &dyn Tree, directories: &[PathBuf], directory: &Path, name: &str) -> Option<Target> {
    let path = directory.join(name);
    match tree.lstat(&path).map(|meta| meta.kind) {
        Ok(Kind::Link) => {}
        // Over a directory, systemd goes on to what lies below.
        Ok(Kind::Directory) => return None,
        _ => return Some(Target::Fragment(path)),
    }
    let link = tree.read_link(&path).ok()?;
    let aim = simplify(tree, &directory.join(link));
    let mut search_path = directories.iter().map(PathBuf::as_path).chain(SEARCH_PATH.iter().map(Path::new));
    if !search_path.any(|directory| aim.starts_with(directory)) {
        return Some(Target::Fragment(path));
    }
    let other = base_name(&aim)?;
    let kinds = (names::kind(name)?, names::kind(other)?);
    let fits = match kinds {
        (NameKind::Instance, NameKind::Instance) => names::instance(name) == names::instance(other),
        (NameKind::Instance, NameKind::Template) => true,
        (own, aim) => own == aim,
    };
    // A link to the same name below hides nothing.
    (fits && other != name).then(|| Target::Alias(other.to_owned()))
}

/// A path without `.` and `..`, the links of its directories resolved, its last name left as it is.
fn simplify(tree: &dyn Tree, path: &Path) -> PathBuf {
    let (Some(parent), Some(Component::Normal(name))) = (path.parent(), path.components().next_back()) else {
        return path.to_owned();
    };
    match tree.real_path(parent) {
        Ok(real) => real.join(name),
        Err(_) => lexical(parent).join(name),
    }
}

fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// What systemd sees at a path when it opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// `/dev/null`.
    Null,
    Empty,
    File,
    Directory,
    /// Nothing, or a link that leads nowhere or in a circle.
    Missing,
    /// A FIFO, a socket, a device, or something that cannot be looked at.
    Other(String),
}

pub(super) fn look(tree: &dyn Tree, path: &Path) -> Look {
    match tree.stat(path) {
        Ok(meta) => match meta.kind {
            Kind::Null => Look::Null,
            Kind::File if meta.size_bytes == 0 => Look::Empty,
            Kind::File => Look::File,
            Kind::Directory => Look::Directory,
            Kind::Link | Kind::Other => Look::Other(Unreadable::NotAFile.sentence()),
        },
        Err(Unreadable::NotFound | Unreadable::LinkLoop) => Look::Missing,
        Err(error) => Look::Other(error.sentence()),
    }
}

/// What systemd reads at a path: of a mask nothing. An error says what is wrong; it is empty if nothing is there, or a
/// link that leads nowhere or in a circle.
pub(super) fn read(tree: &dyn Tree, path: &Path) -> Result<Vec<u8>, Option<String>> {
    match look(tree, path) {
        Look::Null | Look::Empty => Ok(Vec::new()),
        Look::Missing => Err(None),
        Look::Directory => Err(Some("it is a directory".to_owned())),
        Look::Other(reason) => Err(Some(reason)),
        Look::File => tree.read(path).map_err(|error| Some(error.sentence())),
    }
}
