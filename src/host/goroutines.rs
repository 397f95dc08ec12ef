//! What a Go program prints of its goroutines when a signal such as systemd's SIGABRT ends it, and what those of a kubelet wait for.
//!
//! The format is that of Go's `traceback.go`. journald drops empty lines, so that a header alone begins a goroutine.

use serde::Serialize;

/// Groups that are reported, those that wait for something first, and the functions of each.
const MAX_GROUPS: usize = 40;
const MAX_FUNCTIONS: usize = 12;

/// Goroutines with the same stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    pub count: usize,
    /// As Go has it, such as `select` or `sync.Mutex.Lock`.
    pub state: String,
    /// The longest wait of them. Go prints no wait of less than a minute.
    pub minutes: u64,
    /// The part of the kubelet to which they belong, and what they wait for, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The innermost first, without those of Go's runtime.
    pub functions: Vec<String>,
}

/// Parts of a kubelet by a function of theirs, the one first whose wait explains most (k8s.io/kubernetes/pkg/kubelet).
const PARTS: [(&str, &str); 9] = [
    ("kubelet.(*Kubelet).syncLoop", "sync loop"),
    ("pleg.(*GenericPLEG).Relist", "PLEG"),
    ("pleg.(*EventedPLEG)", "PLEG"),
    ("kubelet.(*podWorkers).podWorkerLoop", "pod worker"),
    ("kubelet/volumemanager", "volume manager"),
    ("kubelet/status.(*manager)", "status manager"),
    ("kubelet/eviction.(*managerImpl)", "eviction manager"),
    ("kubelet/cm", "container manager"),
    ("kubelet.(*Kubelet).updateRuntimeUp", "check of the container runtime"),
];

/// What a goroutine waits for that has such a function.
const WAITS: [(&str, &str); 3] = [
    ("client-go/rest.(*Request)", "the API server"),
    ("mount-utils.(*Mounter)", "a mount"),
    ("os/exec.(*Cmd)", "a program"),
];
/// The clients of the container runtime.
const CRI: [&str; 2] = ["(*remoteRuntimeService).", "(*remoteImageService)."];
/// One that waits for a condition or for others (`sync.Cond.Wait`) may just have nothing to do.
const LOCKED: [&str; 4] = ["sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock", "semacquire"];

/// Whether a line begins a goroutine.
pub fn is_header(line: &str) -> bool {
    line.starts_with("goroutine ") && line.ends_with("]:")
}

/// The goroutines of these lines in groups: those of a known part that wait for something known first.
pub fn groups<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Group> {
    let lines: Vec<&str> = lines.into_iter().map(str::trim).collect();
    let mut groups: Vec<Group> = Vec::new();
    for stack in lines.chunk_by(|_, next| !is_header(next)).filter(|stack| is_header(stack[0])) {
        let group = Group::of(stack[0], &stack[1..]);
        let same = |known: &&mut Group| known.state == group.state && known.functions == group.functions;
        match groups.iter_mut().find(same) {
            Some(known) => (known.count, known.minutes) = (known.count + 1, known.minutes.max(group.minutes)),
            None => groups.push(group),
        }
    }
    let rank = |group: &Group| PARTS.iter().position(|(_, part)| group.part == Some(part)).unwrap_or(PARTS.len());
    groups.sort_by_key(|group| (group.waits_for.is_none(), rank(group), std::cmp::Reverse(group.minutes)));
    groups.truncate(MAX_GROUPS);
    for group in &mut groups {
        group.functions.truncate(MAX_FUNCTIONS);
    }
    groups
}

/// Which part of the kubelet waits for what: a sentence without its beginning; none if no group shows it.
pub fn blocked(groups: &[Group]) -> Option<String> {
    let find = |group: &Group| Some((group.part?, group.waits_for.clone()?, group.minutes));
    let (part, what, minutes) = groups.iter().find_map(find)?;
    Some(match minutes {
        0 => format!("its {part} waits for {what}"),
        1 => format!("its {part} has waited 1 minute for {what}"),
        minutes => format!("its {part} has waited {minutes} minutes for {what}"),
    })
}

impl Group {
    /// A goroutine, by its header and its frames: `goroutine 52 gp=0xc000482fc0 m=nil [select, 2 minutes]:`.
    fn of(header: &str, frames: &[&str]) -> Self {
        let state = header.rsplit_once('[').map_or("", |(_, state)| state.trim_end_matches("]:"));
        let mut words = state.split(", ");
        let state = words.next().unwrap_or_default().to_owned();
        let minutes = words.find_map(|word| word.strip_suffix(" minutes")?.parse().ok()).unwrap_or_default();
        let functions: Vec<_> = frames.iter().filter_map(|line| function(line)).map(str::to_owned).collect();
        let part = named_by(&PARTS, &functions);
        Self { count: 1, waits_for: waits_for(&state, &functions), state, minutes, part, functions }
    }
}

/// The name in the first row whose function is one of these.
fn named_by(rows: &[(&str, &'static str)], functions: &[String]) -> Option<&'static str> {
    let has = |part: &str| functions.iter().any(|function| function.contains(part));
    rows.iter().find(|(function, _)| has(function)).map(|(_, name)| *name)
}

/// The function of a frame, without its arguments; none for a line with a file, and for what Go itself runs.
fn function(line: &str) -> Option<&str> {
    let (name, arguments) = line.rsplit_once('(')?;
    let is_function = arguments.ends_with(')') && name.contains('.') && !name.starts_with('/');
    let is_own = ["runtime.", "internal/runtime", "created by "].iter().any(|start| name.starts_with(start));
    (is_function && !is_own).then_some(name)
}

/// What the goroutine waits for, if its functions show that.
fn waits_for(state: &str, functions: &[String]) -> Option<String> {
    // The outermost: within a method are those for each version of the interface.
    let called = |client: &str| functions.iter().rev().find_map(|function| Some(function.split_once(client)?.1));
    if let Some(call) = CRI.into_iter().find_map(called) {
        let method = call.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        return Some(format!("the container runtime (CRI {method})"));
    }
    if LOCKED.contains(&state) {
        return Some(format!("a lock ({})", functions.iter().find(|name| !name.starts_with("sync."))?));
    }
    if let Some(what) = named_by(&WAITS, functions) {
        return Some(what.to_owned());
    }
    let file = functions.iter().find(|name| name.starts_with("os.") && !name.starts_with("os.(*Process)"));
    file.filter(|_| state == "syscall").map(|call| format!("the disk ({call})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
goroutine 0 gp=0x5 m=0 mp=0x5 [idle]:
runtime.futex(0x1)
\t/usr/local/go/src/runtime/sys_linux_amd64.s:557 +0x21
goroutine 7 gp=0x6 m=nil [select, 3 minutes]:
runtime.gopark(0x1)
\t/usr/local/go/src/runtime/proc.go:424 +0xce
google.golang.org/grpc.(*ClientConn).Invoke(0xc0, {0x1, 0x2})
\t/src/call.go:35 +0x11
k8s.io/cri-client/pkg.(*remoteRuntimeService).listPodSandboxV1(0xc0, {0x1})
\t/src/remote_runtime.go:305 +0x11
k8s.io/cri-client/pkg.(*remoteRuntimeService).ListPodSandbox(0xc0, {0x1})
\t/src/remote_runtime.go:301 +0x11
k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Relist(0xc0)
\t/src/generic.go:240 +0x11
created by k8s.io/kubernetes/pkg/kubelet/pleg.(*GenericPLEG).Start in goroutine 1
\t/src/generic.go:162 +0x11
goroutine 8 gp=0x7 m=nil [sleep]:
time.Sleep(0x1)
\t/usr/local/go/src/runtime/time.go:338 +0x11
k8s.io/kubernetes/pkg/kubelet.(*Kubelet).syncLoop(0xc0, {0x1})
\t/src/kubelet.go:2460 +0x11
goroutine 9 gp=0x8 m=nil [sync.Mutex.Lock, 5 minutes]:
sync.(*Mutex).Lock(...)
\t/usr/local/go/src/sync/mutex.go:46
k8s.io/kubernetes/pkg/kubelet/status.(*manager).syncBatch(0xc0, 0x1)
\t/src/status_manager.go:751 +0x11
goroutine 10 gp=0x9 m=nil [sync.Mutex.Lock, 6 minutes]:
sync.(*Mutex).Lock(...)
\t/usr/local/go/src/sync/mutex.go:46
k8s.io/kubernetes/pkg/kubelet/status.(*manager).syncBatch(0xc0, 0x1)
\t/src/status_manager.go:751 +0x11
rax    0xca
";

    #[test]
    fn goroutines_are_grouped_and_the_part_that_waits_is_named() {
        let groups = groups(DUMP.lines());
        let shown: Vec<_> = groups.iter().map(|group| (group.part, group.count, group.minutes)).collect();
        assert_eq!(
            shown,
            [(Some("PLEG"), 1, 3), (Some("status manager"), 2, 6), (Some("sync loop"), 1, 0), (None, 1, 0)],
            "{groups:#?}"
        );
        let lock = "a lock (k8s.io/kubernetes/pkg/kubelet/status.(*manager).syncBatch)";
        assert_eq!(groups[1].waits_for.as_deref(), Some(lock));
        let said = "its PLEG has waited 3 minutes for the container runtime (CRI ListPodSandbox)";
        assert_eq!(blocked(&groups).as_deref(), Some(said));
        assert_eq!(blocked(&groups[2..]), None, "a sync loop that sleeps waits for nothing known");
        assert_eq!(groups[0].functions.len(), 4, "{groups:?}");
    }

    /// As systemd's watchdog ended kubelets whose containerd had been stopped for 75 s: of each part one goroutine.
    const REAL_DUMPS: [(&str, &str); 4] = [
        ("1.34", include_str!("../../tests/goroutines/kubelet-1.34.txt")),
        ("1.35", include_str!("../../tests/goroutines/kubelet-1.35.txt")),
        ("1.36", include_str!("../../tests/goroutines/kubelet-1.36.txt")),
        ("1.37", include_str!("../../tests/goroutines/kubelet-1.37.txt")),
    ];

    #[test]
    fn of_real_dumps_the_blocked_calls_are_found() {
        for (release, dump) in REAL_DUMPS {
            let groups = groups(dump.lines());
            let waits: Vec<_> =
                groups.iter().filter_map(|group| Some((group.part?, group.waits_for.as_deref()?))).collect();
            let expected = [
                ("sync loop", "the container runtime (CRI ListPodSandbox)"),
                ("PLEG", "the container runtime (CRI ListPodSandbox)"),
                ("eviction manager", "the container runtime (CRI ImageFsInfo)"),
                ("check of the container runtime", "the container runtime (CRI Status)"),
            ];
            assert_eq!(waits, expected, "{release}: {groups:#?}");
            let idle = |part| groups.iter().any(|group| group.part == Some(part) && group.waits_for.is_none());
            assert!(idle("volume manager") && idle("status manager"), "{release}: {groups:#?}");
        }
    }
}
