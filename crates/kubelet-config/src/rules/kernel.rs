//! KN: swap, kernel settings.

use super::{Finding, Lifecycle, Located, Location, Report, Severity, Snapshot, at, settings};
use crate::kubelet::machine::PROTECTED;

pub(super) fn swap_on(snapshot: &Snapshot, report: &mut Report) {
    let Some(swaps) = &snapshot.machine.kernel.swaps else {
        return report.not_checked("KN001", "/proc/swaps of the host");
    };
    let Some(swap) = swaps.first() else { return };
    if snapshot.settings.bool("failSwapOn") == Some(false) {
        return;
    }
    let more = match swaps.len() {
        1 => String::new(),
        all => format!(", and {} more", all - 1),
    };
    let devices = format!("{}, {} MiB{more}", swap.value.device, swap.value.size_bytes >> 20);
    let fix = format!(
        "run `swapoff -a`, and mask the unit (`systemctl list-units --type=swap`) or remove the line of /etc/fstab that \
         turns swap on at boot. Or set failSwapOn: false, and memorySwap.swapBehavior to NoSwap, or to LimitedSwap with cgroup \
         v2, in the kubelet's configuration{}",
        match snapshot.version.as_ref().map(|version| version.minor.0) {
            Some(34..) => " (NodeSwap is GA since 1.34)",
            Some(..28) => " (swap is not supported before 1.28)",
            _ => "",
        }
    );
    let finding = if settings::are_to_come(snapshot) {
        let message = format!(
            "swap is on ({devices}). The kubelet will exit at its start, unless the configuration that is still to be written \
             sets failSwapOn: false"
        );
        Finding::new("KN001", Severity::Warning, swap.at.clone(), message)
    } else {
        let default = if settings::is_default(snapshot, "failSwapOn") { " (the default)" } else { "" };
        let message = format!(
            "swap is on ({devices}) and failSwapOn is true{default}. The kubelet exits at its start with 'running with swap on \
             is not supported'"
        );
        let set_at = default.is_empty().then(|| settings::place(snapshot, "failSwapOn"));
        Finding::new("KN001", Severity::Fatal, swap.at.clone(), message)
            .steps(set_at.map(|at| (at, "failSwapOn is set to true here")))
    };
    report.add(finding.say(fix));
}

pub(super) fn memory_cgroup(snapshot: &Snapshot, report: &mut Report) {
    let controllers = snapshot.machine.kernel.controllers.as_ref();
    let has_memory = |found: &&Located<String>| found.value.split_whitespace().any(|name| name == "memory");
    let Some(found) = controllers.filter(|found| !has_memory(found)) else { return };
    let program = snapshot.command.launcher.rancher_name();
    if program.is_some() && snapshot.command.unknown.is_some() {
        return; // A server without an agent: no kubelet, and no look at the cgroups.
    }
    let (severity, result) = match program {
        Some(program) => (Severity::Fatal, format!("{program} exits with 'failed to find memory cgroup (v2)'")),
        None => (Severity::Error, "pods with a memory limit do not start".to_owned()),
    };
    let message = format!("cgroup v2 has no memory controller here: {result}");
    let fix = "add `cgroup_enable=memory` to the kernel's command line, without `cgroup_disable=memory`, and reboot. On a \
               Raspberry Pi it is the one line of /boot/firmware/cmdline.txt";
    report.add(Finding::new("KN005", severity, found.at.clone(), message).say(fix));
}

pub(super) fn ip_forward(snapshot: &Snapshot, report: &mut Report) {
    // k3s and RKE2 set these themselves when they start.
    if settings::are_managed(snapshot) && snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        return;
    }
    let sysctls = &snapshot.machine.kernel.sysctls;
    let Some(forward) = sysctls.get("net.ipv4.ip_forward") else {
        return report.not_checked("KN002", "/proc/sys/net/ipv4/ip_forward of the host");
    };
    let has_ipv6 = snapshot.settings.text("--node-ip").is_some_and(|addresses| addresses.contains(':'));
    let ipv6 = sysctls.get("net.ipv6.conf.all.forwarding").filter(|_| has_ipv6);
    let all = [("net.ipv4.ip_forward", Some(forward)), ("net.ipv6.conf.all.forwarding", ipv6)];
    for (name, found) in all {
        let Some(found) = found.filter(|found| found.value == "0") else { continue };
        let message = format!("{name} is 0, the kernel's default: the kernel drops what pods send to other nodes");
        report.add(Finding::new("KN002", Severity::Error, found.at.clone(), message).say(persist(&[(name, "1")])));
    }
}

/// The command that sets kernel settings now and at each boot.
fn persist(values: &[(&str, &str)]) -> String {
    let lines: Vec<String> = values.iter().map(|(name, value)| format!("'{name} = {value}'")).collect();
    format!("run `printf '%s\\n' {} >> /etc/sysctl.d/90-kubelet.conf && sysctl --system`", lines.join(" "))
}

/// CNI plugins that put pods on a Linux bridge (flannel and weave-net by way of the plugin `bridge`).
const BRIDGES: &[&str] = &["bridge", "flannel", "kube-router", "weave-net"];

pub(super) fn br_netfilter(snapshot: &Snapshot, report: &mut Report) {
    const NAME: &str = "net.bridge.bridge-nf-call-iptables";
    if settings::are_managed(snapshot) && snapshot.lifecycle == Lifecycle::BeforeFirstStart {
        return;
    }
    let machine = &snapshot.machine;
    if machine.network.cni_plugins.is_empty() {
        return report.not_checked("KN003", "a CNI configuration: not every plugin needs br_netfilter");
    }
    let Some(plugin) = machine.network.cni_plugins.iter().find(|plugin| BRIDGES.contains(&plugin.as_str())) else {
        return;
    };
    let (at, state) = match machine.kernel.sysctls.get(NAME) {
        Some(found) if found.value == "0" => (found.at.clone(), "0"),
        Some(_) => return,
        // The directory of the module is only missing where other settings of the network can be seen.
        None => match machine.kernel.sysctls.get("net.ipv4.ip_forward") {
            Some(_) => (
                Location::file("/proc/sys/net/bridge/bridge-nf-call-iptables"),
                "missing (the module br_netfilter is not loaded)",
            ),
            None => return report.not_checked("KN003", "/proc/sys/net/bridge of the host"),
        },
    };
    let message = format!(
        "{NAME} is {state}, but the CNI plugin {plugin} connects pods by a bridge. kube-proxy's rules do not apply to what \
         pods of this node send to each other through a Service"
    );
    let fix = format!(
        "run `echo br_netfilter > /etc/modules-load.d/br_netfilter.conf && modprobe br_netfilter`, then {}",
        persist(&[(NAME, "1")])
    );
    report.add(Finding::new("KN003", Severity::Warning, at, message).say(fix));
}

pub(super) fn protect_kernel_defaults(snapshot: &Snapshot, report: &mut Report) {
    if snapshot.settings.bool("protectKernelDefaults") != Some(true) {
        return;
    }
    let sysctls = &snapshot.machine.kernel.sysctls;
    let wrong: Vec<(&str, &str, &Located<String>)> = PROTECTED
        .iter()
        .filter_map(|(name, wanted)| Some((*name, *wanted, sysctls.get(name)?)))
        .filter(|(_, wanted, found)| found.value != *wanted)
        .collect();
    let Some((_, _, first)) = wrong.first() else {
        if PROTECTED.iter().any(|(name, _)| !sysctls.contains_key(name)) {
            report.not_checked("KN004", "/proc/sys of the host");
        }
        return;
    };
    let list: Vec<String> =
        wrong.iter().map(|(name, wanted, found)| format!("{name} is {} (must be {wanted})", found.value)).collect();
    let from = settings::place(snapshot, "protectKernelDefaults");
    let unit = &snapshot.unit.name;
    let result = if settings::are_managed(snapshot) {
        format!(". {unit} restarts it again and again, and stays active itself")
    } else {
        String::new()
    };
    let message = format!(
        "protectKernelDefaults is true ({from}), but {}. The kubelet exits at its start with 'invalid kernel flag'{result}",
        list.join(", ")
    );
    let values: Vec<(&str, &str)> = wrong.iter().map(|(name, wanted, _)| (*name, *wanted)).collect();
    let fix = format!("before {unit} starts, {}{}", persist(&values), unprotect(snapshot, &from));
    let finding = Finding::new("KN004", Severity::Fatal, first.at.clone(), message).say(fix);
    report.add(finding.step(from, "protectKernelDefaults is true here"));
}

/// How else the kubelet starts: without the setting.
fn unprotect(snapshot: &Snapshot, from: &Location) -> String {
    const FLAG: &str = "protect-kernel-defaults";
    // RKE2 sets it with a profile, which is for more than that.
    if snapshot.flags.last(FLAG).is_some_and(|used| at::is_built_in(snapshot, used.word)) {
        return String::new();
    }
    if snapshot.command.launcher.rancher_name().is_some() {
        return format!(". Or take {FLAG} out of {from}");
    }
    match settings::name(snapshot, "protectKernelDefaults", "protectKernelDefaults") {
        flag if flag.starts_with("--") => format!(". Or write {flag}=false at {from}"),
        field => format!(". Or set {field}: false at {from}"),
    }
}

#[cfg(test)]
mod tests;
