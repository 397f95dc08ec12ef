//! What the daemon can see of the host's memory.

use std::time::Duration;

use super::{Ground, line::Lines};
use crate::{
    checks::memory::{Depth, Sample},
    host::{memory_groups::MemoryGroups, memory_tables::MemoryTables, process},
};

/// Says what works of it.
pub(super) fn look(lines: &Lines, ground: &Ground, kubelet: Option<i32>) {
    let mut tables = MemoryTables::new(&ground.root);
    let kubelet = kubelet.and_then(|pid| process::identify(&ground.root, pid));
    tables.follow(kubelet.as_ref(), None);
    let sample = match tables.look(Depth::Whole, Duration::ZERO) {
        Ok(sample) => sample,
        Err(why) => {
            let advice =
                "without it nobody sees the host's memory run out; does ProcSubset=pid hide it?";
            return lines.fail("level", why, advice);
        }
    };
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let (available, total) = (mib(sample.level.available), mib(sample.level.total));
    let text = format!("{available} of {total} MiB of memory are available");
    lines.ok("level", text);
    pressure(lines, ground, &sample);
    let mut groups = MemoryGroups::new(&ground.root);
    groups.look(&sample);
    control_groups(lines, &groups, &sample, kubelet.is_some());
    if let Some(zram) = sample.zram {
        let (stored, used) = (mib(zram.stored), mib(zram.used));
        let text = format!("zram holds {stored} MiB of swap in {used} MiB of memory");
        lines.ok("zram", text);
    }
}

fn pressure(lines: &Lines, ground: &Ground, sample: &Sample) {
    if sample.stall.is_none() {
        let text = "/proc/pressure/memory cannot be read";
        let advice = "the kernel has no psi=1, or the sandbox hides it: how long tasks wait for memory is not known";
        return lines.warn("psi", text, advice);
    }
    let daemon = ground.daemon.as_ref();
    let text = match daemon.and_then(|daemon| daemon.stall_triggers) {
        Some(true) => "the kernel calls the daemon when tasks wait for memory",
        // It looks at the memory each second all the same.
        Some(false) => {
            "/proc/pressure can be read; the kernel calls nobody but root when tasks wait for memory"
        }
        None => "/proc/pressure can be read",
    };
    lines.ok("psi", text);
}

/// Who grows can only be said where the memory of control groups is counted.
fn control_groups(lines: &Lines, groups: &MemoryGroups, sample: &Sample, has_kubelet: bool) {
    let Some(version) = groups.version() else {
        let text = "no control group hierarchy counts memory";
        let advice = "which pod takes the memory cannot be said";
        return lines.warn("cgroups", text, advice);
    };
    let (pods, others) = groups.followed();
    let limit = match sample.pods {
        Some(_) => "all pods together have a limit",
        None => "all pods together have no limit",
    };
    let own = match sample.kubelet_full_us {
        Some(_) => "; the pressure of the kubelet's own group can be read",
        None if has_kubelet => "; the kubelet's own group tells no pressure",
        None => "",
    };
    let text = format!("{version} counts memory: {pods} pods, {others} other groups; {limit}{own}");
    lines.ok("cgroups", text);
}
