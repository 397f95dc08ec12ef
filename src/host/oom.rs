//! The kernel's lines about one OOM kill, put together.
//!
//! Since Linux 5.0 a line `oom-kill:constraint=…` says in which cgroup the task was and for whose limit, and `… Killed process …`
//! follows at once. Before, `Task in A killed as a result of limit of B` said so for a limit, and `… Kill process …` for all kills. Where
//! only the last line comes (under a storm the kernel leaves the others out), the cgroup is not known (`mm/oom_kill.c`,
//! `mm/memcontrol.c`).

/// A process that the kernel OOM-killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// Its pid in the host's PID namespace.
    pub pid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The cgroup that it was in.
    pub cgroup: Option<String>,
    pub memory: Memory,
}

/// Whose memory was used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memory {
    /// The host's.
    Host,
    /// The limit of a cgroup, which the kernel may not have named.
    Limit(Option<String>),
}

/// The longest cgroup that is kept; a longer one is cut.
const MAX_PATH_BYTES: usize = 256;

/// What was said of a kill before the line that names the process.
#[derive(Debug)]
struct Announced {
    cgroup: Option<String>,
    memory: Memory,
}

/// Puts the lines together.
#[derive(Debug, Default)]
pub struct OomLines {
    announced: Option<Announced>,
}

impl OomLines {
    /// Takes in a line of the kernel's, without its prefix; returns the kill that it completes.
    pub fn take(&mut self, line: &str) -> Option<OomKill> {
        if let Some(fields) = line.strip_prefix("oom-kill:") {
            self.announced = Some(of_summary(fields));
        } else if let Some(rest) = line.strip_prefix("Task in ") {
            if let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") {
                let path = |path: &str| Some(redact::bounded(path.trim_end(), MAX_PATH_BYTES));
                self.announced = Some(Announced { cgroup: path(task), memory: Memory::Limit(path(limit)) });
            }
        } else if let Some((before, _)) = line.split_once("Kill process ") {
            let memory = memory_of(before)?;
            let announced = self.announced.take().filter(|announced| announced.fits(&memory));
            self.announced = announced.or(Some(Announced { cgroup: None, memory }));
        } else if let Some((before, rest)) = line.split_once("Killed process ") {
            let by_line = memory_of(before);
            if by_line.is_none() && !before.is_empty() {
                return None;
            }
            let (pid, name) = named(rest)?;
            let fits = |announced: &Announced| by_line.as_ref().is_none_or(|memory| announced.fits(memory));
            let announced = self.announced.take().filter(fits);
            let memory = announced.as_ref().map(|announced| announced.memory.clone()).or(by_line)?;
            return Some(OomKill { pid, name, cgroup: announced.and_then(|announced| announced.cgroup), memory });
        }
        None
    }
}

impl Announced {
    /// Whether it can be about a kill for this memory.
    fn fits(&self, memory: &Memory) -> bool {
        matches!(self.memory, Memory::Host) == matches!(memory, Memory::Host)
    }
}

/// What comes before `Kill process` and `Killed process`; nothing before the latter until Linux 5.1.
fn memory_of(before: &str) -> Option<Memory> {
    match before {
        _ if before.starts_with("Memory cgroup out of memory") => Some(Memory::Limit(None)),
        _ if before.starts_with("Out of memory") => Some(Memory::Host),
        _ => None,
    }
}

/// `constraint=C,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=A,task_memcg=B,task=NAME,pid=N,uid=N`; of a kill for the host's memory
/// `global_oom` takes the place of `oom_memcg=A`.
fn of_summary(fields: &str) -> Announced {
    let value = |name: &str, next: &str| {
        let (_, rest) = fields.split_once(name)?;
        rest.split_once(next).map(|(value, _)| redact::bounded(value, MAX_PATH_BYTES))
    };
    let is_limit = fields.starts_with("constraint=CONSTRAINT_MEMCG");
    let limit = value(",oom_memcg=", ",task_memcg=");
    let memory = if is_limit || limit.is_some() { Memory::Limit(limit) } else { Memory::Host };
    Announced { cgroup: value(",task_memcg=", ",task="), memory }
}

/// `28438 (java) total-vm:…`, or `28438 (java), UID 0, total-vm:…`. A name may hold parentheses.
fn named(rest: &str) -> Option<(i32, String)> {
    let (pid, rest) = rest.split_once(" (")?;
    let rest = rest.split_once("total-vm:").map_or(rest, |(name, _)| name);
    let (name, _) = rest.rsplit_once(')')?;
    Some((pid.parse().ok()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kill_of(lines: &[&str]) -> Option<OomKill> {
        let mut oom = OomLines::default();
        lines.iter().filter_map(|line| oom.take(line)).last()
    }

    #[test]
    fn the_limit_of_a_cgroup_is_named() {
        let kill = kill_of(&[
            "kubelet invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=-999",
            "memory: usage 8192kB, limit 8192kB, failcnt 65",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/system.slice/kubelet.service,task_memcg=/system.slice/kubelet.service,task=kubelet,pid=812,uid=0",
            "Memory cgroup out of memory: Killed process 812 (kubelet) total-vm:1266644kB, anon-rss:7424kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:312kB oom_score_adj:-999",
        ]);
        let cgroup = "/system.slice/kubelet.service".to_owned();
        let memory = Memory::Limit(Some(cgroup.clone()));
        assert_eq!(kill, Some(OomKill { pid: 812, name: "kubelet".into(), cgroup: Some(cgroup), memory }));
    }

    #[test]
    fn the_memory_of_the_host_is_told_apart() {
        let kill = kill_of(&[
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/kubelet.service,task=kubelet,pid=812,uid=0",
            "Out of memory: Killed process 812 (kubelet) total-vm:2kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        ]);
        assert_eq!(kill.map(|kill| kill.memory), Some(Memory::Host));
    }

    #[test]
    fn older_kernels_say_it_in_other_lines() {
        let kill = kill_of(&[
            "Task in /kubepods/pod1/c killed as a result of limit of /kubepods/pod1",
            "Memory cgroup out of memory: Kill process 28438 (java) score 1972 or sacrifice child",
            "Killed process 28438 (a (b)) total-vm:5kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        ]);
        let kill = kill.unwrap();
        assert_eq!((kill.pid, kill.name.as_str()), (28438, "a (b)"));
        assert_eq!(kill.memory, Memory::Limit(Some("/kubepods/pod1".into())));
        // kubernetes/kubernetes#86420, Linux 4.15: the host's memory, and no line with the cgroup.
        let kill = kill_of(&[
            "Out of memory: Kill process 994 (containerd) score 4 or sacrifice child",
            "Killed process 994 (containerd) total-vm:907784kB, anon-rss:18912kB, file-rss:0kB, shmem-rss:0kB",
        ]);
        assert_eq!(kill, Some(OomKill { pid: 994, name: "containerd".into(), cgroup: None, memory: Memory::Host }));
        // Container-Optimized OS, Linux 4.14: a limit, and no line with the cgroup.
        let kill = kill_of(&[
            "Memory cgroup out of memory: Kill process 605624 (pause) score 0 or sacrifice child",
            "Killed process 605624 (pause) total-vm:1024kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB",
        ]);
        assert_eq!(kill.map(|kill| kill.memory), Some(Memory::Limit(None)));
    }

    #[test]
    fn the_last_line_alone_is_enough_and_other_lines_are_none() {
        let kill = kill_of(&["Out of memory: Killed process 7 (x) total-vm:1kB"]);
        assert_eq!(kill, Some(OomKill { pid: 7, name: "x".into(), cgroup: None, memory: Memory::Host }));
        for line in
            ["Killed process", "Killed process x (y) total-vm:1kB", "somebody: Killed process 7 (x)", "oom-kill:"]
        {
            assert_eq!(kill_of(&[line]), None, "{line}");
        }
    }
}
