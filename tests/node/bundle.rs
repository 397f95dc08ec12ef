//! `nodevigil bundle` on a real node: what is in it, and that nothing of the node's own secrets is.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::scene::{HELPER, Scene};
use crate::support::{say, wait_until};
use crate::trial;

/// The promise, and a second for the process itself.
const ALWAYS: Duration = Duration::from_secs(61);
/// What the kubelet says in its journal; nothing but the word before it tells that it is secret.
const BEARER: &str = "heronofthebearer";
/// What stands in its environment.
const OPAQUE: &str = "badgeroftheenvironment";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("bundle::healthy", what_a_node_has_to_tell),
        trial("bundle::hang", a_helper_that_hangs_is_not_waited_for),
    ]
}

/// Makes a bundle and unpacks it; its folder, and how long it took.
fn bundle(scene: &Scene, user: &str) -> Result<(String, Duration)> {
    let folder = format!("/tmp/bundle-{user}");
    let begun = Instant::now();
    let (code, said) = scene.node.run(&format!(
        "rm -rf {folder}; install -d -o {user} -m 700 {folder}; runuser -u {user} -- nodevigil bundle --output {folder}/b.tar"
    ))?;
    let took = begun.elapsed();
    say(&said);
    ensure!(code == 0 && took < ALWAYS, "{code} after {took:?}: {said}");
    let mode = scene.node.sh(&format!("stat -c '%a %U' {folder}/b.tar"))?;
    ensure!(mode.trim() == format!("600 {user}"), "{mode}");
    scene.node.sh(&format!(
        "cd {folder}; tar --extract --strip-components=1 --file b.tar; rm b.tar"
    ))?;
    Ok((folder, took))
}

fn json(scene: &Scene, path: &str) -> Result<Value> {
    serde_json::from_str(&scene.node.read(path)?).with_context(|| path.to_owned())
}

fn row<'a>(manifest: &'a Value, name: &str) -> Result<&'a Value> {
    let mut rows = manifest["parts"].as_array().context("parts")?.iter();
    rows.find(|row| row["name"] == name)
        .with_context(|| format!("no {name}: {manifest:#}"))
}

fn what_a_node_has_to_tell() -> Result<()> {
    Scene::healthy("bundle")?.play(|scene| {
        let node = &scene.node;
        // The real secrets of the node, and two of our own.
        let mut secrets = vec![BEARER.to_owned(), OPAQUE.to_owned()];
        for file in ["/etc/kubernetes/kubelet.conf", "/etc/nodevigil/kubeconfig"] {
            let kubeconfig = json(scene, file)?;
            let user = &kubeconfig["users"][0]["user"];
            for field in ["client-key-data", "token"] {
                secrets.extend(user[field].as_str().map(str::to_owned));
            }
        }
        ensure!(secrets.len() > 3, "no secrets in the kubeconfigs");
        let key = secrets[2].clone();
        node.sh(&format!(
            "mkdir -p /etc/systemd/system/kubelet.service.d
             printf '[Service]\\nEnvironment=PLUGIN={OPAQUE}\\nExecStartPre=/bin/echo Authorization: Bearer {BEARER}\\nExecStartPre=/bin/echo \
             it says {OPAQUE} and {key}\\n' >/etc/systemd/system/kubelet.service.d/99-canary.conf
             systemctl daemon-reload; systemctl restart kubelet"
        ))?;
        wait_until("the canary in the journal", Duration::from_secs(20), || {
            Ok(node.sh("journalctl --sync; journalctl -u kubelet")?.contains(BEARER).then_some(()))
        })?;
        let (folder, took) = bundle(scene, "root")?;
        say(&format!("a bundle took {took:?}: {}", node.sh(&format!("du -sb {folder}; cat {folder}/manifest.json"))?));
        for secret in &secrets {
            let (code, found) = node.run(&format!("grep -rlF -e '{secret}' {folder}"))?;
            ensure!(code == 1, "{secret:.12}… is in {found}");
        }
        let log = node.read(&format!("{folder}/journal/kubelet.log"))?;
        ensure!(log.contains("Bearer ***") && log.contains("it says *** and ***"), "{log}");
        let manifest = json(scene, &format!("{folder}/manifest.json"))?;
        for part in [
            "status.json",
            "ledger.json",
            "check.json",
            "doctor.json",
            "journal/nodevigil.log",
            "files/etc/systemd/system/kubelet.service.d/99-canary.conf",
            "files/var/lib/kubelet/config.yaml",
            "host/meminfo",
            "host/systemd",
            "host/units",
        ] {
            ensure!(row(&manifest, part)?["state"] == "whole", "{part}: {manifest:#}");
        }
        ensure!(json(scene, &format!("{folder}/status.json"))?["node"] == "bundle", "another node");
        ensure!(json(scene, &format!("{folder}/doctor.json"))?["checks"].is_array(), "doctor");
        // Another user gets what it may, and is told so.
        let (folder, _) = bundle(scene, "nobody")?;
        let manifest = json(scene, &format!("{folder}/manifest.json"))?;
        ensure!(manifest["uid"] != 0 && row(&manifest, "status.json")?["state"] == "whole", "{manifest:#}");
        let unread = manifest["redaction"]["unread"].to_string();
        ensure!(unread.contains("/etc/nodevigil/kubeconfig"), "{unread}");
        for secret in &secrets {
            let (code, found) = node.run(&format!("grep -rlF -e '{secret}' {folder}"))?;
            ensure!(code == 1, "{secret:.12}… is in {found}");
        }
        Ok(())
    })
}

fn a_helper_that_hangs_is_not_waited_for() -> Result<()> {
    Scene::healthy("bundle-hang")?.play(|scene| {
        scene.node.signal_unit(HELPER, Signal::SIGSTOP)?;
        scene
            .node
            .sh("mkfifo /etc/kubernetes/admin.conf; mkfifo /run/nodevigil/pause.json || true")?;
        let (folder, took) = bundle(scene, "root")?;
        say(&format!(
            "beside a helper that hangs a bundle took {took:?}"
        ));
        let manifest = json(scene, &format!("{folder}/manifest.json"))?;
        ensure!(
            row(&manifest, "doctor.json")?["state"] == "whole",
            "{manifest:#}"
        );
        let doctor = json(scene, &format!("{folder}/doctor.json"))?;
        ensure!(doctor["ok"] == false, "{doctor:#}");
        scene.node.signal_unit(HELPER, Signal::SIGCONT)?;
        Ok(())
    })
}
