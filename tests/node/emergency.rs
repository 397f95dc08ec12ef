//! The way of an emergency to the Node, and what is kept ready for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use libtest_mimic::Trial;
use serde_json::json;

use crate::memory_kill;
use crate::scene::{AGENT, LEASES, OURS, SOON, Scene};
use crate::standing::{MERGE, request};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::kmsg::Listener;
use crate::support::lone_agent::LoneAgent;
use crate::support::syscalls::{Call, Tracer};
use crate::support::{say, wait_until};
use crate::trial;

/// Another than those of the failures of the API.
const NUMBER: u8 = 201;
/// Longer than any HTTP client keeps a connection on which it sends nothing.
const IDLE: Duration = Duration::from_secs(95);

/// As a kubelet renews its Lease.
const RENEWAL: Duration = Duration::from_secs(10);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial(
            "emergency::kept_connection",
            after_an_idle_time_the_connection_is_there,
        ),
        trial(
            "emergency::traced",
            nothing_stands_between_the_kernels_word_and_the_apply,
        ),
        trial(
            "emergency::large_node",
            a_large_node_takes_no_memory_each_time_it_changes,
        ),
    ]
}

/// Between two heartbeats nothing is sent for minutes: the connection must be open all the same.
fn after_an_idle_time_the_connection_is_there() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let from = Instant::now();
    let mut agent = LoneAgent::start(&plane, "emergency-kept", NUMBER)?;
    let well = |event: &_| condition_status(event, OURS) == Some("True");
    let first = agent.watch.wait_since(from, SOON, well);
    first.with_context(|| agent.tail())?;
    let asked = || agent.proxy.traffic().requests.into_iter().map(|one| one.at);
    let mut renewed = None::<Instant>;
    wait_until("an idle time", 3 * IDLE, || {
        // Of a Node whose Lease nobody renews the API server says `Ready=Unknown`, and the agent looks after it each minute.
        if renewed.is_none_or(|at| at.elapsed() > RENEWAL) {
            renew_lease(&plane, "emergency-kept")?;
            renewed = Some(Instant::now());
        }
        Ok(asked().all(|at| at.elapsed() > IDLE).then_some(()))
    })
    .with_context(|| format!("{:?}", agent.proxy.traffic().requests))?;
    let before = agent.proxy.traffic();
    let gone = agent.kill_kubelet()?;
    let bad = |event: &_| condition_status(event, OURS) == Some("False");
    agent.watch.wait_since(gone, SOON, bad)?;
    let after = agent.proxy.traffic();
    let applies = after.requests.iter().filter(|one| one.at > gone);
    let on: Vec<usize> = applies.map(|one| one.connection).collect();
    ensure!(
        after.connections.len() == before.connections.len() && !on.is_empty(),
        "{} connections before, {} after; the requests went on {on:?}",
        before.connections.len(),
        after.connections.len()
    );
    Ok(())
}

/// Renews a Node's Lease in the place of its kubelet, and makes it first if there is none.
fn renew_lease(plane: &ControlPlane, node: &str) -> Result<()> {
    let path = format!("{LEASES}/{node}?fieldManager=kubelet&force=true");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": 40,
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    });
    let (code, answer) = plane.request("PATCH", &path, "application/apply-patch+yaml", &lease)?;
    ensure!(
        code == 200 || code == 201,
        "renewing the Lease of {node}: {code}: {answer}"
    );
    Ok(())
}

/// What the loop's thread may ask for between the kernel's word and the apply: what it is told, its timers and wake-ups; and
/// what it closes of a connection to the helper that ends just then. No memory: a host that has run out of it lets whoever asks wait.
const ALLOWED: &[&str] = &[
    "read",
    "readv",
    "recvfrom",
    "recvmsg",
    "epoll_wait",
    "epoll_pwait",
    "epoll_ctl",
    "futex",
    "sched_yield",
    "timerfd_settime",
    "clock_gettime",
    "close",
    "fcntl",
    "getrandom",
    "getpid",
];
/// What no other thread may ask for meanwhile. (The journal's writes to the journal: nobody waits for it.)
const FORBIDDEN: &[&str] = &[
    "fork",
    "vfork",
    "clone",
    "clone3",
    "execve",
    "execveat",
    "socket",
    "connect",
    "creat",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
];
/// What sends or writes.
const SENDS: &[&str] = &["write", "writev", "sendto", "sendmsg"];
/// A ping of HTTP/2 and a request's head are shorter; the complete set of conditions is longer.
const APPLY_BYTES: i64 = 1000;
/// After a kubelet's start the helper is asked about it and reads its configuration: that is none of this way.
const CALM: Duration = Duration::from_secs(2);
/// So many kills are traced.
const TRACED: usize = 5;

/// From the kernel's line to the apply, by the order of the calls of every thread.
fn nothing_stands_between_the_kernels_word_and_the_apply() -> Result<()> {
    let scene = Scene::healthy_with("emergency-traced", |node| {
        node.config("60-spell.toml", memory_kill::AT_ONCE)
    })?;
    scene.play(|scene| {
        let kernel = Listener::start()?;
        for number in 1..=TRACED {
            std::thread::sleep(CALM);
            let agent = scene.node.unit_pid(AGENT)?;
            let faults = major_faults(agent)?;
            let output = std::env::temp_dir().join(format!("emergency-traced-{number}"));
            let tracer = Tracer::start(agent, output.clone())?;
            memory_kill::kill(scene, &kernel)?;
            let calls = tracer.calls()?;
            let between = between(&calls)?;
            let took = between.last().map_or(0.0, |last| last.at - between[0].at);
            std::fs::remove_file(&output).ok();
            say(&format!(
                "kill {number}: {} calls from the kernel's line to the apply, {:.1} ms with strace beside",
                between.len(),
                took * 1000.0
            ));
            judge(&between, agent).with_context(|| shown(&between))?;
            let faulted = major_faults(agent)? - faults;
            ensure!(faulted == 0, "{faulted} pages came from a disk meanwhile");
        }
        Ok(())
    })
}

/// What asks the kernel for memory, or gives it back.
const MEMORY: &[&str] = &["mmap", "munmap", "mremap", "madvise", "brk"];
/// As much as fifty images of a Node, each with two names.
const LARGE_BYTES: i64 = 20 * 1024;
/// When it has changed so often, the agent knows how large it is.
const CHANGES: u8 = 10;

/// A page that is mapped for an answer or an event is waited for where the host has none, by the loop, whatever it does next.
fn a_large_node_takes_no_memory_each_time_it_changes() -> Result<()> {
    Scene::healthy("emergency-large")?.play(|scene| {
        let write = |name: &str, value: &str| -> Result<()> {
            let path = format!("/api/v1/nodes/{}", scene.node.name());
            let body = json!({"metadata": {"annotations": {name: value}}});
            request(scene, "PATCH", &path, MERGE, &body)?;
            std::thread::sleep(Duration::from_millis(200));
            Ok(())
        };
        let change =
            || (0..CHANGES).try_for_each(|number| write("test/small", &number.to_string()));
        write(
            "test/large",
            &"0123456789".repeat(usize::try_from(LARGE_BYTES / 10)?),
        )?;
        change()?;
        let agent = scene.node.unit_pid(AGENT)?;
        let output = std::env::temp_dir().join("emergency-large");
        let tracer = Tracer::start(agent, output.clone())?;
        write("test/small", "first")?;
        change()?;
        let calls = tracer.calls()?;
        std::fs::remove_file(&output).ok();
        let of_loop = || calls.iter().filter(|call| call.thread == agent);
        let is_tcp =
            |call: &&Call| call.rest.contains("<TCP") && !SENDS.contains(&call.name.as_str());
        let bytes: i64 = of_loop()
            .filter(is_tcp)
            .filter_map(Call::result)
            .map(|bytes| bytes.max(0))
            .sum();
        let is_asked = |call: &&Call| MEMORY.contains(&call.name.as_str());
        let asked: Vec<Call> = of_loop().filter(is_asked).cloned().collect();
        say(&format!(
            "{CHANGES} changes of a large Node: {bytes} bytes were read, {} calls for memory",
            asked.len()
        ));
        ensure!(
            bytes >= i64::from(CHANGES) * LARGE_BYTES,
            "the agent has not read them"
        );
        // Now and then it writes its status, or hears from the helper.
        ensure!(asked.len() < usize::from(CHANGES), "{}", shown(&asked));
        Ok(())
    })
}

/// The calls from the one that read the kernel's line to the one that sent the apply, both included.
fn between(calls: &[Call]) -> Result<Vec<Call>> {
    let is_line = |call: &Call| call.name == "read" && call.rest.contains(",task=kubelet,pid=");
    let first = calls.iter().position(is_line);
    let first = first.context("the kernel's line was not read")?;
    let is_apply = |call: &Call| {
        SENDS.contains(&call.name.as_str())
            && call.rest.contains("<TCP")
            && call.result().is_some_and(|sent| sent >= APPLY_BYTES)
    };
    let length = calls[first..].iter().position(is_apply);
    let length = length.with_context(|| format!("nothing was sent: {}", shown(&calls[first..])))?;
    Ok(calls[first..=first + length].to_vec())
}

fn judge(between: &[Call], agent: i32) -> Result<()> {
    let (apply, before) = between.split_last().context("a call")?;
    ensure!(apply.thread == agent, "another thread sends: {apply:?}");
    for call in before {
        let name = call.name.as_str();
        if call.thread == agent {
            // A wake-up of its own, or the head of the very request.
            let is_ours =
                call.rest.contains("<anon_inode:[eventfd]>") || call.rest.contains("<TCP");
            // Whether the kubelet dies, from its row, which is kept open.
            let is_look = name == "pread64" && call.rest.contains("/stat>");
            let is_allowed =
                is_look || ALLOWED.contains(&name) || (SENDS.contains(&name) && is_ours);
            ensure!(is_allowed, "the loop's thread: {call:?}");
        } else {
            let makes = FORBIDDEN.contains(&name) || call.rest.contains("O_CREAT");
            ensure!(!makes, "another thread: {call:?}");
        }
    }
    // What the kernel says besides waits until the apply is on its way.
    let is_killed = |call: &Call| call.rest.contains("Killed process");
    let killed = before
        .iter()
        .position(is_killed)
        .context("the line of the dead")?;
    let more = before[killed + 1..].iter().find(|call| {
        call.name == "read" && call.rest.contains("/dev/kmsg") && !call.rest.contains("EAGAIN")
    });
    ensure!(
        more.is_none(),
        "the log is read on before the apply is sent: {more:?}"
    );
    Ok(())
}

fn shown(calls: &[Call]) -> String {
    let from = calls.first().map_or(0.0, |call| call.at);
    let line = |call: &Call| {
        let rest: String = call.rest.chars().take(160).collect();
        format!(
            "{:7.1} ms, thread {}: {}({rest}",
            (call.at - from) * 1000.0,
            call.thread,
            call.name
        )
    };
    calls
        .iter()
        .take(200)
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Pages that had to come from a disk, of all threads of the process.
fn major_faults(pid: i32) -> Result<u64> {
    let stat = procfs::process::Process::new(pid)?.stat()?;
    Ok(stat.majflt)
}
