//! The helper as a way to root's files: what others than the kubelet try, on a real node, with the agent's own user in their hands.
//! None gets a byte. The same process, started properly as the kubelet, does: so the tests would see it.

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::Scene;
use crate::support::rows::row;
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("hostile::processes", namesakes_get_nothing),
        trial("hostile::folders", what_others_can_write_is_not_followed),
        trial("hostile::files", what_is_no_file_of_roots_is_not_opened),
    ]
}

/// What must not leave: a file of root's, 0600.
const CANARY: &str = "c4nary-of-root";
/// Waits for ever, whatever else its arguments say.
const WAITS: &str = "/opt/e/kubelet /opt/e/wait --kubeconfig=/opt/e/kc";
const PID_FILE: &str = "/etc/nodevigil/config.d/60-pid.toml";

/// A shell named `kubelet`, and a kubeconfig that names root's file.
const SET: &str = r"install -m 755 -d /opt/e && cp /bin/bash /opt/e/kubelet && mkfifo /opt/e/fifo
echo 'exec 3<>/opt/e/fifo; read _ <&3' >/opt/e/wait; chmod 755 /opt /opt/e /opt/e/*; chmod 666 /opt/e/fifo
umask 077; echo c4nary-of-root >/etc/canary; umask 022
cat >/opt/e/kc <<'END'
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: l, user: u}}]
clusters: [{name: l, cluster: {server: 'https://10.0.0.1:6443', certificate-authority: /etc/canary}}]
users: [{name: u, user: {tokenFile: /etc/canary}}]
END
systemctl stop kubelet";

fn scene(name: &str) -> Result<Scene> {
    let scene = Scene::healthy(name)?;
    scene.node.sh(SET)?;
    Ok(scene)
}

/// Asks the helper as the agent's user.
pub(crate) fn ask(scene: &Scene, request: &str) -> Result<Value> {
    let asked = format!(
        "setpriv --reuid=nodevigil --regid=nodevigil --clear-groups python3 - <<'END'
import socket
s = socket.socket(socket.AF_UNIX); s.connect('/run/nodevigil-helper.sock')
s.sendall(b'{request}\\n')
print(s.makefile().readline())
END"
    );
    let text = scene.node.sh(&asked)?;
    serde_json::from_str(text.trim()).with_context(|| text.clone())
}

/// Everything that a compromised agent could ask for, with the pid that an old helper took.
fn ensure_gets_nothing(scene: &Scene, who: &str, pid: &str) -> Result<()> {
    for verb in [
        "kubelet",
        "credential",
        "certificate",
        "storage",
        "bootstrap",
    ] {
        for with in [
            "",
            &format!(",\"pid\":{pid}"),
            &format!(",\"config\":{{\"pid\":{pid}}}"),
        ] {
            let answer = ask(scene, &format!(r#"{{"version":2,"verb":"{verb}"{with}}}"#))?;
            let text = answer.to_string();
            ensure!(!text.contains(CANARY), "{who}, {verb}: {text}");
            ensure!(!text.contains("/opt/e"), "{who}, {verb}: {text}");
            ensure!(answer["answer"]["pid"].is_null(), "{who}, {verb}: {text}");
        }
    }
    Ok(())
}

fn pid_of_namesake(scene: &Scene) -> Result<String> {
    let pids = scene.node.sh("pgrep -x kubelet")?;
    let mut pids = pids.split_whitespace();
    let pid = pids.next().context("no process was started")?.to_owned();
    ensure!(pids.next().is_none(), "more than one");
    Ok(pid)
}

fn namesakes_get_nothing() -> Result<()> {
    let systemd = "/sys/fs/cgroup/systemd";
    let in_group = |group: &str| {
        format!(
            "d={systemd}{group}; [ -d {systemd} ] || d=/sys/fs/cgroup{group}; mkdir -p $d; \
             (echo 0 >$d/cgroup.procs; exec setsid {WAITS}) >/dev/null 2>&1 </dev/null & sleep 0.3"
        )
    };
    let kinds = [
        (
            "a pod's process of uid 0",
            in_group("/kubepods/burstable/pod1/2"),
        ),
        (
            "a pod whose cgroup has the unit's name",
            in_group("/kubepods.slice/kubelet.service"),
        ),
        (
            "a user of the host",
            format!(
                "systemctl reset-failed mine 2>/dev/null; systemd-run -q --uid=nobody --slice=user.slice --unit=mine {WAITS}; sleep 0.3; systemctl is-active mine || {{ journalctl --sync; journalctl -q -o cat -u mine >&2; exit 1; }}"
            ),
        ),
        (
            "a setuid program at its prompt",
            format!(
                "(exec setsid systemd-run -q --scope --slice=user-1000.slice {WAITS}) >/dev/null 2>&1 </dev/null & sleep 0.5"
            ),
        ),
    ];
    scene("hostile-processes")?.play(|scene| {
        for by in ["the unit", "a pid file"] {
            for (who, start) in &kinds {
                scene.node.sh(start)?;
                let pid = pid_of_namesake(scene).with_context(|| (*who).to_owned())?;
                if by == "a pid file" {
                    // Stale: the kubelet wrote it, ended, and another has its pid by now.
                    scene.node.sh(&format!(
                        "echo {pid} >/run/stale.pid; printf '[kubelet]\\npid_file = \"/run/stale.pid\"\\n' >{PID_FILE}"
                    ))?;
                }
                ensure_gets_nothing(scene, &format!("{who}, found by {by}"), &pid)?;
                scene.node.sh(&format!(
                    "kill -9 {pid}; rm -f {PID_FILE}; while pgrep -x kubelet; do sleep 0.05; done"
                ))?;
            }
        }
        started_properly(scene, "755")?;
        let answer = ask(scene, r#"{"version":2,"verb":"credential"}"#)?;
        let token = answer["answer"]["access"]["token"].as_str();
        ensure!(token == Some(CANARY), "{answer}");
        row(
            "processes named `kubelet` that are not the kubelet",
            "a pod of uid 0, a pod's cgroup named like the unit, a user, a setuid program at its prompt; by unit and by a stale pid file",
            "no byte of what their kubeconfig names; the same process in the unit gets it",
            None,
        );
        Ok(())
    })
}

/// The same process as the kubelet's unit has it, its folder with that mode.
fn started_properly(scene: &Scene, mode: &str) -> Result<()> {
    scene.node.sh(&format!(
        "chmod {mode} /opt/e; mkdir -p /etc/systemd/system/kubelet.service.d
printf '[Service]\\nExecStart=\\nExecStart={WAITS}\\n' >/etc/systemd/system/kubelet.service.d/99-mine.conf
systemctl daemon-reload; systemctl restart kubelet; sleep 0.5"
    ))?;
    Ok(())
}

fn what_others_can_write_is_not_followed() -> Result<()> {
    scene("hostile-folders")?.play(|scene| {
        let credential = || ask(scene, r#"{"version":2,"verb":"credential"}"#);
        for (mode, refused) in [("777", true), ("775", true), ("755", false)] {
            started_properly(scene, mode)?;
            let answer = credential()?.to_string();
            ensure!(answer.contains(CANARY) != refused, "{mode}: {answer}");
            ensure!(!refused || answer.contains("/opt/e"), "{mode}: {answer}");
        }
        // On the way to a file that is named, too, and where a link leads.
        scene.node.sh(
            "mkdir -m 777 /srv/open; mv /etc/canary /srv/open/; ln -s /srv/open/canary /etc/canary",
        )?;
        let answer = credential()?.to_string();
        ensure!(!answer.contains(CANARY) && answer.contains("/srv/open"), "{answer}");
        scene.node.sh("chmod 755 /srv/open")?;
        ensure!(credential()?.to_string().contains(CANARY), "root's alone again");
        // Nor does a unit path in the request lead the rules to root's files.
        let config = r#"{"version":2,"verb":"config","loaded":{"unit_path":["/srv/units"],"manager_environment":{"KUBELET_EXTRA_ARGS":"--config=/etc/canary"}}}"#;
        scene.node.sh(
            "mkdir -p /srv/units; printf '[Service]\\nEnvironmentFile=/etc/canary\\nExecStart=/usr/bin/kubelet\\n' >/srv/units/kubelet.service",
        )?;
        let answer = ask(scene, config)?.to_string();
        ensure!(!answer.contains(CANARY) && !answer.contains("/srv/units"), "{answer}");
        row(
            "a kubeconfig, or a file that it names, below a folder that others can write",
            "mode 0777 and 0775, of the folder and behind a link; a unit path of the agent's",
            "refused, naming the folder; taken once it is root's alone",
            None,
        );
        Ok(())
    })
}

fn what_is_no_file_of_roots_is_not_opened() -> Result<()> {
    scene("hostile-files")?.play(|scene| {
        for (target, says) in [
            ("/opt/e/fifo", "no regular file"),
            ("/dev/zero", "no regular file"),
            ("/run/nodevigil-helper.sock", "no regular file"),
            ("/proc/1/root/etc/canary", "procfs"),
            ("/proc/1/environ", "procfs"),
        ] {
            scene.node.sh(&format!(
                "sed -i 's|tokenFile: [^}}]*|tokenFile: {target}|; s|, certificate-authority: /etc/canary||' /opt/e/kc"
            ))?;
            started_properly(scene, "755")?;
            let answer = ask(scene, r#"{"version":2,"verb":"credential"}"#)?.to_string();
            ensure!(
                answer.contains(says) && answer.contains("tokenFile") && !answer.contains(CANARY),
                "{target}: {answer}"
            );
        }
        row(
            "a kubeconfig that names what is no file of root's",
            "a FIFO, a device, a socket, `/proc/1/root/…`, `/proc/1/environ`",
            "refused at once, none is opened",
            None,
        );
        Ok(())
    })
}
