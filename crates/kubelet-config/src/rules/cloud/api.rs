//! Rules on what the API server says: the Node, its taints, its age, the server's version. The facts are handed in; a
//! rule that lacks one says so.

use super::{external, name};
use crate::{
    kubelet::{
        location::Location,
        machine::{FileState, Kubeconfig},
        snapshot::{ClusterFacts, Snapshot},
        version::Version,
    },
    rules::{Finding, Report, Severity, UNINITIALIZED, UNINITIALIZED_TOO_LATE_SECS, at},
};

/// After how long an uninitialised Node is worth a warning: a cloud controller usually takes 1 to 30 s.
const LATE_SECS: u64 = 120;

/// What the API says of this Node; `None` where it was not asked, or has none.
fn node(snapshot: &Snapshot) -> Option<(&ClusterFacts, &[String])> {
    let cluster = snapshot.cluster.as_ref()?;
    let taints = cluster.taints.as_deref()?;
    (cluster.node_exists != Some(false)).then_some((cluster, taints))
}

/// Whether it was asked and there is none.
fn no_node(snapshot: &Snapshot) -> bool {
    let cluster = snapshot.cluster.as_ref();
    cluster.is_some_and(|cluster| cluster.node_exists == Some(false))
}

fn has_provider_id(cluster: &ClusterFacts) -> bool {
    cluster.provider_id.as_deref().is_some_and(|id| !id.is_empty())
}

fn node_name(snapshot: &Snapshot) -> String {
    name::node_name(snapshot).map_or_else(|| "NODE".to_owned(), |(name, _)| name.trim().to_lowercase())
}

pub(super) fn registered_before(snapshot: &Snapshot, report: &mut Report) {
    let Some(used) = external(snapshot) else {
        return;
    };
    let Some((cluster, taints)) = node(snapshot) else {
        if !no_node(snapshot) {
            report.not_checked("CL004", "the Node's taints and spec.providerID");
        }
        return;
    };
    if has_provider_id(cluster) || taints.iter().any(|taint| taint == UNINITIALIZED) {
        return;
    }
    // A kubelet that runs without the flag comes first: SD021 names it, and a Node made anew now would be no better.
    if snapshot.process.as_ref().is_some_and(|process| !is_external(&process.argv)) {
        return;
    }
    let age = cluster.node_age_secs.map_or(String::new(), |age| format!(" {} ago", duration(age)));
    let (place, name) = (at::flag(snapshot, used), node_name(snapshot));
    let unit = &snapshot.unit.name;
    report.add(
        Finding::new(
            "CL004",
            Severity::Error,
            place,
            format!(
                "this Node was created{age}, before --cloud-provider=external was in effect: it has neither the \
                 uninitialized taint nor spec.providerID, so the cloud controller ignores it"
            ),
        )
        .fix(format!("kubectl delete node {name}; systemctl restart {unit}")),
    );
}

/// Whether these words hold `--cloud-provider=external`, in either form.
fn is_external(argv: &[String]) -> bool {
    let together = argv.iter().any(|word| word == "--cloud-provider=external");
    let apart = ["--cloud-provider", "external"];
    together || argv.windows(2).any(|pair| pair == apart)
}

pub(super) fn taint_stuck(snapshot: &Snapshot, report: &mut Report) {
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
    let place = used.map_or_else(|| unit(snapshot), |used| at::flag(snapshot, used));
    report.add(
        Finding::new(
            "CP005",
            severity,
            place,
            format!(
                "the taint {UNINITIALIZED} is on this Node for {}: no cloud controller has initialised it",
                duration(age)
            ),
        )
        .fix(
            "kubectl get pods -A -o wide | grep cloud-controller; look for its tolerations (uninitialized, not-ready), \
             its token, and whether it knows this server by name or providerID",
        ),
    );
}

/// CL005 where the kubelet is given no providerID: who needs it, and the Node has none.
pub(super) fn provider_id_absent(snapshot: &Snapshot, report: &mut Report) {
    let Some((cluster, taints)) = node(snapshot) else {
        return;
    };
    let late = cluster.node_age_secs.is_some_and(|age| age >= LATE_SECS);
    let explained = taints.iter().any(|taint| taint == UNINITIALIZED) || external(snapshot).is_some();
    if has_provider_id(cluster) || explained || !late || cluster.others_have_provider_id != Some(true) {
        return;
    }
    report.add(
        Finding::new(
            "CL005",
            Severity::Warning,
            unit(snapshot),
            "this Node has no spec.providerID, and other nodes have one: the autoscaler takes its server for one that \
             never registered, and deletes it",
        )
        .fix(
            "--cloud-provider=external, or --provider-id=CLOUD://ID from the cloud's metadata; then kubectl delete node \
             and a restart of the kubelet",
        ),
    );
}

pub(super) fn version_skew(snapshot: &Snapshot, report: &mut Report) {
    let Some(server) = snapshot.cluster.as_ref().and_then(|cluster| cluster.server_version.as_deref()) else {
        report.not_checked("CP001", "the API server's version");
        return;
    };
    let Some(kubelet) = &snapshot.version else {
        report.not_checked("CP001", "the kubelet's version");
        return;
    };
    let Ok(server) = server.parse::<Version>() else {
        report.not_checked("CP001", "an API server's version that can be read");
        return;
    };
    let (new, old) = (kubelet.minor.0, server.minor.0);
    let allowed = if old >= 28 { 3 } else { 2 };
    let why = if new > old {
        "a kubelet must not be newer"
    } else if old - new > allowed {
        "the kubelet is too old for it"
    } else {
        return;
    };
    let place = match &snapshot.machine.kubelet_version {
        Some(found) => found.at.clone(),
        None => unit(snapshot),
    };
    report.add(
        Finding::new(
            "CP001",
            Severity::Error,
            place,
            format!("kubelet {kubelet} with API server {server} is not supported: {why}"),
        )
        .fix(if new > old {
            format!("upgrade the control plane to {} first, or install kubelet {}", kubelet.minor, server.minor)
        } else {
            format!("upgrade the kubelet to {}", server.minor)
        }),
    );
}

pub(super) fn bootstrap_token(snapshot: &Snapshot, report: &mut Report) {
    // A kubelet that has its kubeconfig needs the token no more.
    if matches!(snapshot.machine.kubeconfig, FileState::Present(_)) {
        return;
    }
    let FileState::Present(bootstrap) = &snapshot.machine.bootstrap_kubeconfig else {
        return;
    };
    let accepted = snapshot.cluster.as_ref().and_then(|cluster| cluster.bootstrap_token_accepted);
    match accepted {
        None => report.not_checked("AU004", "whether the API server takes the bootstrap token"),
        Some(true) => {}
        Some(false) => report.add(
            Finding::new(
                "AU004",
                Severity::Error,
                bootstrap.at.clone(),
                format!(
                    "the API server refuses the bootstrap token of {} (kubeadm's tokens live 24 h): this node cannot \
                     join",
                    bootstrap.at
                ),
            )
            .fix("kubeadm token create --print-join-command on a control plane; write the new token into the template"),
        ),
    }
}

pub(super) fn unreachable(snapshot: &Snapshot, report: &mut Report) {
    let asked: [&FileState<Kubeconfig>; 2] = [&snapshot.machine.kubeconfig, &snapshot.machine.bootstrap_kubeconfig];
    let kubeconfig = asked.into_iter().find_map(|needed| match needed {
        FileState::Present(kubeconfig) => Some(kubeconfig),
        _ => None,
    });
    let Some(kubeconfig) = kubeconfig else {
        return;
    };
    let reachable = snapshot.cluster.as_ref().and_then(|cluster| cluster.reachable.as_deref());
    let Some(reason) = reachable else {
        report.not_checked("AU005", "whether the API server can be reached");
        return;
    };
    let fix = match reason {
        "ok" => return,
        "dns" => "resolvectl query the name; correct the resolver, or the server in the template",
        "refused" => "is the API server up, and is the port right?",
        "timeout" => "look at firewall, security group and route between this host and the API server",
        "unknown authority" => "the certificate authority of the kubeconfig is another cluster's: bootstrap anew",
        _ => "curl -k the address from this host",
    };
    let server = kubeconfig.server.as_deref().unwrap_or("the API server");
    report.add(
        Finding::new("AU005", Severity::Error, kubeconfig.at.clone(), format!("cannot reach {server}: {reason}"))
            .fix(fix),
    );
}

/// The unit's command, where no better place is known.
fn unit(snapshot: &Snapshot) -> Location {
    match (&snapshot.unit.exec, &snapshot.unit.fragment) {
        (Some(exec), _) => exec.at.clone(),
        (None, Some(fragment)) => Location::file(fragment),
        (None, None) => Location::file(&snapshot.unit.name),
    }
}

/// `90 s`, `15 min`, `3 h`, `2 d`.
fn duration(secs: u64) -> String {
    match secs {
        ..120 => format!("{secs} s"),
        120..7_200 => format!("{} min", secs / 60),
        7_200..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} d", secs / 86_400),
    }
}
