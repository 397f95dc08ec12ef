//! The real systemd: lays trees out in a booted one, has it load and start their units, and collects the results.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::case::{Case, Entry, Got, Said, World};
use crate::dump;
use nodevigil_e2e::support::machine::Machine;
use nodevigil_e2e::support::{namespaces, node_files, wait_until};

const HOSTNAME: &str = "worker-1.example.org";
const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef";

/// Everything that a tree may start. `kubelet` is also found by its bare name.
pub(crate) const PROGRAMS: [&str; 6] = [
    "/usr/bin/kubelet",
    "/usr/local/bin/kubelet",
    "/opt/bin/kubelet",
    "/usr/local/bin/k3s",
    "/usr/local/bin/rke2",
    "/usr/local/bin/kubenswrapper",
];

/// systemd empties the directories of generators at each reload and runs the generators; this one brings the trees' files.
const GENERATOR: &str = "#!/bin/sh
for pair in \"$1:generator\" \"$2:generator.early\" \"$3:generator.late\"; do
  from=/run/oracle/\"${pair##*:}\"
  [ ! -d \"$from\" ] || cp -a \"$from\"/. \"${pair%:*}\"/
done
";

/// A booted systemd.
pub(crate) struct Systemd {
    machine: Machine,
    /// Where it runs.
    pub(crate) world: World,
}

impl Systemd {
    /// Boots it; `label` is unique in the run.
    pub(crate) fn boot(label: &str) -> Result<Self> {
        let files = vec![
            node_files::file("/etc/hostname", format!("{HOSTNAME}\n"), 0o644),
            node_files::file("/etc/machine-id", format!("{MACHINE_ID}\n"), 0o444),
            node_files::file(
                "/etc/systemd/system/oracle.target",
                "[Unit]\nDescription=The oracle\nWants=systemd-journald.service dbus.service\n",
                0o644,
            ),
            node_files::file(
                "/etc/systemd/journald.conf.d/50-oracle.conf",
                "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\n",
                0o644,
            ),
            node_files::file("/etc/systemd/system-generators/oracle", GENERATOR, 0o755),
        ];
        let machine = Machine::boot(label.to_owned(), vec![layer()?], files, "oracle.target")?;
        machine.sh(&format!(
            "mkdir -p {} && systemctl set-environment ORACLE_SET=manager KUBELET_PROXY=http://proxy:3128",
            dump::DIRECTORY
        ))?;
        let world = world(&machine)?;
        Ok(Self { machine, world })
    }

    /// Its results for these cases, in their order. No two have a unit's name in common, and where two have a file in
    /// common, it is the same.
    pub(crate) fn ask(&self, cases: &[&Case]) -> Result<Vec<Said>> {
        let mut made = Made::default();
        let said = self.lay_out(cases, &mut made).and_then(|()| self.run(cases));
        let cleared = made.clear().context("clearing the trees");
        let said = said?;
        cleared?;
        Ok(said)
    }

    /// What its journal has about a unit since it was asked the last time.
    pub(crate) fn journal(&self, unit: &str) -> Result<String> {
        let command =
            format!("journalctl --sync; journalctl --no-pager -q -o cat --cursor-file=/run/oracle/cursor -u '{unit}'");
        Ok(self.machine.run(&command)?.1)
    }

    fn lay_out(&self, cases: &[&Case], made: &mut Made) -> Result<()> {
        let root = root(&self.machine);
        for case in cases {
            for (path, entry) in &case.entries {
                let path = root.join(generated(path).trim_start_matches('/'));
                made.make(&path, entry).with_context(|| format!("seed {}: {}", case.seed, path.display()))?;
            }
        }
        Ok(())
    }

    fn run(&self, cases: &[&Case]) -> Result<Vec<Said>> {
        let names: Vec<String> = cases.iter().map(|case| format!("'{}'", case.unit)).collect();
        let names = names.join(" ");
        self.machine.sh("systemctl daemon-reload")?;
        let loaded = self.show("Id,Names,LoadState,FragmentPath,DropInPaths", &names)?;
        self.machine.run(&format!("systemctl start --no-block -- {names}"))?; // some refuse
        let mut unsettled = String::new();
        let waited = wait_until("the units to have ended", Duration::from_secs(30), || {
            // By patterns: systemd compares them with ids, and some units are asked for by an alias.
            let (_, text) = self.machine.run(
                "systemctl list-jobs --no-legend
                systemctl list-units --all --plain --no-legend -- 'k[0-9]*' 'snap.k[0-9]*'",
            )?;
            let left: Vec<&str> = text.lines().filter(|line| !settled(line)).collect();
            unsettled = left.join("\n");
            Ok(left.is_empty().then_some(()))
        });
        waited.with_context(|| unsettled)?;
        let ended = self.show("Id,Names,Result,ExecMainStatus", &names)?;
        let said =
            cases.iter().map(|case| self.said(&case.unit, &of_unit(&loaded, &case.unit), &of_unit(&ended, &case.unit)));
        let said = said.collect::<Result<Vec<Said>>>()?;
        self.machine.run(&format!(
            "systemctl stop -- {names}; systemctl reset-failed -- {names}; rm -rf {0}; mkdir {0}",
            dump::DIRECTORY
        ))?;
        Ok(said)
    }

    fn said(&self, asked: &str, loaded: &Properties, ended: &Properties) -> Result<Said> {
        let words = |name: &str| -> Vec<String> {
            let text = loaded.get(name).map_or("", String::as_str);
            text.split_whitespace().map(unquoted).collect()
        };
        let word = |name: &str| loaded.get(name).cloned();
        let mut names = words("Names");
        names.sort();
        let id = word("Id").unwrap_or_else(|| asked.to_owned());
        let process = self.got(&id)?;
        let status = ended.get("ExecMainStatus");
        let status = status.and_then(|status| status.parse().ok()).unwrap_or(0);
        let failed_to_execute = match ended.get("Result").map(String::as_str) {
            // With a dash before it, a program that is missing is no failure.
            Some("success" | "protocol") => true,
            // A forking service's command is not its main process. Our program would have ended with 1.
            Some("exit-code") => status == 0 || (200..=245).contains(&status),
            _ => false,
        };
        Ok(Said {
            names,
            load_state: word("LoadState"),
            fragment: word("FragmentPath").unwrap_or_default(),
            dropins: words("DropInPaths"),
            result: ended.get("Result").cloned().unwrap_or_default(),
            not_executed: process.is_none()
                && word("LoadState").is_some_and(|state| state == "loaded")
                && failed_to_execute,
            process,
            id,
        })
    }

    /// What the dumper wrote.
    fn got(&self, id: &str) -> Result<Option<Got>> {
        let directory = root(&self.machine).join(dump::DIRECTORY.trim_start_matches('/'));
        let file = directory.join(format!("{id}.cmdline"));
        if !file.exists() {
            return Ok(None);
        }
        let argv = fields(&fs::read(file)?);
        let environment = fields(&fs::read(directory.join(format!("{id}.environ")))?);
        let pairs = environment.into_iter().map(|pair| {
            let (name, value) = pair.split_once('=').with_context(|| pair.clone())?;
            Ok((name.to_owned(), value.to_owned()))
        });
        Ok(Some(Got { argv, environment: pairs.collect::<Result<_>>()? }))
    }

    /// The properties of those units of which systemctl can show them: not if there are bytes that are not UTF-8.
    fn show(&self, properties: &str, names: &str) -> Result<Vec<Properties>> {
        let (_, text) = self.machine.run(&format!("systemctl show --property={properties} -- {names} 2>/dev/null"))?;
        let blocks = text.trim_end_matches('\n').split("\n\n");
        let properties = |block: &str| {
            let pairs = block.lines().filter_map(|line| line.split_once('='));
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        Ok(blocks.map(properties).collect())
    }
}

type Properties = BTreeMap<String, String>;

/// The properties of the unit that was requested by this name.
fn of_unit(all: &[Properties], asked: &str) -> Properties {
    let named = all.iter().find(|unit| {
        let names = unit.get("Names").map_or("", String::as_str);
        names.split(' ').any(|name| unquoted(name) == asked)
    });
    named.cloned().unwrap_or_default()
}

/// A word of a list, as `systemctl show` quotes it. No name of a tree has a blank.
fn unquoted(word: &str) -> String {
    let inner = word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or(word.to_owned(), |inner| inner.replace("\\\\", "\\"))
}

/// Whether a line of `list-jobs` or `list-units` is of a unit to which nothing more will happen.
fn settled(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [_, _, "inactive" | "failed", ..] | [_, _, _, "auto-restart" | "exited", ..] => true,
        // A job: its number, its unit, its type, its state.
        [_, unit, _, "running" | "waiting"] => !unit.starts_with('k') && !unit.starts_with("snap."),
        _ => words.is_empty(),
    }
}

/// NUL-terminated texts.
fn fields(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let fields = bytes.split(|byte| *byte == 0);
    fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect()
}

/// Where a tree's file is put: those in the directories of generators are brought there by one.
fn generated(path: &str) -> String {
    match path.strip_prefix("/run/systemd/generator") {
        Some(rest) => format!("/run/oracle/generator{rest}"),
        None => path.to_owned(),
    }
}

/// What was laid out, in the order in which it was.
#[derive(Default)]
struct Made {
    paths: Vec<PathBuf>,
    known: BTreeSet<PathBuf>,
}

impl Made {
    fn make(&mut self, path: &Path, entry: &Entry) -> Result<()> {
        if *entry == Entry::Folder {
            return self.directory(path);
        }
        self.directory(path.parent().context("a file has a directory")?)?;
        if !self.known.insert(path.to_owned()) {
            return Ok(()); // the same in two trees
        }
        if let Entry::Link(target) = entry {
            symlink(target, path)?;
        } else {
            ensure!(path.symlink_metadata().is_err(), "is there already");
            fs::write(path, entry.content().context("a file has a content")?)?;
        }
        self.paths.push(path.to_owned());
        Ok(())
    }

    fn directory(&mut self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        self.directory(path.parent().context("a directory has a directory")?)?;
        fs::create_dir(path)?;
        self.paths.push(path.to_owned());
        Ok(())
    }

    fn clear(self) -> Result<()> {
        for path in self.paths.iter().rev() {
            let directory = path.symlink_metadata()?.is_dir();
            let removed = if directory { fs::remove_dir(path) } else { fs::remove_file(path) };
            removed.with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// Its root, as we see it.
fn root(machine: &Machine) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root", machine.pid1()))
}

fn world(machine: &Machine) -> Result<World> {
    let version = machine.sh("systemctl --version")?;
    let version = version.split_whitespace().nth(1).context("systemd's version")?;
    let environment = machine.sh("systemctl show-environment")?;
    let pairs = environment.lines().filter_map(|line| line.split_once('='));
    Ok(World {
        version: version.parse()?,
        hostname: machine.sh("hostname")?.trim().to_owned(),
        machine_id: MACHINE_ID.to_owned(),
        boot_id: machine.sh("cat /proc/sys/kernel/random/boot_id")?.trim().replace('-', ""),
        kernel: machine.sh("uname -r")?.trim().to_owned(),
        os_release: machine.sh("cat /etc/os-release")?,
        environment: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    })
}

/// This program where the units find it, and the machine's own generators masked: each reload would run them.
fn layer() -> Result<PathBuf> {
    let layer = namespaces::work().join("layers/oracle");
    if layer.exists() {
        return Ok(layer); // made for a systemd before
    }
    let dumper = layer.join(dump::PROGRAM.trim_start_matches('/'));
    fs::create_dir_all(dumper.parent().context("the dumper's directory")?)?;
    fs::copy(std::env::current_exe()?, dumper).context("copying this program")?;
    for program in PROGRAMS {
        let link = layer.join(program.trim_start_matches('/'));
        fs::create_dir_all(link.parent().context("a program's directory")?)?;
        symlink(dump::PROGRAM, link)?;
    }
    let masks = layer.join("etc/systemd/system-generators");
    fs::create_dir_all(&masks)?;
    for generator in fs::read_dir("/usr/lib/systemd/system-generators").into_iter().flatten() {
        symlink("/dev/null", masks.join(generator?.file_name()))?;
    }
    Ok(layer)
}
