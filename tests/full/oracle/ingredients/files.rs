//! Where files lie: names, directories, masks, links, aliases, prefixes, templates.

use super::{Add, Ingredient, aliases, globs};
use crate::case::Entry;
use crate::draft::Draft;

const fn change(name: &'static str, change: fn(&mut Draft)) -> Ingredient {
    (name, Add::Change(change))
}

pub(super) const CHANGES: &[Ingredient] = &[
    change("a drop-in more", |draft| {
        draft.drop_in(b"[Service]\nEnvironment=\"<V>=<F>\"\n");
    }),
    change("a drop-in with a command of its own", |draft| {
        draft.drop_in(b"[Service]\nExecStart=\nExecStart=<B> $<V> <F>\n");
    }),
    change("the same name in several directories", same_name),
    change("the same name in the directories of several names", same_name_elsewhere),
    change("a masked drop-in", |draft| {
        mask(draft, Entry::Link("/dev/null".to_owned()));
    }),
    change("a drop-in masked by an empty file", |draft| {
        mask(draft, Entry::File(String::new()));
    }),
    change("a drop-in masked by blank lines", |draft| {
        mask(draft, Entry::File("\n\n".to_owned()));
    }),
    change("a drop-in hidden by a directory", |draft| {
        mask(draft, Entry::Folder);
    }),
    change("a drop-in hidden by a dangling link", |draft| {
        mask(draft, Entry::Link("/nowhere/at-all.conf".to_owned()));
    }),
    change("a drop-in hidden by a circular link", |draft| {
        mask(draft, Entry::Link("10-kubeadm.conf".to_owned()));
    }),
    change("files that are no drop-ins", no_drop_ins),
    change("names in bytewise order", order),
    change("a directory in the drop-ins' directory", |draft| {
        let path = format!("{}/{}.d/sub/10-x.conf", draft.directory(), draft.unit);
        draft.add(path, Entry::file("[Service]\nEnvironment=SUB=1\n"));
    }),
    change("a prefix that counts", prefix),
    change("a prefix that does not", wrong_prefix),
    change("a drop-in of the template's", template_drop_in),
    change("the fragment of the instance", instance_fragment),
    change("an alias", |draft| aliases::alias(draft, false)),
    change("asked by its alias", |draft| aliases::alias(draft, true)),
    change("an alias of an alias", aliases::alias_chain),
    change("an alias that hides a file", aliases::alias_over_file),
    change("aliases in a circle", aliases::alias_circle),
    change("an alias of another kind", aliases::alias_of_another_kind),
    change("an alias of a template", aliases::alias_of_a_template),
    change("links of enablement", aliases::enablement),
    change("a drop-in that is a link", linked_drop_in),
    change("a drop-in directory that is a link", linked_directory),
    change("a drop-in directory that is no directory", |draft| {
        let path = format!("{}/{}.d", draft.directory(), draft.unit);
        let entry = match draft.random.u8(..3) {
            0 => Entry::file("[Service]\nEnvironment=A=1\n"),
            1 => Entry::Link("/dev/null".to_owned()),
            _ => Entry::Link("/nowhere".to_owned()),
        };
        draft.add(path, entry);
    }),
    change("a fragment below", |draft| fragment(draft, FRAGMENT)),
    change("a fragment that is the wrong way round", |draft| {
        fragment(draft, Entry::File("[Service]\nEnvironment=A=1\n".to_owned()));
    }),
    change("masked in one directory", |draft| {
        fragment(draft, Entry::Link("/dev/null".to_owned()));
    }),
    change("masked in /etc", |draft| {
        top_fragment(draft, Entry::Link("/dev/null".to_owned()));
    }),
    change("an empty file in one directory", |draft| {
        fragment(draft, Entry::File(String::new()));
    }),
    change("an empty file in /etc", |draft| {
        top_fragment(draft, Entry::File(String::new()));
    }),
    change("a fragment of comments", |draft| {
        top_fragment(draft, Entry::File("# nothing\n\n".to_owned()));
    }),
    change("a dangling link for a fragment", |draft| {
        top_fragment(draft, Entry::Link("/nowhere/kubelet.service".to_owned()));
    }),
    change("a relative link for a fragment", |draft| {
        let target = format!("../../..{}", draft.fragment);
        top_fragment(draft, Entry::Link(target));
    }),
    change("an absolute link for a fragment", |draft| {
        let target = draft.fragment.clone();
        top_fragment(draft, Entry::Link(target));
    }),
    change("the fragment out of the search path", linked_out),
    change("the fragment in a directory of its name", |draft| {
        top_fragment(draft, Entry::Folder);
    }),
    change("no fragment", |draft| {
        let path = draft.fragment.clone();
        draft.entries.remove(&path);
    }),
    change("files in a directory, by a glob", globs::glob),
    change("files by a glob without a dash", globs::glob_required),
    change("files by a glob with classes", globs::glob_classes),
    change("a glob without a match", |draft| {
        let dash = if draft.chance(70) { "-" } else { "" };
        draft.service_lines(&format!("EnvironmentFile={dash}/etc/<N>/none.d/*.env"));
    }),
    change("a glob over a bad file", globs::glob_bad),
    change("a glob over a directory", globs::glob_directory),
    change("an environment file that is a directory", |draft| {
        globs::env_file_as(draft, Entry::Folder);
    }),
    change("an environment file linked to nothing", |draft| {
        globs::env_file_as(draft, Entry::Link("/dev/null".to_owned()));
    }),
    change("an environment file that dangles", |draft| {
        globs::env_file_as(draft, Entry::Link("/nowhere".to_owned()));
    }),
    change("an environment file that is a link", globs::linked_env_file),
    change("an environment file that is empty", |draft| {
        globs::env_file_as(draft, Entry::File(String::new()));
    }),
    change("an environment file that is gone", |draft| {
        if let Some(path) = draft.random.choice(&draft.env_files).cloned() {
            draft.entries.remove(&path);
        }
    }),
    change("/etc/environment-like files that are not read", |draft| {
        let path = format!("/etc/sysconfig/{}.rpmnew", draft.stem);
        draft.add(path, Entry::file("KUBELET_EXTRA_ARGS=--lost\n"));
    }),
];

const FRAGMENT: Entry = Entry::File(String::new());

/// Drop-ins of `service.d`, which a group of trees has in common.
pub(super) fn type_level(draft: &mut Draft) {
    for _ in 0..draft.random.usize(1..4) {
        let (directory, name) = (draft.directory(), draft.drop_in_name());
        let path = format!("{directory}/service.d/{name}");
        let entry = match draft.random.u8(..12) {
            0 => Entry::Link("/dev/null".to_owned()),
            1 => Entry::File(String::new()),
            2 => Entry::Folder,
            3 => Entry::file("[Service]\nEnvironment=\nEnvironment=TYPE=reset\n"),
            4 => Entry::file("[Service]\nUnsetEnvironment=KUBELET_PROXY\n"),
            5 => Entry::file("[Service]\nEnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/sysconfig/%p\n"),
            6 => Entry::file("[Service]\nEnvironment=NAME=%n,%N,%i\n"),
            _ => {
                let content = draft.fill(b"[Service]\nEnvironment=\"<V>=<F>\" TYPE=1\n");
                Entry::file(content)
            }
        };
        draft.add(path, entry);
    }
}

pub(super) fn body(draft: &mut Draft) -> Entry {
    let content = draft.fill(b"[Service]\nEnvironment=\"<V>=<F>\"\n");
    let mut text = String::from_utf8_lossy(&content).into_owned();
    let number = draft.random.u16(..);
    text.push_str(&format!("Environment=WHICH_{}={number}\n", number % 4));
    Entry::File(text)
}

/// A drop-in that is there, as (directory of the search path, name).
fn a_drop_in(draft: &mut Draft) -> Option<(String, String)> {
    let directory = format!("/{}.d/", draft.unit);
    let all: Vec<String> =
        draft.entries.keys().filter(|path| path.contains(&directory) && path.ends_with(".conf")).cloned().collect();
    let path = draft.random.choice(&all)?;
    let (base, name) = path.split_once(&directory)?;
    Some((base.to_owned(), name.to_owned()))
}

fn same_name(draft: &mut Draft) {
    let name = match a_drop_in(draft) {
        Some((_, name)) => name,
        None => draft.drop_in_name().to_owned(),
    };
    for _ in 0..draft.random.usize(1..4) {
        let path = format!("{}/{}.d/{name}", draft.directory(), draft.unit);
        let entry = body(draft);
        draft.add(path, entry);
    }
}

fn same_name_elsewhere(draft: &mut Draft) {
    let name = draft.drop_in_name();
    for _ in 0..draft.random.usize(2..5) {
        let (directory, owner) = (draft.directory(), draft.directory_name());
        let entry = body(draft);
        draft.add(format!("{directory}/{owner}.d/{name}"), entry);
    }
}

fn mask(draft: &mut Draft, entry: Entry) {
    let name = match a_drop_in(draft) {
        Some((_, name)) if draft.chance(80) => name,
        _ => draft.drop_in_name().to_owned(),
    };
    let directory = if draft.chance(60) { "/etc/systemd/system" } else { draft.directory() };
    let path = format!("{directory}/{}.d/{name}", draft.unit);
    if draft.chance(30) {
        draft.entries.remove(&path);
    }
    draft.add(path, entry);
}

fn no_drop_ins(draft: &mut Draft) {
    for name in [
        "10-x.conf.bak",
        "10-x.conf~",
        ".10-x.conf",
        "10-x.config",
        "10-x",
        "README",
        "10-x.CONF",
        "10-x.conf.dpkg-old",
        "10-x.conf.rpmsave",
        ".conf",
        "#10-x.conf#",
    ] {
        if draft.chance(40) {
            let path = format!("{}/{}.d/{name}", draft.directory(), draft.unit);
            let entry = Entry::File(format!("[Service]\nEnvironment=\"NO_{}=1\"\n", name.len()));
            draft.add(path, entry);
        }
    }
}

fn order(draft: &mut Draft) {
    for name in ["10-b.conf", "9-a.conf", "99-x.conf", "Z.conf", "a.conf", "override.conf", "é.conf", "_.conf"] {
        if draft.chance(60) {
            let path = format!("{}/{}.d/{name}", draft.directory(), draft.unit);
            let text = format!("[Service]\nEnvironment=LAST={name} \"<V>={name}\"\n");
            let content = draft.fill(text.as_bytes());
            draft.add(path, Entry::file(content));
        }
    }
}

fn prefix(draft: &mut Draft) {
    for prefix in draft.prefixes() {
        for _ in 0..2 {
            let (directory, name) = (draft.directory(), draft.drop_in_name());
            let entry = body(draft);
            draft.add(format!("{directory}/{prefix}.d/{name}"), entry);
        }
    }
}

fn wrong_prefix(draft: &mut Draft) {
    let name = draft.unit.trim_end_matches(".service").to_owned();
    for owner in [
        format!("{name}-.service"),
        name.clone(),
        format!("{}.service.x", draft.stem),
        format!("{}-other-.service", draft.stem),
        format!("{}.socket", draft.stem),
    ] {
        let directory = draft.directory();
        let entry = body(draft);
        draft.add(format!("{directory}/{owner}.d/10-wrong.conf"), entry);
    }
}

fn template_drop_in(draft: &mut Draft) {
    let owner = draft.template();
    for _ in 0..2 {
        let (directory, name) = (draft.directory(), draft.drop_in_name());
        let entry = body(draft);
        draft.add(format!("{directory}/{owner}.d/{name}"), entry);
    }
}

fn instance_fragment(draft: &mut Draft) {
    let path = format!("{}/{}", draft.directory(), draft.unit);
    let content = draft.fill(b"[Service]\nEnvironment=FROM=instance\nExecStart=<B> --i=%i $<V>\n");
    draft.add(path, Entry::file(content));
}

fn linked_drop_in(draft: &mut Draft) {
    let real = match draft.random.u8(..3) {
        0 => format!("/opt/{}/drop-in", draft.stem),
        1 => format!("/etc/{}/extra.conf", draft.stem),
        _ => format!("/usr/share/{}/10-x.conf", draft.stem),
    };
    let entry = body(draft);
    draft.add(real.clone(), entry);
    let path = draft.drop_in_path();
    let target = if draft.chance(50) {
        real
    } else {
        let depth = path.matches('/').count() - 1;
        format!("{}{}", "../".repeat(depth), real.trim_start_matches('/'))
    };
    draft.add(path, Entry::Link(target));
}

fn linked_directory(draft: &mut Draft) {
    let real = format!("/opt/{}/drop-ins", draft.stem);
    for name in ["10-linked.conf", "override.conf"] {
        let entry = body(draft);
        draft.add(format!("{real}/{name}"), entry);
    }
    let path = format!("{}/{}.d", draft.directory(), draft.unit);
    draft.add(path, Entry::Link(real));
}

/// Puts a further fragment into one of the directories.
fn fragment(draft: &mut Draft, entry: Entry) {
    let path = format!("{}/{}", draft.directory(), draft.fragment_name());
    let entry = if entry == FRAGMENT && draft.chance(50) {
        let content = draft.fill(b"[Service]\nEnvironment=\"<V>=<F>\" HIDES=1\nExecStart=<B> $<V> <F>\n");
        Entry::file(content)
    } else {
        entry
    };
    draft.add(path, entry);
}

/// Puts another entry at the fragment's path, which hides all later ones.
fn top_fragment(draft: &mut Draft, entry: Entry) {
    if draft.chance(50) {
        return; // most of these leave no unit to compare
    }
    let name = draft.fragment_name();
    draft.add(format!("/etc/systemd/system/{name}"), entry);
}

fn linked_out(draft: &mut Draft) {
    let Some(entry) = draft.entries.remove(&draft.fragment) else {
        return;
    };
    let name = draft.fragment.rsplit('/').next().unwrap_or_default().to_owned();
    let name = if draft.chance(50) { name } else { format!("{}-real.service", draft.stem) };
    let real = format!("/opt/{}/{name}", draft.stem);
    let path = draft.fragment.clone();
    draft.add(real.clone(), entry);
    draft.add(path, Entry::Link(real));
}
