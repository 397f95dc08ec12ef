//! Settings that exclude each other, or the machine: read where `limits.txt` says, and in pkg/kubelet/cm.

use serde_json::Value;

use super::limits::{is_built_in, is_on, refused};
use super::values;
use crate::kubelet::config::ConfigFileState;
use crate::kubelet::config::document::Value as Node;
use crate::kubelet::flags::duration_nanos;
use crate::kubelet::quantity;
use crate::rules::{Finding, From, Report, Severity, Snapshot, env_files, remedy, settings, shortened};

/// Reports each contradiction at the setting that is the likelier mistake.
pub(super) fn contradictions(snapshot: &Snapshot, report: &mut Report) {
    let mut found: Vec<(&str, String, String)> = Vec::new();
    let mut refuse = |path: &'static str, message: String, right: &str| found.push((path, message, right.to_owned()));
    images(snapshot, &mut refuse);
    cgroups(snapshot, &mut refuse);
    shutdown(snapshot, &mut refuse);
    soft_thresholds(snapshot, &mut refuse);
    managers(snapshot, &mut refuse);
    capacity(snapshot, &mut refuse);
    cgroup_v2(snapshot, &mut refuse);
    gated(snapshot, &mut refuse);
    access(snapshot, &mut refuse);
    for (path, message, right) in found {
        if !is_built_in(snapshot, path) {
            let at = settings::place(snapshot, path);
            report.add(refused(snapshot, path, &message).say_at(&at, format!("write {right}")));
        }
    }
    let more =
        [run_once(snapshot), image_thresholds(snapshot), tracing(snapshot), endpoint(snapshot), sub_ids(snapshot)];
    report.findings.extend(more.into_iter().flatten());
}

fn is_set(snapshot: &Snapshot, path: &str) -> bool {
    snapshot.settings.text(path).is_some()
}

fn nanos(snapshot: &Snapshot, path: &str) -> i64 {
    snapshot.settings.text(path).and_then(duration_nanos).unwrap_or(0)
}

/// The number of items of a list, or of pairs of a map.
fn count(snapshot: &Snapshot, path: &str) -> usize {
    let value = snapshot.settings.get(path).map(|setting| &setting.value);
    value.map_or(0, |value| value.as_array().map(Vec::len).or(value.as_object().map(serde_json::Map::len)).unwrap_or(0))
}

fn images(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    let settings = &snapshot.settings;
    let shown = |path: &str| settings::shown(snapshot, path);
    let name = |path: &str, beside: &str| settings::name(snapshot, path, beside);
    let pulls = settings.int("maxParallelImagePulls").filter(|pulls| *pulls > 1);
    if let Some(pulls) = pulls.filter(|_| settings.bool("serializeImagePulls") == Some(true)) {
        let serial = shown("serializeImagePulls");
        let message = format!("maxParallelImagePulls is {pulls}, but {serial} and allows one image at a time");
        let serial = name("serializeImagePulls", "maxParallelImagePulls");
        let right = format!("`{serial}: false` as well, or maxParallelImagePulls: 1,");
        refuse("maxParallelImagePulls", message, &right);
    }
    if settings.int("kubeAPIBurst") == Some(0) && settings.int("kubeAPIQPS") != Some(0) {
        let message = format!("kubeAPIBurst is 0, but {}", shown("kubeAPIQPS"));
        refuse("kubeAPIBurst", message, "1 or more, or 0 for kubeAPIQPS as well,");
    }
    let (most, least) = ("imageMaximumGCAge", "imageMinimumGCAge");
    if nanos(snapshot, most) > 0 && nanos(snapshot, most) <= nanos(snapshot, least) {
        refuse(
            most,
            format!("{}, but {} and must be shorter", shown(most), shown(least)),
            "a longer imageMaximumGCAge",
        );
    }
    let verified = "preloadedImagesVerificationAllowlist";
    let policy = settings.text("imagePullCredentialsVerificationPolicy");
    if count(snapshot, verified) > 0 && policy != Some("NeverVerifyAllowlistedImages") {
        let message = format!("{verified} needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages");
        refuse(verified, message, "that policy with it");
    }
}

const LEVELS: &str = "enforceNodeAllocatable";

fn cgroups(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    let settings = &snapshot.settings;
    if is_set(snapshot, "systemCgroups") && !is_set(snapshot, "cgroupRoot") {
        let root = settings::name(snapshot, "cgroupRoot", "systemCgroups");
        let right = format!("{root} as well, or delete systemCgroups");
        refuse("systemCgroups", "systemCgroups is set, but cgroupRoot is not".to_owned(), &right);
    } else if settings.text("systemCgroups") == Some("/") {
        refuse("systemCgroups", "systemCgroups is /".to_owned(), "another cgroup");
    }
    let root = settings.text("cgroupRoot").and_then(|root| Some((root, snapshot.machine.kernel.cgroups.get(root)?)));
    // kind's unit makes it in a script.
    let may_come = snapshot.unit.settings.contains_key(&("Service".to_owned(), "ExecStartPre".to_owned()));
    if let Some((root, false)) = root.filter(|_| settings.bool("cgroupsPerQOS") != Some(false) && !may_come) {
        refuse("cgroupRoot", format!("cgroupRoot is {root}, a cgroup that does not exist"), "a cgroup that exists");
    }
    let levels = settings.list(LEVELS);
    if levels.contains(&"none") && levels.len() > 1 {
        refuse(LEVELS, format!("{LEVELS} has 'none' together with other values"), "either 'none' or the others");
    }
    for (index, level) in levels.iter().enumerate() {
        if levels[..index].contains(level) {
            refuse(LEVELS, format!("{LEVELS} has {} twice", shortened(level)), "each level once");
        } else if levels.contains(&format!("{level}-compressible").as_str()) {
            let message = format!("{LEVELS} has both {level} and {level}-compressible");
            refuse(LEVELS, message, "one of the two");
        }
    }
    if settings.bool("cgroupsPerQOS") == Some(false) && !levels.is_empty() && levels != ["none"] {
        let message = format!("cgroupsPerQOS is false, but {}", settings::shown(snapshot, LEVELS));
        refuse("cgroupsPerQOS", message, &format!("true, or `{LEVELS}: [none]` with it,"));
    }
    let reserved = ["systemReservedCgroup", "kubeReservedCgroup"].into_iter().find(|path| is_set(snapshot, path));
    if let Some(cgroup) = reserved.filter(|_| is_set(snapshot, "reservedSystemCPUs")) {
        let message = format!("reservedSystemCPUs is set, and {} excludes it", settings::shown(snapshot, cgroup));
        refuse("reservedSystemCPUs", message, &format!("either reservedSystemCPUs or {cgroup}"));
    }
}

fn soft_thresholds(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    let grace = snapshot.settings.map("evictionSoftGracePeriod");
    let soft = snapshot.settings.map("evictionSoft").into_iter();
    // To the kubelet these mean that there is no threshold.
    let soft = soft.filter(|(signal, text)| !matches!(*text, "0%" | "100%") && !grace.contains_key(signal));
    for (signal, _) in soft {
        let signal = shortened(signal);
        let message = format!("evictionSoft has {signal}, but evictionSoftGracePeriod has no period for it");
        let periods = settings::name(snapshot, "evictionSoftGracePeriod", "evictionSoft");
        refuse("evictionSoft", message, &format!("a period for {signal} into {periods}, or delete {signal}"));
    }
}

/// The periods of a graceful shutdown.
fn shutdown(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    const SECOND: i64 = 1_000_000_000;
    let shown = |path: &str| settings::shown(snapshot, path);
    let (all, critical, by_priority) =
        ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority");
    if is_on(snapshot, "GracefulNodeShutdown") == Some(false) {
        for path in [all, critical].into_iter().filter(|path| nanos(snapshot, path) > 0) {
            let right = "0s, or switch the gate on";
            refuse(path, format!("{path} needs the feature gate GracefulNodeShutdown, which is off"), right);
        }
        return;
    }
    for path in [all, critical] {
        let period = nanos(snapshot, path);
        if period < 0 || (1..SECOND).contains(&period) {
            refuse(path, format!("{}, but the kubelet takes 0 or at least 1s", shown(path)), "at least 1s");
        }
    }
    if nanos(snapshot, critical) > nanos(snapshot, all) {
        let message = format!("{}, but {} and must not be shorter", shown(critical), shown(all));
        refuse(critical, message, &format!("{all}'s value or less"));
    }
    if count(snapshot, by_priority) > 0 && nanos(snapshot, all).max(nanos(snapshot, critical)) > 0 {
        refuse(by_priority, format!("{by_priority} and {all} exclude each other"), "one of the two");
    }
}

/// The managers of CPU and memory: `NewManager` of pkg/kubelet/cm/cpumanager and memorymanager.
fn managers(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    let settings = &snapshot.settings;
    let cpus = settings.text("reservedSystemCPUs").and_then(values::cpus);
    let is_static = settings.text("cpuManagerPolicy") == Some("static");
    if is_static && cpus.is_none() && reserved(snapshot, "cpu") == Some(0.0) {
        let message = format!(
            "{}, but no CPU is reserved: neither kubeReserved nor systemReserved has cpu, and reservedSystemCPUs is empty",
            settings::shown(snapshot, "cpuManagerPolicy")
        );
        let system = settings::name(snapshot, "systemReserved", "cpuManagerPolicy");
        refuse("cpuManagerPolicy", message, &format!("none, or reserve CPU, for example cpu: 500m in {system},"));
    }
    let online = snapshot.machine.kernel.cpus.as_deref().and_then(values::cpus);
    if let (Some(cpus), Some(online)) = (&cpus, &online)
        && let Some(missing) = cpus.difference(online).next()
    {
        let message = format!("reservedSystemCPUs has CPU {missing}, which this machine does not have");
        refuse("reservedSystemCPUs", message, "CPUs of this machine");
    }
    let options = settings.map("cpuManagerPolicyOptions");
    let is_true =
        |option: &str| options.get(option).is_some_and(|value| crate::kubelet::flags::parse_bool(value) == Some(true));
    let [cores, numa, cache] =
        ["distribute-cpus-across-cores", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"];
    let excluded = [("full-pcpus-only", cores), (numa, cores), (cache, cores), (cache, numa)];
    for (one, other) in excluded.into_iter().filter(|(one, other)| is_static && is_true(one) && is_true(other)) {
        let message = format!("cpuManagerPolicyOptions has {one} and {other}, which exclude each other");
        refuse("cpuManagerPolicyOptions", message, "one of the two");
    }
    reserved_by_node(snapshot, refuse);
    memory(snapshot, refuse);
}

/// Each kind of memory of a NUMA node once (`validateReservedMemoryConfiguration`), and to Static of a node that is there.
fn reserved_by_node(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    const PATH: &str = "reservedMemory";
    let (mut seen, mut absent) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    let nodes = snapshot.machine.kernel.numa_nodes.as_deref().and_then(values::cpus);
    let nodes = nodes.filter(|_| has_static_memory(snapshot));
    let reservations = snapshot.settings.get(PATH).and_then(|setting| setting.value.as_array());
    for one in reservations.into_iter().flatten() {
        let node = one.get("numaNode").and_then(Value::as_i64).unwrap_or_default();
        if nodes.as_ref().is_some_and(|nodes| !nodes.iter().any(|one| i64::from(*one) == node)) {
            absent.insert(node.to_string());
            continue;
        }
        for kind in one.get("limits").and_then(Value::as_object).into_iter().flat_map(serde_json::Map::keys) {
            if !seen.insert((node, kind)) {
                let message = format!("{PATH} has {} of NUMA node {node} twice", shortened(kind));
                refuse(PATH, message, "each kind of memory of a node once");
            }
        }
    }
    if !absent.is_empty() {
        let absent = Vec::from_iter(absent).join(", ");
        let message = format!("{PATH} has NUMA nodes that this machine does not have: {absent}");
        refuse(PATH, message, "NUMA nodes of this machine");
    }
}

/// Whether there is a memory manager of the policy Static, which alone compares what is reserved with the machine.
fn has_static_memory(snapshot: &Snapshot) -> bool {
    snapshot.settings.text("memoryManagerPolicy") == Some("Static") && is_on(snapshot, "MemoryManager") == Some(true)
}

/// Under the policy Static what is reserved of each kind of memory must be what `reservedMemory` has.
fn memory(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    const POLICY: &str = "memoryManagerPolicy";
    if !has_static_memory(snapshot) {
        return;
    }
    let reservations = snapshot.settings.get("reservedMemory").and_then(|setting| setting.value.as_array());
    let limits = reservations.into_iter().flatten().filter_map(|one| one.get("limits")?.as_object()).flatten();
    let amounts = limits.clone().filter(|(kind, _)| *kind == "memory").filter_map(|(_, amount)| amount_of(amount));
    // The sum of none is -0.
    let by_node = amounts.sum::<f64>() + 0.0;
    let huge = limits.clone().find(|(kind, _)| kind.starts_with("hugepages-"));
    if let Some((kind, _)) = huge {
        let message =
            format!("{POLICY} is Static, and reservedMemory has {kind}, of which the kubelet cannot reserve any");
        return refuse("reservedMemory", message, "memory alone");
    }
    let Some(wanted) = reserved(snapshot, "memory") else { return };
    let mib = |amount: f64| format!("{}Mi", amount / 1_048_576.0);
    if by_node <= 0.0 || (by_node - wanted).abs() >= 1.0 {
        let message = format!(
            "{POLICY} is Static, and reservedMemory must have as much memory as kubeReserved, systemReserved and \
             evictionHard reserve together: {}, not {}",
            mib(wanted),
            mib(by_node)
        );
        refuse(POLICY, message, &format!("None, or {} in all into reservedMemory,", mib(wanted)));
    }
}

fn amount_of(value: &Value) -> Option<f64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    quantity::parse(&text).map(quantity::Quantity::amount)
}

/// What is reserved of a resource, with the hard threshold of memory; `None` where it cannot be computed.
fn reserved(snapshot: &Snapshot, resource: &str) -> Option<f64> {
    let settings = &snapshot.settings;
    if let Some(cpus) = settings.text("reservedSystemCPUs").filter(|_| resource == "cpu") {
        return values::cpus(cpus).map(|cpus| u32::try_from(cpus.len()).map_or(f64::MAX, f64::from));
    }
    let mut sum = 0.0;
    for path in ["kubeReserved", "systemReserved"] {
        if let Some(text) = settings.map(path).get(resource) {
            sum += quantity::parse(text)?.amount();
        }
    }
    let ignores = snapshot.flags.value("experimental-allocatable-ignore-eviction") == Some("true");
    let hard = settings.map("evictionHard").get("memory.available").copied();
    match hard.filter(|hard| resource == "memory" && !ignores && !matches!(*hard, "0%" | "100%")) {
        None => Some(sum),
        Some(hard) => match hard.strip_suffix('%') {
            None => Some(sum + quantity::parse(hard)?.amount()),
            Some(percent) => {
                // More than 100% is wrong by itself, and said there.
                let share = percent.parse::<f64>().ok().filter(|share| share.is_nan() || *share <= 100.0)? / 100.0;
                Some(sum + (share * total(snapshot, "memory")?).floor())
            }
        },
    }
}

/// How much of a resource the machine has.
fn total(snapshot: &Snapshot, resource: &str) -> Option<f64> {
    let kernel = &snapshot.machine.kernel;
    match resource {
        "memory" => kernel.memory_bytes.as_ref().map(|found| quantity::Quantity::whole(found.value).amount()),
        _ => u32::try_from(values::cpus(kernel.cpus.as_deref()?)?.len()).ok().map(f64::from),
    }
}

/// `validateNodeAllocatable` of pkg/kubelet/cm.
fn capacity(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    for resource in ["memory", "cpu"] {
        let Some((wanted, total)) = reserved(snapshot, resource).zip(total(snapshot, resource)) else { continue };
        if wanted <= total {
            continue;
        }
        let amounts = ["systemReserved", "kubeReserved", "evictionHard"].into_iter().filter_map(|path| {
            let key = if path == "evictionHard" { "memory.available" } else { resource };
            let text =
                *snapshot.settings.map(path).get(key).filter(|_| path != "evictionHard" || resource == "memory")?;
            let amount = quantity::parse(text).map_or(0.0, quantity::Quantity::amount);
            Some((path, text, amount))
        });
        let Some((path, text, _)) = amounts.max_by(|one, other| one.2.total_cmp(&other.2)) else { continue };
        let has = if resource == "memory" { format!("{:.0}Mi", total / 1_048_576.0) } else { format!("{total} CPUs") };
        let message = format!("{path} has {text} of {resource}, and more is reserved than the machine has: {has}");
        refuse(path, message, "less than the machine has");
    }
}

/// The use of swap, and what else needs cgroup v2.
fn cgroup_v2(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    const SWAP: &str = "memorySwap.swapBehavior";
    let settings = &snapshot.settings;
    let is_v1 = snapshot.machine.kernel.cgroup_v2 == Some(false);
    let minor = snapshot.version.as_ref().map_or(u16::MAX, |version| version.minor.0);
    let unlimited = if minor < 30 { "UnlimitedSwap" } else { "NoSwap" };
    match (settings.text(SWAP), is_on(snapshot, "NodeSwap")) {
        (None, _) | (_, None) => {}
        (Some(_), Some(false)) => {
            let message = format!("{SWAP} is set, but the feature gate NodeSwap is off");
            refuse(SWAP, message, "nothing there, or switch the gate on");
        }
        (Some("LimitedSwap"), _) if is_v1 => {
            let message = format!("{SWAP} is LimitedSwap, which needs cgroup v2, and this host uses cgroup v1");
            refuse(SWAP, message, &format!("`swapBehavior: {unlimited}`"));
        }
        (Some(other), _) if other != "LimitedSwap" && other != unlimited => {
            let message = format!("{SWAP} is {}, but the kubelet takes LimitedSwap or {unlimited}", shortened(other));
            refuse(SWAP, message, &format!("LimitedSwap, with which pods may swap a part, or {unlimited}"));
        }
        _ => {}
    }
    if is_v1 && settings.bool("singleProcessOOMKill") == Some(false) {
        refuse("singleProcessOOMKill", "singleProcessOOMKill is false, which needs cgroup v2".to_owned(), "true");
    }
}

/// Settings that need a feature gate.
fn gated(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    let settings = &snapshot.settings;
    let period = nanos(snapshot, "cpuCFSQuotaPeriod");
    let buffers = |format: &str| {
        let size = settings.get(&format!("logging.options.{format}.infoBufferSize")).map(|size| &size.value);
        size.and_then(amount_of).is_some_and(|size| size > 0.0)
    };
    // The file's field is not read at all.
    let splits = |format: &str| {
        let path = format!("logging.options.{format}.splitStream");
        settings.bool(&path) == Some(true) && matches!(settings::from(snapshot, &path), Some(From::Flag(_)))
    };
    // Until 1.36 the factor counts for nothing without its gate; 0.9 was its default.
    let usual = serde_json::json!(0.9);
    let factor = settings.get("memoryThrottlingFactor").filter(|factor| factor.value.is_number());
    let is_37 = snapshot.version.as_ref().is_some_and(|version| version.minor.0 >= 37);
    let needs: [(&'static str, &str, bool); 13] = [
        ("cpuCFSQuotaPeriod", "CustomCPUCFSQuotaPeriod", period != 100_000_000),
        ("crashLoopBackOff.maxContainerRestartPeriod", "KubeletCrashLoopBackOffMax", true),
        ("defaultPodSysctls", "DefaultPodSysctls", count(snapshot, "defaultPodSysctls") > 0),
        ("enableSystemLogQuery", "NodeLogQuery", settings.bool("enableSystemLogQuery") == Some(true)),
        ("imageMaximumGCAge", "ImageMaximumGCAge", nanos(snapshot, "imageMaximumGCAge") > 0),
        ("imagePullCredentialsVerificationPolicy", "KubeletEnsureSecretPulledImages", true),
        ("serverTLSBootstrap", "RotateKubeletServerCertificate", settings.bool("serverTLSBootstrap") == Some(true)),
        ("memoryReservationPolicy", "MemoryQoS", settings.text("memoryReservationPolicy") == Some("TieredReservation")),
        ("memoryThrottlingFactor", "MemoryQoS", is_37 && factor.is_some_and(|factor| factor.value != usual)),
        ("logging.options.json.splitStream", "LoggingAlphaOptions", splits("json")),
        ("logging.options.text.splitStream", "LoggingAlphaOptions", splits("text")),
        ("logging.options.json.infoBufferSize", "LoggingAlphaOptions", buffers("json")),
        ("logging.options.text.infoBufferSize", "LoggingAlphaOptions", buffers("text")),
    ];
    for (path, gate, applies) in needs {
        if applies && !settings::is_default(snapshot, path) && is_on(snapshot, gate) == Some(false) {
            let message = format!("{path} needs the feature gate {gate}, which is off in this kubelet");
            refuse(path, message, "nothing there, or switch the gate on");
        }
    }
    let logs = ["enableSystemLogQuery", "enableSystemLogHandler"].map(|path| settings.bool(path));
    if logs == [Some(true), Some(false)] {
        let message = "enableSystemLogQuery needs enableSystemLogHandler, which is false".to_owned();
        refuse("enableSystemLogQuery", message, "false");
    }
}

/// Who may use the kubelet's own API: `BuildAuth` of cmd/kubelet/app/auth.go.
fn access(snapshot: &Snapshot, refuse: &mut impl FnMut(&'static str, String, &str)) {
    const WEBHOOK: &str = "authentication.webhook.enabled";
    let settings = &snapshot.settings;
    let asks = settings.bool(WEBHOOK) == Some(true);
    let is_alone = !is_set(snapshot, "--kubeconfig") && !settings::is_misspelt(snapshot, "kubeconfig");
    let by_webhook = settings.text("authorization.mode") == Some("Webhook");
    let is_read = !snapshot.config.files.iter().any(|file| matches!(file.state, ConfigFileState::Bad { .. }));
    if is_alone && is_read && (asks || by_webhook) {
        let (path, what) = if asks { (WEBHOOK, "authentication") } else { ("authorization.mode", "authorization") };
        let message = format!(
            "the kubelet has no --kubeconfig, so it runs standalone, and {} asks the API server by webhook for {what}",
            settings::shown(snapshot, path)
        );
        let right = "--kubeconfig=FILE into the kubelet's command, which has the place. Or, if no API server is meant, set \
                     authentication.webhook.enabled: false and authorization.mode: AlwaysAllow";
        refuse(path, message, right);
    }
    let port = settings.int("readOnlyPort").filter(|port| settings.int("port") == Some(*port));
    if port.is_some() && settings.bool("enableServer") != Some(false) {
        let message = format!("{}, the kubelet's own port", settings::shown(snapshot, "readOnlyPort"));
        refuse("readOnlyPort", message, "0");
    }
    // crypto/http2 of Go refuses to serve without one of these, unless all connections are of TLS 1.3.
    let ciphers = settings.list("tlsCipherSuites");
    let is_needed = |name: &&str| {
        ["TLS_ECDHE_RSA_", "TLS_ECDHE_ECDSA_"]
            .iter()
            .any(|start| name.strip_prefix(start) == Some("WITH_AES_128_GCM_SHA256"))
    };
    let is_known = |name: &&str| values::knows("tlsCipherSuites", name);
    let is_old = settings.text("tlsMinVersion") != Some("VersionTLS13");
    if !ciphers.is_empty() && is_old && !ciphers.iter().any(is_needed) && ciphers.iter().all(is_known) {
        let right = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 into the list";
        refuse("tlsCipherSuites", "tlsCipherSuites has no cipher suite that HTTP/2 needs".to_owned(), right);
    }
    let curves = settings.get("tlsCurvePreferences").and_then(|curves| curves.value.as_array());
    if let Some(curves) =
        curves.filter(|curves| (1..curves.len()).any(|index| curves[..index].contains(&curves[index])))
    {
        let message = format!("tlsCurvePreferences has one curve twice: {curves:?}");
        refuse("tlsCurvePreferences", message, "each curve once");
    }
    if settings.bool("--exit-on-lock-contention") == Some(true) && !is_set(snapshot, "--lock-file") {
        let message = "--exit-on-lock-contention is set, but --lock-file is not".to_owned();
        refuse("--exit-on-lock-contention", message, "--lock-file=FILE as well, or delete the flag,");
    }
}

/// The kubelet refuses the empty map, too.
fn tracing(snapshot: &Snapshot) -> Option<Finding> {
    let set = snapshot.config.entry("tracing").filter(|set| set.node.value != Node::Null)?;
    is_on(snapshot, "KubeletTracing").filter(|is_on| !is_on)?;
    let message = "tracing needs the feature gate KubeletTracing, which is off in this kubelet: the kubelet exits";
    let finding = Finding::new("CF007", Severity::Fatal, set.at.clone(), message);
    Some(finding.say_at(&set.at, "delete tracing whole, or switch the gate on"))
}

fn sub_ids(snapshot: &Snapshot) -> Option<Finding> {
    let found = snapshot.machine.beside.sub_ids.as_ref()?;
    is_on(snapshot, "UserNamespacesSupport").filter(|is_on| *is_on)?;
    let message = format!("the ids of the user kubelet are those of pods, but {}: the kubelet exits", found.value);
    let fix = "give the user the same range in /etc/subuid and /etc/subgid, 65536 ids for a pod, or delete the user";
    Some(Finding::new("CF007", Severity::Fatal, found.at.clone(), message).say(fix))
}

/// Before 1.27 the endpoint is a flag, which has no default (`ValidateKubeletFlags`).
fn endpoint(snapshot: &Snapshot) -> Option<Finding> {
    const PATH: &str = "containerRuntimeEndpoint";
    let version = snapshot.version.as_ref().filter(|version| (24..27).contains(&version.minor.0))?;
    let is_known = settings::unknown(snapshot, &[PATH]).is_none() && !env_files::flags_may_come(snapshot);
    if is_set(snapshot, PATH) || !is_known {
        return None;
    }
    let at = settings::command(snapshot);
    let message = format!("--container-runtime-endpoint is not set. Kubelet {version} has no default for it and exits");
    let fix = "add --container-runtime-endpoint=unix:///run/containerd/containerd.sock, or the runtime's other socket,";
    Some(Finding::new("CF007", Severity::Fatal, at.clone(), message).say_at(&at, fix))
}

fn run_once(snapshot: &Snapshot) -> Option<Finding> {
    snapshot.settings.bool("runOnce").filter(|is_on| *is_on)?;
    let finding = refused(snapshot, "runOnce", "runOnce is true, which the kubelet no longer supports");
    Some(finding.remedy(remedy::set(snapshot, "runOnce", "false")))
}

/// The threshold down to which images are deleted must be below the one from which they are.
fn image_thresholds(snapshot: &Snapshot) -> Option<Finding> {
    /// The distance of the two by default, 80 and 85.
    const USUAL_DISTANCE: i64 = 5;
    let (low, high) = ("imageGCLowThresholdPercent", "imageGCHighThresholdPercent");
    let most = snapshot.settings.int(high).filter(|most| snapshot.settings.int(low) >= Some(*most))?;
    let (has_low, has_high) = (!settings::is_default(snapshot, low), !settings::is_default(snapshot, high));
    let path = if has_low { low } else { high };
    let message =
        format!("{}, but {} and must be higher", settings::shown(snapshot, low), settings::shown(snapshot, high));
    let finding = refused(snapshot, path, &message);
    // Of two that somebody set it is not known which one is wrong.
    if has_low && has_high || most <= 0 {
        let at = |path| settings::place(snapshot, path);
        let lower = if most > 0 { format!("a lower {low} at {}, or ", at(low)) } else { String::new() };
        return Some(finding.say_at(&at(high), format!("write {lower}a higher {high}")));
    }
    Some(finding.remedy(remedy::set(snapshot, low, &(most - USUAL_DISTANCE).max(0).to_string())))
}
