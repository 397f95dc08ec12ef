//! The agents of a fleet: units of one machine, each with its own files, credential and Node. Their kubelets are stand-ins that only
//! answer probes: most agents watch one that stays well, a twentieth of them one each, which is killed while the API server fails.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::peer::{self, Package};
use crate::support::boot::File;
use crate::support::control_plane::{ControlPlane, PEER};
use crate::support::machine::Machine;
use crate::support::node_files::{self, Ports, TARGET, file};
use crate::support::{kinds, namespaces, output, programs, wait_until};

/// After this time a Node that does not show what it should is lost.
const LOST_AFTER: Duration = Duration::from_mins(10);
/// Every so many agents, one watches the kubelet that is killed.
const KILLED_EVERY: u32 = 20;
/// The images that a Node lists, as those of a kubelet that has run for a while: they make up most of the object's size.
const IMAGES: u32 = 40;
const LABEL: &str = "nodevigil.io/fleet";
/// Above the bus's limits, which are for the programs of one node.
const BUS: &str = "<busconfig><limit name='max_connections_per_user'>100000</limit>\
    <limit name='max_completed_connections'>100000</limit></busconfig>";

/// All would have the same ports.
const NO_SERVERS: &str = "--port=0 --prometheus-port=0";

/// Whose agents they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nodevigil,
    NodeProblemDetector,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodevigil => "nodevigil",
            Self::NodeProblemDetector => "node-problem-detector",
        }
    }

    /// How the user names begin in the audit log.
    pub fn user(self) -> &'static str {
        match self {
            Self::Nodevigil => "nodevigil:",
            Self::NodeProblemDetector => PEER,
        }
    }

    /// How many of the failures it is measured with: what nodevigil promises is not node-problem-detector's to keep.
    pub fn failures(self) -> usize {
        if self == Self::Nodevigil { usize::MAX } else { 1 }
    }

    /// The condition about the kubelet, and its status while that is well and once it is dead.
    fn condition(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Nodevigil => ("KubeletHealthy", ["True", "False"]),
            Self::NodeProblemDetector => (peer::CONDITION, ["False", "True"]),
        }
    }
}

/// Whether the kubelet of the agent of that number is killed.
pub fn is_killed(member: u32) -> bool {
    member.is_multiple_of(KILLED_EVERY)
}

fn name(member: u32) -> String {
    format!("fleet-{member}")
}

#[derive(Debug)]
pub struct Members {
    kind: Kind,
    size: u32,
    plane: Arc<ControlPlane>,
    machine: Machine,
}

impl Members {
    /// Boots their machine. They are started by [`Self::systemctl`].
    pub fn boot(plane: &Arc<ControlPlane>, kind: Kind, size: u32) -> Result<Self> {
        let ports = Ports { kubelet: namespaces::port(), healthz: namespaces::port() };
        let numbers = || (0..size).filter(|member| is_killed(*member));
        let killed: BTreeMap<u32, Ports> =
            numbers().map(|member| (member, Ports { healthz: namespaces::port(), ..ports })).collect();
        let kubeconfig = plane.kubeconfig("system:node:fleet", "system:nodes")?;
        let mut files = node_files::kubelet(kinds::current(), "fleet", ports, &plane.ca()?, kubeconfig);
        // On real nodes no other agent takes the kubelet's processor.
        let first = "[Service]\nNice=-20\n";
        let unit = "[Service]\nNice=-20\nExecStart=/usr/bin/kubelet --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/%p.yaml\n";
        for (member, ports) in &killed {
            let config = node_files::kubelet_config(kinds::current(), *ports).to_string();
            files.extend([
                file(&format!("/etc/systemd/system/killed-{member}.service"), unit, 0o644),
                file(&format!("/var/lib/kubelet/killed-{member}.yaml"), config, 0o644),
            ]);
        }
        files.extend([
            file("/etc/systemd/system/kubelet.service.d/first.conf", first, 0o644),
            file("/etc/dbus-1/system.d/fleet.conf", BUS, 0o644),
        ]);
        let mut layers = vec![programs::layer("kubelet", &namespaces::program())?];
        match kind {
            Kind::Nodevigil => {
                files.extend(agents(plane, size)?);
                layers.push(programs::layer("nodevigil", &programs::agent()?)?);
            }
            Kind::NodeProblemDetector => {
                let package = Package::new(plane)?;
                let port = |member| killed.get(&member).unwrap_or(&ports).healthz;
                let unit = |member: u32| {
                    let path = format!("/etc/systemd/system/member-{member}.service");
                    file(&path, package.unit(&name(member), port(member), NO_SERVERS), 0o644)
                };
                files.extend((0..size).map(unit));
                let parts = package.parts();
                files.extend(parts.0);
                layers.extend(parts.1);
            }
        }
        let machine = Machine::boot(format!("fleet-{}", kind.name()), layers, files, TARGET)?;
        let directories = "mkdir -p /run/nodevigil /var/lib/nodevigil /etc/nodevigil";
        let of_each = format!("for i in $(seq 0 {}); do mkdir -p /run/fleet/$i /var/lib/fleet/$i; done", size - 1);
        machine.sh(&format!("{directories}; {of_each}; {}", peer::LINKS))?;
        let members = Self { kind, size, plane: Arc::clone(plane), machine };
        members.start_killed()?;
        Ok(members)
    }

    /// Runs a command of systemctl for all units at once.
    pub fn systemctl(&self, command: &str) -> Result<()> {
        let units = format!("$(seq --format member-%g.service 0 {})", self.size - 1);
        self.machine.sh(&format!("systemctl --no-block {command} {units}")).map(drop)
    }

    /// Kills the kubelets of a twentieth of the agents, one after the other, as their agents report that at once.
    pub fn kill_some(&self) -> Result<()> {
        self.of_killed("kill --signal=KILL")
    }

    /// Starts them again.
    pub fn start_killed(&self) -> Result<()> {
        self.of_killed("start")
    }

    fn of_killed(&self, command: &str) -> Result<()> {
        let units = format!("$(seq --format killed-%g.service 0 {KILLED_EVERY} {})", self.size - 1);
        self.machine.sh(&format!("for unit in {units}; do systemctl {command} $unit; sleep 0.5; done")).map(drop)
    }

    /// Waits until each Node shows whether the kubelet of its agent is dead.
    pub fn wait_until_shown(&self, is_dead: fn(u32) -> bool) -> Result<()> {
        let (kind, status) = self.kind.condition();
        let path = format!(
            "jsonpath={{range .items[*]}}{{.metadata.name}} {{.status.conditions[?(@.type==\"{kind}\")].status}}{{\"\\n\"}}{{end}}"
        );
        let mut left = Vec::new();
        let shown = wait_until("the conditions of all Nodes", LOST_AFTER, || {
            thread::sleep(Duration::from_secs(1));
            let Ok(text) = self.plane.kubectl(&["get", "nodes", "--selector", LABEL, "--output", &path]) else {
                return Ok(None);
            };
            let is_shown = |member: &u32| {
                let line = format!("{} {}", name(*member), status[usize::from(is_dead(*member))]);
                text.lines().any(|shown| shown == line)
            };
            left = (0..self.size).filter(|member| !is_shown(member)).collect();
            Ok(left.is_empty().then_some(()))
        });
        shown.with_context(|| format!("lost: {left:?}"))
    }
}

/// The units and files of nodevigil's agents.
fn agents(plane: &ControlPlane, size: u32) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for member in 0..size {
        let kubeconfig = plane.kubeconfig(&format!("nodevigil:{}", name(member)), "nodevigil-agents")?;
        let files_of_one = node_files::agent(kubeconfig)?;
        let [unit, .., kubeconfig] = files_of_one.as_slice() else { bail!("the agent's files") };
        let kubelet = if is_killed(member) { format!("unit = \"killed-{member}.service\"") } else { String::new() };
        let settings =
            format!("[conditions]\nhealthy_for_secs = 1\n[metrics]\nenabled = false\n[kubelet]\n{kubelet}\n");
        let unit = unit.content.replace("RuntimeDirectory=nodevigil", &format!("RuntimeDirectory=fleet/{member}"));
        let own = format!(
            // So many that start on one host take longer than systemd waits for one.
            "[Service]\nType=exec\nTimeoutStartSec=infinity\nWatchdogSec=0\nBindPaths=/run/fleet/{member}:/run/nodevigil /var/lib/fleet/{member}:/var/lib/nodevigil\n\
             BindReadOnlyPaths=/etc/fleet/{member}:/etc/nodevigil\n"
        );
        files.extend([
            file(&format!("/etc/systemd/system/member-{member}.service"), unit + &own, 0o644),
            file(&format!("/etc/fleet/{member}/config.toml"), settings, 0o644),
            file(&format!("/etc/fleet/{member}/kubeconfig"), kubeconfig.content.clone(), 0o600),
        ]);
    }
    Ok(files)
}

/// Creates Nodes that are Ready; the first of them are those of the agents.
pub fn create_nodes(plane: &ControlPlane, count: u32, members: u32) -> Result<()> {
    let image = |number| {
        let name = format!("registry.example/team-{number}/some-application-{number}");
        json!({"names": [format!("{name}@sha256:{number:064}"), format!("{name}:v1.2.3")], "sizeBytes": 123_456_789})
    };
    let images: Vec<_> = (0..IMAGES).map(image).collect();
    let node = |number| -> Value {
        let labels = if number < members { json!({LABEL: "yes"}) } else { json!({}) };
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name(number), "labels": labels},
            "status": {"conditions": [ready], "images": images}})
    };
    let numbers: Vec<u32> = (0..count).collect();
    let create = |numbers: &[u32]| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": numbers.iter().map(|number| node(*number)).collect::<Vec<_>>()});
        let path = namespaces::work().join(format!("nodes-{}-{}.json", plane.port(), numbers[0]));
        fs::write(&path, list.to_string())?;
        output(plane.kubectl_command()?.arg("create").arg("-f").arg(&path))?;
        Ok(fs::remove_file(&path)?)
    };
    // kubectl sends no more than 50 requests a second.
    thread::scope(|scope| {
        let parts: Vec<_> =
            numbers.chunks(numbers.len().div_ceil(4)).map(|part| scope.spawn(|| create(part))).collect();
        parts.into_iter().try_for_each(|part| part.join().map_err(|_| anyhow::anyhow!("creating Nodes"))?)
    })
}

/// Has the API server answer each request of an agent's with 429.
pub fn refuse_all(plane: &ControlPlane) -> Result<()> {
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let limited = json!({"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}});
    let level = json!({"apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "refused"},
        "spec": {"type": "Limited", "limited": limited}});
    let subjects = [
        json!({"kind": "Group", "group": {"name": "nodevigil-agents"}}),
        json!({"kind": "User", "user": {"name": PEER}}),
    ];
    let rules =
        [json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true})];
    let schema = json!({"apiVersion": api, "kind": "FlowSchema", "metadata": {"name": "refused"}, "spec": {
        "matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "refused"},
        "rules": [{"subjects": subjects, "resourceRules": rules}]}});
    let path = namespaces::work().join(format!("refused-{}.json", plane.port()));
    fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": [level, schema]}).to_string())?;
    plane.kubectl(&["create", "-f", &path.display().to_string()]).map(drop)
}

/// Ends that.
pub fn refuse_none(plane: &ControlPlane) -> Result<()> {
    plane.kubectl(&["delete", "flowschema,prioritylevelconfiguration", "refused"]).map(drop)
}

/// What the machine of a fleet runs in place of a kubelet: it answers probes, and `--version`.
pub fn stand_in() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "--version") {
        crate::support::say("Kubernetes v1.36.0");
        return Ok(ExitCode::SUCCESS);
    }
    let config = arguments.iter().find_map(|argument| argument.strip_prefix("--config=")).context("--config")?;
    let config: Value = serde_json::from_slice(&fs::read(config)?)?;
    let port = u16::try_from(config["healthzPort"].as_u64().context("healthzPort")?)?;
    for stream in TcpListener::bind(("127.0.0.1", port))?.incoming() {
        let mut stream = stream?;
        thread::spawn(move || {
            while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}
