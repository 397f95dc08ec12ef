//! The flag without which an autoscaled node is deleted again: `--cloud-provider=external`.

use super::remedy::with_flag;
use super::{Finding, Location, Report, Severity, Snapshot, UNINITIALIZED, settings};
use crate::kubelet::expected_flag::ExpectedFlag;
use crate::kubelet::systemd::LoadState;
use crate::kubelet::version::Minor;

pub(super) fn cloud_provider_missing(snapshot: &Snapshot, report: &mut Report) {
    let expected = ExpectedFlag::new("cloud-provider", "external");
    let Some(exec) = &snapshot.unit.exec else {
        return; // SD008 says that nothing is started at all.
    };
    if snapshot.unit.load != LoadState::Loaded {
        return; // SD008 or SD019 says so.
    }
    if snapshot.command.args.is_empty() {
        match &snapshot.observed.process {
            Some(process) if expected.is_in(&process.argv.join(" ")) => return,
            Some(_) => {}
            None => return report.not_checked("CL001", "the kubelet's arguments"),
        }
    } else if expected.reaches(snapshot) {
        return;
    }
    let cloud = snapshot.cloud.as_ref().ok().and_then(|cloud| cloud.provider.as_deref());
    let only_in = match (is_expected(snapshot), cloud) {
        (Some(false), _) | (None, Some("none")) => return,
        (Some(true), _) => None,
        (None, Some(cloud)) => Some(cloud),
        (None, None) => {
            let lacks = "whether a cloud controller manager is expected: declare [intent] cloud_provider";
            return report.not_checked("CL001", lacks);
        }
    };
    if settings::are_managed(snapshot) && snapshot.command.server_disables_cloud_controller.is_none() {
        let lacks = "whether the server runs with --disable-cloud-controller, without which k3s adds the flag itself";
        return report.not_checked("CL001", lacks);
    }
    let cause = cause(report, &expected);
    let at = other_value(snapshot).or_else(|| cause.map(|cause| place_of(cause, &expected).clone()));
    let finding = finding(snapshot, &expected, cause, at.unwrap_or_else(|| exec.at.clone()));
    let is_nowhere = cause.is_none();
    report.add(match only_in {
        Some(cloud) => undeclared(finding, cloud, is_nowhere),
        None => finding,
    });
}

/// The finding that says where the flag is lost, the worst.
fn cause<'a>(report: &'a Report, expected: &ExpectedFlag) -> Option<&'a Finding> {
    let causes = report.findings.iter().rev();
    causes
        .filter(|finding| finding.lost_flags.iter().any(|flag| expected.is_in(flag)))
        .max_by_key(|finding| finding.severity)
}

/// Where the lost flag is written: a step of the finding that names it, else the finding itself.
fn place_of<'a>(cause: &'a Finding, expected: &ExpectedFlag) -> &'a Location {
    cause.chain.iter().find(|step| expected.is_in(&step.text)).map_or(&cause.at, |step| &step.at)
}

/// The finding as less than an error: a machine of a cloud may be in a cluster without a cloud controller manager.
fn undeclared(mut finding: Finding, cloud: &str, is_nowhere: bool) -> Finding {
    finding.severity = if is_nowhere { Severity::Info } else { Severity::Warning };
    finding.remedy.by_hand = true;
    let assumed = format!(
        "nodevigil assumes that this cluster has a cloud controller manager, because this machine is a server of \
         '{cloud}'. In a cluster without one nothing is wrong"
    );
    finding.and(&assumed).say(
        "In a cluster without a cloud controller manager declare `cloud_provider = \"none\"` in [intent] of nodevigil's \
         settings",
    )
}

/// Whether a cloud controller manager is expected; `None` where nothing says so or otherwise.
fn is_expected(snapshot: &Snapshot) -> Option<bool> {
    if let Some(declared) = &snapshot.intent.cloud_provider {
        return Some(declared == "external");
    }
    if in_tree(snapshot) {
        return Some(false);
    }
    let cluster = snapshot.observed.cluster.as_ref();
    let tainted = cluster
        .and_then(|cluster| cluster.taints.as_ref())
        .is_some_and(|taints| taints.iter().any(|key| key == UNINITIALIZED));
    if tainted { Some(true) } else { cluster?.others_have_provider_id }
}

/// Whether the kubelet is one that still has cloud providers of its own, and is given one.
fn in_tree(snapshot: &Snapshot) -> bool {
    snapshot.version.as_ref().is_some_and(|version| version.minor < Minor(31))
        && snapshot.flags.value("cloud-provider").is_some_and(|value| !value.is_empty())
}

/// The use that gives the flag another value.
fn other_value(snapshot: &Snapshot) -> Option<Location> {
    let used = snapshot.flags.last("cloud-provider")?;
    let elsewhere = snapshot.flags.all("cloud-provider").any(|used| used.value == "external");
    (!used.value.is_empty() && !elsewhere).then(|| used.at.clone())
}

fn finding(snapshot: &Snapshot, expected: &ExpectedFlag, cause: Option<&Finding>, at: Location) -> Finding {
    let given = other_value(snapshot).and(snapshot.flags.value("cloud-provider"));
    let running = snapshot.observed.process.as_ref().filter(|process| expected.is_in(&process.argv.join(" ")));
    let why = match (given, cause) {
        (Some(value), _) => format!("its value here is '{value}'"),
        (None, Some(cause)) => format!("it is written here and lost (see {} at {})", cause.rule, cause.at),
        (None, None) => running.map_or_else(
            || "no file that was read sets it".to_owned(),
            |process| format!("only the running kubelet (pid {}) has it, and loses it at the next start", process.pid),
        ),
    };
    let server = if snapshot.command.server_disables_cloud_controller == Some(true) {
        ". The server runs with --disable-cloud-controller, so the distribution does not add the flag itself"
    } else {
        ""
    };
    let message = format!(
        "--cloud-provider=external does not reach the kubelet: {why}{server}. The Node will register without the \
         uninitialized taint and without a providerID, so the autoscaler cannot match it to its server"
    );
    let new = Finding::new("CL001", Severity::Error, at.clone(), message);
    let finding = match (given, cause) {
        (Some(_), _) => new.say_at(&at, "write --cloud-provider=external").caused_by("CL002", at),
        (None, Some(cause)) => {
            let new = if cause.at == at { new } else { new.step(cause.at.clone(), "this is why it is lost") };
            let fix = format!("follow the fix of {} at {}", cause.rule, cause.at);
            new.say(fix).caused_by(cause.rule, cause.at.clone())
        }
        (None, None) => new.remedy(with_flag(snapshot, "cloud-provider=external")),
    };
    if snapshot.observed.cluster.as_ref().and_then(|cluster| cluster.node_exists) == Some(true) {
        finding.say(
            "The Node exists already: delete it with `kubectl delete node` before the restart, because the kubelet sets the \
             taint only on a Node that it creates",
        )
    } else {
        finding
    }
}

#[cfg(test)]
mod tests;
