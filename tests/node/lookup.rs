//! Which process is the kubelet: none, one in a container, two.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;

use crate::scene::{AGENT, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::node_builder::NodeBuilder;
use crate::support::wait_until;
use crate::{scene, trial};

/// Puts a process named kubelet into the kubelet's control group, started through `$WITH`; says its pid on the node.
const SECOND_KUBELET: &str = r#"
group=$(systemctl show --value --property=ControlGroup kubelet)
mkdir -p /run/second && cp /bin/sleep /run/second/kubelet
setsid sh -c 'echo $$ >"/sys/fs/cgroup/systemd$0/cgroup.procs" && exec $WITH /run/second/kubelet 600' "$group" \
  </dev/null >/dev/null 2>&1 &
until pid=$(pgrep -f '^/run/second/kubelet'); do sleep 0.05; done
grep -q "^$pid$" "/sys/fs/cgroup/systemd$group/cgroup.procs" || { echo "$pid is not in $group"; exit 1; }
echo "$pid"
"#;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("lookup::no_kubelet", without_a_kubelet_it_waits),
        trial(
            "lookup::in_a_container",
            a_kubelet_in_a_container_is_not_ours,
        ),
        trial("lookup::two", two_that_could_be_it_are_both_named),
    ]
}

fn without_a_kubelet_it_waits() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::bare(&plane, "no-kubelet", NodeBuilder::without_kubelet)?;
    scene.play(|scene| {
        let from = Instant::now();
        scene.node.start_agent()?; // systemd says it is started once it is READY
        let file = scene.status_file("a verdict", |file| {
            file["conditions"][0]["reason"] == "KubeletNotFound"
                && file["api"]["state"] == "node-missing"
        })?;
        ensure!(file["conditions"][0]["status"] == "Unknown", "{file:#}");
        let message = &file["conditions"][0]["message"];
        ensure!(
            message
                .as_str()
                .is_some_and(|text| text.contains("kubelet.service")),
            "{message}"
        );
        let pid = scene.node.main_pid(AGENT)?;
        scene.node.sh("systemctl start kubelet")?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.ensure_only(from, &["Unknown", "True"])?;
        ensure!(scene.node.main_pid(AGENT)? == pid, "another agent");
        scene.crash_and_recover()
    })
}

fn a_kubelet_in_a_container_is_not_ours() -> Result<()> {
    booted("containered")?.play(|scene| {
        let own = scene.node.main_pid(scene::KUBELET)?;
        let other = second_kubelet(scene, "unshare --pid --fork --mount-proc")?;
        let namespaces = scene.node.sh(&format!("grep NSpid /proc/{other}/status"))?;
        ensure!(namespaces.split_whitespace().count() == 3, "{namespaces}");
        let from = Instant::now();
        scene.node.start_agent()?;
        let told = scene.wait_for(from, "True", "KubeletIsHealthy")?;
        ensure!(told.message.contains(&format!("pid {own} ")), "{told:?}");
        scene.node.sh(&format!("kill -KILL {other}"))?;
        scene.ensure_still(&told)?;
        scene.crash_and_recover()
    })
}

fn two_that_could_be_it_are_both_named() -> Result<()> {
    booted("two-kubelets")?.play(|scene| {
        let own = scene.node.main_pid(scene::KUBELET)?;
        let other = second_kubelet(scene, "")?;
        let from = Instant::now();
        scene.node.start_agent()?;
        let told = scene.wait_for(from, "Unknown", "KubeletNotFound")?;
        for pid in [own, other] {
            let named = told.message.split(|c: char| !c.is_ascii_digit());
            let named = named
                .filter_map(|word| word.parse().ok())
                .any(|word: i32| word == pid);
            ensure!(named, "no {pid} in {told:?}");
        }
        scene.ensure_still(&told)?;
        scene.node.sh(&format!("kill -KILL {other}"))?;
        let told = scene.wait_for(told.at, "True", "KubeletIsHealthy")?;
        ensure!(told.message.contains(&format!("pid {own} ")), "{told:?}");
        scene.ensure_only(from, &["Unknown", "True"])
    })
}

fn booted(name: &str) -> Result<Scene> {
    Scene::booted(&ControlPlane::shared()?, name, |node| node)
}

fn second_kubelet(scene: &Scene, with: &str) -> Result<i32> {
    let output = scene
        .node
        .sh(&format!("export WITH='{with}'\n{SECOND_KUBELET}"))?;
    let pid = output.trim().parse().context(output.clone())?;
    // In between, the process was a shell: the name must have arrived.
    wait_until("the second kubelet's name", scene::SOON, || {
        let name = scene.node.sh(&format!("cat /proc/{pid}/comm"))?;
        Ok((name == "kubelet\n").then_some(()))
    })?;
    Ok(pid)
}
