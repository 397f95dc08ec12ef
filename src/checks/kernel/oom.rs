//! The kernel's lines about a kill for memory, of several versions, put together into one [`OomKill`].
//!
//! Since 5.0 a line `oom-kill:constraint=…` says in which cgroup and for whose limit, and `Killed process …` follows at once. Before, `Task in A killed as a
//! result of limit of B` says so, and `Kill process …` may name another process than the one that dies. How high the limit is says `memory: usage …, limit …`,
//! before the former and after the latter. All but `Killed process` may be missing: the kernel leaves the others out when there are
//! many. `… invoked oom-killer` names who asked for memory, not who is to blame, and is not looked at.

use std::time::Duration;

use super::event::{OomKill, PodRef, Scope, bounded};

/// A line about the same kill is not later than this after the one before, though a slow console holds each back.
const TOGETHER: Duration = Duration::from_secs(10);
/// Bounds the name of a cgroup.
const MAX_PATH_BYTES: usize = 512;
/// Bounds the name of a process, with what the kernel wrote as `\xHH`.
const MAX_COMM_BYTES: usize = 64;
/// A limit as high as this is none: the kernel writes the greatest number of pages that there can be, in KiB.
const NO_LIMIT_KIB: u64 = u64::MAX / 4096;

/// What was said of a kill before the line that names the dead.
#[derive(Debug, Clone)]
struct Announced {
    at: Duration,
    scope: Scope,
    cgroup: Option<String>,
    limit_cgroup: Option<String>,
    limit_bytes: Option<u64>,
    /// Who is going to die, if that was said.
    victim: Option<(i32, String)>,
    /// The dead was named: what is said here is nobody else's, unless the whole cgroup dies.
    spent: bool,
    /// The whole cgroup dies, after the first: there is more than one `Killed process`.
    whole: bool,
}

/// `memory: usage 16384kB, limit 16384kB, failcnt 65`: a limit, and what was left below it.
#[derive(Debug, Clone, Copy)]
struct Limit {
    kib: u64,
    left_kib: u64,
    is_with_swap: bool,
}

impl Limit {
    fn read(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("memory")?;
        let with_swap = rest.strip_prefix("+swap");
        let rest = with_swap.unwrap_or(rest).strip_prefix(": usage ")?;
        let (usage, rest) = rest.split_once("kB, limit ")?;
        let (kib, _) = rest.split_once("kB")?;
        let (usage, kib): (u64, u64) = (usage.parse().ok()?, kib.parse().ok()?);
        (kib < NO_LIMIT_KIB).then(|| Self {
            kib,
            left_kib: kib.saturating_sub(usage),
            is_with_swap: with_swap.is_some(),
        })
    }
}

/// Puts the lines together.
#[derive(Debug, Default)]
pub struct OomLines {
    announced: Option<Announced>,
    /// Said ahead of the announcement that it belongs to.
    limit: Option<(Duration, Limit)>,
}

impl OomLines {
    /// Takes a line of the kernel's in, and hands out what is complete.
    pub fn take(&mut self, at: Duration, text: &str, out: &mut impl FnMut(OomKill)) {
        if self
            .announced
            .as_ref()
            .is_some_and(|a| at.saturating_sub(a.at) > TOGETHER)
        {
            self.flush(out);
        }
        if let Some(limit) = Limit::read(text) {
            self.learn_limit(at, limit);
        } else if let Some(fields) = text.strip_prefix("oom-kill:") {
            self.flush(out);
            let limit_bytes = self.take_limit(at.saturating_sub(TOGETHER));
            self.announced = Some(Announced {
                limit_bytes,
                ..Announced::of_summary(at, fields)
            });
        } else if let Some(rest) = text.strip_prefix("Task in ") {
            if let Some((task, limit)) = rest.split_once(" killed as a result of limit of ") {
                self.flush(out);
                self.announced = Some(Announced::of_task(at, task, limit.trim_end()));
            }
        } else if let Some(rest) = text.strip_prefix("Tasks in ") {
            if let (Some(announced), Some((path, _))) = (
                &mut self.announced,
                rest.split_once(" are going to be killed"),
            ) {
                announced.whole = true;
                announced.cgroup = Some(bounded(path, MAX_PATH_BYTES));
            }
        } else if let Some((before, rest)) = split_at_kill(text) {
            self.killed(at, before, rest, out);
        } else if let Some(scope) = text
            .split_once(" Kill process ")
            .and_then(|(b, _)| scope(b))
            && self.announced.as_ref().is_none_or(|a| a.spent)
        {
            self.announced = Some(Announced::new(at, scope));
        }
    }

    /// Whether a kill was announced whose dead has not been named yet.
    pub fn waits(&self) -> bool {
        self.announced.as_ref().is_some_and(|a| a.victim.is_some())
    }

    /// No more is to be expected: hands out what was announced, if it names the dead. Its own line was lost.
    pub fn flush(&mut self, out: &mut impl FnMut(OomKill)) {
        if let Some(announced) = self.announced.take()
            && let Some((pid, comm)) = announced.victim.clone()
        {
            out(announced.kill(announced.at, pid, comm, None));
        }
    }

    /// Of memory alone first and then, on cgroup v1, of memory with swap: the one that is nearer was reached.
    fn learn_limit(&mut self, at: Duration, limit: Limit) {
        if limit.is_with_swap
            && let Some((_, memory)) = self.limit
            && memory.left_kib <= limit.left_kib
        {
            return;
        }
        self.limit = Some((at, limit));
    }

    /// How high the limit is that was said last, if that was since then.
    fn take_limit(&mut self, since: Duration) -> Option<u64> {
        let (_, limit) = self.limit.take().filter(|(at, _)| *at >= since)?;
        Some(limit.kib.saturating_mul(1024))
    }

    /// Lines are missing: what was said before is not known to belong to what comes.
    pub fn have_missed(&mut self) {
        self.limit = None;
    }

    fn killed(&mut self, at: Duration, before: &str, rest: &str, out: &mut impl FnMut(OomKill)) {
        let Some((pid, comm)) = named(rest) else {
            return;
        };
        let other = |a: &Announced| a.victim.as_ref().is_some_and(|(victim, _)| *victim != pid);
        if self
            .announced
            .as_ref()
            .is_some_and(|a| other(a) && !a.whole)
        {
            // Its own announcement was left out, and so was the other's end.
            self.flush(out);
        }
        let by_line = scope(before);
        let is_its = |a: &&mut Announced| {
            (a.whole || !a.spent) && by_line.is_none_or(|scope| scope == a.scope)
        };
        let rss_bytes = rss(rest);
        let said_at = self.announced.as_ref().map(|a| a.at);
        // Of an announcement of the older kind.
        let limit_bytes = said_at.and_then(|since| self.take_limit(since));
        if let Some(said) = self.announced.as_mut().filter(is_its) {
            said.limit_bytes = said.limit_bytes.or(limit_bytes);
            said.victim = None;
            said.spent = true;
            out(said.kill(at, pid, comm, rss_bytes));
        } else {
            let alone = Announced::new(at, by_line.unwrap_or(Scope::Host));
            out(alone.kill(at, pid, comm, rss_bytes));
        }
    }
}

impl Announced {
    fn new(at: Duration, scope: Scope) -> Self {
        Self {
            at,
            scope,
            cgroup: None,
            limit_cgroup: None,
            limit_bytes: None,
            victim: None,
            spent: false,
            whole: false,
        }
    }

    /// `Task in TASK killed as a result of limit of LIMIT`; some kernels say so of the host too.
    fn of_task(at: Duration, task: &str, limit: &str) -> Self {
        let limit = Some(limit).filter(|limit| *limit != "host");
        let scope = if limit.is_some() {
            Scope::Cgroup
        } else {
            Scope::Host
        };
        Self {
            cgroup: Some(bounded(task, MAX_PATH_BYTES)),
            limit_cgroup: limit.map(|path| bounded(path, MAX_PATH_BYTES)),
            ..Self::new(at, scope)
        }
    }

    /// `constraint=C,nodemask=…,cpuset=…,mems_allowed=…,oom_memcg=A,task_memcg=B,task=NAME,pid=N,uid=N`; `global_oom` stands
    /// in the place of `oom_memcg=A`. A name may hold commas and even `,pid=`, so that the pid is the last one.
    fn of_summary(at: Duration, fields: &str) -> Self {
        let limit_cgroup = between(fields, ",oom_memcg=", ",task_memcg=");
        let is_cgroups =
            limit_cgroup.is_some() || fields.starts_with("constraint=CONSTRAINT_MEMCG");
        let scope = if is_cgroups {
            Scope::Cgroup
        } else {
            Scope::Host
        };
        let victim = fields.split_once(",task=").and_then(|(_, rest)| {
            let (comm, rest) = rest.rsplit_once(",pid=")?;
            let pid = rest.split(',').next()?.parse().ok()?;
            Some((pid, bounded(comm, MAX_COMM_BYTES)))
        });
        Self {
            cgroup: between(fields, ",task_memcg=", ",task=").map(|p| bounded(p, MAX_PATH_BYTES)),
            limit_cgroup: limit_cgroup.map(|p| bounded(p, MAX_PATH_BYTES)),
            victim,
            ..Self::new(at, scope)
        }
    }

    fn kill(&self, at: Duration, pid: i32, comm: String, rss_bytes: Option<u64>) -> OomKill {
        OomKill {
            at,
            pid,
            comm,
            cgroup: self.cgroup.clone(),
            limit_cgroup: self.limit_cgroup.clone(),
            limit_bytes: self.limit_bytes.filter(|_| self.scope == Scope::Cgroup),
            scope: self.scope,
            pod: self.cgroup.as_deref().and_then(PodRef::of_cgroup),
            rss_bytes,
        }
    }
}

/// What stands before and behind `Killed process `, if the line is one about memory: the kernel's own prefix, or none before 5.1.
fn split_at_kill(text: &str) -> Option<(&str, &str)> {
    let (before, rest) = text.split_once("Killed process ")?;
    (before.is_empty() || scope(before).is_some()).then_some((before, rest))
}

/// Whose memory the words before the kill speak of.
fn scope(before: &str) -> Option<Scope> {
    if before.starts_with("Memory cgroup out of memory") {
        Some(Scope::Cgroup)
    } else if before.starts_with("Out of memory") {
        Some(Scope::Host)
    } else {
        None
    }
}

/// `28438 (java) total-vm:…`, `28438 (java), UID 0, total-vm:…`: pid and name. A name may hold parentheses.
fn named(rest: &str) -> Option<(i32, String)> {
    let (pid, rest) = rest.split_once(" (").or_else(|| rest.split_once(", "))?;
    let rest = rest.split_once("total-vm:").map_or(rest, |(name, _)| name);
    let comm = rest.rsplit_once(')').map_or(rest, |(comm, _)| comm);
    Some((pid.parse().ok()?, bounded(comm, MAX_COMM_BYTES)))
}

/// The resident pages that the line lists, in bytes.
fn rss(rest: &str) -> Option<u64> {
    let kinds = ["anon-rss:", "file-rss:", "shmem-rss:"];
    let kib = kinds.iter().filter_map(|kind| {
        let (_, value) = rest.rsplit_once(kind)?;
        value.split_once("kB")?.0.parse::<u64>().ok()
    });
    kib.reduce(u64::saturating_add)
        .map(|kib| kib.saturating_mul(1024))
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

#[cfg(test)]
mod tests;
