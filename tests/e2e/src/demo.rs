//! `make demo`: a flag that does not arrive, and a kubelet that is killed, OOM-killed and hung, compared with what the control plane's own
//! condition `Ready` shows meanwhile. tests/picture reads the table at the end.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::outer_pid;
use crate::disturbances::wait_until_not_young;
use crate::scene::{Condition, ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::{WAIT, say};

/// The flag is in a drop-in, as the guide of Hetzner's cloud controller manager says. systemd reads the file of the kubelet's package
/// later, which sets the same variable, so the kubelet does not get the flag.
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-hcloud.conf";
const WRONG: &str = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
const KUBELET: &str = "KubeletHealthy";
const READY: &str = "Ready";
const BOLD: &str = "1";
const GREEN: &str = "32";

struct Demo {
    one: Arc<ObservedNode>,
    two: Arc<ObservedNode>,
    rows: Vec<String>,
}

/// Plays it; ends at the first step that does not show what it should.
pub fn run() -> Result<ExitCode> {
    heading("A control plane and two nodes, with nodevigil (about 10 s)");
    let plane = Arc::new(ControlPlane::start().context("starting the control plane")?);
    say("  etcd, kube-apiserver and kube-controller-manager run");
    let scenes = ["node-1", "node-2"].map(|name| Scene::new(&plane, name));
    let boot = |scene: &Scene| {
        // kubeadm's package has RestartSec=10.
        let node = scene.healthy_with(|node| node.file(DROP_IN, WRONG).kubelet_unit("[Service]\nRestartSec=2\n"))?;
        say(&format!("  {} is Ready: systemd, containerd, the kubelet and nodevigil run on it", scene.node_name()));
        anyhow::Ok(node)
    };
    let (one, two) = (boot(&scenes[0])?, boot(&scenes[1])?);
    let mut demo = Demo { one, two, rows: Vec::new() };
    let (killed, crashed) = demo.killed()?;
    demo.lost_flag()?;
    demo.out_of_memory()?;
    demo.noticed(killed, &crashed)?;
    demo.hung()?;
    demo.recorded()?;
    heading("What the Nodes showed");
    say(&paint(BOLD, &row("KUBELET", "KUBELETHEALTHY, BY NODEVIGIL", "READY, BY THE CONTROL PLANE")));
    demo.rows.iter().for_each(|row| say(row));
    scenes.iter().try_for_each(Scene::end)?;
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    /// Returns when the kubelet was killed, and what the Node then showed.
    fn killed(&self) -> Result<(Instant, Condition)> {
        heading("node-2: the kubelet is killed, and systemd does not start it again (under 1 s)");
        self.two.disable_restart()?;
        let from = signal(&self.two, Signal::SIGKILL)?;
        let crashed = self.two.kubelet().wait_for(from, "False", "KubeletCrashed")?;
        shown(from, &crashed, KUBELET);
        shown(from, &self.two.condition(READY).shown()?, READY);
        say("  The control plane notices in about 50 s. Meanwhile, on node-1:");
        Ok((from, crashed))
    }

    fn lost_flag(&self) -> Result<()> {
        heading("node-1: a flag from Hetzner's guide never reaches the kubelet (about 1 s)");
        self.command(&format!("tail -n1 {DROP_IN}"), 0)?;
        let text = self.command("nodevigil check --intent=cloud-provider=external --select=SD001", 1)?;
        ensure!(text.contains("/etc/default/kubelet:1"), "check names another file");
        let fix = "nodevigil check --intent=cloud-provider=external --fix 2>/dev/null";
        self.command(&format!("{fix} | tee /run/fix.patch"), 0)?;
        self.command("patch -p1 -d / </run/fix.patch && systemctl restart kubelet", 0)?;
        self.one.wait_until_watched()?;
        self.command("tr '\\0' '\\n' </proc/$(pidof kubelet)/cmdline | grep cloud", 0)?;
        Ok(())
    }

    fn out_of_memory(&mut self) -> Result<()> {
        heading("node-1: the kubelet starts with a memory limit that is too small (about 5 s)");
        let from = self.restart_with_limit("8M")?;
        let killed = self.one.kubelet().wait_for(from, "False", "KubeletOOMKilled")?;
        shown(from, &killed, KUBELET);
        self.restart_with_limit("infinity")?;
        self.over(from, "OOM-killed", &killed)
    }

    fn hung(&mut self) -> Result<()> {
        heading("node-1: the kubelet hangs (about 10 s)");
        say("  waiting until node-1 is two minutes old: on a younger one, failed probes are part of its start");
        wait_until_not_young(&self.one);
        let from = signal(&self.one, Signal::SIGSTOP)?;
        let hung = self.one.kubelet().wait_for(from, "False", "KubeletHung")?;
        shown(from, &hung, KUBELET);
        self.command("nodevigil status", 1)?;
        signal(&self.one, Signal::SIGCONT)?;
        self.over(from, "hung", &hung)
    }

    /// What a person finds who comes later.
    fn recorded(&self) -> Result<()> {
        heading("node-1: what was recorded meanwhile (under 1 s)");
        self.command("nodevigil records", 0)?;
        self.command("nodevigil records show | head -n 24", 0).map(drop)
    }

    /// Waits until the kubelet is healthy again; `Ready` must not have changed.
    fn over(&mut self, from: Instant, what: &str, problem: &Condition) -> Result<()> {
        let healthy = self.one.kubelet().wait_for(problem.at, "True", "KubeletIsHealthy")?;
        shown(from, &healthy, KUBELET);
        self.one.condition(READY).ensure_only(from, &["True"])?;
        self.rows.push(row(what, &cells(from, problem), "True, unchanged"));
        Ok(())
    }

    /// Waits until the control plane has marked node-2, and repairs it.
    fn noticed(&mut self, from: Instant, crashed: &Condition) -> Result<()> {
        heading("node-2: the control plane notices (about 50 s after the kubelet was killed)");
        let two = Arc::clone(&self.two);
        let ready = two.condition(READY);
        let unknown = loop {
            match ready.wait_longer_for(from, Duration::from_secs(10), "Unknown", "NodeStatusUnknown") {
                Ok(unknown) => break unknown,
                Err(error) if from.elapsed() > WAIT => return Err(error),
                Err(_) => say(&format!("{:>7} s  Ready is still {}", from.elapsed().as_secs(), ready.shown()?.status)),
            }
        };
        shown(from, &unknown, READY);
        self.rows.insert(0, row("killed", &cells(from, crashed), &cells(from, &unknown)));
        say(&prompt("node-2", "systemctl start kubelet"));
        let started = Instant::now();
        two.sh("systemctl start kubelet")?;
        let again = ready.wait_for(started, "True", "KubeletReady")?;
        let healthy = two.kubelet().wait_for(started, "True", "KubeletIsHealthy")?;
        shown(started, &again, READY);
        shown(started, &healthy, KUBELET);
        self.rows.insert(1, row("started", &cells(started, &healthy), &cells(started, &again)));
        Ok(())
    }

    /// Returns when it was restarted.
    fn restart_with_limit(&self, limit: &str) -> Result<Instant> {
        let set = format!("systemctl set-property --runtime kubelet MemoryMax={limit}");
        self.command(&format!("{set} && systemctl daemon-reload"), 0)?;
        let from = Instant::now();
        self.command("systemctl restart kubelet", 0)?;
        Ok(from)
    }

    /// Runs a command on node-1 as on a terminal, and prints both; it must end with this code.
    fn command(&self, command: &str, code: i32) -> Result<String> {
        say(&prompt("node-1", command));
        let on_terminal = format!("script -qec \"$(cat <<'END'\n{command}\nEND\n)\" /dev/null");
        let how = if is_colored() { &on_terminal } else { command };
        let (ended, text) = self.one.run(&format!("export COLUMNS=96\n{how}"))?;
        text.lines().for_each(say);
        ensure!(ended == code, "it ended with {ended}");
        Ok(text)
    }
}

/// Sends a signal to a node's kubelet; returns when.
fn signal(node: &ObservedNode, signal: Signal) -> Result<Instant> {
    let inner = node.main_pid("kubelet")?;
    let pid = Pid::from_raw(outer_pid(node, inner)?);
    say(&prompt(node.name(), &format!("kill -s {} {inner}", signal.as_str().trim_start_matches("SIG"))));
    let from = Instant::now();
    kill(pid, signal)?;
    Ok(from)
}

/// Prints a condition as the Node had it.
fn shown(from: Instant, condition: &Condition, kind: &str) {
    let state = format!("{kind:14}  {:7}  {}", condition.status, condition.reason);
    say(&format!("  {:>7}  {}", after(from, condition), paint(color(condition), &state)));
    say(&format!("           {}", condition.message));
}

fn row(kubelet: &str, ours: &str, ready: &str) -> String {
    format!("  {kubelet:12} {ours:33}   {ready}")
}

fn cells(from: Instant, condition: &Condition) -> String {
    let cells = format!("{:7} {:17} {:>7}", condition.status, condition.reason, after(from, condition));
    paint(color(condition), &cells)
}

fn after(from: Instant, condition: &Condition) -> String {
    format!("{:.2} s", condition.at.saturating_duration_since(from).as_secs_f64())
}

fn heading(text: &str) {
    say(&format!("\n{}", paint(BOLD, &format!("== {text}"))));
}

fn prompt(node: &str, command: &str) -> String {
    format!("{} {}", paint(GREEN, &format!("{node}#")), paint(BOLD, command))
}

fn color(condition: &Condition) -> &'static str {
    match condition.status.as_str() {
        "True" => GREEN,
        "False" => "31", // red
        _ => "33",       // yellow
    }
}

fn paint(style: &str, text: &str) -> String {
    if is_colored() { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
}

fn is_colored() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
