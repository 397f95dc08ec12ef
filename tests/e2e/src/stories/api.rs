//! The API server is away or refuses requests, the Node is re-created, or another client writes its conditions.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::scene::{Scene, wait_a_second};
use crate::support::{WAIT, namespaces, wait_until};

pub fn a_new_node_inherits_nothing(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    wait_a_second();
    scene.plane().delete_node(node.name())?;
    node.sh("systemctl restart kubelet")?; // a kubelet registers when it starts, and only then
    let new = node.kubelet().wait_until_shown(before.at, |shown| shown.uid != before.uid)?;
    ensure!(new.since > before.since && new.since >= new.node_created, "{before:?}, then {new:?}");
    node.kubelet().wait_for(before.at, "True", "KubeletIsHealthy")?;
    node.kubelet().ensure_only(before.at, &["True"])?;
    let recovered = node.crash_and_recover()?;
    ensure!(recovered.uid == new.uid, "{recovered:?}");
    Ok(())
}

pub fn a_crash_in_an_outage_is_reported_after_it(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    node.disable_restart()?;
    let from = Instant::now();
    scene.plane().stop_apiserver();
    node.kill_kubelet()?;
    node.wait_for_status("the agent to see the crash and the outage", |status| {
        status["conditions"][0]["reason"] == "KubeletCrashed" && status["published"]["state"] == "unreached"
    })?;
    sleep(Duration::from_secs(30).saturating_sub(from.elapsed())); // long enough for the longest pause between requests
    scene.plane().start_apiserver()?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.since > before.since, "{before:?}, then {crashed:?}");
    node.kubelet().ensure_unchanged(&crashed)?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "False"])
}

/// No client saw the `False`, but a controller that measures from the transition time must not take the node for one that was healthy
/// all along.
pub fn a_recovery_in_an_outage_moves_the_transition_time(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let before = node.kubelet().shown()?;
    wait_a_second();
    let from = Instant::now();
    scene.plane().stop_apiserver();
    node.kill_kubelet()?;
    node.wait_for_status("the agent to see the crash", |status| status["conditions"][0]["status"] == "False")?;
    node.wait_for_status("the agent to see the recovery", |status| status["conditions"][0]["status"] == "True")?;
    scene.plane().start_apiserver()?;
    let healthy = node.kubelet().wait_until_shown(from, |shown| shown.since != before.since)?;
    ensure!(healthy.status == "True" && healthy.since > before.since, "{before:?}, then {healthy:?}");
    node.kubelet().ensure_only(from, &["True"])
}

pub fn a_condition_of_another_manager_is_left_alone(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    let theirs = json!({
        "type": "KubeletHealthy", "status": "True", "reason": "Theirs", "message": "theirs",
        "lastHeartbeatTime": "2026-01-01T08:00:00Z", "lastTransitionTime": "2026-01-01T08:00:00Z",
    });
    let patch = json!({"status": {"conditions": [theirs]}}).to_string();
    let from = Instant::now();
    scene.plane().kubectl(&[
        "patch",
        "node",
        node.name(),
        "--subresource=status",
        "--field-manager=another-agent",
        "--patch",
        &patch,
    ])?;
    node.kubelet().wait_for(from, "True", "Theirs")?;
    node.start_agent()?;
    node.wait_for_trouble("ForeignOwner", &["another-agent", "KubeletHealthy", node.name()])?;
    let before = node.kubelet().shown()?;
    node.disable_restart()?;
    node.kill_kubelet()?;
    node.wait_for_status("the agent to see the crash", |status| status["conditions"][0]["status"] == "False")?;
    node.kubelet().ensure_unchanged(&before)?;
    let object = scene.plane().node(node.name())?.context("no Node")?;
    let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
    let kept = conditions.iter().find(|condition| condition["type"] == "KubeletHealthy");
    ensure!(kept == Some(&theirs), "it was overwritten: {kept:?}");
    Ok(())
}

/// After three rewrites in an hour the other manager's values stay, and what we own is never deleted.
pub fn a_condition_that_another_manager_overwrites_is_left_to_it(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let (before, from) = (node.kubelet().shown()?, Instant::now());
    for round in 0..5 {
        let theirs =
            json!({"type": "KubeletHealthy", "status": "False", "reason": "Theirs", "message": format!("{round}")});
        let patch = json!({"status": {"conditions": [theirs]}}).to_string();
        let arguments = ["--subresource=status", "--field-manager=another-agent", "--patch", &patch];
        let from = Instant::now();
        scene.plane().kubectl(&[&["patch", "node", node.name()], &arguments[..]].concat())?;
        node.kubelet().wait_for(from, "False", "Theirs")?;
        if round < 3 {
            node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
        }
    }
    node.wait_for_trouble("ForeignOwner", &["another-agent", "KubeletHealthy", node.name()])?;
    sleep(Duration::from_secs(5));
    let shown = node.kubelet().shown()?;
    ensure!(shown.reason == "Theirs", "{shown:?}");
    for (_, state) in node.watch().since(Some(from)) {
        let conditions = state["status"]["conditions"].as_array().context("no conditions")?;
        let ours = conditions.iter().find(|one| one["type"] == "KubeletHealthy").context("it was deleted")?;
        let since = ours["lastTransitionTime"].as_str().unwrap_or_default();
        ensure!(ours["reason"] != "KubeletIsHealthy" || since == before.since, "{before:?}, then {ours}");
    }
    Ok(())
}

/// As a kubelet before Kubernetes 1.35 is answered.
pub fn events_are_written_in_the_core_group_where_the_other_is_refused(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    let name = format!("core-events-{}", node.name());
    let spec = json!({
        "matchConstraints": {"matchPolicy": "Exact", "resourceRules": [{
            "apiGroups": ["events.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["events"],
        }]},
        "validations": [{
            "expression": format!("!has(object.regarding) || object.regarding.name != '{}'", node.name()),
            "reason": "Forbidden",
        }],
    });
    enforce(scene, &name, &spec)?;
    node.sh("rm /etc/nodevigil/kubeconfig")?; // the kubelet's identity
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    node.kill_for_good()?;
    let created = || Ok(node.events(scene.plane())?.into_iter().find(|(_, reason)| reason == "KubeletCrashed"));
    wait_until("the Event", WAIT, created)?;
    node.wait_for_no_trouble()
}

/// A kubelet with `--hostname-override` is dead, and the agent starts.
pub fn the_node_is_that_of_the_credential_and_not_of_the_hostname(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    node.kill_for_good()?;
    node.sh("hostname vm")?;
    for identity in ["nodevigil's", "the kubelet's"] {
        let from = Instant::now();
        node.restart_agent("systemctl restart nodevigil")?;
        node.sh("nodevigil pause 1h")?;
        node.kubelet().wait_for(from, "Unknown", "NodePaused").context(identity)?;
        node.sh("nodevigil resume")?;
        node.kubelet().wait_for(from, "False", "KubeletCrashed").context(identity)?;
        node.sh("rm -f /etc/nodevigil/kubeconfig")?;
    }
    Ok(())
}

pub fn the_end_of_the_agents_credential_is_a_trouble_and_a_key_for_everyone_is_refused(scene: &Scene) -> Result<()> {
    const KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
    let node = scene.ready_with(|node| node)?;
    let user = format!("nodevigil:{}", node.name());
    let ending = scene.plane().kubeconfig_that_expires(&user, "nodevigil-agents", 6 * 24 * 3600)?;
    node.sh(&format!("cat >{KUBECONFIG} <<'END'\n{ending}\nEND"))?;
    node.start_agent()?;
    node.wait_for_trouble("CredentialExpiring", &[KUBECONFIG])?;
    let page = node.metrics()?;
    ensure!(page.contains("\nnodevigil_credential_expiration_seconds "), "{page}");
    let told = || Ok(node.events(scene.plane())?.into_iter().find(|(_, reason)| reason == "NodevigilDegraded"));
    wait_until("the Event", WAIT, told)?;
    node.sh(&format!("chmod 644 {KUBECONFIG}"))?;
    node.wait_for_trouble("IdentityUnusable", &[KUBECONFIG, "mode 0644", "every user can read it"])?;
    node.sh(&format!("rm {KUBECONFIG}"))?; // the kubelet's is used
    node.wait_for_no_trouble()
}

/// First the API server knows the credential and allows nothing, then it does not know it.
pub fn a_credential_that_is_refused_is_tried_once_a_minute_and_another_one_at_once(scene: &Scene) -> Result<()> {
    const KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
    let node = scene.healthy()?;
    node.kill_for_good()?;
    let right = node.sh(&format!("cat {KUBECONFIG}"))?;
    let put = |text: &str| node.sh(&format!("cat >{KUBECONFIG} <<'END'\n{text}\nEND"));
    let requests = || -> Result<u32> {
        let page = node.metrics()?;
        let counts = page.lines().filter(|line| line.starts_with("nodevigil_api_requests_total"));
        Ok(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum())
    };
    let unknown = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": scene.plane().url(), "certificate-authority": "/etc/kubernetes/pki/ca.crt"}}],
        "users": [{"name": "u", "user": {"token": "unknown"}}],
    });
    let without_rights = scene.plane().kubeconfig("nobody", "nobodies")?;
    for (wrong, trouble) in [(without_rights, "ApiRefused"), (unknown.to_string(), "IdentityUnusable")] {
        put(&wrong)?;
        node.wait_for_trouble(trouble, &[])?;
        let before = requests()?;
        sleep(Duration::from_mins(1));
        let sent = requests()? - before;
        ensure!(sent <= 6, "{trouble}: {sent} requests in a minute");
        let from = Instant::now();
        node.sh("nodevigil pause 1h")?;
        put(&right)?;
        node.kubelet().wait_for(from, "Unknown", "NodePaused")?;
        ensure!(from.elapsed() < Duration::from_secs(30), "{trouble}: after {:?}", from.elapsed());
        node.sh("nodevigil resume")?;
        node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    }
    node.wait_for_no_trouble()
}

/// An admission policy of the cluster forbids one message.
pub fn a_refused_apply_is_a_trouble_until_it_is_allowed(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let name = format!("refuse-{}", node.name());
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes/status"],
            "resourceNames": [node.name()],
        }]},
        "validations": [{
            "expression": "!object.status.conditions.exists(one, has(one.reason) && one.reason == 'KubeletCrashed')",
            "message": "no crashes, please",
        }],
    });
    let file = enforce(scene, &name, &spec)?;
    let from = Instant::now();
    node.disable_restart()?;
    node.kill_kubelet()?;
    node.wait_for_trouble("ApiRefused", &["apply conditions", node.name(), "no crashes, please"])?;
    node.kubelet().ensure_only(from, &["True"])?;
    scene.plane().kubectl(&["delete", "--filename", &file])?;
    node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    node.wait_for_no_trouble()?;
    node.start_kubelet()?;
    node.kubelet().ensure_only(from, &["True", "False"])
}

/// The agent's time of day is 40 minutes ahead; what it writes has the API server's.
pub fn a_wrong_clock_moves_no_transition_time(scene: &Scene) -> Result<()> {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
    let unit = format!("[Service]\nEnvironment=LD_PRELOAD={library} FAKETIME=+40m FAKETIME_DONT_FAKE_MONOTONIC=1\n");
    let node = scene.healthy_with(|node| node.file("/etc/systemd/system/nodevigil.service.d/50-clock.conf", &unit))?;
    let crashed = node.kill_for_good()?;
    // By another clock than the agent's the report is no present one, so `nodevigil status` refuses it.
    let report: Value = serde_json::from_str(&node.sh("cat /run/nodevigil/status.json")?)?;
    let written = report["written_at"].as_str().unwrap_or_default().to_owned();
    let now = node.sh("date -u +%Y-%m-%dT%H:%M:%SZ")?;
    ensure!(written.as_str() > now.trim(), "the agent's clock is not ahead: {written}, and it is {now}");
    ensure!(crashed.since.as_str() <= now.trim(), "{crashed:?} lies in the future: it is {now}");
    ensure!(crashed.since >= crashed.node_created, "{crashed:?}");
    node.start_kubelet()?;
    Ok(())
}

/// The API server takes a request and carries it out long after the agent has given it up and wants something else.
pub fn a_request_that_is_carried_out_late_does_not_stay(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    node.disable_restart()?;
    let from = Instant::now();
    scene.plane().signal_apiserver(Signal::SIGSTOP)?;
    node.kill_kubelet()?;
    node.wait_for_status("the agent to give the request up", |status| {
        status["conditions"][0]["reason"] == "KubeletCrashed" && status["published"]["state"] == "unreached"
    })?;
    node.sh("nodevigil pause 1h")?;
    node.wait_for_status("the pause", |status| status["conditions"][0]["reason"] == "NodePaused")?;
    scene.plane().signal_apiserver(Signal::SIGCONT)?;
    let paused = node.kubelet().wait_for(from, "Unknown", "NodePaused")?;
    node.kubelet().ensure_unchanged(&paused)
}

pub fn an_audit_log_names_the_agent_and_its_node(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    node.sh("nodevigil diagnose >/dev/null; true")?;
    let agent = format!(") {}", scene.node_name());
    let user = format!("nodevigil:{}", scene.node_name());
    let log = scene.plane().audit_log()?;
    let entries: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let ours: Vec<_> = entries.iter().filter(|entry| entry["user"]["username"] == user.as_str()).collect();
    for verb in ["list", "watch", "patch", "create"] {
        ensure!(ours.iter().any(|entry| entry["verb"] == verb), "no {verb} of {user} in the audit log");
    }
    let other = ours.iter().find(|entry| {
        let name = entry["userAgent"].as_str().unwrap_or_default();
        !(name.starts_with("nodevigil/") && name.contains(" (linux/") && name.ends_with(&agent))
    });
    ensure!(other.is_none(), "{:#}", other.unwrap_or(&&Value::Null));
    // packaging/kubernetes/flowschema.yaml
    let metrics = scene.plane().kubectl(&["get", "--raw", "/metrics"])?;
    let dispatched =
        metrics.lines().filter(|line| line.starts_with("apiserver_flowcontrol_dispatched_requests_total{"));
    let of_agents: Vec<_> = dispatched.filter(|line| line.contains("flow_schema=\"nodevigil\"")).collect();
    ensure!(of_agents.iter().any(|line| line.contains("priority_level=\"system\"")), "{of_agents:#?}");
    Ok(())
}

/// Has the API server enforce a policy; returns the file from which the policy can be deleted.
fn enforce(scene: &Scene, name: &str, spec: &Value) -> Result<String> {
    let object = |kind: &str, spec: &Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    let items = [object("ValidatingAdmissionPolicy", spec), object("ValidatingAdmissionPolicyBinding", &binding)];
    let file = namespaces::work().join(format!("{name}.json")).display().to_string();
    fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
    scene.plane().kubectl(&["create", "--filename", &file])?;
    sleep(Duration::from_secs(10)); // the API server does not report when it enforces a new policy
    Ok(file)
}
