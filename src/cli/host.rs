//! `nodevigil status --host`: the processes that use most memory and CPU time.

use super::{GOOD, Output, print};
use crate::host::top::{self, Consumer};
use crate::report::table;

const MIB: u64 = 1 << 20;
/// The number of processes that are shown for their use of processors, and for their memory.
const PROCESSES: usize = 10;
/// The longest cgroup that is shown, in bytes.
const MAX_CGROUP_BYTES: usize = 100;
/// A process name; the kernel keeps 15 bytes.
const MAX_NAME_BYTES: usize = 32;

/// Measures for a second and prints the result.
pub fn run(output: Output) -> anyhow::Result<u8> {
    let consumers = top::busiest_and_largest(PROCESSES).map_err(anyhow::Error::msg)?;
    print(&match output {
        Output::Json => serde_json::to_string_pretty(&consumers)? + "\n",
        Output::Text => text(&consumers),
    })?;
    Ok(GOOD)
}

fn text(consumers: &[Consumer]) -> String {
    let row = |consumer: &Consumer| {
        let of = consumer.cgroup.as_deref().unwrap_or("-");
        let of = pod_uid(of).map_or_else(|| redact::sanitize_line(of, MAX_CGROUP_BYTES), |uid| format!("pod {uid}"));
        let name = redact::sanitize_line(&consumer.name, MAX_NAME_BYTES);
        let memory = format!("{} MiB", consumer.memory_bytes / MIB);
        let growth = format!("{} MiB/s", consumer.growth_bytes_per_sec / MIB);
        let cpu = format!("{} %", consumer.cpu_percent);
        ([consumer.pid.to_string(), name, memory, growth, cpu, of], "")
    };
    table::text(["PID", "NAME", "MEMORY", "GROWTH", "CPU", "POD OR CGROUP"], consumers.iter().map(row))
}

/// The uid of the pod in whose cgroup a process is: `kubepods-burstable-podUID.slice` with `_` for `-`, or `kubepods/burstable/podUID`, by
/// the kubelet's cgroup driver. That of a static pod has no hyphens.
fn pod_uid(cgroup: &str) -> Option<String> {
    let (_, below) = cgroup.split_once("/kubepods")?;
    below.split('/').find_map(|part| {
        let (_, uid) = part.trim_end_matches(".slice").rsplit_once("pod")?;
        (uid.len() >= 32).then(|| uid.replace('_', "-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_shown_with_its_pod_or_else_its_cgroup() {
        let of_pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f8a7a3e_93b1_4d3c_9a86_0b6f2ee6f7d1.slice/cri-containerd-ab.scope";
        let consumer = |pid, name: &str, cgroup: &str, memory_bytes, cpu_percent| {
            let (name, cgroup) = (name.to_owned(), Some(cgroup.to_owned()));
            Consumer { pid, name, cgroup, memory_bytes, growth_bytes_per_sec: 3 * MIB, cpu_percent }
        };
        let consumers = [
            consumer(812, "java", of_pod, 2000 * MIB, 150),
            consumer(7, "sshd\u{1b}", "/system.slice/kubepods.service", MIB, 0),
        ];
        let table = "\
PID   NAME    MEMORY     GROWTH    CPU     POD OR CGROUP
812   java    2000 MiB   3 MiB/s   150 %   pod 0f8a7a3e-93b1-4d3c-9a86-0b6f2ee6f7d1
7     sshd␛   1 MiB      3 MiB/s   0 %     /system.slice/kubepods.service
";
        assert_eq!(text(&consumers), table);
        let static_pod = "/kubepods/besteffort/pod3a5f6c1d2b4e8f907162534455667788/ab";
        assert_eq!(pod_uid(static_pod).as_deref(), Some("3a5f6c1d2b4e8f907162534455667788"));
    }
}
