//! Tasks that wait in the kernel and cannot be killed: which the log has named, which nobody logs any more, and which of them
//! are the platform's own.
//!
//! A task of a pod, or any number of them, is no fault of the node: a volume that does not answer makes the same lines on
//! every node that has it. The kubelet, the runtime or PID 1 that does not go on is one, if its cgroup is its own unit's, its
//! name is exact, and its switch counts are the same at two looks.

use std::time::Duration;

use super::{
    event::PodRef,
    place::{is_below_pods, is_own_unit},
    state::{KernelAsk, WaitingTask},
};
use crate::{checks::runtime, config::Settings};

/// Hung tasks that are remembered, of each kind.
const MAX_TASKS: usize = 16;
/// Two looks at the same wait are at least so far apart. (The looks are 30 s apart; a line may call for one between.)
const LOOKS_APART: Duration = Duration::from_secs(20);

/// The names, as the kernel cuts them (15 bytes), of the programs without which no pod is started or stopped.
const ESSENTIAL: &[&str] = &[
    "kubelet",
    "containerd",
    "dockerd",
    "cri-dockerd",
    "crio",
    "k3s",
    "k3s-server",
    "k3s-agent",
    "rke2",
    "k0s",
    "kubelite",
    "hyperkube",
];
/// PID 1, which essential is under this name alone.
const INIT: &str = "systemd";
/// What belongs to the platform on this host.
#[derive(Debug)]
pub(super) struct Platform {
    units: Vec<String>,
    /// The kubelet that is watched.
    pub(super) kubelet: Option<i32>,
    /// The runtime's process that answered last.
    pub(super) runtime: Option<i32>,
}

impl Platform {
    pub(super) fn new(settings: &Settings) -> Self {
        let known = runtime::ALL_UNITS.iter();
        let configured = settings.runtime.unit.iter().cloned();
        let mut units = settings.kubelet.units();
        units.extend(configured);
        units.extend(known.map(|unit| (*unit).to_owned()));
        Self {
            units,
            kubelet: None,
            runtime: None,
        }
    }

    /// The processes whose threads are looked at without the log.
    pub(super) fn processes(&self) -> Vec<i32> {
        let both = [self.kubelet, self.runtime];
        let mut pids: Vec<i32> = both.into_iter().flatten().collect();
        pids.dedup(); // k3s is both
        pids
    }

    /// Whether the task is the kubelet's, the runtime's or PID 1's own: by its exact name and its cgroup.
    fn owns(&self, task: &WaitingTask) -> bool {
        let cgroup = task.cgroup.as_deref().unwrap_or_default();
        if task.pid == 1 {
            return task.comm == INIT && matches!(cgroup, "/" | "/init.scope");
        }
        if !ESSENTIAL.contains(&task.comm.as_str()) || PodRef::of_cgroup(cgroup).is_some() {
            return false;
        }
        // A kubelet that no unit runs is known by its pid file.
        is_own_unit(cgroup, |unit| self.units.iter().any(|own| own == unit))
            || (self.kubelet == Some(task.pid) && !is_below_pods(cgroup))
    }
}

/// One and the same wait, as two looks or more have seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Still {
    started: u64,
    switches: u64,
    /// The first look and the last.
    from: Duration,
    until: Duration,
    is_platforms: bool,
}

/// A task that waits and cannot be killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HungTask {
    /// Its thread id.
    pub(super) tid: i32,
    /// Its name.
    pub(super) comm: String,
    still: Option<Still>,
}

impl HungTask {
    /// Takes in what a look saw of it; `false`: it is another task by now.
    fn learn(&mut self, seen: &WaitingTask, platform: &Platform, now: Duration) -> bool {
        // Of a worker of the kernel's own `/proc` says more than the log.
        if !seen.comm.starts_with(&self.comm) {
            return false;
        }
        let is_platforms = platform.owns(seen);
        match &mut self.still {
            Some(still) if still.started != seen.started => return false,
            Some(still) if still.switches == seen.switches => {
                still.until = now;
                still.is_platforms &= is_platforms;
            }
            still => {
                *still = Some(Still {
                    started: seen.started,
                    switches: seen.switches,
                    from: now,
                    until: now,
                    is_platforms,
                });
            }
        }
        true
    }

    /// Whether it is the platform's, and two looks have seen it in the same wait for so long.
    pub(super) fn is_deadlocked(&self, hung_for: Duration) -> bool {
        self.still.as_ref().is_some_and(|still| {
            let lasted = still.until.saturating_sub(still.from);
            still.is_platforms && lasted >= hung_for.max(LOOKS_APART)
        })
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct HungTasks {
    /// Those that the log has named.
    pub(super) logged: Vec<HungTask>,
    /// Threads of kubelet and runtime that were seen to wait while the kernel logs no hung task.
    pub(super) unlogged: Vec<HungTask>,
}

impl HungTasks {
    /// The log names one: `COMM:TID`.
    pub(super) fn log(&mut self, subject: &str) {
        let Some((comm, tid)) = subject.rsplit_once(':') else {
            return;
        };
        let Ok(tid) = tid.parse() else { return };
        let is_known = self.logged.iter().any(|task| task.tid == tid);
        if !is_known && self.logged.len() < MAX_TASKS {
            self.logged.push(HungTask {
                tid,
                comm: comm.to_owned(),
                still: None,
            });
        }
    }

    /// Takes in the tasks that wait, as a look sees them that asked `ask`.
    pub(super) fn learn(
        &mut self,
        waiting: &[WaitingTask],
        ask: &KernelAsk,
        platform: &Platform,
        now: Duration,
    ) {
        let goes_on = |task: &mut HungTask| {
            let seen = waiting.iter().find(|seen| seen.tid == task.tid);
            seen.is_some_and(|seen| task.learn(seen, platform, now))
        };
        self.logged
            .retain_mut(|task| !ask.tids.contains(&task.tid) || goes_on(task));
        self.unlogged
            .retain_mut(|task| !ask.processes.is_empty() && goes_on(task));
        let unasked = |seen: &&WaitingTask| {
            ask.processes.contains(&seen.pid) && !ask.tids.contains(&seen.tid)
        };
        for seen in waiting.iter().filter(unasked) {
            let is_known = self.unlogged.iter().any(|task| task.tid == seen.tid);
            if !is_known && self.unlogged.len() < MAX_TASKS {
                let mut task = HungTask {
                    tid: seen.tid,
                    comm: seen.comm.clone(),
                    still: None,
                };
                task.learn(seen, platform, now);
                self.unlogged.push(task);
            }
        }
    }

    /// The first that is a deadlock of the platform's.
    pub(super) fn deadlocked(&self, hung_for: Duration) -> Option<&HungTask> {
        let mut all = self.logged.iter().chain(&self.unlogged);
        all.find(|task| task.is_deadlocked(hung_for))
    }

    /// The threads that the log has named.
    pub(super) fn tids(&self) -> Vec<i32> {
        self.logged.iter().map(|task| task.tid).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logged.is_empty() && self.unlogged.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";

    fn task(pid: i32, comm: &str, cgroup: &str) -> WaitingTask {
        WaitingTask {
            tid: pid,
            pid,
            comm: comm.to_owned(),
            cgroup: Some(cgroup.to_owned()),
            ..WaitingTask::default()
        }
    }

    #[test]
    fn the_platforms_own_are_known_by_exact_name_and_unit() {
        let platform = Platform::new(&Settings::default());
        for (pid, comm, cgroup) in [
            (1, "systemd", "/init.scope"),
            (1, "systemd", "/"),
            (7, "kubelet", "/system.slice/kubelet.service"),
            (7, "kubelet", "/kube.slice/kube-let.slice/kubelet.service"),
            (7, "containerd", "/system.slice/containerd.service"),
            (7, "crio", "/system.slice/crio.service"),
            (7, "dockerd", "/system.slice/docker.service"),
            (7, "k3s-server", "/system.slice/k3s.service"),
            (7, "containerd", "/system.slice/k3s-agent.service"),
            (7, "kubelet", "/system.slice/rke2-server.service"),
            (7, "kubelet", "/system.slice/k0sworker.service"),
            (
                7,
                "kubelite",
                "/system.slice/snap.microk8s.daemon-kubelite.service",
            ),
        ] {
            assert!(platform.owns(&task(pid, comm, cgroup)), "{comm} {cgroup}");
        }
    }

    #[test]
    fn who_only_looks_like_the_platform_is_not() {
        let platform = Platform::new(&Settings::default());
        let pod = format!(
            "/kubepods.slice/kubepods-pod{}.slice",
            UID.replace('-', "_")
        );
        for (pid, comm, cgroup) in [
            // Who only begins like one, in a unit of the platform's or anywhere.
            (7, "containerd-shim", "/system.slice/containerd.service"),
            (
                7,
                "systemd-journal",
                "/system.slice/systemd-journald.service",
            ),
            (7, "kubelet-x", "/system.slice/kubelet.service"),
            (7, "systemd", "/init.scope"),
            (1, "init", "/init.scope"),
            // A hook, a mount that the kubelet started.
            (7, "mount.nfs", "/system.slice/kubelet.service"),
            // Somebody's own of that name.
            (7, "containerd", "/user.slice/user-0.slice/session-1.scope"),
            (7, "kubelet", "/"),
            (7, "containerd", "/system.slice/build.service"),
            // Docker in a pod; systemd in a pod, and in a container of the host's.
            (7, "containerd", &format!("{pod}/cri-containerd-x.scope")),
            (7, "containerd", "/kubepods.slice/containerd.service"),
            (
                7,
                "containerd",
                &format!("{pod}/cri-containerd-x.scope/system.slice/containerd.service"),
            ),
            (7, "kubelet", "/docker/abc/system.slice/kubelet.service"),
            (
                7,
                "kubelet",
                "/system.slice/docker-abc.scope/system.slice/kubelet.service",
            ),
        ] {
            assert!(!platform.owns(&task(pid, comm, cgroup)), "{comm} {cgroup}");
        }
        let mut none = task(7, "kubelet", "");
        none.cgroup = None;
        assert!(!platform.owns(&none));
        // One that runs outside systemd.
        let kubelet = Some(7);
        let platform = Platform {
            kubelet,
            ..platform
        };
        assert!(platform.owns(&task(7, "kubelet", "/podruntime/kubelet")));
        assert!(!platform.owns(&task(8, "kubelet", "/podruntime/kubelet")));
        assert!(!platform.owns(&task(7, "kubelet", "/kubepods/x")));
    }

    #[test]
    fn two_looks_at_one_wait_make_it() {
        let platform = Platform::new(&Settings::default());
        let mut seen = task(7, "kubelet", "/system.slice/kubelet.service");
        let mut tasks = HungTasks::default();
        tasks.log("kubelet:7");
        let is_deadlocked = |tasks: &HungTasks| tasks.deadlocked(Duration::ZERO).is_some();
        let look = |tasks: &mut HungTasks, seen: &WaitingTask, secs| {
            let ask = KernelAsk {
                tids: vec![7],
                ..KernelAsk::default()
            };
            tasks.learn(
                std::slice::from_ref(seen),
                &ask,
                &platform,
                Duration::from_secs(secs),
            );
            is_deadlocked(tasks)
        };
        assert!(!look(&mut tasks, &seen, 100));
        assert!(
            !look(&mut tasks, &seen, 101),
            "two looks, and no time between"
        );
        assert!(look(&mut tasks, &seen, 130));
        seen.switches = 1;
        assert!(
            !look(&mut tasks, &seen, 160),
            "it has been on the CPU since"
        );
        assert!(look(&mut tasks, &seen, 190));
        seen.started = 5;
        assert!(!look(&mut tasks, &seen, 220), "its number is another's");
        assert!(tasks.logged.is_empty());
        // A line's name and the task's must be one.
        tasks.log("tar:7");
        assert!(!look(&mut tasks, &seen, 250));
        assert!(tasks.logged.is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let mut tasks = HungTasks::default();
        for tid in 0..100 {
            tasks.log(&format!("x:{tid}"));
        }
        let waiting: Vec<_> = (0..100).map(|tid| task(tid + 200, "y", "/")).collect();
        let platform = Platform::new(&Settings::default());
        let ask = KernelAsk {
            tids: Vec::new(),
            processes: (200..300).collect(),
        };
        tasks.learn(&waiting, &ask, &platform, Duration::ZERO);
        assert_eq!((tasks.logged.len(), tasks.unlogged.len()), (16, 16));
        tasks.learn(&waiting, &KernelAsk::default(), &platform, Duration::ZERO);
        assert!(tasks.unlogged.is_empty(), "the kernel logs them again");
        tasks.log("nobody");
        tasks.log("x:");
    }
}
