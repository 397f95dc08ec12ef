//! A tree in the making: what shapes start and ingredients change.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::case::{Case, Entry};
use crate::systemd::PROGRAMS;

/// The directories of the search path that a tree may use; the weight is how often.
const DIRECTORIES: [(u32, &str); 12] = [
    (40, "/etc/systemd/system"),
    (25, "/usr/lib/systemd/system"),
    (8, "/run/systemd/system"),
    (6, "/usr/local/lib/systemd/system"),
    (4, "/etc/systemd/system.control"),
    (2, "/run/systemd/system.control"),
    (2, "/run/systemd/transient"),
    (2, "/run/systemd/generator.early"),
    (2, "/etc/systemd/system.attached"),
    (2, "/run/systemd/system.attached"),
    (4, "/run/systemd/generator"),
    (3, "/run/systemd/generator.late"),
];

/// Names of drop-ins, chosen for their order: bytewise, over all directories together.
const NAMES: [&str; 22] = [
    "10-kubeadm.conf",
    "10-kubeadm.conf",
    "05-early.conf",
    "20-extra-args.conf",
    "override.conf",
    "override.conf",
    "10-b.conf",
    "9-a.conf",
    "99-local.conf",
    "Z.conf",
    "a.conf",
    "_x.conf",
    "50-CPUQuota.conf",
    "http-proxy.conf",
    "10-cgroupv2.conf",
    "~last.conf",
    "-first.conf",
    "é.conf",
    "10.conf",
    "10-kubeadm.conf.conf",
    "01-kubens.conf",
    "zz-cloud.conf",
];

/// Variables that kubelets' units use.
const VARIABLES: [&str; 12] = [
    "KUBELET_EXTRA_ARGS",
    "KUBELET_KUBEADM_ARGS",
    "KUBELET_CONFIG_ARGS",
    "KUBELET_KUBECONFIG_ARGS",
    "NODEADM_KUBELET_ARGS",
    "KUBELET_FLAGS",
    "KUBELET_NODE_LABELS",
    "DAEMON_ARGS",
    "KUBE_LOGTOSTDERR",
    "KUBE_LOG_LEVEL",
    "KUBELET_HOSTNAME",
    "K3S_TOKEN",
];

/// Flags as operators write them.
const FLAGS: [&str; 14] = [
    "--cloud-provider=external",
    "--node-ip=10.0.0.7",
    "--v=2",
    "--node-labels=role=worker,zone=eu-1",
    "--config=/var/lib/kubelet/config.yaml",
    "--kubeconfig=/etc/kubernetes/kubelet.conf",
    "--hostname-override worker-1",
    "--provider-id=hcloud://4711",
    "--max-pods=110",
    "--register-with-taints=a=b:NoSchedule",
    "--feature-gates=A=true,B=false",
    "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
    "--image-gc-high-threshold=85",
    "--rotate-certificates",
];

/// A tree in the making.
pub(crate) struct Draft {
    pub(crate) random: Rng,
    /// The part of all its names that no other tree has.
    pub(crate) stem: String,
    /// The unit's own name.
    pub(crate) unit: String,
    /// The name that will be asked for.
    pub(crate) asked: String,
    /// Where its fragment lies.
    pub(crate) fragment: String,
    /// The environment files that its unit refers to.
    pub(crate) env_files: Vec<String>,
    pub(crate) entries: BTreeMap<String, Entry>,
    /// What went into it.
    pub(crate) ingredients: Vec<String>,
}

impl Draft {
    /// A tree without a unit yet.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let stem = format!("k{seed}");
        let unit = match random.u8(..20) {
            0..8 => format!("{stem}.service"),
            8..12 => format!("{stem}-agent.service"),
            12..14 => format!("{stem}-a-b.service"),
            14..16 => format!("snap.{stem}.daemon-kubelite.service"),
            16 => format!("{stem}@x.service"),
            17 => format!("{stem}-a@worker-1.service"),
            18 => format!("{stem}@a\\x2db-c.service"),
            _ => format!("{stem}_1:2.x-y.service"),
        };
        Self {
            random,
            stem,
            asked: unit.clone(),
            unit,
            fragment: String::new(),
            env_files: Vec::new(),
            entries: BTreeMap::new(),
            ingredients: Vec::new(),
        }
    }

    /// The finished tree.
    pub(crate) fn finish(self, seed: u64) -> Case {
        Case { seed, ingredients: self.ingredients, unit: self.asked, entries: self.entries }
    }

    /// One of them.
    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        self.random.choice(of).copied().unwrap_or_default()
    }

    /// True so many times in a hundred.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    /// A directory of the search path.
    pub(crate) fn directory(&mut self) -> &'static str {
        weighted(&mut self.random, &DIRECTORIES)
    }

    /// The name of the fragment: usually that of the template, if the unit is an instance.
    pub(crate) fn fragment_name(&mut self) -> String {
        if self.unit.contains('@') && self.chance(80) { self.template() } else { self.unit.clone() }
    }

    /// The template's name; the unit's own where it has none.
    pub(crate) fn template(&self) -> String {
        match self.unit.split_once('@') {
            Some((prefix, _)) => format!("{prefix}@.service"),
            None => self.unit.clone(),
        }
    }

    /// A name whose `.d` directory counts for the unit: usually its own, or a prefix.
    pub(crate) fn directory_name(&mut self) -> String {
        let mut names = self.prefixes();
        names.push(self.template());
        if self.chance(25) {
            return names.swap_remove(self.random.usize(..names.len()));
        }
        self.unit.clone()
    }

    /// `a-.service`, `a-b-.service`, for `a-b-c.service`.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        let name = self.unit.trim_end_matches(".service");
        let name = name.split('@').next().unwrap_or(name);
        let dashes = name.match_indices('-').filter(|(at, _)| *at + 1 < name.len());
        let all = dashes.map(|(at, _)| format!("{}-.service", &name[..at]));
        // A prefix that the stem is not a part of would be another tree's too.
        all.filter(|prefix| prefix.contains(&self.stem)).collect()
    }

    /// A drop-in's name.
    pub(crate) fn drop_in_name(&mut self) -> &'static str {
        self.one(&NAMES)
    }

    /// A path for a drop-in, in one of the directories that count.
    pub(crate) fn drop_in_path(&mut self) -> String {
        let (directory, name) = (self.directory(), self.directory_name());
        format!("{directory}/{name}.d/{}", self.drop_in_name())
    }

    /// Adds a file, unless something is there.
    pub(crate) fn add(&mut self, path: impl Into<String>, entry: Entry) -> bool {
        let path = path.into();
        let below = format!("{path}/");
        let conflicts = self.entries.iter().any(|(other, entry)| {
            *other == path
                || other.starts_with(&below)
                || (*entry != Entry::Folder && path.starts_with(&format!("{other}/")))
        });
        if !conflicts {
            self.entries.insert(path, entry);
        }
        !conflicts
    }

    /// Adds a drop-in with this content, its placeholders filled.
    pub(crate) fn drop_in(&mut self, content: &[u8]) {
        let content = self.fill(content);
        for _ in 0..4 {
            let path = self.drop_in_path();
            if self.add(path, Entry::file(content.clone())) {
                return;
            }
        }
    }

    /// Writes these lines into the unit: at the end of a file that has a `[Service]`, or in a drop-in of their own.
    pub(crate) fn service_lines(&mut self, lines: &str) {
        let units: Vec<String> =
            self.texts(|path, text| path.contains("/systemd/") && text.contains("[Service]")).collect();
        if units.is_empty() || self.chance(60) {
            return self.drop_in(format!("[Service]\n{lines}\n").as_bytes());
        }
        let path = units[self.random.usize(..units.len())].clone();
        let lines = String::from_utf8_lossy(&self.fill(lines.as_bytes())).into_owned();
        let Some(Entry::File(text)) = self.entries.get_mut(&path) else {
            return;
        };
        *text = match text.split_once("\n[Install]") {
            Some((before, after)) => format!("{before}\n{lines}\n\n[Install]{after}"),
            None if text.ends_with('\n') => format!("{text}{lines}\n"),
            None => format!("{text}\n{lines}\n"),
        };
    }

    /// Adds words to the command line.
    pub(crate) fn words(&mut self, words: &str) {
        let words = String::from_utf8_lossy(&self.fill(words.as_bytes())).into_owned();
        let units: Vec<String> =
            self.texts(|path, text| path.contains("/systemd/") && last_command(text).is_some()).collect();
        if let Some(path) = self.random.choice(&units)
            && let Some(Entry::File(text)) = self.entries.get_mut(path)
            && let Some(end) = last_command(text)
        {
            text.insert_str(end, &format!(" {words}"));
        }
    }

    /// Adds to an environment file that the unit refers to, at its end.
    pub(crate) fn environment_text(&mut self, text: &[u8]) {
        let text = self.fill(text);
        let path = match self.random.choice(&self.env_files) {
            Some(path) => path.clone(),
            None => self.new_env_file(),
        };
        let mut content = match self.entries.get(&path) {
            None => Vec::new(),
            Some(entry) => match entry.content() {
                Some(content) => content,
                None => return, // a directory or a link
            },
        };
        if !content.is_empty() && !content.ends_with(b"\n") && self.chance(90) {
            content.push(b'\n');
        }
        content.extend(text);
        if self.chance(85) {
            content.push(b'\n');
        }
        self.entries.remove(&path);
        self.add(path, Entry::file(content));
    }

    /// A further environment file: declared, and not yet there.
    pub(crate) fn new_env_file(&mut self) -> String {
        let path = format!("/etc/{}/{}.env", self.stem, self.random.u8(..200));
        self.service_lines(&format!("EnvironmentFile=-{path}"));
        self.env_files.push(path.clone());
        path
    }

    /// A variable, usually one that is already used.
    pub(crate) fn variable(&mut self) -> &'static str {
        let used: Vec<&'static str> = VARIABLES
            .into_iter()
            .filter(|name| {
                self.entries.values().any(|entry| match entry {
                    Entry::File(text) => text.contains(name),
                    _ => false,
                })
            })
            .collect();
        if used.is_empty() || self.chance(15) {
            return self.one(&VARIABLES);
        }
        self.one(&used)
    }

    /// Fills the placeholders: `<V>` a variable, `<F>` a flag, `<B>` a program, `<N>` the stem, `<E>` an environment
    /// file that the unit refers to, `<U>` the unit's name.
    pub(crate) fn fill(&mut self, text: &[u8]) -> Vec<u8> {
        let mut filled = Vec::new();
        let mut rest = text;
        while let Some((first, after)) = rest.split_first() {
            let value = match rest {
                [b'<', b'V', b'>', ..] => self.variable().to_owned(),
                [b'<', b'F', b'>', ..] => self.one(&FLAGS).to_owned(),
                [b'<', b'B', b'>', ..] => self.one(&PROGRAMS).to_owned(),
                [b'<', b'N', b'>', ..] => self.stem.clone(),
                [b'<', b'U', b'>', ..] => self.unit.clone(),
                [b'<', b'E', b'>', ..] => match self.random.choice(&self.env_files) {
                    Some(path) => path.clone(),
                    None => format!("/etc/default/{}", self.stem),
                },
                _ => {
                    filled.push(*first);
                    rest = after;
                    continue;
                }
            };
            filled.extend(value.bytes());
            rest = &rest[3..];
        }
        filled
    }

    /// The paths of the texts that are of this kind.
    fn texts(&self, wanted: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = String> {
        self.entries.iter().filter_map(move |(path, entry)| match entry {
            // What lies in service.d, all trees of the group have in common.
            Entry::File(text) if wanted(path, text) && !path.contains("/service.d/") => Some(path.clone()),
            _ => None,
        })
    }
}

/// Where the last command line of a unit file ends.
fn last_command(text: &str) -> Option<usize> {
    let start = text.rfind("\nExecStart=")? + 1;
    let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
    let line = &text[start..end];
    (line.len() > "ExecStart=".len() && !line.ends_with('\\')).then_some(end)
}

/// One of them, by weight.
pub(crate) fn weighted<T: Copy>(random: &mut Rng, of: &[(u32, T)]) -> T {
    let total: u32 = of.iter().map(|(weight, _)| weight).sum();
    let mut left = random.u32(..total);
    for (weight, value) in of {
        match left.checked_sub(*weight) {
            None => return *value,
            Some(rest) => left = rest,
        }
    }
    of[0].1
}
