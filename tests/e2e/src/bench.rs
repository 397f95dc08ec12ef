//! What the agent costs and how fast it is, on one node, compared with node-problem-detector. `make bench` runs it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ExitCode, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use crate::peer;
use crate::scene::{ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::{WAIT, programs, say};

const KILLS: usize = 12;
const PATCHES: usize = 40;
const HANGS: usize = 3;
/// Below this age of the Node a hang is not shown as `False`.
const NODE_AGE: Duration = Duration::from_secs(125);

/// Measures, and prints a table. `idle` is the time for which CPU use and writes are counted.
pub fn run(idle: Duration) -> Result<ExitCode> {
    let plane = Arc::new(ControlPlane::start().context("starting the control plane")?);
    let scene = Scene::new(&plane, "bench");
    let package = peer::Package::new(&plane)?;
    let node = scene.healthy_with(|node| package.onto(node))?;
    package.start(&node, "")?;
    let created = Instant::now();
    let patches = patches(&plane, &node)?;
    let kills = kills(&node)?;
    sleep(NODE_AGE.saturating_sub(created.elapsed()));
    let hangs = hangs(&node)?;
    sleep(Duration::from_secs(10));
    let costs = costs(&node, idle)?;

    let binary = fs::metadata(programs::agent()?)?.len();
    say(&format!("\nnode-problem-detector and the agent on one node; idle for {} s\n", idle.as_secs()));
    row("bare PATCH -> watch", &patches);
    row("SIGKILL -> watch", &kills.iter().map(|kill| kill.from_signal).collect::<Vec<_>>());
    row("process end -> watch", &kills.iter().map(|kill| kill.from_end).collect::<Vec<_>>());
    let ratio = median(kills.iter().map(|kill| kill.from_end)) / median(patches.iter().copied());
    say(&format!("process end / bare PATCH, medians: {ratio:.2}"));
    say(&format!("kills reported: {} of {KILLS}", kills.len()));
    row("SIGSTOP -> watch", &hangs);
    for (name, cost) in ["nodevigil", "node-problem-detector"].iter().zip(&costs) {
        let per_hour = cost.cpu.as_secs_f64() * 3600.0 / idle.as_secs_f64();
        say(&format!("{name}: {per_hour:.2} CPU-s/h, {:.1} MiB resident", cost.resident_mib));
    }
    say(&format!("CPU, ratio: {:.2}", costs[0].cpu.as_secs_f64() / costs[1].cpu.as_secs_f64()));
    let writes = costs[0].writes * 3600.0 / idle.as_secs_f64();
    say(&format!("nodevigil: {writes:.0} writes an hour, binary {:.1} MB", f64::from(u32::try_from(binary)?) / 1e6));
    scene.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the minimum, median and maximum of times.
fn row(name: &str, times: &[Duration]) {
    let ms = |time: Option<&Duration>| time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
    let (least, most) = (ms(times.iter().min()), ms(times.iter().max()));
    let median = median(times.iter().copied()) * 1e3;
    say(&format!("{name}: p50 {median:.1} ms, min {least:.1}, max {most:.1}, n={}", times.len()));
}

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
}

/// Server-side applies of one condition, from the write to the socket until a watch has it. They go through `kubectl proxy`, which
/// adds about a millisecond.
fn patches(plane: &ControlPlane, node: &ObservedNode) -> Result<Vec<Duration>> {
    let (mut proxy, address) = proxy(plane)?;
    let measure = |number: usize| -> Result<Duration> {
        let message = format!("number {number}");
        let condition = json!({"type": "Bench", "status": "True", "reason": "Bench", "message": message});
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name()},
            "status": {"conditions": [condition]}})
        .to_string();
        let request = format!(
            "PATCH /api/v1/nodes/{}/status?fieldManager=bench&force=true HTTP/1.1\r\nHost: {address}\r\n\
             Content-Type: application/apply-patch+yaml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            node.name(),
            body.len()
        );
        let mut stream = TcpStream::connect(&address)?;
        let from = Instant::now();
        stream.write_all(request.as_bytes())?;
        let at = node.wait_for_message(from, "Bench", &message)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        Ok(at - from)
    };
    let times = (0..PATCHES).map(measure).collect();
    proxy.kill()?;
    proxy.wait()?;
    times
}

fn proxy(plane: &ControlPlane) -> Result<(Child, String)> {
    let mut command = plane.kubectl_command()?;
    // By default it rejects some requests.
    command.args(["proxy", "--port=0", "--reject-methods=^$"]).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
    let address = line.trim().rsplit(' ').next().context("an address")?.to_owned();
    Ok((child, address))
}

/// A kill that was reported.
struct Kill {
    from_signal: Duration,
    from_end: Duration,
}

/// Kills the kubelet again and again; systemd starts it after 100 ms.
fn kills(node: &ObservedNode) -> Result<Vec<Kill>> {
    let mut kills = Vec::new();
    for _ in 0..KILLS {
        let inner = node.main_pid("kubelet")?;
        let pid = outer_pid(node, inner)?;
        let pidfd = rustix::process::Pid::from_raw(pid).context("a pid")?;
        let pidfd = pidfd_open(pidfd, PidfdFlags::empty())?;
        let killed = Instant::now();
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        // Readable once all threads have ended and the memory is freed; no watcher can know before.
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None)?;
        let ended = Instant::now();
        let pid = format!("pid {inner} ");
        let shown =
            node.kubelet().wait_until_shown(killed, |shown| shown.status == "False" && shown.message.contains(&pid))?;
        kills.push(Kill { from_signal: shown.at - killed, from_end: shown.at.saturating_duration_since(ended) });
        node.kubelet().wait_for(shown.at, "True", "KubeletIsHealthy")?;
        // The next one is to be a node that has been healthy for a while; and the kubelet's own writes are over.
        sleep(Duration::from_secs(3));
    }
    Ok(kills)
}

fn hangs(node: &ObservedNode) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..HANGS {
        let pid = Pid::from_raw(outer_pid(node, node.main_pid("kubelet")?)?);
        let from = Instant::now();
        kill(pid, Signal::SIGSTOP)?;
        times.push(node.kubelet().wait_for(from, "False", "KubeletHung")?.at - from);
        let from = Instant::now();
        kill(pid, Signal::SIGCONT)?;
        node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        sleep(Duration::from_secs(5));
    }
    Ok(times)
}

/// What a side has used.
struct Cost {
    cpu: Duration,
    resident_mib: f64,
    /// Only of the agent, which counts them.
    writes: f64,
}

/// The agent's and node-problem-detector's.
fn costs(node: &ObservedNode, idle: Duration) -> Result<[Cost; 2]> {
    let read = || -> Result<[Cost; 2]> {
        let ours = cost(node, "nodevigil", writes(node)?)?;
        Ok([ours, cost(node, peer::UNIT, 0.0)?])
    };
    let before = read()?;
    sleep(idle);
    let mut after = read()?;
    for (after, before) in after.iter_mut().zip(before) {
        (after.cpu, after.writes) = (after.cpu.saturating_sub(before.cpu), after.writes - before.writes);
    }
    Ok(after)
}

/// Of the unit's main process, its threads, and its children that have ended.
fn cost(node: &ObservedNode, unit: &str, writes: f64) -> Result<Cost> {
    let process = Process::new(outer_pid(node, node.main_pid(unit)?)?)?;
    let (stat, status) = (process.stat()?, process.status()?);
    let children = u64::try_from(stat.cutime + stat.cstime)?;
    let ticks = stat.utime + stat.stime + children;
    let cpu = Duration::from_millis(ticks * 1000 / procfs::ticks_per_second());
    let resident_mib = f64::from(u32::try_from(status.vmrss.context("no VmRSS")?)?) / 1024.0;
    Ok(Cost { cpu, resident_mib, writes })
}

/// The agent's requests that write, by its metrics.
fn writes(node: &ObservedNode) -> Result<f64> {
    let text = node.sh("curl -sS --fail http://127.0.0.1:20258/metrics")?;
    let is_write = |line: &&str| {
        line.starts_with("nodevigil_api_requests_total") && (line.contains("\"patch\"") || line.contains("\"create\""))
    };
    let counts = text.lines().filter(is_write).map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>());
    Ok(counts.collect::<Result<Vec<_>, _>>()?.iter().sum())
}

/// Our pid of a process of the node.
pub fn outer_pid(node: &ObservedNode, inner: u32) -> Result<i32> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let of_node = namespace(node.machine()?.pid1());
    for process in all_processes()?.flatten() {
        let pids = process.status().ok().and_then(|status| status.nspid).unwrap_or_default();
        let is_it = pids.last().is_some_and(|pid| u32::try_from(*pid) == Ok(inner));
        if is_it && namespace(process.pid()) == of_node {
            return Ok(process.pid());
        }
    }
    bail!("node {} has no process {inner}", node.name())
}

impl ObservedNode {
    /// Waits until a condition of that type has that message; returns when the watch had it.
    fn wait_for_message(&self, from: Instant, kind: &str, message: &str) -> Result<Instant> {
        self.watch().wait_since(from, WAIT, |at, node: &Value| {
            let conditions = node.pointer("/status/conditions")?.as_array()?;
            conditions.iter().any(|one| one["type"] == kind && one["message"] == message).then_some(at)
        })
    }
}
