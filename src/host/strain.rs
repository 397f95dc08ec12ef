//! Whether a process gets what it needs to run: the host's pressure, its control group's, and how long its own threads
//! waited for a processor. Opened on suspicion, read a few times, closed again.

use std::time::Duration;

use super::{
    files::Root,
    pressure::{Pressure, Resource},
    schedstat::Schedstat,
};
use crate::checks::kubelet::{Process, Strain};

/// Less than that between two reads makes no rate.
const LEAST: Duration = Duration::from_millis(300);

/// The tables of one process, those that there are.
#[derive(Debug)]
pub struct Gauge {
    process: Process,
    cpu: Option<Pressure>,
    group_cpu: Option<Pressure>,
    memory: Option<Pressure>,
    threads: Option<Schedstat>,
    last: Option<Totals>,
}

/// What the tables said, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    at: Duration,
    cpu_us: Option<u64>,
    group_cpu_us: Option<u64>,
    memory_us: Option<u64>,
    delay_us: Option<u64>,
}

impl Gauge {
    /// Opens what there is; `group` is the process's control group.
    pub fn open(root: &Root, process: Process, group: &str) -> Self {
        Self {
            cpu: Pressure::open(root, Resource::Cpu).ok(),
            group_cpu: Pressure::open_group(root, group, Resource::Cpu).ok(),
            memory: Pressure::open(root, Resource::Memory).ok(),
            threads: Schedstat::open(root, process.pid).ok(),
            process,
            last: None,
        }
    }

    /// Whose it is.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Reads them. The averages of the kernel count, and what has been since the last read if that is more: an average over
    /// ten seconds is late.
    pub fn read(&mut self, uptime: Duration) -> Strain {
        let cpu = self.cpu.as_mut().and_then(|table| table.read().ok());
        let group = self.group_cpu.as_mut().and_then(|table| table.read().ok());
        let memory = self.memory.as_mut().and_then(|table| table.read().ok());
        let memory = memory.and_then(|stall| stall.full);
        let times = self.threads.as_mut().and_then(|rows| rows.read().ok());
        let totals = Totals {
            at: uptime,
            cpu_us: cpu.map(|stall| stall.some.total_us),
            group_cpu_us: group.map(|stall| stall.some.total_us),
            memory_us: memory.map(|share| share.total_us),
            delay_us: times.map(|times| times.delay_ns / 1000),
        };
        let last = self.last.filter(|last| uptime >= last.at + LEAST);
        if self.last.is_none() || last.is_some() {
            self.last = Some(totals);
        }
        let rate = |of: fn(&Totals) -> Option<u64>| {
            let last = last?;
            let passed = uptime.saturating_sub(last.at).as_micros();
            let stalled = of(&totals)?.saturating_sub(of(&last)?);
            Some(percent(stalled.into(), passed))
        };
        let host = cpu
            .map(|stall| whole(stall.some.avg10))
            .max(rate(|t| t.cpu_us));
        let group = group
            .map(|stall| whole(stall.some.avg10))
            .max(rate(|t| t.group_cpu_us));
        Strain {
            cpu_percent: host.max(group),
            memory_percent: memory
                .map(|share| whole(share.avg10))
                .max(rate(|t| t.memory_us)),
            waited_percent: rate(|t| t.delay_us),
        }
    }
}

fn percent(part: u128, whole: u128) -> u16 {
    u16::try_from(part * 100 / whole.max(1)).unwrap_or(u16::MAX)
}

/// A percentage as the kernel writes it, cut.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and this one is between 0 and 100"
)]
fn whole(percent: f32) -> u16 {
    percent as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn put(root: &Root, path: &str, text: &str) {
        let (folder, _) = path.rsplit_once('/').unwrap();
        root.create_dir_all(folder).unwrap();
        // In place: the table stays open.
        #[expect(clippy::disallowed_methods, reason = "a test writes its own host")]
        std::fs::write(root.join(path), text).unwrap();
    }

    fn psi(avg10: &str, total_us: u64) -> String {
        let line = format!("avg10={avg10} avg60=0.00 avg300=0.00 total={total_us}");
        format!("some {line}\nfull {line}\n")
    }

    fn gauge(root: &Root) -> Gauge {
        let process = Process {
            pid: 7,
            started: Duration::ZERO,
        };
        Gauge::open(root, process, "/a.slice/kubelet.service")
    }

    #[test]
    fn what_was_since_the_last_read_counts_if_it_is_more() {
        let (_folder, root) = host();
        put(&root, "/proc/pressure/cpu", &psi("20.00", 0));
        put(&root, "/proc/pressure/memory", &psi("30.00", 0));
        put(&root, "/proc/7/task/7/schedstat", "1 0 1\n");
        put(&root, "/proc/7/task/8/schedstat", "1 500000000 1\n");
        let mut gauge = gauge(&root);
        let first = gauge.read(Duration::from_secs(10));
        assert_eq!(first.cpu_percent, Some(20));
        assert_eq!(
            (first.memory_percent, first.waited_percent),
            (Some(30), None)
        );
        put(&root, "/proc/pressure/cpu", &psi("25.00", 900_000));
        put(&root, "/proc/7/task/8/schedstat", "1 1100000000 1\n");
        let second = gauge.read(Duration::from_secs(11));
        assert_eq!(second.cpu_percent, Some(90));
        assert_eq!(
            (second.memory_percent, second.waited_percent),
            (Some(30), Some(60))
        );
    }

    #[test]
    fn the_control_groups_own_pressure_counts_too() {
        let (_folder, root) = host();
        let path = "/sys/fs/cgroup/a.slice/kubelet.service/cpu.pressure";
        put(&root, path, &psi("77.50", 0));
        let strain = gauge(&root).read(Duration::from_secs(1));
        assert_eq!(strain.cpu_percent, Some(77));
    }

    #[test]
    fn a_host_without_tables_is_no_witness() {
        let (_folder, root) = host();
        assert_eq!(gauge(&root).read(Duration::from_secs(1)), Strain::default());
    }

    #[test]
    fn two_reads_at_once_make_no_rate() {
        let (_folder, root) = host();
        put(&root, "/proc/pressure/cpu", &psi("0.00", 0));
        let mut gauge = gauge(&root);
        gauge.read(Duration::from_secs(1));
        put(&root, "/proc/pressure/cpu", &psi("0.00", 100));
        let strain = gauge.read(Duration::from_micros(1_000_050));
        assert_eq!(strain.cpu_percent, Some(0));
    }
}
