//! Files other than the kubelet's own: CF009, CP006, CP007, NW004, NW005.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::lost::as_written;
use super::{Finding, Lifecycle, Report, Severity, Snapshot, settings, shortened};
use crate::kubelet::flags::{ValueKind, duration_nanos};
use crate::kubelet::machine::{FileState, Problem};
use crate::kubelet::version::Minor;

pub(super) fn file_missing(snapshot: &Snapshot, report: &mut Report) {
    report.findings.extend(snapshot.machine.beside.credential_providers.iter().map(|one| provider(snapshot, one)));
    // k3s, RKE2 and k0s write the other files each time they start.
    if settings::are_managed(snapshot) {
        return;
    }
    let is_there = |kubeconfig| !matches!(kubeconfig, &FileState::Missing { .. } | &FileState::NotAsked);
    let machine = &snapshot.machine;
    // Before a node has joined, it has neither the cluster's certificates nor a kubeconfig.
    let is_before = snapshot.lifecycle == Lifecycle::BeforeFirstStart;
    let has_joined = is_there(&machine.kubeconfig) || !is_before;
    // From 1.36 on a kubelet makes a certificate if one of the two is not set, and reads neither if it asks for one.
    let needs_both = snapshot.version.as_ref().is_some_and(|version| version.minor < Minor(36));
    let serves_own = !needs_both && snapshot.settings.bool("serverTLSBootstrap") == Some(true);
    let missing = machine.beside.missing.iter();
    let may_come = |state: &str, setting: &str| state != "is empty" && !has_joined && !setting.starts_with("--");
    for (setting, state) in missing.filter(|(setting, state)| !may_come(state, setting)) {
        let is_half = |other: &str| snapshot.settings.text(other).is_none();
        if setting.starts_with("tls") && (serves_own || is_half("tlsCertFile") || is_half("tlsPrivateKeyFile")) {
            continue; // Then the kubelet does not read it.
        }
        let path = snapshot.settings.text(setting).unwrap_or_default();
        if setting.starts_with("--") && as_written(snapshot, path).is_some() {
            continue; // FL004 tells.
        }
        let at = settings::place(snapshot, setting);
        let name = settings::name(snapshot, setting, setting);
        let message = format!("{name} names {path}, which {state}: the kubelet exits");
        let finding = Finding::new("CF009", Severity::Fatal, at.clone(), message);
        report.add(finding.say_at(&at, "put the file there, or correct its path"));
    }
    let [bin, config] = ["bin-dir", "config"].map(|end| format!("--image-credential-provider-{end}"));
    let [cert, key] = ["tlsCertFile", "tlsPrivateKeyFile"];
    for (given, other, counts) in
        [(&*bin, &*config, true), (&config, &bin, true), (cert, key, needs_both), (key, cert, needs_both)]
    {
        if counts && snapshot.settings.text(given).is_some() && snapshot.settings.text(other).is_none() {
            let at = settings::place(snapshot, given);
            let message = format!("{given} is set without {other}: the kubelet exits");
            let finding = Finding::new("CF009", Severity::Fatal, at.clone(), message);
            report.add(finding.say_at(&at, format!("add {other} as well")));
        }
    }
}

/// What is wrong with the configuration of image credential providers.
fn provider(snapshot: &Snapshot, problem: &Problem) -> Finding {
    let Problem { at, reason, is_unknown_field } = problem;
    let is_strict = snapshot.version.as_ref().is_some_and(|version| version.minor >= Minor(32));
    let finding = if *is_unknown_field && !is_strict {
        let message = format!("the kubelet skips a part of the configuration of image credential providers: {reason}");
        Finding::new("CF009", Severity::Warning, at.clone(), message).and("From 1.32 on it exits instead")
    } else {
        let message = format!("the kubelet cannot use the image credential providers and exits: {reason}");
        Finding::new("CF009", Severity::Fatal, at.clone(), message)
    };
    finding.say_at(at, "correct what is")
}

pub(super) fn static_pods(snapshot: &Snapshot, report: &mut Report) {
    const USUAL: [&str; 4] = [".yaml", ".yml", ".json", ".manifest"];
    idle_pods(snapshot, report);
    let pods = &snapshot.machine.beside.static_pods;
    let is_usual = |file: &str| USUAL.iter().any(|end| file.ends_with(end));
    let mut first = BTreeMap::new();
    // What has the usual name is what is meant.
    let (usual, odd): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| is_usual(&pod.at.file));
    for pod in usual.into_iter().chain(odd) {
        let file = &pod.at.file;
        let other = first.get(&pod.value);
        if is_usual(file) && other.is_none() {
            first.insert(pod.value.clone(), file.clone());
            continue;
        }
        let what = match other {
            Some(other) => {
                format!("{file} holds the pod {}, as {other} does: which of the two runs is not defined", pod.value)
            }
            None => format!("{file} holds the pod {}, and the kubelet runs it", pod.value),
        };
        let message = format!("{what}. In staticPodPath every file is a pod whose name does not start with a dot");
        let fix = format!("move {file} out of the directory");
        report.add(Finding::new("CP006", Severity::Warning, pod.at.clone(), message).say(fix));
    }
}

/// Pods of kubeadm's directory that no kubelet reads.
fn idle_pods(snapshot: &Snapshot, report: &mut Report) {
    const FIELD: &str = "staticPodPath";
    let pods = &snapshot.machine.beside.idle_pods;
    let is_known = !settings::are_managed(snapshot) && settings::unknown(snapshot, &[FIELD]).is_none();
    let Some(first) = pods.first().filter(|_| is_known) else { return };
    let at = settings::place(snapshot, FIELD);
    let is_set = snapshot.settings.text(FIELD).is_some_and(|path| !path.is_empty());
    let is = if is_set { settings::shown(snapshot, FIELD) } else { format!("{FIELD} is not set") };
    let message =
        format!("{is}: the kubelet does not run the pod {} of {}, or any other there", first.value, first.at.file);
    let directory = first.at.file.rsplit_once('/').map_or("/", |(directory, _)| directory);
    let fix = match settings::name(snapshot, FIELD, FIELD) {
        flag if flag.starts_with("--") => format!("write `{flag}={directory}`"),
        field => format!("write `{field}: {directory}`"),
    };
    report.add(Finding::new("CP006", Severity::Error, at.clone(), message).say_at(&at, fix));
}

pub(super) fn inhibit_delay(snapshot: &Snapshot, report: &mut Report) {
    const FIELD: &str = "shutdownGracePeriod";
    const OWN: &str = "/99-kubelet.conf";
    let nanos = snapshot.settings.text(FIELD).and_then(duration_nanos).unwrap_or(0);
    let Ok(wanted) = u64::try_from(nanos / 1_000_000_000) else { return };
    let Some(counts) = snapshot.machine.beside.inhibit_delays.last().filter(|counts| counts.value < wanted) else {
        return;
    };
    // A lower value of an earlier file is overridden by the file that the kubelet writes.
    let name = counts.at.file.rsplit('/').next().unwrap_or_default();
    if !counts.at.file.contains("/logind.conf.d/") || name <= OWN.trim_start_matches('/') {
        return;
    }
    let at = settings::place(snapshot, FIELD);
    let message = format!(
        "{}, but logind waits {} s at most (InhibitDelayMaxSec at {}). The kubelet writes the period into \
         /etc/systemd/logind.conf.d{OWN}, which sorts before that file and does not count, and gives up: at a shutdown pods \
         are killed at once",
        settings::shown(snapshot, FIELD),
        counts.value,
        counts.at
    );
    let fix = format!(
        "write `[Login]` and `InhibitDelayMaxSec={wanted}` into /etc/systemd/logind.conf.d/zz-kubelet.conf, then `systemctl \
         restart systemd-logind {}`. Or write at most {}s for {FIELD} at {at}",
        snapshot.unit.name, counts.value
    );
    let finding = Finding::new("CP007", Severity::Warning, at, message).say(fix);
    report.add(finding.step(counts.at.clone(), format!("InhibitDelayMaxSec={}", counts.value)));
}

pub(super) fn cluster_dns(snapshot: &Snapshot, report: &mut Report) {
    const FIELD: &str = "clusterDNS";
    let is_alone = snapshot.settings.text("--kubeconfig").is_none();
    let has_file = settings::config_file(snapshot).is_some();
    let at = settings::place(snapshot, FIELD);
    let wrong = snapshot.settings.list(FIELD).into_iter().filter(|address| !ValueKind::Ip.takes(address));
    for address in wrong {
        let message =
            format!("clusterDNS has '{}', which is no IP address: the kubelet passes it over", shortened(address));
        let finding = Finding::new("NW004", Severity::Warning, at.clone(), message);
        report.add(finding.say_at(&at, "write the address of the Service kube-dns alone"));
    }
    if is_alone || !has_file || settings::are_managed(snapshot) || !snapshot.settings.list(FIELD).is_empty() {
        return;
    }
    let message = "clusterDNS is not set: every pod gets the node's name servers instead of the cluster's, and finds no Service \
                   by its name";
    let fix = "add clusterDNS with the address of the Service kube-dns, for example [10.96.0.10],";
    report.add(Finding::new("NW004", Severity::Warning, at.clone(), message).say_at(&at, fix));
}

/// The kubelet asks the API server as Go's `httpproxy` says.
pub(super) fn proxied(snapshot: &Snapshot, report: &mut Report) {
    let FileState::Present(kubeconfig) = &snapshot.machine.kubeconfig else { return };
    let Some(server) = kubeconfig.server.as_deref().and_then(|server| server.strip_prefix("https://")) else { return };
    let variable = |names: [&str; 2]| {
        let variables = names.into_iter().filter_map(|name| snapshot.unit.variables.get(name));
        variables.map(|variable| &variable.effective).find(|set| !set.value.is_empty())
    };
    let Some(proxy) = variable(["HTTPS_PROXY", "https_proxy"]) else { return };
    let except = variable(["NO_PROXY", "no_proxy"]);
    let server = server.split('/').next().unwrap_or_default();
    let (host, port) = server.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).unwrap_or((server, "443"));
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let entries = except.map_or("", |except| except.value.as_str()).split(',');
    if is_loopback || entries.map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| excepts(&entry, &host, port)) {
        return;
    }
    let at = except.unwrap_or(proxy).at.clone();
    let message = format!(
        "the kubelet asks the API server {host} through the proxy of {}: {}",
        proxy.name,
        except.map_or("NO_PROXY is not set".to_owned(), |except| format!("{} does not name it", except.name))
    );
    let fix = match except {
        Some(except) => format!("add {host} to {}", except.name),
        None => format!("set NO_PROXY={host} as well"),
    };
    report.add(Finding::new("NW005", Severity::Warning, at.clone(), message).say_at(&at, fix));
}

/// Whether an entry of `NO_PROXY` is of this host.
fn excepts(entry: &str, host: &str, port: &str) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    if let Some((network, length)) = entry.split_once('/') {
        let parsed = network.parse::<IpAddr>().ok().zip(host.parse::<IpAddr>().ok()).zip(length.parse::<u32>().ok());
        return parsed.is_some_and(|((network, host), length)| {
            let ((network, size), (host, host_size)) = (bits(network), bits(host));
            size == host_size && (network ^ host).checked_shr(128_u32.saturating_sub(length)).unwrap_or(0) == 0
        });
    }
    let is_bare = entry.parse::<IpAddr>().is_ok();
    let (name, of) = entry.rsplit_once(':').filter(|_| !is_bare).unwrap_or((entry, port));
    let name = name.trim_matches(['[', ']']);
    let domain = name.trim_start_matches('*').trim_start_matches('.');
    let is_within = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    entry == "*" || of == port && !domain.is_empty() && (name == host || is_within)
}

#[cfg(test)]
mod tests;
