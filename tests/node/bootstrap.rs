//! `nodevigil bootstrap` on a real node: the way to Ready with its times, and what it says of nodes that were broken in ten
//! ways, one at a time.

pub(crate) mod condition;
mod terminal;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::pki::Authority;
use crate::support::{enter, kubeadm, rows, say};
use crate::trial;

const RECORD: &str = "/var/lib/nodevigil-helper/bootstrap.json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    let broken = BROKEN.iter().map(|broken| {
        let name = format!("bootstrap::broken_{}", broken.name);
        trial(&name, move || is_named(broken))
    });
    let mut tests = vec![
        trial("bootstrap::joins", a_node_that_joins_reaches_ready),
        trial(
            "bootstrap::terminal",
            terminal::a_table_is_drawn_over_itself,
        ),
        trial(
            "bootstrap::condition",
            condition::the_daemon_tells_it_once_and_for_all,
        ),
        trial(
            "bootstrap::late_stage_event",
            condition::a_late_stage_is_an_event_that_outlives_the_node,
        ),
    ];
    tests.extend(broken);
    tests
}

/// Runs the command: exit code and what it printed.
pub(crate) fn run(node: &Node, deadline: Duration) -> Result<(i32, String)> {
    let secs = deadline.as_secs();
    node.run(&format!("nodevigil bootstrap --deadline {secs}s"))
}

/// The record that it keeps.
pub(crate) fn record(node: &Node) -> Result<Value> {
    serde_json::from_str(&node.read(RECORD)?).context("reading the record")
}

/// What cannot be without what stands before it. The kubelet has its credential and even its Node before it answers, or after
/// it, as it comes.
const ORDER: [[&str; 2]; 5] = [
    ["cloud-init", "credential"],
    ["runtime", "ready"],
    ["kubelet", "ready"],
    ["credential", "registered"],
    ["registered", "ready"],
];

/// cloud-init and `kubeadm join` as in a cloud, with the command beside them from the boot on.
fn a_node_that_joins_reaches_ready() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let node = NodeBuilder::new(&plane, "way").joining().agent().boot()?;
    let (code, said) = run(&node, Duration::from_mins(2))?;
    say(&said);
    ensure!(code == 0, "{code}: {said}");
    ensure!(said.contains("this node is of use"), "{said}");
    for stage in ORDER.into_iter().flatten() {
        let line = format!(" {stage} reached: ");
        ensure!(said.contains(&line), "no line on {stage}: {said}");
    }
    let record = record(&node)?;
    ensure!(
        record["result"] == "bootstrapped" && record["by"] == "command",
        "{record:#}"
    );
    let reached = |stage: &str| {
        let stages = record["stages"].as_array();
        let row = stages.and_then(|rows| rows.iter().find(|row| row["stage"] == stage));
        row.and_then(|row| row["reached_millis"].as_u64())
    };
    for [before, after] in ORDER {
        let times = (reached(before), reached(after));
        let (Some(earlier), Some(later)) = times else {
            bail!("{before}, {after}: {record:#}");
        };
        ensure!(earlier <= later, "{before}, {after}: {record:#}");
    }
    // Run again, it says so at once.
    let (code, said) = run(&node, Duration::from_mins(1))?;
    ensure!(
        code == 0 && said.contains("this node is of use"),
        "{code}: {said}"
    );
    Ok(())
}

/// A way in which a node is broken, and what is to be said of it.
struct Broken {
    name: &'static str,
    what: &'static str,
    how: &'static str,
    build: fn(NodeBuilder, &ControlPlane) -> Result<NodeBuilder>,
    /// On the node, before its kubelet is started.
    commands: &'static str,
    stage: &'static str,
    cause: &'static str,
    /// What the cause must name besides.
    names: &'static str,
}

const INTENT: &str = "[intent]\ncloud_provider = \"external\"\n";
/// What a node bootstraps with, as `kubeadm join` leaves it.
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
/// The node has no certificate of its own yet.
const UNJOINED: &str = "rm /etc/kubernetes/kubelet.conf";

const BROKEN: &[Broken] = &[
    Broken {
        name: "flag",
        what: "flag lost",
        how: "--cloud-provider=external in a drop-in, which /etc/default/kubelet overrides",
        build: |node, _| {
            let drop_in = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";
            let text = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
            Ok(node
                .config("20-intent.toml", INTENT)
                .file(drop_in, text, 0o644))
        },
        commands: "",
        stage: "cloud-controller",
        cause: "CL001",
        names: "20-cloud.conf:2",
    },
    Broken {
        name: "socket",
        what: "wrong CRI socket",
        how: "containerRuntimeEndpoint names CRI-O's, and containerd runs",
        build: |node, _| Ok(node),
        commands: "sed -i s,containerd/containerd.sock,crio/crio.sock, /var/lib/kubelet/config.yaml",
        stage: "runtime",
        cause: "RT001",
        names: "/run/crio/crio.sock",
    },
    Broken {
        name: "runtime",
        what: "containerd down",
        how: "systemctl stop containerd",
        build: |node, _| Ok(node),
        commands: "systemctl stop containerd",
        stage: "runtime",
        cause: "runtime-unit",
        names: "containerd.service is ",
    },
    Broken {
        name: "token",
        what: "token expired",
        how: "the bootstrap token's expiration is past",
        build: |node, plane| {
            expired_token(plane)?;
            let token = bootstrap(plane.ca(), &plane.url(), EXPIRED);
            Ok(node.file(BOOTSTRAP, &token, 0o600))
        },
        commands: UNJOINED,
        stage: "credential",
        cause: "AU004",
        names: BOOTSTRAP,
    },
    Broken {
        name: "server",
        what: "API unreachable",
        how: "the server in the bootstrap kubeconfig is a port where nobody listens",
        build: |node, plane| {
            let server = format!("https://{}:1", enter::ADDRESS);
            Ok(node.file(
                BOOTSTRAP,
                &bootstrap(plane.ca(), &server, kubeadm::TOKEN),
                0o600,
            ))
        },
        commands: UNJOINED,
        stage: "credential",
        cause: "AU005",
        names: "cannot be reached",
    },
    Broken {
        name: "authority",
        what: "wrong CA",
        how: "the bootstrap kubeconfig believes another cluster's authority",
        build: |node, plane| {
            let other = Authority::new()?.pair.certificate;
            let text = bootstrap(&other, &plane.url(), kubeadm::TOKEN);
            Ok(node.file(BOOTSTRAP, &text, 0o600))
        },
        commands: UNJOINED,
        stage: "credential",
        cause: "AU005",
        names: "of another authority",
    },
    Broken {
        name: "tomorrow",
        what: "certificates that begin tomorrow",
        how: "the kubelet's client certificate is signed so",
        build: |node, plane| {
            let now = u64::try_from(jiff::Timestamp::now().as_second())?;
            let user = "system:node:broken-tomorrow";
            let when = (now + 86_400, now + 172_800);
            let pair = plane
                .authority()
                .sign_between(user, &["system:nodes"], when)?;
            let kubeconfig = plane.authority().kubeconfig_with(user, &pair, &plane.url());
            Ok(node.file(
                "/etc/kubernetes/kubelet.conf",
                &kubeconfig.to_string(),
                0o600,
            ))
        },
        commands: "",
        stage: "credential",
        cause: "KN008",
        names: "clock",
    },
    Broken {
        name: "swap",
        what: "swap on",
        how: "a /proc/swaps with an entry is mounted over the kernel's, failSwapOn is true",
        build: |node, _| {
            let swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2                               partition\t2097148\t\t0\t\t-2\n";
            Ok(node.file("/etc/swaps", swaps, 0o644))
        },
        commands: "mount --bind /etc/swaps /proc/swaps && sed -i 's/\"failSwapOn\":false/\"failSwapOn\":true/' /var/lib/kubelet/config.yaml",
        stage: "kubelet",
        cause: "KN001",
        names: "/dev/sda2",
    },
    Broken {
        name: "network",
        what: "no CNI",
        how: "/etc/cni/net.d is empty",
        build: |node, _| Ok(node),
        commands: "rm /etc/cni/net.d/*",
        stage: "network",
        cause: "NW001",
        names: "/etc/cni/net.d",
    },
    Broken {
        name: "cloud",
        what: "cloud controller that never initialises",
        how: "--cloud-provider=external in a cluster without one",
        build: |node, _| Ok(node.kubelet_argument("--cloud-provider=external")),
        commands: "",
        stage: "cloud-controller",
        cause: "CP005",
        names: "uninitialized",
    },
];

/// The node has that long; it is Ready within a few seconds where nothing is broken.
const DEADLINE: Duration = Duration::from_secs(30);

fn is_named(broken: &Broken) -> Result<()> {
    let plane = ControlPlane::shared()?;
    let builder = NodeBuilder::new(&plane, &format!("broken-{}", broken.name));
    let node = (broken.build)(builder.without_kubelet().agent(), &plane)?.boot()?;
    // containerd is started at the boot; what is broken is broken before the kubelet starts.
    node.sh("systemctl start containerd")?;
    if !broken.commands.is_empty() {
        node.sh(broken.commands)?;
    }
    node.sh("systemctl start --no-block kubelet")?;
    let (code, said) = run(&node, DEADLINE)?;
    say(&format!("{}:\n{said}", broken.what));
    let (_, log) = node.run("journalctl -n 8 --no-pager -o cat -u kubelet")?;
    ensure!(code == 1, "{code}: {said}\n{log}");
    let record = record(&node)?;
    ensure!(record["result"] == "late", "{record:#}");
    ensure!(record["stuck"] == broken.stage, "{said}\n{log}");
    ensure!(record["cause"][0] == broken.cause, "{said}\n{log}");
    let cause = record["cause"][1].as_str().unwrap_or_default();
    ensure!(cause.contains(broken.names), "{cause}");
    // Named in time: at four fifths already, and at the end.
    let stuck = format!("stuck at {}: ", broken.stage);
    let named = said.matches(&stuck).count();
    ensure!(named >= 2, "{named} times {stuck}: {said}");
    let line = format!("probable cause {}: {cause}", broken.cause);
    ensure!(said.contains(&line), "no line {line}: {said}");
    rows::line(
        "bootstrap",
        &[broken.what, broken.how, broken.stage, broken.cause],
    );
    Ok(())
}

const EXPIRED: &str = "expird.0123456789abcdef";

/// A token that was good until an hour ago.
fn expired_token(plane: &ControlPlane) -> Result<()> {
    let (id, secret) = EXPIRED.split_once('.').context("a token has a point")?;
    let hour_ago = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id,
            "token-secret": secret,
            "expiration": hour_ago.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    let path = "/api/v1/namespaces/kube-system/secrets";
    let (code, answer) = plane.request("POST", path, "application/json", &secret)?;
    ensure!(code == 201 || code == 409, "{code}: {answer}");
    Ok(())
}

fn bootstrap(authority: &str, server: &str, token: &str) -> String {
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "join",
        "contexts": [{"name": "join", "context": {"cluster": "join", "user": "join"}}],
        "clusters": [{"name": "join", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(authority),
        }}],
        "users": [{"name": "join", "user": {"token": token}}],
    });
    text.to_string()
}
