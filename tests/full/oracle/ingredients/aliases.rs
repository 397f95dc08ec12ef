//! Other names of a unit: links in the search path.

use super::files::body;
use crate::case::Entry;
use crate::draft::Draft;

fn alias_name(draft: &mut Draft) -> String {
    let number = draft.random.u8(..50);
    match draft.unit.split_once('@') {
        Some((_, instance)) => format!("{}-alias{number}@{instance}", draft.stem),
        None => format!("{}-alias{number}.service", draft.stem),
    }
}

/// A link that makes another name one of the unit's.
fn alias_link(draft: &mut Draft, alias: &str) -> bool {
    let target = match draft.random.u8(..4) {
        0 => draft.fragment.clone(),
        1 => draft.unit.clone(),
        2 => format!("../../..{}", draft.fragment),
        _ => format!("/usr/lib/systemd/system/{}", draft.unit),
    };
    let directory = if draft.chance(70) { "/etc/systemd/system" } else { draft.directory() };
    draft.add(format!("{directory}/{alias}"), Entry::Link(target))
}

pub(super) fn alias(draft: &mut Draft, asked: bool) {
    let alias = alias_name(draft);
    if !alias_link(draft, &alias) {
        return;
    }
    for _ in 0..draft.random.usize(..3) {
        let (directory, name) = (draft.directory(), draft.drop_in_name());
        drop_in(draft, directory, &alias, name);
    }
    if asked {
        draft.asked = alias;
    }
}

pub(super) fn alias_chain(draft: &mut Draft) {
    let (first, second) = (alias_name(draft), alias_name(draft));
    if !alias_link(draft, &first) {
        return;
    }
    draft.add(format!("/etc/systemd/system/{second}"), Entry::Link(first));
    drop_in(draft, "/etc/systemd/system", &second, "15-second.conf");
    if draft.chance(40) {
        draft.asked = second;
    }
}

pub(super) fn alias_over_file(draft: &mut Draft) {
    let alias = alias_name(draft);
    let content = draft.fill(b"[Service]\nExecStart=<B> other\n");
    draft.add(format!("/usr/lib/systemd/system/{alias}"), Entry::file(content));
    alias_link(draft, &alias);
    if draft.chance(60) {
        draft.asked = alias;
    }
}

pub(super) fn alias_circle(draft: &mut Draft) {
    let (first, second) = (alias_name(draft), alias_name(draft));
    if first == second {
        return;
    }
    draft.add(format!("/etc/systemd/system/{first}"), Entry::Link(second.clone()));
    draft.add(format!("/etc/systemd/system/{second}"), Entry::Link(first.clone()));
    if draft.chance(40) {
        draft.asked = first;
    }
}

pub(super) fn alias_of_another_kind(draft: &mut Draft) {
    let target = draft.fragment.clone();
    for name in [
        format!("{}-other.socket", draft.stem),
        format!("{}-other@.service", draft.stem),
        format!("{}-other", draft.stem),
    ] {
        draft.add(format!("/etc/systemd/system/{name}"), Entry::Link(target.clone()));
    }
    let entry = body(draft);
    let directory = format!("/etc/systemd/system/{}-other.socket.d", draft.stem);
    draft.add(format!("{directory}/10-x.conf"), entry);
}

/// An instance, or a plain name, that is a link to a template.
pub(super) fn alias_of_a_template(draft: &mut Draft) {
    let template = format!("{}-t@.service", draft.stem);
    let content = draft.fill(b"[Service]\nEnvironment=I=%i N=%n P=%p\nExecStart=<B> --i=%i $<V>\n");
    draft.add(format!("/usr/lib/systemd/system/{template}"), Entry::file(content));
    let name = draft.one(&["-u@y.service", "-t@y.service", "-u@.service", "-u.service"]);
    let name = format!("{}{name}", draft.stem);
    draft.add(format!("/etc/systemd/system/{name}"), Entry::Link(format!("/usr/lib/systemd/system/{template}")));
    let entry = body(draft);
    draft.add(format!("/etc/systemd/system/{name}.d/10-t.conf"), entry);
    draft.asked = match name.split_once("@.") {
        Some((prefix, suffix)) => format!("{prefix}@z.{suffix}"),
        None => name,
    };
}

pub(super) fn enablement(draft: &mut Draft) {
    let (target, unit) = (draft.fragment.clone(), draft.unit.clone());
    for directory in ["multi-user.target.wants", "kubepods.target.requires"] {
        draft.add(format!("/etc/systemd/system/{directory}/{unit}"), Entry::Link(target.clone()));
    }
}

/// A drop-in of an alias. Which of two aliases' drop-ins of the same name counts is not defined: systemd goes through
/// its aliases in the order of a hash table.
fn drop_in(draft: &mut Draft, directory: &str, alias: &str, name: &str) {
    let own = format!("/{alias}.d/");
    let taken = draft
        .entries
        .keys()
        .any(|path| path.contains("-alias") && path.ends_with(&format!("/{name}")) && !path.contains(&own));
    if !taken {
        let entry = body(draft);
        draft.add(format!("{directory}/{alias}.d/{name}"), entry);
    }
}
