//! What systemd knows by itself: the values of specifiers, and the variables that it sets for every service;
//! systemd.unit(5), "SPECIFIERS", and systemd.exec(5), "ENVIRONMENT VARIABLES SET OR PROPAGATED BY THE SERVICE MANAGER".

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::specifiers::Specifiers;
use super::verify::get;
use super::{Assignment, Events, Manager, Settings, Source, env_file, names, system_conf};
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::small;
use crate::kubelet::tree::Tree;

/// The settings of directories, with the variable and the directory above that each has.
const DIRECTORIES: [(&str, &str, &str); 5] = [
    ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run"),
    ("StateDirectory", "STATE_DIRECTORY", "/var/lib"),
    ("CacheDirectory", "CACHE_DIRECTORY", "/var/cache"),
    ("LogsDirectory", "LOGS_DIRECTORY", "/var/log"),
    ("ConfigurationDirectory", "CONFIGURATION_DIRECTORY", "/etc"),
];

/// systemd's `DEFAULT_PATH`, with and without a `/bin` of its own.
const PATH_MERGED: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin";
const PATH_SPLIT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether it is a list of directories, which adds up and which an empty assignment resets.
pub(in crate::kubelet) fn is_directory_list(key: &str) -> bool {
    DIRECTORIES.iter().any(|(setting, ..)| *setting == key)
}

pub(super) fn specifiers(tree: &dyn Tree, manager: &Manager, name: &str, fragment: Option<&Path>) -> Specifiers {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let prefix = names::prefix(name);
    let last = prefix.rsplit('-').next().unwrap_or_default();
    let instance = names::instance(name);
    let real = fragment.map(|path| tree.real_path(path).unwrap_or_else(|_| path.to_owned()));
    let short = manager.hostname.split('.').next().unwrap_or_default();
    let os_release = os_release(tree);
    let os = |key: &str| text(os_release.get(key).map_or("", String::as_str));
    let pretty = values(tree, "/etc/machine-info").remove("PRETTY_HOSTNAME");
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let mut table = BTreeMap::from([
        ('n', text(name)),
        ('N', text(names::stem(name))),
        ('p', text(prefix)),
        ('P', names::unescape(prefix)),
        ('i', text(instance.unwrap_or_default())),
        ('I', names::unescape(instance.unwrap_or_default())),
        ('j', text(last)),
        ('J', names::unescape(last)),
        ('f', names::unescape_path(instance.unwrap_or(prefix))),
        ('y', real.as_deref().map(bytes)),
        ('Y', real.as_deref().and_then(Path::parent).map(bytes)),
        ('c', text(&format!("/system.slice/{name}"))),
        ('d', text(&format!("/run/credentials/{name}"))),
        ('H', text(&manager.hostname)),
        ('l', text(short)),
        ('q', text(pretty.as_deref().filter(|pretty| !pretty.is_empty()).unwrap_or(short))),
        ('m', text(&manager.machine_id)),
        ('b', text(&manager.boot_id)),
        ('v', text(&first_line(tree, "/proc/sys/kernel/osrelease"))),
        ('a', text(architecture())),
        ('o', os("ID")),
        ('w', os("VERSION_ID")),
        ('B', os("BUILD_ID")),
        ('W', os("VARIANT_ID")),
        ('M', os("IMAGE_ID")),
        ('A', os("IMAGE_VERSION")),
        ('s', text(root_shell(tree))),
        // The same for every system service.
        ('r', text("/system.slice")),
        ('R', text("")),
        ('C', text("/var/cache")),
        ('E', text("/etc")),
        ('L', text("/var/log")),
        ('S', text("/var/lib")),
        ('t', text("/run")),
        ('T', text("/tmp")),
        ('V', text("/var/tmp")),
        ('h', text("/root")),
        ('u', text("root")),
        ('U', text("0")),
        ('g', text("root")),
        ('G', text("0")),
    ]);
    if manager.version >= 255 {
        table.insert('D', text("/usr/share"));
    }
    Specifiers(table)
}

/// The architecture as systemd calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn first_line(tree: &dyn Tree, path: &str) -> String {
    small(tree, path).and_then(|text| Some(text.lines().next()?.to_owned())).unwrap_or_default()
}

/// The values of os-release(5).
pub(in crate::kubelet) fn os_release(tree: &dyn Tree) -> BTreeMap<String, String> {
    let is_in_etc = tree.exists(Path::new("/etc/os-release"));
    values(tree, if is_in_etc { "/etc/os-release" } else { "/usr/lib/os-release" })
}

fn values(tree: &dyn Tree, path: &str) -> BTreeMap<String, String> {
    let bytes = tree.read_bounded(Path::new(path), 64 << 10).unwrap_or_default();
    let parsed = env_file::parse(&Location::file(path), &bytes, u32::MAX);
    parsed.assignments.into_iter().map(|assignment| (assignment.name, assignment.value)).collect()
}

/// root's shell as systemd chooses it where no user database may be asked.
fn root_shell(tree: &dyn Tree) -> &'static str {
    if tree.exists(Path::new("/bin/bash")) { "/bin/bash" } else { "/bin/sh" }
}

/// The variables that systemd sets for the service, the manager's own environment first. Those that are new with every
/// start (`INVOCATION_ID`, …) have an empty value.
pub(super) fn variables(
    tree: &dyn Tree,
    manager: &Manager,
    name: &str,
    settings: &Settings,
    events: &mut Events,
) -> Vec<Assignment> {
    let nowhere = Location::file("systemd");
    let setting = |key: &str| get(settings, "Service", key);
    let mut own = Vec::new();
    let mut set = |name: &str, value: &str, at: &Location| own.push(Assignment::new(name, value, at, Source::Manager));
    let merged = tree.real_path(Path::new("/bin")).is_ok_and(|real| real == Path::new("/usr/bin"));
    let path = if manager.version >= 255 && merged { PATH_MERGED } else { PATH_SPLIT };
    set("PATH", path, &nowhere);
    let lang = values(tree, "/etc/locale.conf").remove("LANG").unwrap_or_else(|| "C.UTF-8".to_owned());
    set("LANG", &lang, &nowhere);
    for (name, value) in &manager.environment {
        set(name, value, &nowhere);
    }
    // A running systemd has told its environment.
    let is_told = !manager.environment.is_empty();
    for one in if is_told { Vec::new() } else { system_conf::environment(tree, events) } {
        if let Some((name, value)) = one.value.split_once('=') {
            set(name, value, &one.at);
        }
    }
    for unknown in ["INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"] {
        set(unknown, "", &nowhere);
    }
    if let Some(kind) = setting("Type").filter(|kind| kind.value.starts_with("notify")) {
        set("NOTIFY_SOCKET", "/run/systemd/notify", &kind.at);
    }
    if let Some(file) = setting("PIDFile") {
        set("PIDFILE", &file.value, &file.at);
    }
    if let Some(user) = setting("User") {
        login(tree, user, &mut set);
    }
    for (key, variable, above) in DIRECTORIES {
        if let Some(list) = setting(key) {
            set(variable, &directories(&list.value, above), &list.at);
        }
    }
    let credentials =
        ["LoadCredential", "SetCredential", "LoadCredentialEncrypted", "SetCredentialEncrypted", "ImportCredential"];
    if let Some(found) = credentials.into_iter().find_map(setting) {
        set("CREDENTIALS_DIRECTORY", &format!("/run/credentials/{name}"), &found.at);
    }
    own
}

/// Each directory once, below its own, separated by colons; `directory:link` counts as the directory.
fn directories(list: &str, above: &str) -> String {
    let mut directories: Vec<String> = Vec::new();
    for name in list.split_whitespace() {
        let path = format!("{above}/{}", name.split(':').next().unwrap_or_default());
        if !directories.contains(&path) {
            directories.push(path);
        }
    }
    directories.join(":")
}

/// `User=` sets the variables of a login.
fn login(tree: &dyn Tree, user: &Located<String>, set: &mut dyn FnMut(&str, &str, &Location)) {
    let passwd = small(tree, "/etc/passwd").unwrap_or_default();
    let mut entries = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let is_users = |entry: &Vec<&str>| [entry.first(), entry.get(2)].contains(&Some(&user.value.as_str()));
    let entry = entries.find(is_users).unwrap_or_default();
    let field = |index: usize| entry.get(index).copied().unwrap_or_default();
    let (name, home, shell) = match user.value.as_str() {
        "root" | "0" => ("root", "/root", root_shell(tree)),
        user if entry.is_empty() => (user, "", ""),
        _ => (field(0), field(5), field(6)),
    };
    if !["", "/"].contains(&home) {
        set("HOME", home, &user.at);
    }
    set("LOGNAME", name, &user.at);
    set("USER", name, &user.at);
    let no_shell =
        ["", "/bin/nologin", "/sbin/nologin", "/usr/bin/nologin", "/usr/sbin/nologin", "/bin/false", "/usr/bin/false"];
    if !no_shell.contains(&shell) {
        set("SHELL", shell, &user.at);
    }
}
