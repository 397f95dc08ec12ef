//! CL006: the address that the kubelet gives its Node.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use super::external;
use crate::kubelet::version::Minor;
use crate::rules::{Finding, Lifecycle, Report, Severity, Snapshot, at, shortened};

pub(in crate::rules) fn node_ip(snapshot: &Snapshot, report: &mut Report) {
    let used = snapshot.flags.last("node-ip");
    let Some(used) = used.filter(|used| !used.value.is_empty()) else {
        node_ip_unset(snapshot, report);
        return;
    };
    if at::is_built_in(snapshot, used.word) {
        return;
    }
    let place = at::value_part(snapshot, used, 0, used.value.len());
    if let Some((first, _)) = used.value.split_once(',').filter(|_| !takes_two(snapshot)) {
        let message = format!(
            "--node-ip is {}. With a cloud provider a kubelet before 1.29 takes one address and exits: the cloud controller \
             adds the other one",
            shortened(&used.value)
        );
        let finding = Finding::new("CL006", Severity::Fatal, place, message);
        return report.add(finding.with(at::set_value(snapshot, used, first)));
    }
    let mut problems = refused(&used.value);
    if problems.is_empty() {
        match &snapshot.machine.addresses {
            Some(local) => problems.extend(foreign(&used.value, local)),
            None => report.not_checked("CL006", "the addresses of this host's interfaces"),
        }
    }
    let declared = snapshot.intent.node_ip.as_ref().filter(|declared| **declared != used.value);
    if let Some(declared) = declared {
        problems.push((Severity::Error, format!("[intent] declares {declared}")));
    }
    for (severity, problem) in problems {
        let message = format!("--node-ip is {}. {problem}", shortened(&used.value));
        let finding = Finding::new("CL006", severity, place.clone(), message);
        report.add(match declared {
            Some(declared) => finding.with(at::set_value(snapshot, used, declared)),
            None => finding
                .say_at(&place, "write an address that an interface of this host has")
                .say("With a cloud controller it must be the one that the cloud reports (InternalIP)"),
        });
    }
}

/// Whether it takes two addresses (KEP-3705); where the release is not known, as those that are supported do.
fn takes_two(snapshot: &Snapshot) -> bool {
    let gates = snapshot.settings.get("featureGates");
    let gate = gates.and_then(|gates| gates.value.get("CloudDualStackNodeIPs")?.as_bool());
    let is_old = snapshot.version.as_ref().is_some_and(|version| version.minor < Minor(29));
    external(snapshot).is_none() || !is_old || gate == Some(true)
}

/// The addresses of the flag, and what is none; read as the kubelet reads them.
fn addresses(value: &str) -> impl Iterator<Item = Result<IpAddr, &str>> {
    // Two are the most that the kubelet takes.
    let parts = value.split(',').map(str::trim).take(8);
    parts.map(|text| text.parse().map_err(|_| text))
}

/// What the kubelet itself refuses (`parseNodeIP`, `validateNodeIP`).
fn refused(value: &str) -> Vec<(Severity, String)> {
    let mut problems = Vec::new();
    for text in addresses(value).filter_map(Result::err) {
        let text = shortened(text);
        let problem = format!("'{text}' is not an IP address, and the kubelet ignores it");
        problems.push((Severity::Error, problem));
    }
    let good: Vec<IpAddr> = addresses(value).filter_map(Result::ok).collect();
    let takes = match good.as_slice() {
        [] | [_] => true,
        [first, second] => first.is_ipv4() != second.is_ipv4() && !good.iter().any(IpAddr::is_unspecified),
        _ => false,
    };
    if !takes {
        let problem = "The kubelet exits: it takes one address, or one of IPv4 and one of IPv6";
        problems.push((Severity::Fatal, problem.to_owned()));
    }
    let is_local = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let mut useless = good.iter().filter(|ip| ip.is_loopback() || ip.is_multicast() || is_local(ip));
    if let Some(address) = useless.next() {
        let problem = format!("{address} is a loopback, link-local or multicast address, so the Node gets no address");
        problems.push((Severity::Error, problem));
    }
    problems
}

/// An address that no interface has.
fn foreign(value: &str, local: &[String]) -> Option<(Severity, String)> {
    let local: BTreeSet<IpAddr> = local.iter().filter_map(|text| text.split('/').next()?.parse().ok()).collect();
    let mut foreign =
        addresses(value).filter_map(Result::ok).filter(|address| !address.is_unspecified() && !local.contains(address));
    let address = foreign.next()?;
    let problem = format!("No interface of this host has {address}, and the Node gets no address");
    Some((Severity::Error, problem))
}

fn node_ip_unset(snapshot: &Snapshot, report: &mut Report) {
    let waits = snapshot.version.as_ref().is_some_and(|version| version.minor >= Minor(29));
    // Later the host has the addresses of CNI's bridges too, and the controller has chosen.
    if !waits || snapshot.lifecycle != Lifecycle::BeforeFirstStart {
        return;
    }
    let Some(used) = external(snapshot) else { return };
    let Some(local) = &snapshot.machine.addresses else {
        report.not_checked("CL006", "the addresses of this host's interfaces");
        return;
    };
    let is_usable =
        |text: &&str| text.parse::<Ipv4Addr>().is_ok_and(|address| !address.is_loopback() && !address.is_link_local());
    let some: Vec<&str> = local.iter().filter_map(|text| text.split('/').next()).filter(is_usable).take(4).collect();
    if some.len() > 1 {
        let place = at::flag(snapshot, used);
        let message = format!(
            "--node-ip is not set, and this host has several addresses ({}). With --cloud-provider=external the Node has \
             none of them until the cloud controller has chosen one",
            some.join(", ")
        );
        let fix = "add --node-ip=ADDRESS, with the address that the cloud reports, to --cloud-provider=external";
        report.add(Finding::new("CL006", Severity::Warning, place.clone(), message).say_at(&place, fix));
    }
}
