//! The registry of configuration keys: the reader checks against it, and the documentation and the commented default
//! configuration are made from it.

use crate::bootstrap::Stage;

/// What a key takes, in TOML's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text in quotes.
    Text,
    /// A whole number.
    Integer,
    /// A check's threshold: a whole number within these bounds, both included. [`super::Settings::number`] has it; nothing
    /// but its row here is needed.
    Number(u32, u32),
    /// `true` or `false`.
    Boolean,
    /// Texts in quotes, in brackets.
    List,
}

/// The section of the keys that each condition has; `TYPE` stands for its name.
pub(super) const CONDITION: &str = "conditions.TYPE";

/// The section of the keys that each reason has; `REASON` stands for its name.
pub(super) const REASON: &str = "reasons.REASON";

/// One configuration key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The table it stands in, without brackets.
    pub section: &'static str,
    /// Its name in that table.
    pub name: &'static str,
    /// The TOML type.
    pub kind: Kind,
    /// The default as TOML, `None` where the agent finds the value by itself.
    pub default: Option<&'static str>,
    /// A value as TOML that is accepted.
    pub example: &'static str,
    /// Which values are accepted.
    pub bounds: &'static str,
    /// What it is for, in a sentence.
    pub doc: &'static str,
}

/// The key that a stage of the bootstrap has.
const fn stage(stage: Stage) -> Key {
    let Some(wait) = stage.wait() else {
        panic!("nobody waits for this stage");
    };
    Key {
        section: "bootstrap",
        name: wait.key,
        kind: Kind::Number(1, 86_400),
        default: Some(wait.default_secs),
        example: "45",
        bounds: "a whole number of seconds from 1 to 86400",
        doc: wait.doc,
    }
}

/// Every key, by table.
pub const KEYS: &[Key] = &[
    Key {
        section: "node",
        name: "name",
        kind: Kind::Text,
        default: None,
        example: "\"worker-1.example.org\"",
        bounds: "an RFC 1123 subdomain: at most 253 of a-z, 0-9, '-' and '.', each part starting and ending with a letter or digit",
        doc: "The name of this machine's Node; without it the kubelet's --hostname-override says the name, or else the host name in lower case.",
    },
    Key {
        section: "kubernetes",
        name: "kubeconfig",
        kind: Kind::Text,
        default: None,
        example: "\"/etc/nodevigil/kubeconfig\"",
        bounds: "an absolute path",
        doc: "The agent's own kubeconfig; without it /etc/nodevigil/kubeconfig is used if it is there, else the kubelet's identity.",
    },
    Key {
        section: "kubernetes",
        name: "kubelet_identity",
        kind: Kind::Boolean,
        default: Some("true"),
        example: "false",
        bounds: "true or false",
        doc: "With false the agent never asks for the kubelet's credential: without a kubeconfig of its own it observes, and publishes nothing.",
    },
    Key {
        section: "kubernetes",
        name: "publish",
        kind: Kind::Text,
        default: Some("\"all\""),
        example: "\"none\"",
        bounds: "\"all\" or \"none\"",
        doc: "With \"none\" nothing is written to the API server (no condition, taint or event); `nodevigil status` shows what would be.",
    },
    Key {
        section: "kubernetes",
        name: "dialects",
        kind: Kind::List,
        default: Some("[\"native\"]"),
        example: "[\"native\", \"eks\"]",
        bounds: "at least one of \"native\", \"eks\" and \"npd\"",
        doc: "Under which names the conditions are published: native, those of EKS and Karpenter, those of node-problem-detector.",
    },
    Key {
        section: "kubelet",
        name: "unit",
        kind: Kind::Text,
        default: Some("\"kubelet.service\""),
        example: "\"k3s-agent.service\"",
        bounds: "the name of a systemd service unit, with .service",
        doc: "The unit that runs the kubelet.",
    },
    Key {
        section: "kubelet",
        name: "pid_file",
        kind: Kind::Text,
        default: None,
        example: "\"/run/kubelet.pid\"",
        bounds: "an absolute path",
        doc: "A file that holds the kubelet's process id, for a kubelet that systemd does not run.",
    },
    Key {
        section: "kubelet",
        name: "healthz_url",
        kind: Kind::Text,
        default: None,
        example: "\"http://127.0.0.1:10248/healthz\"",
        bounds: "an http:// URL whose host is an IP address or localhost",
        doc: "Where the kubelet says that it is healthy; without it the address comes from the kubelet's own arguments and configuration.",
    },
    Key {
        section: "kubelet",
        name: "healthy_for_secs",
        kind: Kind::Integer,
        default: Some("60"),
        example: "60",
        bounds: "a whole number of seconds from 0 to 3600",
        doc: "How long the kubelet must have been healthy before a problem counts as over; for what is sampled each return within an hour makes it twice as long, up to 15 minutes. Also the least time between two flips of that kind between True and Unknown.",
    },
    Key {
        section: "kubelet",
        name: "start_grace_secs",
        kind: Kind::Number(10, 3600),
        default: Some("120"),
        example: "300",
        bounds: "a whole number of seconds from 10 to 3600",
        doc: "How long a kubelet that has just started may take until its healthz answers, and one that systemd stopped with another unit until it is back.",
    },
    Key {
        section: "kubelet",
        name: "stop_grace_secs",
        kind: Kind::Number(5, 3600),
        default: Some("20"),
        example: "60",
        bounds: "a whole number of seconds from 5 to 3600",
        doc: "How long a kubelet that is to end may take; longer is needed where its own shutdownGracePeriod= is used.",
    },
    Key {
        section: "kubelet",
        name: "crash_loop_ends",
        kind: Kind::Number(2, 100),
        default: Some("3"),
        example: "5",
        bounds: "a whole number from 2 to 100",
        doc: "So many ends of the kubelet that nobody had asked for, within crash_loop_within_secs, are a crash loop.",
    },
    Key {
        section: "kubelet",
        name: "crash_loop_within_secs",
        kind: Kind::Number(30, 3600),
        default: Some("300"),
        example: "600",
        bounds: "a whole number of seconds from 30 to 3600",
        doc: "The time within which ends of the kubelet are counted.",
    },
    Key {
        section: "kubelet",
        name: "certificate_expiring_hours",
        kind: Kind::Number(1, 8760),
        default: Some("168"),
        example: "336",
        bounds: "a whole number of hours from 1 to 8760",
        doc: "How long before its end the kubelet's client certificate counts as expiring if nothing has renewed it; never more than a tenth of its life. With the kubelet's own identity the end itself cannot be published.",
    },
    Key {
        section: "kubelet",
        name: "lease_stale_secs",
        kind: Kind::Number(15, 600),
        default: Some("25"),
        example: "35",
        bounds: "a whole number of seconds from 15 to 600",
        doc: "How old the kubelet's Lease must be, while kubelet and API server both answer, before its connection counts as stalled; never less than two and a half renewals.",
    },
    Key {
        section: "kubelet",
        name: "starved_cpu_percent",
        kind: Kind::Number(1, 100),
        default: Some("60"),
        example: "80",
        bounds: "a whole number of percent from 1 to 100",
        doc: "A kubelet whose healthz times out counts as starved and not as hung if more of the time than this is waited for a processor by some task, on the host or in the kubelet's control group (`some` of `/proc/pressure/cpu`).",
    },
    Key {
        section: "kubelet",
        name: "starved_wait_percent",
        kind: Kind::Number(1, 100),
        default: Some("50"),
        example: "80",
        bounds: "a whole number of percent from 1 to 100",
        doc: "A kubelet whose healthz times out counts as starved and not as hung if more of the time than this is waited for a processor by the kubelet's own threads, summed up (schedstat).",
    },
    Key {
        section: "kubelet",
        name: "starved_memory_percent",
        kind: Kind::Number(1, 100),
        default: Some("20"),
        example: "40",
        bounds: "a whole number of percent from 1 to 100",
        doc: "A kubelet whose healthz times out counts as starved and not as hung if more of the time than this is waited for memory by all tasks of the host (`full` of `/proc/pressure/memory`).",
    },
    Key {
        section: "bootstrap",
        name: "deadline_secs",
        kind: Kind::Number(10, 86_400),
        default: Some("600"),
        example: "300",
        bounds: "a whole number of seconds from 10 to 86400",
        doc: "How long a node may take from its start to being of use: for `nodevigil bootstrap` from when it is run, for NodeBootstrapped from when the Node was created. Less than the patience of whoever replaces nodes (15 minutes for the cluster-autoscaler and Karpenter, 10 for Cluster API).",
    },
    Key {
        section: "bootstrap",
        name: "look_every_secs",
        kind: Kind::Number(1, 60),
        default: Some("2"),
        example: "5",
        bounds: "a whole number of seconds from 1 to 60",
        doc: "How long `nodevigil bootstrap` waits from one look at the node to the next.",
    },
    stage(Stage::CloudInit),
    stage(Stage::Runtime),
    stage(Stage::Kubelet),
    stage(Stage::Tls),
    stage(Stage::Registered),
    stage(Stage::CloudController),
    stage(Stage::Network),
    stage(Stage::Csi),
    stage(Stage::Ready),
    Key {
        section: "runtime",
        name: "enabled",
        kind: Kind::Boolean,
        default: Some("true"),
        example: "false",
        bounds: "true or false",
        doc: "With false the container runtime is not watched, and ContainerRuntimeHealthy is not told.",
    },
    Key {
        section: "runtime",
        name: "endpoint",
        kind: Kind::Text,
        default: None,
        example: "\"unix:///run/crio/crio.sock\"",
        bounds: "unix:// and an absolute path, or the path alone",
        doc: "The container runtime's CRI socket; without it the kubelet's own arguments and configuration say it, or else the well-known ones are tried.",
    },
    Key {
        section: "runtime",
        name: "unit",
        kind: Kind::Text,
        default: None,
        example: "\"containerd.service\"",
        bounds: "the name of a systemd service unit, with .service",
        doc: "The unit that runs the container runtime; without it, the one in whose cgroup the process at the socket is.",
    },
    Key {
        section: "runtime",
        name: "probe_secs",
        kind: Kind::Number(5, 300),
        default: Some("15"),
        example: "30",
        bounds: "a whole number of seconds from 5 to 300",
        doc: "How often a healthy container runtime is asked over CRI; one that does not answer is asked again at once.",
    },
    Key {
        section: "runtime",
        name: "timeout_secs",
        kind: Kind::Number(1, 10),
        default: Some("5"),
        example: "10",
        bounds: "a whole number of seconds from 1 to 10",
        doc: "How long the container runtime may take to answer; three times in a row without an answer are ContainerRuntimeHung if it is stopped or stuck (state T or D), else ContainerRuntimeSilent.",
    },
    Key {
        section: "runtime",
        name: "io_full_percent",
        kind: Kind::Number(1, 100),
        default: Some("50"),
        example: "80",
        bounds: "a whole number of percent from 1 to 100",
        doc: "From this pressure on the disks on (/proc/pressure/io, full, avg10) a container runtime that does not answer counts as slow and not as hung, for two minutes.",
    },
    Key {
        section: "limits",
        name: "nearly_exhausted_percent",
        kind: Kind::Number(50, 98),
        default: Some("90"),
        example: "80",
        bounds: "a whole number of percent from 50 to 98",
        doc: "From how much of a limit of the kernel's (process ids, threads, open files, tracked connections) on it is nearly exhausted: a warning.",
    },
    Key {
        section: "limits",
        name: "exhausted_percent",
        kind: Kind::Number(80, 100),
        default: Some("99"),
        example: "100",
        bounds: "a whole number of percent from 80 to 100",
        doc: "From how much of such a limit on it is exhausted: NodeKernelHealthy becomes False.",
    },
    Key {
        section: "clock",
        name: "step_secs",
        kind: Kind::Number(1, 3600),
        default: Some("5"),
        example: "30",
        bounds: "a whole number of seconds from 1 to 3600",
        doc: "By how much the wall clock must be set for an Event to tell it.",
    },
    Key {
        section: "clock",
        name: "unsynchronised_secs",
        kind: Kind::Number(60, 604_800),
        default: Some("3600"),
        example: "86400",
        bounds: "a whole number of seconds from 60 to 604800",
        doc: "How long the kernel's clock must have been unsynchronised for a warning.",
    },
    Key {
        section: "storage",
        name: "interval_secs",
        kind: Kind::Number(10, 3600),
        default: Some("60"),
        example: "30",
        bounds: "a whole number of seconds from 10 to 3600",
        doc: "How often a page is written to the file systems of the kubelet and the container runtime while all is well; on suspicion it is written at once.",
    },
    Key {
        section: "storage",
        name: "write_deadline_secs",
        kind: Kind::Number(2, 600),
        default: Some("10"),
        example: "30",
        bounds: "a whole number of seconds from 2 to 600",
        doc: "How long writing that page may take before the file system counts as hanging.",
    },
    Key {
        section: "storage",
        name: "free_percent",
        kind: Kind::Number(0, 50),
        default: Some("5"),
        example: "10",
        bounds: "a whole number of percent from 0 to 50",
        doc: "With less room than this a hint is given, though the kubelet's own eviction should have begun before; 0 turns it off.",
    },
    Key {
        section: "storage",
        name: "free_inodes_percent",
        kind: Kind::Number(0, 50),
        default: Some("3"),
        example: "10",
        bounds: "a whole number of percent from 0 to 50",
        doc: "With fewer inodes than this a hint is given; 0 turns it off.",
    },
    Key {
        section: "memory",
        name: "imminent_percent",
        kind: Kind::Number(5, 60),
        default: Some("25"),
        example: "15",
        bounds: "a whole number of percent from 5 to 60",
        doc: "With more than this share of the memory available, exhaustion is never called imminent.",
    },
    Key {
        section: "memory",
        name: "imminent_mib",
        kind: Kind::Number(64, 1_048_576),
        default: Some("8192"),
        example: "4096",
        bounds: "a whole number of MiB from 64 to 1048576",
        doc: "With more than this available, exhaustion is never called imminent: on a large host less than imminent_percent.",
    },
    Key {
        section: "memory",
        name: "imminent_secs",
        kind: Kind::Number(5, 600),
        default: Some("60"),
        example: "30",
        bounds: "a whole number of seconds from 5 to 600",
        doc: "How near exhaustion must be, by how fast available memory falls, while the kernel reclaims and tasks wait; with less proof it must be nearer.",
    },
    Key {
        section: "memory",
        name: "stall_percent",
        kind: Kind::Number(1, 90),
        default: Some("10"),
        example: "20",
        bounds: "a whole number of percent from 1 to 90",
        doc: "From how much of a second on, for which some task waits for memory, tasks count as waiting (/proc/pressure/memory, some).",
    },
    Key {
        section: "memory",
        name: "thrashing_percent",
        kind: Kind::Number(1, 25),
        default: Some("5"),
        example: "3",
        bounds: "a whole number of percent from 1 to 25",
        doc: "With more than this share of the memory available, pages that are read anew are no thrashing.",
    },
    Key {
        section: "memory",
        name: "refault_percent",
        kind: Kind::Number(10, 400),
        default: Some("50"),
        example: "100",
        bounds: "a whole number of percent from 10 to 400",
        doc: "How much of all file pages must be read anew each second for thrashing.",
    },
    Key {
        section: "kernel",
        name: "stalls",
        kind: Kind::Number(2, 100),
        default: Some("3"),
        example: "5",
        bounds: "a whole number from 2 to 100",
        doc: "How many soft lockups and RCU stalls within stall_window_secs make NodeKernelHealthy False, if the kernel's taint or counters confirm them.",
    },
    Key {
        section: "kernel",
        name: "stall_window_secs",
        kind: Kind::Number(60, 86_400),
        default: Some("600"),
        example: "900",
        bounds: "a whole number of seconds from 60 to 86400",
        doc: "See stalls.",
    },
    Key {
        section: "kernel",
        name: "oopses",
        kind: Kind::Number(2, 32),
        default: Some("3"),
        example: "5",
        bounds: "a whole number from 2 to 32",
        doc: "How many faults of the kernel's own (oops, BUG, general protection fault) within oops_window_secs make NodeKernelHealthy False, if the kernel's taint or counter confirms them.",
    },
    Key {
        section: "kernel",
        name: "oops_window_secs",
        kind: Kind::Number(60, 604_800),
        default: Some("3600"),
        example: "7200",
        bounds: "a whole number of seconds from 60 to 604800",
        doc: "See oopses.",
    },
    Key {
        section: "kernel",
        name: "uncorrected_errors",
        kind: Kind::Number(1, 32),
        default: Some("3"),
        example: "1",
        bounds: "a whole number from 1 to 32",
        doc: "How many hardware errors that could not be corrected within uncorrected_window_secs make NodeKernelHealthy False, if the kernel's taint or counters confirm them.",
    },
    Key {
        section: "kernel",
        name: "uncorrected_window_secs",
        kind: Kind::Number(3600, 604_800),
        default: Some("86400"),
        example: "172800",
        bounds: "a whole number of seconds from 3600 to 604800",
        doc: "See uncorrected_errors.",
    },
    Key {
        section: "kernel",
        name: "hung_for_secs",
        kind: Kind::Number(0, 86_400),
        default: Some("120"),
        example: "300",
        bounds: "a whole number of seconds from 0 to 86400",
        doc: "How long the kubelet, the container runtime or PID 1 must be seen to hang in the kernel, in one and the same wait, before NodeKernelHealthy is False (at least two looks, 20 seconds apart); the kernel itself reports after hung_task_timeout_secs.",
    },
    Key {
        section: "kernel",
        name: "quiet_secs",
        kind: Kind::Number(60, 86_400),
        default: Some("300"),
        example: "600",
        bounds: "a whole number of seconds from 60 to 86400",
        doc: "A trouble that only the kernel's log tells of is over after that time without another line.",
    },
    Key {
        section: "intent",
        name: "cloud_provider",
        kind: Kind::Text,
        default: None,
        example: "\"external\"",
        bounds: "\"external\" or \"none\"",
        doc: "What --cloud-provider the kubelet should get; without it `check` cannot say that the flag is missing.",
    },
    Key {
        section: "intent",
        name: "node_ip",
        kind: Kind::Text,
        default: None,
        example: "\"10.0.0.7\"",
        bounds: "an IP address, or one of each family with a comma between",
        doc: "The --node-ip that the kubelet should get.",
    },
    Key {
        section: "intent",
        name: "provider_id",
        kind: Kind::Text,
        default: None,
        example: "\"hcloud://12345678\"",
        bounds: "PROVIDER://ID, as spec.providerID has it",
        doc: "The spec.providerID that this machine's Node should have.",
    },
    Key {
        section: "intent",
        name: "node_labels",
        kind: Kind::Text,
        default: None,
        example: "\"node.kubernetes.io/pool=blue,disk=ssd\"",
        bounds: "KEY=VALUE, more of them with a comma between, as --node-labels has them",
        doc: "Labels that the Node should be born with.",
    },
    Key {
        section: CONDITION,
        name: "publish",
        kind: Kind::Boolean,
        default: Some("true"),
        example: "false",
        bounds: "true or false",
        doc: "With false this condition is shown by `nodevigil status` and told nowhere else: under no name, as no taint, as no event.",
    },
    Key {
        section: REASON,
        name: "as",
        kind: Kind::Text,
        default: None,
        example: "\"warning\"",
        bounds: "\"warning\" or \"off\"",
        doc: "Tells this reason as less than False. With \"warning\" it is an Event of type Warning and a count, with \"off\" nothing on the Node; neither changes a condition, nor taints. docs/reference/conditions.md lists the reasons.",
    },
    Key {
        section: "taints",
        name: "conditions",
        kind: Kind::List,
        default: Some("[]"),
        example: "[\"KubeletHealthy\"]",
        bounds: "names of native conditions",
        doc: "The conditions that taint the Node while they are False; needs an identity of the agent's own.",
    },
    Key {
        section: "taints",
        name: "prefix",
        kind: Kind::Text,
        default: Some("\"status-taint.cluster-autoscaler.kubernetes.io/nodevigil-\""),
        example: "\"health.example.org/nodevigil-\"",
        bounds: "a DNS name in lower case, then /nodevigil-",
        doc: "What the taints' keys begin with; another one than the default must be told to cluster-autoscaler (--status-taint).",
    },
    Key {
        section: "taints",
        name: "effect",
        kind: Kind::Text,
        default: Some("\"NoSchedule\""),
        example: "\"PreferNoSchedule\"",
        bounds: "\"NoSchedule\", \"PreferNoSchedule\" or \"NoExecute\"",
        doc: "The taints' effect. NoExecute deletes every pod that does not tolerate it, at once and whatever its disruption budget says.",
    },
    Key {
        section: "taints",
        name: "after_secs",
        kind: Kind::Number(0, 3600),
        default: Some("60"),
        example: "300",
        bounds: "a whole number of seconds from 0 to 3600",
        doc: "How long a condition must have been False for a sampled reason (KubeletHung, say) until it taints the Node; a fact (KubeletCrashed) taints at once. A restart of the agent counts anew, and leaves a taint that is there.",
    },
    Key {
        section: "suppression",
        name: "max_pause_secs",
        kind: Kind::Number(10, 604_800),
        default: Some("86400"),
        example: "14400",
        bounds: "a whole number of seconds from 10 to 604800",
        doc: "How long a pause (`nodevigil pause`, the annotation nodevigil.io/pause) and a sign of maintenance on the Node may suppress at most; an older one is ignored until it changes.",
    },
    Key {
        section: "events",
        name: "per_hour",
        kind: Kind::Integer,
        default: Some("20"),
        example: "60",
        bounds: "a whole number from 0 to 3600",
        doc: "How many requests for Events on the Node an hour may cost, half of them for changes of conditions alone; 0 turns them off.",
    },
    Key {
        section: "metrics",
        name: "socket",
        kind: Kind::Text,
        default: None,
        example: "\"/run/nodevigil/metrics.sock\"",
        bounds: "an absolute path of at most 107 bytes, or \"none\"",
        doc: "The Unix socket that answers GET /metrics; without it metrics.sock in the runtime folder, /run/nodevigil. \"none\" turns it off.",
    },
    Key {
        section: "metrics",
        name: "socket_mode",
        kind: Kind::Text,
        default: Some("\"0660\""),
        example: "\"0666\"",
        bounds: "\"0600\", \"0660\" or \"0666\"",
        doc: "Who may connect to it: root and the user nodevigil, its group too, or everybody on this host.",
    },
    Key {
        section: "metrics",
        name: "textfile_dir",
        kind: Kind::Text,
        default: None,
        example: "\"/run/nodevigil\"",
        bounds: "an absolute path, on tmpfs",
        doc: "Write nodevigil.prom here, for node_exporter's textfile collector; without it no file is written.",
    },
    Key {
        section: "metrics",
        name: "textfile_interval_secs",
        kind: Kind::Number(5, 3600),
        default: Some("60"),
        example: "15",
        bounds: "a whole number of seconds from 5 to 3600",
        doc: "How often that file is written.",
    },
];

/// The key `name` of the table `section`.
pub(super) fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.section == section && key.name == name)
}

/// The default of a [`Kind::Number`].
pub(super) fn default_number(section: &str, name: &str) -> u32 {
    find(section, name)
        .and_then(|key| key.default?.parse().ok())
        .expect("every threshold that is asked for has its row, with a number: the checks are made in a test")
}

/// The tables, each once, in the registry's order.
pub(super) fn sections() -> Vec<&'static str> {
    let mut names: Vec<_> = KEYS.iter().map(|key| key.section).collect();
    names.dedup();
    names
}

/// Why `name` in `section` is refused, and what may have been meant.
pub(super) fn unknown_key(section: &str, name: &str) -> String {
    let here: Vec<_> = KEYS
        .iter()
        .filter(|key| key.section == section)
        .map(|key| key.name)
        .collect();
    let elsewhere = KEYS.iter().find(|key| key.name == name);
    let hint = match (nearest(name, &here), elsewhere) {
        (_, Some(key)) => format!("it belongs below [{}]", key.section),
        (Some(near), None) => format!("did you mean {near}?"),
        (None, None) => "remove it".to_owned(),
    };
    format!("unknown key; {hint} (known here: {})", here.join(", "))
}

/// Why `name` at the top of a file is refused, and what may have been meant.
pub(super) fn unknown_section(name: &str, is_table: bool) -> String {
    let what = if is_table { "table" } else { "key" };
    let sections = sections();
    let hint = match (
        nearest(name, &sections),
        KEYS.iter().find(|key| key.name == name),
    ) {
        (_, Some(key)) => format!("it belongs below [{}]", key.section),
        (Some(near), None) => format!("did you mean [{near}]?"),
        (None, None) => "remove it".to_owned(),
    };
    let known: Vec<_> = sections.iter().map(|name| format!("[{name}]")).collect();
    format!(
        "unknown {what}; {hint} (known tables: {})",
        known.join(", ")
    )
}

/// The word in `known` that is a slip of the pen away from `word`: at most a third of its letters.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance: letters to add, drop or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
