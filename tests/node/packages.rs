//! The real packages on a real node: dpkg's and rpm's own programs install them, upgrade them, take them away.

pub(crate) mod kit;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;

use self::kit::{DEB, Format, Kit, RPM};
use crate::cleanup::{ensure_clean, node};
use crate::scene::{AGENT, HELPER, OURS, SHORT_SPELL, SOON, Scene};
use crate::support::api::condition;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::rows::row;
use crate::support::{say, wait_until};
use crate::trial;

/// An operator's own file.
pub(crate) const LOCAL: &str = "/etc/nodevigil/config.d/50-local.toml";
/// What `prerm` may take for the cleanup, and the second that its programs need on a busy machine.
const CLEANUP: Duration = Duration::from_secs(6);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("packages::deb", || a_package_lives(&DEB, "deb")),
        trial("packages::rpm", || a_package_lives(&RPM, "rpm")),
        trial("packages::removal", a_removal_never_fails),
        trial("packages::image", an_image_is_made_and_a_node_born_from_it),
    ]
}

/// Installed, started, upgraded beside a changed configuration, removed, purged where there is such a thing, installed again.
fn a_package_lives(format: &'static Format, name: &str) -> Result<()> {
    let kit = Kit::made()?;
    let scene = kit.scene(&ControlPlane::shared()?, name, format)?;
    scene.play(|scene| {
        let run = |command: &str| scene.node.sh(command);
        run(&kit.install(format))?;
        at_rest(scene)?;
        run(&format!("printf '{SHORT_SPELL}' >{LOCAL}"))?;
        let from = Instant::now();
        run("systemctl enable --now nodevigil nodevigil-preflight")?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        let explained =
            "journalctl --catalog --no-pager -u nodevigil | grep -c 'Subject: nodevigil'";
        ensure!(
            run(explained)?.trim() != "0",
            "the catalogue explains no line"
        );
        let before = run(&format!("sha256sum {LOCAL}"))?;
        let upgraded = upgrade(scene, &kit.upgrade(format), format)?;

        let began = Instant::now();
        let said = run(format.remove)?;
        let removed = began.elapsed();
        say(&format!(
            "{name}: upgraded in {upgraded:?}, removed in {removed:?}"
        ));
        ensure!(
            said.contains(&format!("Node {name}: removed the conditions")),
            "{said}"
        );
        ensure_clean(&node(scene)?)?;
        gone(scene)?;
        ensure!(
            run(&format!("sha256sum {LOCAL}"))? == before,
            "the operator's file has changed"
        );
        if let Some(purge) = format.purge {
            run(purge)?;
            let left = run("find /etc/nodevigil /var/lib/nodevigil* 2>/dev/null; true")?;
            ensure!(left.is_empty(), "not purged: {left}");
        }
        run(&kit.install(format))?;
        at_rest(scene)?;
        row(
            &format!("the {name} upgraded while the agent runs, then removed"),
            "dpkg and rpm themselves",
            "no flip; then nothing of ours on the Node",
            None,
        );
        Ok(())
    })
}

/// The next version, while the agent runs: another process, the same word on the Node, the operator's files as they were.
pub(crate) fn upgrade(scene: &Scene, command: &str, format: &Format) -> Result<Duration> {
    let enabled = "systemctl is-enabled nodevigil nodevigil-helper.socket nodevigil-preflight";
    let local = format!("sha256sum {LOCAL}");
    let (states, before) = (scene.node.sh(enabled)?, scene.node.sh(&local)?);
    let (agent, told) = (scene.node.main_pid(AGENT)?, scene.now()?);
    let began = Instant::now();
    scene.node.sh(command)?;
    let took = began.elapsed();
    let version = scene.node.sh(format.version)?;
    ensure!(version.contains(kit::NEXT), "{version}");
    let next = scene.node.main_pid(AGENT)?;
    ensure!(
        next != 0 && next != agent,
        "the agent is still that of before: {agent}, {next}"
    );
    scene.ensure_still(&told)?;
    ensure!(
        scene.node.sh(&local)? == before,
        "the operator's file has changed"
    );
    let now = scene.node.sh(enabled)?;
    ensure!(now == states, "{states} became {now}");
    Ok(took)
}

/// Nothing runs, nothing is enabled, nothing will be by a preset, and nothing is remembered.
fn at_rest(scene: &Scene) -> Result<()> {
    let units = "nodevigil.service nodevigil-helper.service nodevigil-helper.socket nodevigil-plugin.service nodevigil-plugin.socket nodevigil-preflight.service";
    let (_, active) = scene.node.run(&format!("systemctl is-active {units}"))?;
    ensure!(active.lines().all(|line| line == "inactive"), "{active}");
    let units = "nodevigil.service nodevigil-helper.socket nodevigil-preflight.service";
    // As the first boot of an image does it.
    scene.node.sh(&format!(
        "systemctl preset --preset-mode=enable-only {units}"
    ))?;
    let (_, enabled) = scene.node.run(&format!("systemctl is-enabled {units}"))?;
    ensure!(enabled.lines().all(|line| line == "disabled"), "{enabled}");
    let left = scene.node.sh("find /var/lib/nodevigil /var/lib/nodevigil-helper /run/nodevigil* /etc/nodevigil/kubeconfig -type f 2>/dev/null; true")?;
    ensure!(left.is_empty(), "{left}");
    let modes = scene.node.sh("stat -c '%U:%G %a %n' /etc/nodevigil/config.d /var/lib/nodevigil /var/lib/nodevigil-helper")?;
    let right = "root:root 755 /etc/nodevigil/config.d\nnodevigil:nodevigil 755 /var/lib/nodevigil\nroot:root 700 /var/lib/nodevigil-helper\n";
    ensure!(modes == right, "{modes}");
    Ok(())
}

/// Nothing of the package is left but the operator's files and the user.
fn gone(scene: &Scene) -> Result<()> {
    let find = "find /usr /var/lib /run /etc/systemd -name '*nodevigil*' -not -path '*/dpkg/info/*' -not -path '/usr/bin/nodevigil[-_]*' \
        -not -path '/var/lib/systemd/*' -not -path '/run/systemd/*' 2>/dev/null; true";
    let left = scene.node.sh(find)?;
    ensure!(left.is_empty(), "left: {left}");
    let (_, processes) = scene.node.run("pgrep --list-full --exact nodevigil")?;
    ensure!(processes.is_empty(), "{processes}");
    let failed = scene
        .node
        .sh("systemctl --failed --plain --no-legend list-units 'nodevigil*'")?;
    ensure!(failed.is_empty(), "{failed}");
    Ok(())
}

/// What may be broken when somebody has had enough: each time the package goes, and in time.
fn a_removal_never_fails() -> Result<()> {
    let kit = Kit::made()?;
    let plane = ControlPlane::start(Options::default())?;
    let scene = kit.scene(&plane, "removal", &DEB)?;
    scene.play(|scene| {
        let remove = |what: &str, limit: Duration| -> Result<String> {
            let began = Instant::now();
            let said = scene.node.sh(DEB.remove).with_context(|| what.to_owned())?;
            let took = began.elapsed();
            say(&format!("removed in {took:?} {what}"));
            ensure!(took < limit, "{what}: {took:?}");
            gone(scene)?;
            row(
                &format!("the deb removed {what}"),
                "dpkg --remove",
                "removed",
                Some(took),
            );
            Ok(said)
        };
        // With each its own time for dpkg, which is slow on a slow disk, and for the helper to be stopped: on a machine that does
        // other things it takes as long as it took to install.
        let own = |installed: Duration| Duration::from_secs(4).max(2 * installed);
        let dpkg = own(started(scene, kit)?);
        plane.pause_apiserver()?;
        let said = remove("with an API server that hangs", CLEANUP + dpkg)?;
        ensure!(
            said.contains("no success within 4 s") && said.contains("stays there"),
            "{said}"
        );
        plane.resume_apiserver()?;

        let dpkg = own(started(scene, kit)?);
        plane.stop_apiserver();
        remove("without an API server", CLEANUP + dpkg)?;
        plane.start_apiserver()?;

        let dpkg = own(started(scene, kit)?);
        scene.node.sh("rm /usr/bin/nodevigil")?;
        remove("without its program", dpkg)?;

        let dpkg = own(started(scene, kit)?);
        scene.node.signal_unit(HELPER, Signal::SIGSTOP)?;
        remove("with a helper that hangs", CLEANUP + dpkg + dpkg)?;

        scene.node.sh(&kit.install(&DEB))?;
        remove("that never was started", CLEANUP + dpkg)?;

        // As while an image is made, or in a container: no systemd to be asked.
        let hidden = "mount -t tmpfs none /run";
        let command = format!("{hidden} && {} && {}", kit.install(&DEB), DEB.remove);
        let said = scene
            .node
            .sh(&format!("unshare --mount sh -ec '{command}'"))?;
        ensure!(!said.contains("Node removal"), "{said}");
        Ok(())
    })
}

/// How long it took to install.
fn started(scene: &Scene, kit: &Kit) -> Result<Duration> {
    let began = Instant::now();
    scene.node.sh(&kit.install(&DEB))?;
    let installed = began.elapsed();
    let from = Instant::now();
    scene.node.sh("systemctl enable --now nodevigil")?;
    scene.wait_for(from, "True", "KubeletIsHealthy")?;
    scene.status_file("the first apply", |file| {
        file["conditions"][0]["published_at"].is_string()
    })?;
    Ok(installed)
}

fn an_image_is_made_and_a_node_born_from_it() -> Result<()> {
    let kit = Kit::made()?;
    let scene = kit.scene(&ControlPlane::shared()?, "image", &DEB)?;
    scene.play(|scene| {
        baked(scene, kit)?;
        // The node's first boot starts what was enabled.
        let from = Instant::now();
        let boot = "systemctl daemon-reload; systemctl start multi-user.target --no-block";
        scene.node.sh(boot)?;
        wait_until("the first boot to start the agent", SOON, || {
            let (_, state) = scene.node.run("systemctl is-active nodevigil")?;
            Ok(state.starts_with("active").then_some(()))
        })?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        ensure!(
            condition(&node(scene)?, OURS).is_some(),
            "nothing on the Node"
        );
        born_of_a_running_one(scene)
    })
}

/// In an image's tree there is no systemd that runs.
fn baked(scene: &Scene, kit: &Kit) -> Result<()> {
    let install = kit.install(&DEB);
    let bake = format!("mount -t tmpfs none /run; {install}; systemctl enable nodevigil");
    scene.node.sh(&format!("unshare --mount sh -ec '{bake}'"))?;
    let active = "systemctl is-active nodevigil nodevigil-helper.service nodevigil-helper.socket nodevigil-plugin.socket";
    let (_, active) = scene.node.run(active)?;
    ensure!(active.lines().all(|line| line == "inactive"), "{active}");
    let written = "find /var/lib/nodevigil /var/lib/nodevigil-helper /run/nodevigil* -type f 2>/dev/null; true";
    let written = scene.node.sh(written)?;
    ensure!(written.is_empty(), "the making of an image left {written}");
    Ok(())
}

/// An image of a machine that had run, with a credential of its own: the machine that is born from it has all its files and
/// another machine id.
fn born_of_a_running_one(scene: &Scene) -> Result<()> {
    let name = scene.node.name();
    let put = |kubeconfig: Value| {
        let path = "/etc/nodevigil/kubeconfig";
        scene.node.sh(&format!(
            "umask 027; cat >{path} <<'EOF'\n{kubeconfig}\nEOF\nchgrp nodevigil {path}; systemctl restart nodevigil"
        ))
    };
    let identity = |kind: &str| {
        scene.status_file(&format!("the identity {kind}"), |file| {
            file["identity"]["kind"] == kind
        })
    };
    put(scene.plane.agent_kubeconfig(name)?)?;
    identity("own")?;
    wait_until("the note on the credential", SOON, || {
        Ok(scene.node.read("/var/lib/nodevigil/credential.json").ok())
    })?;
    let told = "journalctl --no-pager -q -u nodevigil _SYSTEMD_INVOCATION_ID=$(systemctl show --value --property=InvocationID nodevigil)";
    scene.node.sh(
        "systemctl stop nodevigil nodevigil-helper.socket nodevigil-helper.service; \
         tr '0-9a-f' '1-9a-f0' </etc/machine-id >/run/id; cat /run/id >/etc/machine-id; systemctl start nodevigil"
    )?;
    identity("kubelet")?;
    let lines = scene.node.sh(told)?;
    ensure!(
        lines
            .matches("another machine has used this credential")
            .count()
            == 1,
        "{lines}"
    );
    let (code, doctor) = scene.node.run("nodevigil doctor")?;
    ensure!(
        code == 0 && doctor.contains("warn  inherited"),
        "{code}: {doctor}"
    );
    ensure!(!lines.contains("LastBootEnded"), "{lines}");
    // A credential of its own, as a cloud-init of this machine would write it.
    put(scene.plane.agent_kubeconfig(name)?)?;
    identity("own")?;
    let (code, doctor) = scene.node.run("nodevigil doctor")?;
    ensure!(
        code == 0 && !doctor.contains("inherited"),
        "{code}: {doctor}"
    );
    Ok(())
}
