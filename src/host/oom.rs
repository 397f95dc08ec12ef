//! The kernel's lines about one OOM kill, put together (`mm/oom_kill.c`).
//!
//! A line `oom-kill:constraint=…` has the cgroup of the task and the cgroup whose limit was reached, and `… Killed process …` follows at once. Where
//! only that line comes (under a storm the kernel leaves the other out), the cgroup is not known.

use std::mem::discriminant;

/// A process that the kernel OOM-killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    /// Its pid in the host's PID namespace.
    pub pid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    pub cgroup: Option<String>,
    pub memory: OomScope,
}

/// Whose memory was used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OomScope {
    /// The host's.
    Host,
    /// The limit of a cgroup, which the kernel may not have named.
    Limit(Option<String>),
}

/// The longest cgroup that is kept; a longer one is cut.
const MAX_PATH_BYTES: usize = 256;

/// Puts the lines together.
#[derive(Debug, Default)]
pub struct OomLines {
    /// The content of the line before the one that names the process: its cgroup, and whose memory was used up.
    announced: Option<(Option<String>, OomScope)>,
}

impl OomLines {
    /// Takes in a line of the kernel's, without its prefix; returns the kill that it completes.
    pub fn take(&mut self, line: &str) -> Option<OomKill> {
        if let Some(fields) = line.strip_prefix("oom-kill:") {
            self.announced = Some(announced(fields));
            return None;
        }
        let (before, rest) = line.split_once("Killed process ")?;
        let by_line = match before {
            _ if before.starts_with("Memory cgroup out of memory") => OomScope::Limit(None),
            _ if before.starts_with("Out of memory") => OomScope::Host,
            _ => return None,
        };
        let (pid, name) = named(rest)?;
        let fits = |(_, memory): &(_, OomScope)| discriminant(memory) == discriminant(&by_line);
        let (cgroup, memory) = self.announced.take().filter(fits).unwrap_or((None, by_line));
        Some(OomKill { pid, name, cgroup, memory })
    }
}

/// `constraint=C,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=A,task_memcg=B,task=NAME,pid=N,uid=N`; of a kill for the host's memory
/// has `global_oom` instead of `oom_memcg=A`.
fn announced(fields: &str) -> (Option<String>, OomScope) {
    let value = |name: &str, next: &str| {
        let (_, rest) = fields.split_once(name)?;
        rest.split_once(next).map(|(value, _)| redact::bounded(value, MAX_PATH_BYTES))
    };
    let is_limit = fields.starts_with("constraint=CONSTRAINT_MEMCG");
    let limit = value(",oom_memcg=", ",task_memcg=");
    let memory = if is_limit || limit.is_some() { OomScope::Limit(limit) } else { OomScope::Host };
    (value(",task_memcg=", ",task="), memory)
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
        let memory = OomScope::Limit(Some(cgroup.clone()));
        assert_eq!(kill, Some(OomKill { pid: 812, name: "kubelet".into(), cgroup: Some(cgroup), memory }));
    }

    #[test]
    fn an_oom_kill_for_the_hosts_memory_is_distinguished() {
        let kill = kill_of(&[
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/kubelet.service,task=kubelet,pid=812,uid=0",
            "Out of memory: Killed process 812 (kubelet) total-vm:2kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        ]);
        assert_eq!(kill.map(|kill| kill.memory), Some(OomScope::Host));
    }

    #[test]
    fn the_last_line_alone_is_enough_and_other_lines_are_none() {
        let kill = kill_of(&["Out of memory: Killed process 7 (a (b)) total-vm:1kB"]);
        assert_eq!(kill, Some(OomKill { pid: 7, name: "a (b)".into(), cgroup: None, memory: OomScope::Host }));
        // It belongs to another kill.
        let limit =
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a/b,task=x,pid=7,uid=0";
        let kill = kill_of(&[limit, "Out of memory: Killed process 7 (x) total-vm:1kB"]);
        assert_eq!(kill.map(|kill| (kill.cgroup, kill.memory)), Some((None, OomScope::Host)));
        for line in ["Killed process", "Killed process x (y) total-vm:1kB", "user: Killed process 7 (x)", "oom-kill:"] {
            assert_eq!(kill_of(&[line]), None, "{line}");
        }
    }
}
