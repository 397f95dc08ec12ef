//! Environment files by globs, and other entries at their paths.

use crate::case::Entry;
use crate::draft::Draft;

fn env_directory(draft: &mut Draft) -> String {
    let directory = format!("/etc/{}/env.d", draft.stem);
    for name in ["a.env", "b.env", "10.env", "9.env", "Z.env", ".hidden.env", "c.conf"] {
        if draft.chance(60) {
            let text = format!("<V>=<F>\nLAST='{name}'\n");
            let content = draft.fill(text.as_bytes());
            draft.add(format!("{directory}/{name}"), Entry::file(content));
        }
    }
    directory
}

pub(super) fn glob(draft: &mut Draft) {
    let directory = env_directory(draft);
    let pattern = draft.one(&["*.env", "*", "?.env", "*.*", "[!a]*", "a.e*"]);
    draft.service_lines(&format!("EnvironmentFile=-{directory}/{pattern}"));
}

pub(super) fn glob_required(draft: &mut Draft) {
    let directory = env_directory(draft);
    let pattern = draft.one(&["*.env", "?.env", "../env.d/*.env"]);
    draft.service_lines(&format!("EnvironmentFile={directory}/{pattern}"));
}

pub(super) fn glob_classes(draft: &mut Draft) {
    let directory = env_directory(draft);
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
    draft.service_lines(&format!("EnvironmentFile=-{directory}/{pattern}"));
}

pub(super) fn glob_bad(draft: &mut Draft) {
    let directory = env_directory(draft);
    draft.add(format!("{directory}/aa.env"), Entry::file(b"A=\xff\nB=1\n".as_slice()));
    let dash = if draft.chance(70) { "-" } else { "" };
    draft.service_lines(&format!("EnvironmentFile={dash}{directory}/*.env"));
}

pub(super) fn glob_directory(draft: &mut Draft) {
    let directory = env_directory(draft);
    draft.add(format!("{directory}/d.env/inner.env"), Entry::file("INNER=1\n"));
    let dash = if draft.chance(70) { "-" } else { "" };
    let pattern = draft.one(&["*.env", "*/inner.env", "*/*.env"]);
    draft.service_lines(&format!("EnvironmentFile={dash}{directory}/{pattern}"));
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
