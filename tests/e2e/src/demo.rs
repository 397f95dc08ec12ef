//! `make demo`: a node with a flag in the wrong file, and a kubelet that is killed, OOM-killed and hung, beside what the control
//! plane's own condition `Ready` shows meanwhile.

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    bench::outer_pid,
    scene::{Condition, ConditionView, ObservedNode, Scene},
    support::{control_plane::ControlPlane, say},
};

/// The flag is in a drop-in, as a cloud's manual says. systemd reads the file of the kubelet's package later, which sets the same
/// variable, so the kubelet does not get the flag.
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-hcloud.conf";
const WRONG: &str = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
const PACKAGED: &str = "/etc/default/kubelet";
const KUBELET: &str = "KubeletHealthy";
const READY: &str = "Ready";
/// The memory limit with which a kubelet is OOM-killed as it starts.
const LIMIT: &str = "8M";
/// A hang is published once the Node is two minutes old, and the control plane waits for 50 s.
const LONG: Duration = Duration::from_mins(4);

/// What was done to the kubelet, and what its Node showed.
struct Row {
    what: &'static str,
    ours: String,
    ready: String,
}

struct Demo {
    begun: Instant,
    node: Arc<ObservedNode>,
    rows: Vec<Row>,
}

/// Plays it; ends at the first step that does not show what it should.
pub fn run() -> Result<ExitCode> {
    let begun = Instant::now();
    heading("A control plane and a node");
    let plane = Arc::new(ControlPlane::start().context("starting the control plane")?);
    line(begun, "etcd, kube-apiserver and kube-controller-manager run");
    let scene = Scene::new(&plane, "node-1");
    let node = scene.ready_with(|node| {
        let intent = "[intent]\ncloud_provider = \"external\"\n";
        // kubeadm's package has RestartSec=10.
        let unit = "[Service]\nRestartSec=2\n";
        node.file(DROP_IN, WRONG).file("/etc/nodevigil/config.d/60-intent.toml", intent).kubelet_unit(unit)
    })?;
    line(begun, "node-1, with systemd, containerd and the kubelet, is Ready");
    let mut demo = Demo { begun, node, rows: Vec::new() };
    demo.lost_flag()?;
    demo.start()?;
    demo.killed()?;
    demo.out_of_memory()?;
    demo.hung()?;
    demo.summary();
    scene.end()?;
    line(begun, "the node is gone, and nothing of it is left on this machine");
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    fn lost_flag(&self) -> Result<()> {
        heading("A flag in the wrong file");
        self.line(&format!("{DROP_IN} sets KUBELET_EXTRA_ARGS=--cloud-provider=external"));
        self.line(&format!("expected: `nodevigil check` names {PACKAGED}, which replaces it, and exits with 1"));
        let (code, text) = self.node.run("COLUMNS=110 nodevigil check --severity=error")?;
        quote(&text);
        ensure!(
            code == 1 && text.contains(&format!("{PACKAGED}:1")),
            "check exited with {code} and names another file"
        );
        self.line("expected: the patch of `nodevigil check --fix` moves the flag there, and then `nodevigil check` exits with 0");
        let patch = self.node.sh("nodevigil check --fix --severity=error 2>/dev/null | tee /run/fix.patch")?;
        quote(&patch);
        self.node.sh("patch -p1 -d / </run/fix.patch && systemctl restart kubelet")?;
        let (code, text) = self.node.run("nodevigil check --severity=error")?;
        ensure!(code == 0, "check exited with {code}: {text}");
        self.line("the patch is applied and the kubelet restarted: `nodevigil check` exits with 0");
        Ok(())
    }

    fn start(&self) -> Result<()> {
        heading("The agent starts");
        let from = Instant::now();
        self.node.start_agent()?;
        let shown = self.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        self.shown(from, KUBELET, &shown);
        Ok(())
    }

    fn killed(&mut self) -> Result<()> {
        heading("kill -9 of the kubelet, which systemd restarts after two seconds");
        self.line("expected: KubeletHealthy=False KubeletCrashed within a fraction of a second; Ready stays True");
        let from = Instant::now();
        self.signal(Signal::SIGKILL)?;
        let shown = self.kubelet().wait_for(from, "False", "KubeletCrashed")?;
        self.over(from, "killed", &shown)
    }

    fn out_of_memory(&mut self) -> Result<()> {
        heading("The kubelet is restarted with a memory limit that is too small");
        self.line("expected: KubeletHealthy=False KubeletOOMKilled, with the limit; Ready stays True");
        let from = Instant::now();
        self.limit(LIMIT)?;
        let shown = self.kubelet().wait_for(from, "False", "KubeletOOMKilled")?;
        self.limit("infinity")?;
        self.over(from, "OOM-killed", &shown)
    }

    fn hung(&mut self) -> Result<()> {
        heading("The kubelet hangs (SIGSTOP)");
        self.line("expected: KubeletHealthy=False KubeletHung after three failed probes, but Unknown NodeJustStarted while the Node is");
        self.line("younger than two minutes; Ready=Unknown after 50 s, without a cause");
        let from = Instant::now();
        self.signal(Signal::SIGSTOP)?;
        let named = self
            .kubelet()
            .wait_until_shown(from, |shown| shown.message.contains("KubeletHung") || shown.reason == "KubeletHung")?;
        self.shown(from, KUBELET, &named);
        let ready = self.ready().wait_longer_for(from, LONG, "Unknown", "NodeStatusUnknown")?;
        self.shown(from, READY, &ready);
        let hung = self.kubelet().wait_longer_for(from, LONG, "False", "KubeletHung")?;
        self.shown(from, KUBELET, &hung);
        let ours = format!("{} {}, {}", named.status, named.reason, after(from, &named));
        self.rows.push(Row { what: "hung", ours, ready: format!("{}, {}", ready.status, after(from, &ready)) });
        let continued = Instant::now();
        self.signal(Signal::SIGCONT)?;
        let healthy = self.kubelet().wait_for(continued, "True", "KubeletIsHealthy")?;
        self.shown(continued, KUBELET, &healthy);
        Ok(())
    }

    /// Waits until the kubelet is healthy again; `Ready` must not have changed.
    fn over(&mut self, from: Instant, what: &'static str, shown: &Condition) -> Result<()> {
        self.shown(from, KUBELET, shown);
        let healthy = self.kubelet().wait_for(shown.at, "True", "KubeletIsHealthy")?;
        self.shown(from, KUBELET, &healthy);
        self.ready().ensure_only(from, &["True"])?;
        let ours = format!("{} {}, {}", shown.status, shown.reason, after(from, shown));
        self.rows.push(Row { what, ours, ready: "stays True".into() });
        Ok(())
    }

    fn summary(&self) {
        heading("All together");
        say(&format!("  {:12} {:48} Ready", "the kubelet", KUBELET));
        for row in &self.rows {
            say(&format!("  {:12} {:48} {}", row.what, row.ours, row.ready));
        }
    }

    fn limit(&self, limit: &str) -> Result<()> {
        let set = format!("systemctl set-property --runtime kubelet MemoryLimit={limit} MemoryMax={limit}");
        self.node.sh(&format!("{set}; systemctl reset-failed kubelet; systemctl restart kubelet || true"))?;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = outer_pid(&self.node, self.node.main_pid("kubelet")?)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    fn kubelet(&self) -> ConditionView<'_> {
        self.node.kubelet()
    }

    fn ready(&self) -> ConditionView<'_> {
        self.node.condition(READY)
    }

    fn line(&self, text: &str) {
        line(self.begun, text);
    }

    /// Prints a condition as the watch had it.
    fn shown(&self, from: Instant, kind: &str, shown: &Condition) {
        self.line(&format!("{} later: {kind}={} {}", after(from, shown), shown.status, shown.reason));
        quote(&shown.message);
    }
}

fn after(from: Instant, shown: &Condition) -> String {
    let passed = shown.at.saturating_duration_since(from);
    if passed < Duration::from_secs(10) {
        format!("{} ms", passed.as_millis())
    } else {
        format!("{} s", passed.as_secs())
    }
}

fn heading(text: &str) {
    say(&format!("\n== {text}"));
}

/// Prints a line with the seconds since the beginning.
fn line(begun: Instant, text: &str) {
    say(&format!("{:6.1} s  {text}", begun.elapsed().as_secs_f64()));
}

fn quote(text: &str) {
    for line in text.lines() {
        say(&format!("          | {line}"));
    }
}
