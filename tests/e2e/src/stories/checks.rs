//! Custom checks: the three sources, what they have in common with nodevigil's own conditions, and commands that misbehave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::kernel::{DIRECTORY, Frozen, mount_image};
use crate::peer;
use crate::scene::{Condition, ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::{WAIT, wait_until};

const SETTINGS: &str = "/etc/nodevigil/config.d/60-checks.toml";
const POLICY: &str = "validatingadmissionpolicy/nodevigil-nodes";
/// The types of these stories. They share an API server, so each allows all of them.
const TYPES: &str = "['UnitHealthy', 'example.com/CommandProblem', 'JournalHealthy', 'KernelQuiet', 'KernelKept', 'GoodHealthy', \
                     'EndlessHealthy', 'StubbornHealthy', 'ForksHealthy', 'FrozenHealthy', 'InactiveHealthy', 'RestartsHealthy', 'OurProblem', 'OurOverlay2', \
                     'TimeSynchronized', 'DataMounted', 'example.com/GPUToolHealthy']";
const UNIT: &str = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";

/// As an administrator does it before the settings are rolled out.
fn allow_types(plane: &ControlPlane) -> Result<()> {
    let mut policy: Value = serde_json::from_str(&plane.kubectl(&["get", POLICY, "-o", "json"])?)?;
    let variables = policy["spec"]["variables"].as_array_mut().context("the policy has no variables")?;
    let types = variables.iter_mut().find(|one| one["name"] == "checkTypes").context("the policy has no checkTypes")?;
    types["expression"] = TYPES.into();
    let patch = serde_json::json!({"spec": {"variables": variables}}).to_string();
    plane.kubectl(&["patch", POLICY, "--type=merge", "-p", &patch]).map(drop)
}

/// A healthy node whose agent has these checks.
fn node_with(scene: &Scene, settings: &str, files: &[(&str, &str)]) -> Result<Arc<ObservedNode>> {
    allow_types(scene.plane())?;
    scene.healthy_with(|node| {
        files.iter().fold(node.file(SETTINGS, settings), |node, (path, content)| node.file(path, content))
    })
}

pub fn a_unit_that_fails_is_a_problem_and_one_that_is_stopped_is_none(scene: &Scene) -> Result<()> {
    const CHECK: &str = "[custom.demo]\ncondition = 'UnitHealthy'\nreason = 'DemoFailed'\nunit.name = 'demo.service'\n";
    let node = node_with(scene, CHECK, &[("/etc/systemd/system/demo.service", UNIT)])?;
    let shown = node.condition("UnitHealthy");
    let from = Instant::now();
    node.sh("systemctl enable --now demo")?;
    shown.wait_for(from, "True", "CheckPassed")?;
    let from = Instant::now();
    node.sh("systemctl kill --signal=KILL demo")?;
    let failed = shown.wait_for(from, "False", "DemoFailed")?;
    ensure!(failed.message.contains("demo.service was killed by SIGKILL"), "{failed:?}");
    let (code, table) = node.run("nodevigil status UnitHealthy")?;
    ensure!(code == 1 && table.contains("DemoFailed"), "{code}: {table}");
    let metrics = node.metrics()?;
    ensure!(metrics.contains("nodevigil_condition_reason{type=\"UnitHealthy\",reason=\"DemoFailed\"} 1"), "{metrics}");
    wait_for_event(scene, &node, "DemoFailed")?;
    node.restart_agent("systemctl restart nodevigil")?;
    shown.ensure_unchanged(&failed)?;
    let from = Instant::now();
    node.sh("systemctl start demo")?;
    shown.wait_for(from, "True", "CheckPassed")?;
    let from = Instant::now();
    node.sh("systemctl stop demo")?;
    let stopped = shown.wait_for(from, "Unknown", "CheckUnknown")?;
    node.restart_agent("systemctl restart nodevigil")?;
    shown.ensure_unchanged(&stopped)?;
    shown.ensure_only(from, &["True", "Unknown"])
}

fn wait_for_event(scene: &Scene, node: &ObservedNode, reason: &str) -> Result<()> {
    let wanted = ("Warning".to_owned(), reason.to_owned());
    let is_there = || Ok(node.events(scene.plane())?.contains(&wanted).then_some(()));
    wait_until(&format!("the Event {reason}"), WAIT, is_there).map(drop)
}

pub fn a_commands_exit_code_decides_and_maintenance_holds_it_back(scene: &Scene) -> Result<()> {
    const CHECK: &str = "[custom.story]\ncondition = 'example.com/CommandProblem'\nproblem = 'True'\nreason = 'StoryFails'\n\
        healthy_reason = 'StoryGoesWell'\n\
        command = { argv = ['/bin/sh', '/etc/story.sh', '$x'], interval_secs = 5, timeout_secs = 3, user = 'nobody' }\n";
    const SCRIPT: &str = "echo \"$(id -un) $1\"; echo more; exit $(cat /run/story)\n";
    const TAINT: &str = "node.kubernetes.io/out-of-service";
    let node = node_with(scene, CHECK, &[("/etc/story.sh", SCRIPT)])?;
    let shown = node.condition("example.com/CommandProblem");
    let set = |code: u32| -> Result<Instant> {
        node.sh(&format!("echo {code} >/run/story"))?;
        Ok(Instant::now())
    };
    let healthy = shown.wait_for(set(0)?, "False", "StoryGoesWell")?;
    ensure!(healthy.message == "nobody $x", "{healthy:?}");
    // Two minutes after the Node was created.
    shown.wait_longer_for(set(1)?, Duration::from_mins(4), "True", "StoryFails")?;
    wait_for_event(scene, &node, "StoryFails")?;
    shown.wait_for(set(0)?, "False", "StoryGoesWell")?;
    let unknown = shown.wait_for(set(3)?, "Unknown", "CheckUnknown")?;
    ensure!(unknown.message == "exit code 3: nobody $x", "{unknown:?}");
    shown.wait_for(set(0)?, "False", "StoryGoesWell")?;

    let taint = |change: &str| scene.plane().kubectl(&["taint", "node", node.name(), &format!("{TAINT}{change}")]);
    taint("=nodeshutdown:NoSchedule")?;
    node.wait_for_log(TAINT)?;
    let held_back = shown.wait_for(set(1)?, "Unknown", "NodeInMaintenance")?;
    ensure!(held_back.message.contains("StoryFails"), "{held_back:?}");
    shown.ensure_only(held_back.at, &["Unknown"])?;
    let from = Instant::now();
    taint("-")?;
    let failed = shown.wait_for(from, "True", "StoryFails")?;
    for restart in ["systemctl restart nodevigil", "systemctl kill --signal=KILL nodevigil"] {
        node.restart_agent(restart)?;
        shown.ensure_unchanged(&failed)?;
    }
    node.sh("nodevigil pause 1h --reason story")?;
    shown.wait_for(failed.at, "Unknown", "NodePaused")?;
    let (_, own) = node.run("systemctl list-units --all --no-legend 'nodevigil-custom-*'")?;
    ensure!(own.lines().count() <= 1, "units are left: {own}");
    Ok(())
}

pub fn lines_of_the_journal_and_the_kernel_count_for_their_time(scene: &Scene) -> Result<()> {
    const CHECKS: &str = "\
        [custom.journal]\ncondition = 'JournalHealthy'\nreason = 'LoudLine'\nlog = { unit = 'noisy.service', patterns = ['loud *!'], until_boot = true }\n\
        [custom.kernel]\ncondition = 'KernelQuiet'\nreason = 'FileSystemMounted'\nlog = { patterns = ['EXT4-fs (loop*: mounted filesystem'], lasts_secs = 20 }\n\
        [custom.kept]\ncondition = 'KernelKept'\nreason = 'FileSystemMounted'\nlog = { patterns = ['EXT4-fs (loop*: mounted filesystem'], until_boot = true }\n\
        [custom.event-alone]\nreason = 'TagSeen'\nlog = { identifier = 'story', patterns = ['*needle'] }\n";
    let node = node_with(scene, CHECKS, &[])?;
    let [journal, kernel, kept] = ["JournalHealthy", "KernelQuiet", "KernelKept"].map(|kind| node.condition(kind));
    let quiet = journal.wait_for(Instant::now(), "True", "CheckPassed").or_else(|_| journal.shown())?;
    // Of another unit, and in the middle of a line.
    node.sh(
        "systemd-run --wait --unit=other echo 'loud noise!'; systemd-run --wait --unit=noisy echo 'not loud noise!'",
    )?;
    journal.ensure_unchanged(&quiet)?;
    let from = Instant::now();
    node.sh(
        "systemd-run --wait --unit=noisy echo 'loud noise!'; logger -t story 'a needle'; logger -t other 'a needle'",
    )?;
    let loud = journal.wait_for(from, "False", "LoudLine")?;
    ensure!(loud.message.contains("loud noise!"), "{loud:?}");
    wait_for_event(scene, &node, "TagSeen")?;
    node.restart_agent("systemctl restart nodevigil")?;
    journal.ensure_unchanged(&loud)?;
    let mounted = Instant::now();
    mount_image(&node, "stats")?;
    node.sh(&format!("umount {DIRECTORY}"))?;
    let logged = kernel.wait_for(mounted, "False", "FileSystemMounted")?;
    let until_boot = kept.shown()?;
    ensure!(until_boot.reason == "FileSystemMounted", "{until_boot:?}");
    node.restart_agent("systemctl restart nodevigil")?;
    kernel.wait_for(logged.at, "True", "CheckPassed")?;
    kept.ensure_unchanged(&until_boot)?;
    journal.ensure_unchanged(&loud)?;
    let last = node.watch().last().unwrap_or_default().to_string();
    ensure!(!last.contains("event-alone"), "it is on the Node: {last}");
    let (code, table) = node.run("nodevigil status")?;
    ensure!(code == 1 && table.contains("event-alone"), "{code}: {table}");
    Ok(())
}

pub fn a_hostile_command_costs_nothing_but_its_own_check(scene: &Scene) -> Result<()> {
    const CHECKS: &str = "\
        [custom.good]\ncondition = 'GoodHealthy'\nreason = 'GoodFailed'\ncommand = { argv = ['/bin/true'], interval_secs = 5, timeout_secs = 3 }\n\
        [custom.endless]\ncondition = 'EndlessHealthy'\nreason = 'EndlessFailed'\ncommand = { argv = ['/usr/bin/yes'], interval_secs = 5, timeout_secs = 3 }\n\
        [custom.stubborn]\ncondition = 'StubbornHealthy'\nreason = 'StubbornFailed'\n\
        command = { argv = ['/bin/sh', '-c', 'trap \"\" TERM INT HUP; setsid sleep 86399 & while :; do sleep 1; done'], interval_secs = 5, timeout_secs = 3 }\n\
        [custom.forks]\ncondition = 'ForksHealthy'\nreason = 'ForksFailed'\n\
        command = { argv = ['/bin/sh', '-c', 'f() { f | f & }; f; sleep 86398'], interval_secs = 5, timeout_secs = 3 }\n\
        [custom.frozen]\ncondition = 'FrozenHealthy'\nreason = 'FrozenFailed'\n\
        command = { argv = ['/bin/sh', '-c', 'if test -e /mnt/story/lost+found; then touch /mnt/story/x; fi'], interval_secs = 5, timeout_secs = 3 }\n";
    let node = node_with(scene, CHECKS, &[])?;
    let from = Instant::now();
    let good = node.condition("GoodHealthy").wait_for(from, "True", "CheckPassed")?;
    for (kind, words) in [
        ("EndlessHealthy", "printed more than 64 KiB"),
        ("StubbornHealthy", "did not end within 3 s"),
        ("ForksHealthy", "/bin/sh"),
    ] {
        let is_it = |shown: &Condition| shown.status == "Unknown" && shown.message.contains(words);
        node.condition(kind).wait_until_shown(from, is_it)?;
    }
    mount_image(&node, "stats")?;
    {
        let frozen = Frozen::new(&node)?;
        let from = Instant::now();
        node.condition("FrozenHealthy").wait_for(from, "Unknown", "CheckUnknown")?;
        // While a process cannot be killed, its own check alone waits.
        node.condition("GoodHealthy").ensure_unchanged(&good)?;
        node.crash_and_recover()?;
        drop(frozen);
    }
    node.condition("FrozenHealthy").wait_for(Instant::now(), "True", "CheckPassed")?;
    node.condition("GoodHealthy").ensure_only(good.at, &["True"])?;
    let agent = node.sh("cat /sys/fs/cgroup/system.slice/nodevigil.service/memory.events 2>/dev/null; systemctl show -P NRestarts nodevigil")?;
    ensure!(agent.trim().ends_with('0'), "the agent was restarted: {agent}");
    node.sh(&format!("umount {DIRECTORY}; rm {SETTINGS}"))?;
    node.restart_agent("systemctl restart nodevigil")?;
    // What runs now is killed by systemd, without the agent.
    let is_over = || Ok((node.run("pgrep -f 'sleep 8639[89]'")?.0 != 0).then_some(()));
    wait_until("the end of every process of the commands", WAIT, is_over).map(drop)
}

pub fn a_type_that_the_policy_refuses_holds_no_other_condition_back(scene: &Scene) -> Result<()> {
    const CHECKS: &str = "\
        [custom.refused]\ncondition = 'RefusedHealthy'\nreason = 'RefusedFailed'\ncommand.argv = ['/bin/true']\n\
        [custom.good]\ncondition = 'GoodHealthy'\nreason = 'GoodFailed'\ncommand.argv = ['/bin/true']\n";
    let from = Instant::now();
    let node = node_with(scene, CHECKS, &[])?;
    node.condition("GoodHealthy").wait_for(from, "True", "CheckPassed")?;
    node.wait_for_trouble("CheckRefused", &["condition RefusedHealthy", "checkTypes"])?;
    node.crash_and_recover()?;
    let last = node.watch().last().unwrap_or_default().to_string();
    ensure!(!last.contains("RefusedHealthy"), "{last}");
    let status = node.status()?;
    let troubles = status["troubles"].as_array().map_or(0, Vec::len);
    ensure!(troubles == 1 && !status["troubles"].to_string().contains("GoodHealthy"), "{status:#}");
    Ok(())
}

pub fn a_check_may_not_have_a_type_of_others(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    for kind in ["Ready", "KubeletHealthy", "StorageReady", "KernelDeadlock"] {
        node.sh(&format!(
            "printf \"[custom.a]\\nreason = 'A'\\ncondition = '{kind}'\\nlog.patterns = ['x']\\n\" >{SETTINGS}"
        ))?;
        let (code, output) = node.run("nodevigil config check 2>&1")?;
        ensure!(code == 78 && output.contains(&format!("{SETTINGS}:1:")), "{kind}: {code}: {output}");
    }
    Ok(())
}

/// A taint of a check, and the two other ways in which a service of a check can be a problem.
pub fn a_check_taints_the_node_until_its_unit_is_back(scene: &Scene) -> Result<()> {
    const TAINT: &str = "status-taint.cluster-autoscaler.kubernetes.io/nodevigil-check-UnitHealthy";
    const CHECKS: &str = "[taints]\nconditions = ['UnitHealthy']\n\
        [custom.demo]\ncondition = 'UnitHealthy'\nreason = 'DemoFailed'\nunit.name = 'demo.service'\n\
        [custom.enabled]\ncondition = 'InactiveHealthy'\nreason = 'DemoInactive'\nunit = { name = 'idle.service', inactive_secs = 20 }\n\
        [custom.restarts]\ncondition = 'RestartsHealthy'\nreason = 'DemoRestarts'\nunit = { name = 'loop.service', restarts = 3 }\n";
    let looping = UNIT.replace("[Install]", "Restart=always\nRestartSec=1\n[Install]");
    let unit = |name: &str| format!("/etc/systemd/system/{name}.service");
    let (demo, idle, restarting) = (unit("demo"), unit("idle"), unit("loop"));
    let node = node_with(scene, CHECKS, &[(&demo, UNIT), (&idle, UNIT), (&restarting, &looping)])?;
    let taints = |wanted: Option<&str>| {
        let found = || -> Result<Option<()>> {
            let (_, last) = node.watch().since(None).pop().context("no Node has been seen")?;
            let taints = last["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let ours = taints.iter().find(|taint| taint["key"] == TAINT);
            Ok((ours.and_then(|taint| taint["value"].as_str()) == wanted).then_some(()))
        };
        wait_until(&format!("the taint to be {wanted:?}"), WAIT, found)
    };
    let began = Instant::now();
    node.sh("systemctl enable --now demo loop; systemctl enable idle")?;
    node.condition("UnitHealthy").wait_for(began, "True", "CheckPassed")?;
    taints(None)?;
    let from = Instant::now();
    node.sh("systemctl kill --signal=KILL demo")?;
    node.condition("UnitHealthy").wait_for(from, "False", "DemoFailed")?;
    taints(Some("DemoFailed"))?;
    // A restart of the agent changes the taint no more than the condition.
    node.restart_agent("systemctl restart nodevigil")?;
    taints(Some("DemoFailed"))?;
    let from = Instant::now();
    node.sh("systemctl start demo")?;
    node.condition("UnitHealthy").wait_for(from, "True", "CheckPassed")?;
    taints(None)?;

    node.condition("InactiveHealthy").wait_for(began, "False", "DemoInactive")?;
    let from = Instant::now();
    for _ in 0..3 {
        node.sh("systemctl kill --signal=KILL loop; sleep 4; systemctl is-active loop")?;
    }
    let looped = node.condition("RestartsHealthy").wait_for(from, "False", "DemoRestarts")?;
    ensure!(looped.message.contains("restarted loop.service 3 times"), "{looped:?}");
    let from = Instant::now();
    node.sh("systemctl stop loop; systemctl start idle")?;
    node.condition("RestartsHealthy").wait_for(from, "Unknown", "CheckUnknown")?;
    node.condition("InactiveHealthy").wait_for(from, "True", "CheckPassed").map(drop)
}

/// The examples of docs/checks.md, on a node whose chronyc and nvidia-smi end as they are told.
pub fn the_examples_of_the_documents_work_as_they_stand(scene: &Scene) -> Result<()> {
    const TOOL: &str = "#!/bin/sh\necho told so; exit $(cat /run/tools)\n";
    const KINDS: [&str; 3] = ["TimeSynchronized", "DataMounted", "example.com/GPUToolHealthy"];
    let text = include_str!("../../../../docs/checks.md");
    let examples = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect::<String>();
    let node = node_with(
        scene,
        &examples,
        &[("/etc/systemd/system/chrony.service", UNIT), ("/usr/bin/chronyc", TOOL), ("/usr/bin/nvidia-smi", TOOL)],
    )?;
    let from = Instant::now();
    node.sh("echo 0 >/run/tools; chmod +x /usr/bin/chronyc /usr/bin/nvidia-smi
         systemctl enable --now chrony; mkdir -p /data; mount -t tmpfs data /data; nodevigil config check")?;
    let long = Duration::from_mins(5);
    for kind in KINDS {
        node.condition(kind).wait_longer_for(from, long, "True", "CheckPassed")?;
    }
    let from = Instant::now();
    node.sh("umount /data; echo 1 >/run/tools; systemctl kill --signal=KILL chrony")?;
    for (kind, reason) in KINDS.iter().zip(["ChronyFailed", "DataNotMounted", "GPUToolFailed"]) {
        node.condition(kind).wait_longer_for(from, long, "False", reason)?;
    }
    let from = Instant::now();
    node.sh("mount -t tmpfs data /data; echo 0 >/run/tools; systemctl start chrony")?;
    for kind in KINDS {
        node.condition(kind).wait_longer_for(from, long, "True", "CheckPassed")?;
    }
    Ok(())
}

/// One script for both. node-problem-detector and nodevigil cannot write a condition of the same type.
const SCRIPT_MONITOR: &str = r#"{"plugin": "custom", "source": "script-monitor",
"pluginConfig": {"invoke_interval": "5s", "timeout": "3s", "max_output_length": 80, "concurrency": 3},
"conditions": [{"type": "TYPE", "reason": "ScriptGoesWell", "message": "the script goes well"}],
"rules": [{"type": "permanent", "condition": "TYPE", "reason": "ScriptFails", "path": "/etc/story.sh"},
{"type": "temporary", "reason": "ScriptWarns", "path": "/etc/warn.sh"},
{"type": "temporary", "reason": "ScriptCannotTell", "path": "/etc/tell.sh"}]}"#;

/// How often each Event about the node has been reported by one of these components.
fn reported(scene: &Scene, node: &ObservedNode, components: &[&str]) -> Result<BTreeMap<String, u64>> {
    let selector = format!("--field-selector=involvedObject.name={}", node.name());
    let list: Value = serde_json::from_str(&scene.plane().kubectl(&["get", "events", "-A", &selector, "-o", "json"])?)?;
    let mut reported = BTreeMap::new();
    for event in list["items"].as_array().into_iter().flatten() {
        let component = event["source"]["component"].as_str().filter(|component| !component.is_empty());
        let component = component.or_else(|| event["reportingComponent"].as_str()).unwrap_or_default();
        if components.contains(&component) {
            let count = event["count"].as_u64().or_else(|| event["series"]["count"].as_u64()).unwrap_or(1);
            *reported.entry(event["reason"].as_str().unwrap_or_default().to_owned()).or_default() += count;
        }
    }
    Ok(reported)
}

/// Reasons of Events, how often node-problem-detector reports each at least, and how often nodevigil does: docs/checks.md says why.
const EVENTS: [(&str, u64, u64); 9] = [
    ("ScriptFails", 1, 1),
    ("ScriptWarns", 2, 1),
    ("ScriptCannotTell", 2, 0),
    ("Ext4Error", 1, 1),
    ("IOError", 1, 0),
    ("CorruptDockerOverlay2", 1, 1),
    ("DockerContainerStartupFailure", 3, 1),
    ("CCPPCrash", 1, 1),
    ("KubeletStart", 1, 1),
];

pub fn files_of_node_problem_detector_do_the_same_beside_it(scene: &Scene) -> Result<()> {
    const SCRIPTS: [&str; 2] = ["TheirProblem", "OurProblem"];
    const OVERLAYS: [&str; 2] = ["CorruptDockerOverlay2", "OurOverlay2"];
    allow_types(scene.plane())?;
    let package = peer::Package::new(scene.plane())?;
    let script = |path: &str| format!("#!/bin/sh\necho \"it says $(cat {path})\"; exit $(cat {path})\n");
    let node = scene.healthy_with(|node| {
        let node = package.onto(node).file("/etc/theirs.json", &SCRIPT_MONITOR.replace("TYPE", "TheirProblem"));
        let node = node.file("/etc/ours.json", &SCRIPT_MONITOR.replace("TYPE", "OurProblem"));
        ["story", "warn", "tell"]
            .iter()
            .fold(node, |node, name| node.file(&format!("/etc/{name}.sh"), &script(&format!("/run/{name}"))))
    })?;
    node.sh("chmod +x /etc/*.sh; for name in story warn tell; do echo 0 >/run/$name; done")?;
    let shipped = peer::JOURNAL_MONITORS.map(|name| format!("{}/{name}", peer::DIRECTORY));
    // The profile would write node-problem-detector's own conditions. Its files name /var/log/journal; these nodes have it in /run.
    node.sh(&format!(
        "sed -i s,/var/log/journal,/run/log/journal, {0}; mkdir /tmp/ours; cp {} {}/kernel-monitor.json /etc/ours.json /tmp/ours
         sed -Ei 's/\"(type|condition)\": \"CorruptDockerOverlay2\"/\"\\1\": \"OurOverlay2\"/' /tmp/ours/docker-monitor.json
         nodevigil config import-npd /tmp/ours/*.json | grep -v '^kubernetes.profile' >{SETTINGS}
         nodevigil config check",
        shipped.join(" "),
        peer::DIRECTORY
    ))?;
    node.restart_agent("systemctl restart nodevigil")?;
    let monitors = shipped.join(",");
    package.start(
        &node,
        &format!("--config.custom-plugin-monitor=/etc/theirs.json --config.system-log-monitor={monitors}"),
    )?;
    let both = |kinds: [&'static str; 2], status: &str, reason: &str| {
        kinds.iter().try_for_each(|kind| {
            let is_it = |shown: Condition| shown.status == status && shown.reason == reason;
            // nodevigil holds problems back for two minutes after the Node was created.
            let long = Duration::from_mins(4);
            wait_until(&format!("{kind} {status} {reason}"), long, || {
                Ok(node.condition(kind).shown().is_ok_and(is_it).then_some(()))
            })
        })
    };
    both(OVERLAYS, "False", "NoCorruptDockerOverlay2")?;
    for (code, status, reason) in
        [(0, "False", "ScriptGoesWell"), (1, "True", "ScriptFails"), (0, "False", "ScriptGoesWell")]
    {
        node.sh(&format!("echo {code} >/run/story"))?;
        both(SCRIPTS, status, reason)?;
    }
    give_both_the_same(&node)?;
    both(OVERLAYS, "True", "CorruptDockerOverlay2")?;
    compare_events(scene, &node)?;

    // A restart without a look back: the line is in the log as before.
    let ours = node.condition("OurOverlay2").shown()?;
    node.restart_agent("systemctl restart nodevigil")?;
    let from = Instant::now();
    node.sh(&format!("sed -i 's/\"5m\"/\"0s\"/' {monitors}; systemctl restart {}", peer::UNIT).replace(',', " "))?;
    node.condition("CorruptDockerOverlay2").wait_for(from, "False", "NoCorruptDockerOverlay2")?;
    node.condition("OurOverlay2").ensure_unchanged(&ours)
}

/// Scripts that warn and cannot tell, and lines of the journal and of the kernel.
fn give_both_the_same(node: &ObservedNode) -> Result<()> {
    node.sh(
        "echo 1 >/run/warn; echo 2 >/run/tell
         logger -t dockerd 'returned error: readlink /var/lib/docker/overlay2: invalid argument'
         for i in 1 2 3; do logger -t dockerd 'OCI runtime start failed: container process is already dead: unknown'; done
         logger -t abrt-notification 'Process 42 (/usr/bin/story) crashed in main()'
         logger -t other 'OCI runtime start failed: container process is already dead: unknown'
         systemctl restart kubelet",
    )?;
    mount_image(node, "clri config.toml")?;
    node.run(&format!("cat {DIRECTORY}/config.toml; umount {DIRECTORY}"))?;
    // A line of another facility than the kernel's, which node-problem-detector takes for one.
    node.sh("echo '<0>Buffer I/O error on dev sdz' >/dev/kmsg").map(drop)
}

fn compare_events(scene: &Scene, node: &ObservedNode) -> Result<()> {
    let theirs = ["script-monitor", "kernel-monitor", "docker-monitor", "abrt-adaptor", "systemd-monitor"];
    let mut table = String::new();
    let compared = wait_until("the Events of both", WAIT, || {
        let (theirs, ours) = (reported(scene, node, &theirs)?, reported(scene, node, &["nodevigil.io/agent"])?);
        let count = |of: &BTreeMap<String, u64>, reason: &str| of.get(reason).copied().unwrap_or_default();
        let counts = EVENTS.map(|(reason, ..)| (reason, count(&theirs, reason), count(&ours, reason)));
        table = format!("(reason, node-problem-detector, nodevigil): {counts:?}");
        let is_it = |((_, theirs, ours), (_, at_least, wanted)): ((_, u64, u64), (_, u64, u64))| {
            theirs >= at_least && ours == wanted
        };
        Ok(counts.into_iter().zip(EVENTS).all(is_it).then_some(()))
    });
    compared.context(table)
}
