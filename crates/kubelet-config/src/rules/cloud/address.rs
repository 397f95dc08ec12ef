//! CL006: the address that the kubelet gives its Node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::rules::{Finding, Report, Severity, Snapshot, at, shortened};

pub(in crate::rules) fn node_ip(snapshot: &Snapshot, report: &mut Report) {
    let used = snapshot.flags.last("node-ip").filter(|used| !used.value.is_empty());
    let Some(used) = used.filter(|used| !at::is_built_in(snapshot, used.word)) else { return };
    let place = at::value_part(snapshot, used, 0, used.value.len());
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
    let mut useless = good.iter().filter(|ip| ip.is_loopback() || ip.is_multicast());
    if let Some(address) = useless.next() {
        let problem = format!("{address} is a loopback or multicast address, so the Node gets no address");
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
