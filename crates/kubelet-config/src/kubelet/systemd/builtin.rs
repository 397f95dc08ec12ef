//! What systemd knows by itself: the values of specifiers, and the variables that it sets for every service;
//! systemd.unit(5), "SPECIFIERS", and systemd.exec(5), "ENVIRONMENT VARIABLES SET OR PROPAGATED BY THE SERVICE MANAGER".

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::specifiers::Specifiers;
use super::{Assignment, Manager, Setting, Source, env_file, names};
use crate::kubelet::location::Location;
use crate::kubelet::tree::Tree;

type Settings = BTreeMap<(String, String), Setting>;

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
pub(super) fn is_directory_list(key: &str) -> bool {
    DIRECTORIES.iter().any(|(setting, ..)| *setting == key)
}

/// The specifiers of a unit.
pub(super) fn specifiers(tree: &dyn Tree, manager: &Manager, name: &str, fragment: Option<&Path>) -> Specifiers {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let prefix = names::prefix(name);
    let last = prefix.rsplit('-').next().unwrap_or_default();
    let instance = names::instance(name);
    let real = fragment.map(|path| tree.real_path(path).unwrap_or_else(|_| path.to_owned()));
    let short = manager.hostname.split('.').next().unwrap_or_default();
    let os_release = ["/etc/os-release", "/usr/lib/os-release"].into_iter().find(|path| tree.exists(Path::new(path)));
    let os_release = os_release.map_or_else(BTreeMap::new, |path| values(tree, path));
    let os = |key: &str| text(os_release.get(key).map_or("", String::as_str));
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
        ('y', real.as_ref().map(|path| path.as_os_str().as_bytes().to_vec())),
        ('Y', real.as_ref().and_then(|path| path.parent()).map(|path| path.as_os_str().as_bytes().to_vec())),
        ('c', text(&format!("/system.slice/{name}"))),
        ('r', text("/system.slice")),
        ('R', text("")),
        ('H', text(&manager.hostname)),
        ('l', text(short)),
        ('q', text(&pretty_hostname(tree, short))),
        ('m', text(&machine_id(tree, manager))),
        ('b', text(&manager.boot_id)),
        ('v', text(&first_line(tree, "/proc/sys/kernel/osrelease"))),
        ('a', text(architecture())),
        ('o', os("ID")),
        ('w', os("VERSION_ID")),
        ('B', os("BUILD_ID")),
        ('W', os("VARIANT_ID")),
        ('M', os("IMAGE_ID")),
        ('A', os("IMAGE_VERSION")),
    ]);
    for (letter, value) in FIXED {
        table.insert(letter, text(value));
    }
    table.insert('d', text(&format!("/run/credentials/{name}")));
    table.insert('s', text(root_shell(tree)));
    if manager.version >= 255 {
        table.insert('D', text("/usr/share"));
    }
    Specifiers(table)
}

/// The specifiers that are the same for every system service.
const FIXED: [(char, &str); 12] = [
    ('C', "/var/cache"),
    ('E', "/etc"),
    ('L', "/var/log"),
    ('S', "/var/lib"),
    ('t', "/run"),
    ('T', "/tmp"),
    ('V', "/var/tmp"),
    ('h', "/root"),
    ('u', "root"),
    ('U', "0"),
    ('g', "root"),
    ('G', "0"),
];

/// The architecture as systemd calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn first_line(tree: &dyn Tree, path: &str) -> String {
    tree.read_bounded(Path::new(path), 4096)
        .map(|bytes| String::from_utf8_lossy(&bytes).lines().next().unwrap_or_default().to_owned())
        .unwrap_or_default()
}

/// The values of a file of assignments, as `/etc/os-release` is one.
fn values(tree: &dyn Tree, path: &str) -> BTreeMap<String, String> {
    let bytes = tree.read_bounded(Path::new(path), 64 << 10).unwrap_or_default();
    let parsed = env_file::parse(&Location::file(path), &bytes, u32::MAX);
    parsed.assignments.into_iter().map(|assignment| (assignment.name, assignment.value)).collect()
}

fn pretty_hostname(tree: &dyn Tree, short: &str) -> String {
    let name = values(tree, "/etc/machine-info").remove("PRETTY_HOSTNAME").filter(|name| !name.is_empty());
    name.unwrap_or_else(|| short.to_owned())
}

/// What the caller knows, else what the host says.
fn machine_id(tree: &dyn Tree, manager: &Manager) -> String {
    let unknown = manager.machine_id.bytes().all(|byte| byte == b'0');
    let own = first_line(tree, "/etc/machine-id");
    let valid = own.len() == 32 && own.bytes().all(|byte| byte.is_ascii_hexdigit());
    if unknown && valid { own } else { manager.machine_id.clone() }
}

/// root's shell as systemd chooses it where no user database may be asked.
fn root_shell(tree: &dyn Tree) -> &'static str {
    if tree.exists(Path::new("/bin/bash")) { "/bin/bash" } else { "/bin/sh" }
}

fn setting<'a>(settings: &'a Settings, key: &str) -> Option<&'a Setting> {
    settings.get(&("Service".to_owned(), key.to_owned())).filter(|setting| !setting.value.is_empty())
}

/// The variables that systemd sets for the service, the manager's own environment first. Those that are new with every
/// start (`INVOCATION_ID`, …) have an empty value.
pub(super) fn variables(tree: &dyn Tree, manager: &Manager, name: &str, settings: &Settings) -> Vec<Assignment> {
    let nowhere = Location::file("systemd");
    let mut own = Vec::new();
    let mut set = |name: &str, value: &str, at: &Location| {
        own.push(Assignment {
            name: name.to_owned(),
            value: value.to_owned(),
            at: at.clone(),
            source: Source::Manager,
            marks: Vec::new(),
        });
    };
    let merged = tree.real_path(Path::new("/bin")).is_ok_and(|real| real == Path::new("/usr/bin"));
    let path = if manager.version >= 255 && merged { PATH_MERGED } else { PATH_SPLIT };
    set("PATH", path, &nowhere);
    let lang = values(tree, "/etc/locale.conf").remove("LANG").unwrap_or_else(|| "C.UTF-8".to_owned());
    set("LANG", &lang, &nowhere);
    for (name, value) in &manager.environment {
        set(name, value, &nowhere);
    }
    for unknown in ["INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID"] {
        set(unknown, "", &nowhere);
    }
    if let Some(kind) = setting(settings, "Type").filter(|kind| kind.value.starts_with("notify")) {
        set("NOTIFY_SOCKET", "/run/systemd/notify", &kind.at);
    }
    if let Some(file) = setting(settings, "PIDFile") {
        set("PIDFILE", &file.value, &file.at);
    }
    if let Some(user) = setting(settings, "User") {
        login(tree, user, &mut set);
    }
    for (key, variable, above) in DIRECTORIES {
        if let Some(list) = setting(settings, key) {
            set(variable, &directories(&list.value, above), &list.at);
        }
    }
    let credentials =
        ["LoadCredential", "SetCredential", "LoadCredentialEncrypted", "SetCredentialEncrypted", "ImportCredential"];
    if let Some(found) = credentials.into_iter().find_map(|key| setting(settings, key)) {
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
fn login(tree: &dyn Tree, user: &Setting, set: &mut dyn FnMut(&str, &str, &Location)) {
    let passwd = tree
        .read_bounded(Path::new("/etc/passwd"), 1 << 20)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let entry = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|entry| entry.first() == Some(&user.value.as_str()) || entry.get(2) == Some(&user.value.as_str()));
    let root = ["root", "0"].contains(&user.value.as_str());
    let (name, home, shell) = if root {
        ("root", "/root", root_shell(tree))
    } else {
        let field = |index: usize| entry.as_ref().and_then(|entry| entry.get(index).copied());
        (field(0).unwrap_or(&user.value), field(5).unwrap_or_default(), field(6).unwrap_or_default())
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
