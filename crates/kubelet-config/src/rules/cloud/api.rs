//! Rules on what the API server says: the Node, its taints, its age, the server's version. The facts are handed in.

use super::{external, name};
use crate::kubelet::flags::parse::parse_argv;
use crate::kubelet::snapshot::{CloudFacts, ClusterFacts};
use crate::kubelet::version::Version;
use crate::rules::lost::duration;
use crate::rules::{
    Finding, Launcher, Report, Severity, Snapshot, UNINITIALIZED, UNINITIALIZED_TOO_LATE_SECS, at, settings,
};

/// After how long an uninitialised Node is worth a warning: a cloud controller usually takes 1 to 30 s.
const LATE_SECS: u64 = 120;

/// What the API says of this Node; `None` where it was not asked, or has none.
fn node(snapshot: &Snapshot) -> Option<(&ClusterFacts, &[String])> {
    let cluster = snapshot.observed.cluster.as_ref()?;
    let taints = cluster.taints.as_deref()?;
    (cluster.node_exists != Some(false)).then_some((cluster, taints))
}

/// Whether it was asked and there is none.
fn no_node(snapshot: &Snapshot) -> bool {
    let cluster = snapshot.observed.cluster.as_ref();
    cluster.is_some_and(|cluster| cluster.node_exists == Some(false))
}

fn has_provider_id(cluster: &ClusterFacts) -> bool {
    cluster.provider_id.as_deref().is_some_and(|id| !id.is_empty())
}

pub(in crate::rules) fn registered_before(snapshot: &Snapshot, report: &mut Report) {
    let Some(used) = external(snapshot) else { return };
    let Some((cluster, taints)) = node(snapshot) else {
        if !no_node(snapshot) {
            report.not_checked("CL004", "the Node's taints and spec.providerID");
        }
        return;
    };
    if has_provider_id(cluster) || taints.iter().any(|taint| taint == UNINITIALIZED) {
        return;
    }
    // A kubelet that runs without the flag comes first: SD021 names it, and a Node created again now would be no better.
    let runs_with = |argv: &[String]| parse_argv(argv, &used.at).value("cloud-provider") == Some("external");
    if snapshot.observed.process.as_ref().is_some_and(|process| !runs_with(&process.argv)) {
        return;
    }
    let age = cluster.node_age_secs.map_or(String::new(), |age| format!(" {} ago", duration(age)));
    let (name, unit) = (name::node_argument(snapshot), &snapshot.unit.name);
    let message = format!(
        "the kubelet created this Node{age}, when it did not have --cloud-provider=external yet. The Node has neither the \
         uninitialized taint nor spec.providerID, and the cloud controller ignores it"
    );
    let fix = format!("let the kubelet create the Node again: `kubectl delete node {name}; systemctl restart {unit}`");
    report.add(Finding::new("CL004", Severity::Error, at::flag(snapshot, used), message).say(fix));
}

pub(in crate::rules) fn taint_stuck(snapshot: &Snapshot, report: &mut Report) {
    let used = external(snapshot);
    let Some((cluster, taints)) = node(snapshot) else {
        if used.is_some() && !no_node(snapshot) {
            report.not_checked("CP005", "the Node's taints and its age");
        }
        return;
    };
    if !taints.iter().any(|taint| taint == UNINITIALIZED) {
        return;
    }
    let Some(age) = cluster.node_age_secs else {
        report.not_checked("CP005", "the Node's age");
        return;
    };
    let severity = match age {
        ..LATE_SECS => return,
        LATE_SECS..UNINITIALIZED_TOO_LATE_SECS => Severity::Warning,
        UNINITIALIZED_TOO_LATE_SECS.. => Severity::Error,
    };
    let place = used.map_or_else(|| settings::command(snapshot), |used| at::flag(snapshot, used));
    let message = format!(
        "this Node has had the taint {UNINITIALIZED} for {}. No cloud controller has initialized it, and most pods cannot \
         run on it",
        duration(age)
    );
    let fix = "find the cloud controller with `kubectl get pods -A -o wide | grep cloud-controller`. Check that it \
               tolerates the taints uninitialized and not-ready, and that its token is valid. Its log shows whether it \
               finds a server of this Node's name or providerID";
    report.add(Finding::new("CP005", severity, place, message).say(fix));
}

/// CL005 where the kubelet is given no providerID: who needs it, and the Node has none.
pub(super) fn provider_id_absent(snapshot: &Snapshot, report: &mut Report) {
    let Some((cluster, taints)) = node(snapshot) else { return };
    let late = cluster.node_age_secs.is_some_and(|age| age >= LATE_SECS);
    let explained = taints.iter().any(|taint| taint == UNINITIALIZED) || external(snapshot).is_some();
    if has_provider_id(cluster) || explained || !late || cluster.others_have_provider_id != Some(true) {
        return;
    }
    let own = snapshot.cloud.as_ref().ok().and_then(CloudFacts::provider_id);
    let id = own.as_deref().unwrap_or("CLOUD://ID with this machine's id in its cloud");
    let message = "this Node has no spec.providerID, but other Nodes have one. The autoscaler takes this server for one \
                   that has not registered, and deletes it";
    let fix = format!(
        "give the kubelet --cloud-provider=external, or --provider-id={id}. Then delete the Node and restart the kubelet, \
         which creates it again"
    );
    report.add(Finding::new("CL005", Severity::Warning, settings::command(snapshot), message).say(fix));
}

pub(in crate::rules) fn version_skew(snapshot: &Snapshot, report: &mut Report) {
    const ID: &str = "CP001";
    let cluster = snapshot.observed.cluster.as_ref();
    let Some(server) = cluster.and_then(|cluster| cluster.server_version.as_deref()) else {
        return report.not_checked(ID, "the API server's version");
    };
    let Ok(server) = server.parse::<Version>() else {
        return report.not_checked(ID, "an API server's version that can be read");
    };
    let Some(kubelet) = &snapshot.version else { return report.not_checked(ID, "the kubelet's version") };
    let (new, old) = (kubelet.minor.0, server.minor.0);
    let allowed = if old >= 28 { 3 } else { 2 };
    let (why, fix) = if new > old {
        (
            "A kubelet must not be newer than the API server".to_owned(),
            format!("upgrade the control plane to {} first, or install kubelet {}", kubelet.minor, server.minor),
        )
    } else if old - new > allowed {
        (
            format!("A kubelet may be at most {allowed} minor versions older, and this one is {} older", old - new),
            format!("upgrade the kubelet to {}, one minor version after the other", server.minor),
        )
    } else {
        return;
    };
    let at =
        snapshot.machine.kubelet_version.as_ref().map_or_else(|| settings::command(snapshot), |found| found.at.clone());
    let message = format!("kubelet {kubelet} is not supported with API server {server}. {why}");
    // RKE2 writes the manifest of its new API server when it starts the next time.
    let is_to_come = snapshot.command.launcher == Launcher::Rke2
        && new > old
        && cluster.is_some_and(|cluster| cluster.server_version_at.is_some());
    let severity = if is_to_come { Severity::Warning } else { Severity::Error };
    let image = cluster.and_then(|cluster| cluster.server_version_at.clone());
    let step = image.map(|image| (image, "the API server of this host"));
    report.add(Finding::new(ID, severity, at, message).say(fix).steps(step));
}
