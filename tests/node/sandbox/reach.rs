//! What uid 0 without a capability comes to from inside the sandboxes of helper and runner of exec plugins: each thing is tried
//! there, and outside, where it must succeed, for else nothing would have been shown.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::identity::{PLUGIN, with_plugin};
use crate::scene::{SOON, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::rows::row;
use crate::support::wait_until;

/// Something that is tried, as a shell command that succeeds if it can be done.
struct Try {
    what: &'static str,
    command: &'static str,
    helper: bool,
    plugin: bool,
}

const fn neither(what: &'static str, command: &'static str) -> Try {
    Try {
        what,
        command,
        helper: false,
        plugin: false,
    }
}

const TRIES: &[Try] = &[
    neither("the system bus", "reach /run/dbus/system_bus_socket"),
    neither("systemd's private socket", "reach /run/systemd/private"),
    neither(
        "have systemd start a unit",
        "timeout 5 systemctl start tried.service",
    ),
    neither("the bus of root's own systemd", "reach /run/user/0/bus"),
    neither("Docker", "reach /run/docker.sock"),
    neither("snapd", "reach /run/snapd.socket"),
    neither("the old door of init", "test -w /run/initctl"),
    neither("signal PID 1", "kill -0 1"),
    neither("signal a process of root's", "kill -0 $VICTIM"),
    neither(
        "write to a process without capabilities",
        "exec 3<>/proc/$VICTIM/mem",
    ),
    neither("write to /etc", "echo >/etc/tried"),
    neither("write to /run", "echo >/run/tried"),
    neither("write to /root", "echo >/root/tried"),
    neither(
        "write to the kubelet's folder",
        "echo >/var/lib/kubelet/tried",
    ),
    neither("mount", "mount -t tmpfs none /mnt"),
    neither("a namespace of its own", "unshare --mount true"),
    neither("another user's file", "cat /etc/anothers"),
    neither("/tmp", "ls /tmp"),
    Try {
        what: "root's file",
        command: "cat /etc/roots",
        helper: true,
        plugin: true,
    },
    Try {
        what: "the container runtime",
        command: "reach /run/containerd/containerd.sock",
        helper: true,
        plugin: false,
    },
    Try {
        what: "the network",
        command: "curl -sS -m 2 $HEALTHZ",
        helper: false,
        plugin: true,
    },
];

/// Exit code 7 of curl: nobody could be connected to.
const REACH: &str =
    "reach() { curl -s -m 1 --unix-socket \"$1\" http://localhost/ >/dev/null; test $? -ne 7; }";

/// Listens where a node of the tests has nobody, and is itself one of root's without capabilities.
const PREPARE: &str = "
umask 077; echo x >/etc/roots; echo x >/etc/anothers; chown nobody /etc/anothers
mkdir -p /run/user/0; mkfifo /run/initctl 2>/dev/null
cat >/run/listen.py <<'EOF'
import socket, time
kept = []
for path in ['/run/user/0/bus', '/run/docker.sock', '/run/snapd.socket']:
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind(path)
    kept[-1].listen(64)
time.sleep(600)
EOF
cat >/run/systemd/system/listeners.service <<'EOF'
[Service]
ExecStart=/usr/bin/python3 /run/listen.py
CapabilityBoundingSet=
EOF
cat >/run/systemd/system/tried.service <<'EOF'
[Service]
Type=oneshot
ExecStart=/bin/touch /run/systemd-obeyed
EOF
systemctl daemon-reload
systemctl start listeners nodevigil-plugin.socket
for i in $(seq 50); do test -S /run/snapd.socket && break; sleep 0.1; done";

pub(super) fn who_has_uid_0_comes_to_this_and_no_more() -> Result<()> {
    Scene::healthy("sandbox-reach")?.play(|scene| {
        scene.node.sh(PREPARE)?;
        let victim = scene.node.main_pid("listeners")?;
        let told = scene.now()?.message;
        let healthz = told.split(" at ").last().context("no address of healthz")?;
        let tries = TRIES.iter().enumerate().map(|(at, one)| {
            let command = one.command;
            format!("({command}) >/dev/null 2>&1 && echo {at} yes || echo {at} no\n")
        });
        let tries: String = tries.collect();
        let script = format!("{REACH}\nVICTIM={victim}\nHEALTHZ={healthz}\n{tries}");
        scene
            .node
            .sh(&format!("cat >/run/tries.sh <<'EOF'\n{script}EOF"))?;
        let helper = tried_as(scene, "nodevigil-helper.service")?;
        let plugin = tried_as(scene, "nodevigil-plugin.service")?;
        let (obeyed, _) = scene.node.run("test -e /run/systemd-obeyed")?;
        ensure!(obeyed != 0, "systemd did what it was asked for from inside");
        let outside = tried(&scene.node.sh("sh /run/tries.sh")?)?;
        let mut wrong = Vec::new();
        for (at, one) in TRIES.iter().enumerate() {
            for (who, can, may) in [
                ("helper", helper[at], one.helper),
                ("plugin", plugin[at], one.plugin),
                ("root outside", outside[at], true),
            ] {
                if can != may {
                    let can = if can { "can" } else { "cannot" };
                    wrong.push(format!("{who} {can}: {}", one.what));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        row(
            "uid 0 inside the sandboxes of helper and runner of exec plugins",
            &format!("{} things tried in each, and outside", TRIES.len()),
            "no bus, no systemd, no signal, no write; the runtime for the helper alone, the network for the runner alone",
            None,
        );
        Ok(())
    })
}

/// What can be done in the place of a unit's program.
fn tried_as(scene: &Scene, unit: &str) -> Result<Vec<bool>> {
    let path = format!("/usr/lib/systemd/system/{unit}");
    let shipped = scene.node.read(&path)?;
    let of_a_service = [
        "Type=",
        "ExecStart=",
        "Restart",
        "RuntimeMax",
        "Requires=",
        "Wants=",
        "After=",
    ];
    let kept = shipped
        .lines()
        .filter(|line| !of_a_service.iter().any(|word| line.starts_with(word)));
    let kept: Vec<&str> = kept.collect();
    let unit = format!(
        "{}\nType=oneshot\nExecStart=/bin/sh /run/tries.sh\nStandardOutput=truncate:/run/tries.txt\n",
        kept.join("\n")
    );
    scene.node.sh(&format!(
        "cat >/run/systemd/system/tries.service <<'EOF'\n{unit}EOF\nsystemctl daemon-reload; systemctl start tries"
    ))?;
    tried(&scene.node.read("/run/tries.txt")?)
}

fn tried(said: &str) -> Result<Vec<bool>> {
    let all = TRIES.iter().enumerate().map(|(at, one)| {
        let of_it = |word: &str| said.lines().any(|line| line == format!("{at} {word}"));
        match (of_it("yes"), of_it("no")) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => anyhow::bail!("{}: {said}", one.what),
        }
    });
    all.collect()
}

/// Anybody's question, for another file.
const ASKED: &str =
    "curl -s -m 15 --http0.9 --unix-socket /run/nodevigil-plugin.sock http://localhost/etc/shadow";

pub(super) fn the_runner_of_exec_plugins_takes_no_orders() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let name = "sandbox-plugin";
    let (kubeconfig, plugin) = with_plugin(&plane.agent_kubeconfig(name)?)?;
    let scene = Scene::booted(&plane, name, |node| node.file(PLUGIN, &plugin, 0o755))?;
    scene.play(|scene| {
        let file = "/etc/nodevigil/kubeconfig";
        scene
            .node
            .sh(&format!("cat >{file} <<'END'\n{kubeconfig}\nEND"))?;
        // The helper's start brings the socket up; it was neither enabled nor started by anybody.
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        let modes = "stat -c '%U:%G %a' /run/nodevigil-plugin.sock";
        let modes = scene.node.sh(modes)?;
        ensure!(modes.trim() == "root:root 600", "{modes}");
        let said = scene.node.sh(&format!("{ASKED} || true"))?;
        let source = format!(r#""source":"{file}""#);
        ensure!(said.contains(&source), "{said}");
        let as_agent = format!("runuser -u nodevigil -- {ASKED}");
        let (code, said) = scene.node.run(&as_agent)?;
        ensure!(code == 7 && said.is_empty(), "{code}: {said}");
        has_ended(scene)?;
        leaves_nothing_behind(scene, &plugin)?;
        is_ended_when_it_hangs(scene)?;
        row(
            "the runner of exec plugins",
            "asked by root for another file, by the agent's user; a plugin that leaves a process, one that hangs",
            "its own kubeconfig's answer; no connection; no process is left; an error after 10 s",
            None,
        );
        Ok(())
    })
}

/// One answer, and it is gone.
fn has_ended(scene: &Scene) -> Result<()> {
    wait_until("the end of the runner", SOON, || {
        let state = scene.property("nodevigil-plugin.service", "ActiveState")?;
        Ok((state == "inactive").then_some(()))
    })?;
    let (_, left) = scene
        .node
        .run("pgrep -fa '[n]odevigil plugin|[s]leep 4242'")?;
    ensure!(left.is_empty(), "left: {left}");
    Ok(())
}

fn leaves_nothing_behind(scene: &Scene, plugin: &str) -> Result<()> {
    let leaving = plugin.replacen("cat <<", "setsid sleep 4242 &\ncat <<", 1);
    ensure!(leaving != plugin, "{plugin}");
    scene
        .node
        .sh(&format!("cat >{PLUGIN} <<'PLUGIN'\n{leaving}PLUGIN"))?;
    let said = scene.node.sh(&format!("{ASKED} || true"))?;
    ensure!(said.contains("ExecCredential"), "{said}");
    has_ended(scene)
}

fn is_ended_when_it_hangs(scene: &Scene) -> Result<()> {
    scene
        .node
        .sh(&format!("printf '#!/bin/sh\\nsleep 4242\\n' >{PLUGIN}"))?;
    let began = Instant::now();
    let said = scene.node.sh(&format!("{ASKED} || true"))?;
    let took = began.elapsed();
    ensure!(said.contains("no answer within 10 s"), "{said}");
    let right = Duration::from_secs(9)..Duration::from_secs(14);
    ensure!(right.contains(&took), "after {took:?}");
    has_ended(scene)?;
    let socket = scene.property("nodevigil-plugin.socket", "ActiveState")?;
    ensure!(socket == "active", "{socket}");
    let said = "journalctl --sync; journalctl -q -o cat -u nodevigil-plugin | grep -q 'no answer within 10 s'";
    scene
        .node
        .sh(said)
        .context("nothing of it in the journal")?;
    Ok(())
}
