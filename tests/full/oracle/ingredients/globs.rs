//! Environment files by globs, and what lies in their place.

use crate::case::Entry;
use crate::draft::Draft;

fn env_folder(draft: &mut Draft) -> String {
    let folder = format!("/etc/{}/env.d", draft.stem);
    for name in ["a.env", "b.env", "10.env", "9.env", "Z.env", ".hidden.env", "c.conf"] {
        if draft.chance(60) {
            let text = format!("<V>=<F>\nLAST='{name}'\n");
            let content = draft.fill(text.as_bytes());
            draft.add(format!("{folder}/{name}"), Entry::file(content));
        }
    }
    folder
}

pub(super) fn glob(draft: &mut Draft) {
    let folder = env_folder(draft);
    let pattern = draft.one(&["*.env", "*", "?.env", "*.*", "[!a]*", "a.e*"]);
    draft.service_lines(&format!("EnvironmentFile=-{folder}/{pattern}"));
}

pub(super) fn glob_required(draft: &mut Draft) {
    let folder = env_folder(draft);
    let pattern = draft.one(&["*.env", "?.env", "../env.d/*.env"]);
    draft.service_lines(&format!("EnvironmentFile={folder}/{pattern}"));
}

pub(super) fn glob_classes(draft: &mut Draft) {
    let folder = env_folder(draft);
    let pattern = draft.one(&[
        "[ab].env",
        "[a-c]*",
        "[^a]*.env",
        "[[:digit:]]*.env",
        "{a,b}.env",
        "[",
        "a[.]env",
        "\\a.env",
        "*.e?v",
        "[]a].env",
        ".*.env",
        "[.]hidden.env",
        "[!.]*",
    ]);
    draft.service_lines(&format!("EnvironmentFile=-{folder}/{pattern}"));
}

pub(super) fn glob_bad(draft: &mut Draft) {
    let folder = env_folder(draft);
    draft.add(format!("{folder}/aa.env"), Entry::file(b"A=\xff\nB=1\n".as_slice()));
    let dash = if draft.chance(70) { "-" } else { "" };
    draft.service_lines(&format!("EnvironmentFile={dash}{folder}/*.env"));
}

pub(super) fn glob_folder(draft: &mut Draft) {
    let folder = env_folder(draft);
    draft.add(format!("{folder}/d.env/inner.env"), Entry::file("INNER=1\n"));
    let dash = if draft.chance(70) { "-" } else { "" };
    let pattern = draft.one(&["*.env", "*/inner.env", "*/*.env"]);
    draft.service_lines(&format!("EnvironmentFile={dash}{folder}/{pattern}"));
}

pub(super) fn env_file_as(draft: &mut Draft, entry: Entry) {
    if let Some(path) = draft.random.choice(&draft.env_files).cloned() {
        draft.entries.remove(&path);
        draft.add(path, entry);
    }
}

pub(super) fn linked_env_file(draft: &mut Draft) {
    let Some(path) = draft.random.choice(&draft.env_files).cloned() else {
        return;
    };
    let real = format!("/opt/{}/env", draft.stem);
    let entry = draft.entries.remove(&path);
    let entry = entry.unwrap_or_else(|| Entry::file("KUBELET_EXTRA_ARGS=--linked\n"));
    if draft.add(real.clone(), entry) {
        draft.add(path, Entry::Link(real));
    }
}
