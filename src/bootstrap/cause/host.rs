//! Causes that the host itself shows: cloud-init, the runtime, the kubelet's process.

use super::{Cause, cause, of_rule};
use crate::bootstrap::evidence::{
    CloudInit, Evidence, HealthzSeen, KubeletRun, RuleSeen, RuntimeSeen, UnitSeen,
};

pub(super) fn cloud_init_slow(evidence: &Evidence) -> Option<Cause> {
    let CloudInit::Running { stage, errors, .. } = &evidence.host.cloud_init else {
        return None;
    };
    let at = if stage.is_empty() {
        "between two stages".to_owned()
    } else {
        format!("in its stage {stage}")
    };
    let failed = errors.first().map_or(String::new(), |first| {
        format!("; something failed: {first}")
    });
    Some(cause(
        "cloud-init-slow",
        format!("cloud-init is still {at}{failed}"),
        "/var/log/cloud-init.log: the network, the metadata service, a package mirror",
    ))
}

/// A unit that is not there, while or after cloud-init was to install it.
pub(super) fn not_installed(evidence: &Evidence, unit: Option<&UnitSeen>) -> Option<Cause> {
    let unit = unit.filter(|unit| unit.load == "not-found")?;
    let name = &unit.name;
    let fix = "/var/log/cloud-init-output.log";
    match &evidence.host.cloud_init {
        CloudInit::Running { .. } => Some(cause(
            "cloud-init-slow",
            format!("there is no {name} yet: cloud-init is still at work"),
            fix,
        )),
        CloudInit::Finished { errors } => Some(match errors.first() {
            Some(first) => cause(
                "cloud-init-failed",
                format!("there is no {name}: cloud-init has failed: {first}"),
                fix,
            ),
            None => cause(
                "not-installed",
                format!("there is no {name}: nothing has installed it"),
                "install it in the image or the user data",
            ),
        }),
        _ => Some(cause(
            "not-installed",
            format!("there is no {name}: nothing has installed it"),
            "install it in the image or the user data",
        )),
    }
}

pub(super) fn runtime_unit(evidence: &Evidence) -> Option<Cause> {
    let RuntimeSeen::Silent { socket, why, .. } = &evidence.host.runtime else {
        return None;
    };
    let unit = evidence.runtime_unit.as_ref()?;
    if unit.active == "active" || unit.load == "not-found" {
        return None;
    }
    let (name, load) = (&unit.name, &unit.load);
    let state = if load == "masked" {
        "masked".to_owned()
    } else {
        in_words(unit)
    };
    Some(cause(
        "runtime-unit",
        format!("{name} is {state}, so {socket}: {why}"),
        format!("systemctl enable --now {name}; journalctl -u {name} says why it does not run"),
    ))
}

/// `failed (exit-code)`, `inactive`.
fn in_words(unit: &UnitSeen) -> String {
    match unit.result.as_str() {
        "" | "success" => unit.active.clone(),
        result => format!("{} ({result})", unit.active),
    }
}

pub(super) fn runtime_hangs(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Silent {
            socket,
            why,
            hangs: true,
        } => Some(cause(
            "runtime-hangs",
            format!("the runtime at {socket} hangs: {why}"),
            "look at its journal and its disk",
        )),
        _ => None,
    }
}

pub(super) fn runtime_silent(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Silent { socket, why, .. } => Some(cause(
            "runtime-silent",
            format!("no runtime answers at {socket}: {why}"),
            "start the runtime, or correct the kubelet's containerRuntimeEndpoint",
        )),
        _ => None,
    }
}

pub(super) fn runtime_not_ready(evidence: &Evidence) -> Option<Cause> {
    match &evidence.host.runtime {
        RuntimeSeen::Answers {
            what,
            not_ready: Some(why),
            ..
        } => Some(cause(
            "runtime-not-ready",
            format!("{what} says that it is not ready: {why}"),
            "look at its journal",
        )),
        _ => None,
    }
}

/// Rules that are broken by nature before `kubeadm join`.
const BEFORE_JOIN: [&str; 3] = ["AU001", "CF001", "SD012"];

pub(super) fn fatal(evidence: &Evidence) -> Option<Cause> {
    let runs =
        matches!(evidence.run, KubeletRun::Runs { .. }) && evidence.healthz == HealthzSeen::Well;
    let counts = |found: &&RuleSeen| {
        let is_natural = evidence.host.awaits_join && BEFORE_JOIN.contains(&found.rule.as_str());
        found.is_fatal && !is_natural
    };
    let found = evidence.host.findings.iter().find(counts)?;
    (!runs).then(|| of_rule(found))
}

pub(super) fn kubelet_unit(evidence: &Evidence) -> Option<&UnitSeen> {
    match &evidence.run {
        KubeletRun::Down(unit) => Some(unit),
        _ => None,
    }
}

pub(super) fn kubelet_ends(evidence: &Evidence) -> Option<Cause> {
    let unit = kubelet_unit(evidence)?;
    let words = evidence.last_words.as_ref()?;
    Some(cause(
        "kubelet-ends",
        format!("the kubelet has ended; its last words: {words}"),
        format!("journalctl -u {}", unit.name),
    ))
}

pub(super) fn kubelet_not_started(evidence: &Evidence) -> Option<Cause> {
    let unit = kubelet_unit(evidence)?;
    let name = &unit.name;
    let state = match unit.load.as_str() {
        "loaded" | "" => in_words(unit),
        load => load.to_owned(),
    };
    Some(cause(
        "kubelet-not-started",
        format!("{name} is {state}"),
        format!("systemctl enable --now {name}"),
    ))
}

pub(super) fn kubelet_silent(evidence: &Evidence) -> Option<Cause> {
    let HealthzSeen::Bad(why) = &evidence.healthz else {
        return None;
    };
    let words = evidence.last_words.as_ref();
    let words = words.map_or(String::new(), |words| format!("; its last words: {words}"));
    Some(cause(
        "kubelet-silent",
        format!("the kubelet runs, and its healthz {why}{words}"),
        "journalctl -u kubelet; it serves healthz only once the runtime answers",
    ))
}
