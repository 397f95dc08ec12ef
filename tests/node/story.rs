//! The whole story of one node, told while it happens (`make story`): cloud-init installs the deb and joins, the kubelet is
//! checked, starts, is killed; nodevigil is upgraded, and goes.

#[path = "demo/paper.rs"]
mod paper;

use std::env;
use std::io::{IsTerminal as _, stdout};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::time::{ClockId, clock_gettime};

use self::paper::{Paper, took};
use crate::bootstrap::condition::initialise;
use crate::cleanup::{ensure_clean, node};
use crate::cloud_init::birth::{self, JOINED, UNINITIALIZED};
use crate::cloud_init::kubeadm::{EXTERNAL_CLOUD, PREFLIGHT};
use crate::cloud_init::mirror::Mirror;
use crate::packages::kit::{DEB, NEXT};
use crate::packages::{self, LOCAL};
use crate::scene::{AGENT, KUBELET, SHORT_SPELL, Scene, Told};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::wait_until;
use crate::trial;

const NAME: &str = "story-1";
/// Where dpkg keeps what is installed, and what it says there of our package.
const DPKG: &str = "/var/lib/dpkg/status";
const INSTALLED: &str = "Package: nodevigil\nStatus: install ok installed\n";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial("story::one_node", tell)]
}

fn tell() -> Result<()> {
    let has_no_color = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let paper = &mut Paper::new(Instant::now(), stdout().is_terminal() && !has_no_color);
    let scene = born(paper)?;
    let story = installed(&scene, paper)
        .and_then(|()| joined(&scene, paper))
        .and_then(|()| of_use(&scene, paper))
        .and_then(|()| killed(&scene, paper))
        .and_then(|()| upgraded(&scene, paper))
        .and_then(|()| gone(&scene, paper));
    if let Err(error) = &story {
        paper.failure(&format!("{error:#}"));
    }
    story.with_context(|| birth::log(&scene.node))?;
    paper.heading("All together");
    paper.table(["what happens", "what is seen", "after"]);
    Ok(())
}

/// A cluster, and a machine with nothing on it but user data.
fn born(paper: &Paper) -> Result<Scene> {
    paper.heading("A cluster, and an empty machine");
    let plane = ControlPlane::shared()?;
    let (_, version) = plane.get("/version")?;
    let version = version["gitVersion"].as_str().unwrap_or_default();
    paper.line(&format!(
        "etcd, kube-apiserver and kube-controller-manager {version} are up, after {}",
        took(plane.took())
    ));
    paper.line(&format!("the deb is at {}", Mirror::open()?.first()?.url));
    let watch = plane.watch_node(NAME)?;
    let user_data = birth::filled(&plane, EXTERNAL_CLOUD)?;
    let node = birth::machine(&plane, NAME, &user_data)
        .file(LOCAL, SHORT_SPELL, 0o644)
        .restart_sec(Duration::from_secs(1))
        .boot()?;
    let systemd = node.sh("systemctl --version | head -n 1")?;
    paper.line_at(
        node.started(),
        &format!(
            "{NAME} boots with {}; its user data is cloud-init/kubeadm-external-cloud.yaml",
            systemd.trim()
        ),
    );
    paper.detail("to keep this short: [kubelet] healthy_for_secs = 1 (default 60), RestartSec=1 of kubelet.service (kubeadm's: 10)");
    Ok(Scene {
        plane: Arc::clone(&plane),
        node,
        watch,
    })
}

/// cloud-init has installed the deb, which has started nothing.
fn installed(scene: &Scene, paper: &mut Paper) -> Result<()> {
    paper.heading("cloud-init installs the deb, and runs kubeadm join");
    let node = &scene.node;
    wait_until("the deb to be installed", JOINED, || {
        let status = node.read(DPKG).unwrap_or_default();
        Ok(status.contains(INSTALLED).then_some(()))
    })?;
    let at = Instant::now();
    paper.line_at(at, "apt-get has installed it, which starts nothing");
    let after = took(at - node.started());
    paper.row("boot", "the deb is installed".to_owned(), after);
    Ok(())
}

/// The preflight has passed, the kubelet has started, the Node is born as it should be.
fn joined(scene: &Scene, paper: &mut Paper) -> Result<()> {
    let node = &scene.node;
    node.wait_ready(JOINED)?;
    let (born, _) = scene
        .watch
        .wait_for(JOINED, |event| event["type"] == "ADDED")?;
    let (ready, _) = scene.watch.wait_for(JOINED, |event| {
        condition_status(event, "Ready") == Some("True")
    })?;
    ensure!(
        birth::was_born_with_taint(&scene.watch)?,
        "the Node was not born with {UNINITIALIZED}"
    );
    let status = node.sh(&format!(
        "systemctl show --value -p ExecMainStatus {PREFLIGHT}"
    ))?;
    ensure!(status == "0\n", "the preflight ended with {status}");
    let checked = at(birth::moment(
        node,
        PREFLIGHT,
        "ExecMainExitTimestampMonotonic",
    )?)?;
    let started = at(birth::moment(
        node,
        KUBELET,
        "ExecMainStartTimestampMonotonic",
    )?)?;
    ensure!(
        checked <= started,
        "the kubelet started before it was checked"
    );
    let words = node.sh(&format!(
        "journalctl --no-pager -o cat -t nodevigil -u {PREFLIGHT} | tail -n 2"
    ))?;
    paper.line_at(
        checked,
        "the preflight passes (exit code 0), before the kubelet starts; its last lines on the console:",
    );
    paper.detail(&words);
    paper.line_at(started, "kubeadm join starts the kubelet");
    paper.line_at(
        born,
        &format!("the Node is born with {UNINITIALIZED}: --cloud-provider=external has arrived"),
    );
    paper.line_at(ready, "Ready=True");
    let since = |at: Instant| took(at.saturating_duration_since(node.started()));
    paper.row("", "the preflight passes".to_owned(), since(checked));
    paper.row(
        "",
        "the Node is born, with the taint".to_owned(),
        since(born),
    );
    paper.row("", "Ready=True".to_owned(), since(ready));
    Ok(())
}

/// The cloud controller has done its part, and the node is of use: the whole way is on the console.
fn of_use(scene: &Scene, paper: &mut Paper) -> Result<()> {
    let node = &scene.node;
    let healthy = scene.wait_for(node.started(), "True", "KubeletIsHealthy")?;
    said(
        paper,
        &healthy,
        "the agent has been started, with the kubelet's identity",
    );
    let moment = |unit| birth::moment(node, unit, "ExecMainStartTimestampMonotonic");
    ensure!(
        moment(KUBELET)? < moment(AGENT)?,
        "the agent was started before anybody had asked for it"
    );
    paper.heading("The way to a node that is of use");
    birth::on_console(node, "nodevigil bootstrap: waits")?;
    initialise(&scene.plane, NAME)?;
    paper.line("a cloud controller (this program in its place) sets spec.providerID and takes the taint away");
    let console = birth::on_console(node, "this node is of use")?;
    let at = Instant::now();
    paper.line_at(
        at,
        "nodevigil bootstrap, begun before kubeadm join, ends (exit code 0); on the console:",
    );
    for line in console.lines() {
        if let Some((_, line)) = line.split_once("nodevigil bootstrap:") {
            paper.detail(line.trim_end());
        }
    }
    ensure!(!console.contains("error["), "the preflight complained");
    paper.row(
        "",
        "the node is of use".to_owned(),
        took(at - node.started()),
    );
    Ok(())
}

fn killed(scene: &Scene, paper: &mut Paper) -> Result<()> {
    paper.heading("The kubelet is killed");
    let death = scene.kill_kubelet()?;
    paper.line_at(
        death.killed,
        &format!("SIGKILL to the kubelet, pid {}", death.pid),
    );
    let told = scene.wait_for(death.killed, "False", "KubeletCrashed")?;
    let after = took(told.at - death.killed);
    said(paper, &told, &format!("{after} after the SIGKILL"));
    let ready = scene.node.condition_status("Ready")?;
    paper.detail(&format!("Ready={} still", ready.unwrap_or_default()));
    paper.row("SIGKILL", words(&told), after);
    let well = scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
    let after = took(well.at - death.killed);
    said(
        paper,
        &well,
        &format!("{after} after the SIGKILL: systemd has started it anew"),
    );
    paper.row("", words(&well), after);
    Ok(())
}

fn upgraded(scene: &Scene, paper: &mut Paper) -> Result<()> {
    paper.heading("The package is upgraded");
    let next = Mirror::open()?.next()?;
    let command = format!(
        "curl -fsSL -o /run/next.deb {} && apt-get install -y /run/next.deb",
        next.url
    );
    let (before, agent) = (scene.now()?, scene.node.main_pid(AGENT)?);
    paper.line(&command);
    let spent = packages::upgrade(scene, &command, &DEB)?;
    let now = scene.now()?;
    ensure!(
        (&now.status, &now.since) == (&before.status, &before.since),
        "{now:?}"
    );
    paper.line(&format!(
        "{NEXT} is installed, after {}; the agent was pid {agent} and is pid {}",
        took(spent),
        scene.node.main_pid(AGENT)?
    ));
    paper.detail(&format!(
        "KubeletHealthy={} since {}, as before: no condition flipped",
        now.status, now.since
    ));
    paper.row(
        "apt-get install, the next version",
        "no condition flips".to_owned(),
        took(spent),
    );
    Ok(())
}

fn gone(scene: &Scene, paper: &mut Paper) -> Result<()> {
    paper.heading("The package is removed");
    let began = Instant::now();
    let output = scene.node.sh("apt-get purge -y nodevigil")?;
    let spent = began.elapsed();
    paper.line_at(began, "apt-get purge nodevigil");
    let removed = output
        .lines()
        .find(|line| line.contains("removed the conditions"));
    paper.line(removed.with_context(|| output.clone())?);
    ensure_clean(&node(scene)?)?;
    let (_, processes) = scene.node.run("pgrep --list-full --exact nodevigil")?;
    ensure!(processes.is_empty(), "{processes}");
    let left = scene
        .node
        .sh("ls -d /etc/nodevigil /var/lib/nodevigil* /usr/*/nodevigil 2>/dev/null; true")?;
    ensure!(left.is_empty(), "left: {left}");
    paper.detail("no condition, annotation, taint or managed field of nodevigil's is on the Node; no process and no file on the machine but the drop-ins of the user data");
    paper.row("apt-get purge", "the Node is clean".to_owned(), took(spent));
    // The drop-ins wish for a check that is not there any more.
    let from = Instant::now();
    scene.node.sh("systemctl restart kubelet")?;
    scene.watch.wait_since(from, JOINED, |event| {
        condition_status(event, "Ready") == Some("True")
    })?;
    paper.line("the kubelet restarts without it, and is Ready");
    Ok(())
}

fn said(paper: &Paper, told: &Told, when: &str) {
    paper.line_at(told.at, &format!("watch: {}, {when}", words(told)));
    paper.detail(&format!("\"{}\"", told.message));
}

fn words(told: &Told) -> String {
    format!("KubeletHealthy={} {}", told.status, told.reason)
}

/// The moment of a time stamp of systemd's.
fn at(micros: u64) -> Result<Instant> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    let ago = now.saturating_sub(Duration::from_micros(micros));
    Instant::now()
        .checked_sub(ago)
        .context("a moment of this boot")
}
