//! NVIDIA's GPUs: those that their driver has lost, and the codes of its errors (Xid, <https://docs.nvidia.com/deploy/xid-errors>).
//!
//! They are warnings: a line of the kernel's log is one witness.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::condition::Uptime;
use crate::host::kmsg::Line;

/// The driver logs the first at the start of its module, and the second at the end, after it has looked for GPUs.
const LOADS: &str = "nvidia-nvlink: Nvlink Core is being initialized";
const HAS_LOADED: &str = "NVRM: loading NVIDIA UNIX";
/// The time between the two lines, at most.
const LOADING: Duration = Duration::from_mins(1);

/// The GPUs that are lost until the driver is loaded again: by PCI address, when the GPU was lost, and the line that says so.
#[derive(Debug, Default)]
pub(super) struct LostGpus(BTreeMap<String, (Uptime, String)>);

impl LostGpus {
    /// Takes in any line: when the driver is loaded, no GPU is lost.
    pub(super) fn take(&mut self, line: &Line) {
        if line.text.starts_with(LOADS) || line.text.starts_with(HAS_LOADED) {
            let loads = if line.text.starts_with(LOADS) { line.at } else { line.at - LOADING };
            self.0.retain(|_, (at, _)| *at > loads);
        }
    }

    /// Takes in a line that says that a GPU is lost, and that line as it is shown.
    pub(super) fn lost(&mut self, line: &Line, shown: String) {
        let gpu = address(&line.text);
        // The second line of a record that was split has no address.
        if gpu.is_some() || self.0.is_empty() {
            self.0.entry(gpu.unwrap_or_default()).or_insert((line.at, shown));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(gpu, (_, line))| format!("GPU {gpu} is lost: {line}"))
    }
}

/// The PCI address in a line, without the function: domain, bus and device.
fn address(text: &str) -> Option<String> {
    let mut words = text.split(|character: char| !character.is_ascii_hexdigit() && character != ':');
    let word = words.find(|word| word.contains(':') && word.len() >= "0000:3b:00".len())?;
    word.get(word.len() - "0000:3b:00".len()..).map(str::to_ascii_lowercase)
}

/// The code in a line such as `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.`
pub(super) fn code(text: &str) -> Option<u16> {
    let (_, error) = text.strip_prefix("NVRM: Xid (")?.split_once("): ")?;
    error.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::condition::Reason;
    use crate::host::clock::Now;
    use crate::monitor::kernel::logged::Logged;

    const OFF_THE_BUS: &str =
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    const UNCORRECTED: &str = "NVRM: Xid (PCI:0000:af:00): 48, pid=54013, name=python, DBE (double bit error) ECC";
    const LOADING_LINE: &str = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build";

    fn log(logged: &mut Logged, secs: u64, text: &str, is_old: bool) {
        let at = Uptime::from_secs(secs);
        let now = Now::of(at, Timestamp::UNIX_EPOCH);
        logged.take(&Line { level: 4, text: text.into(), at, is_old }, now);
    }

    fn shown(logged: &Logged, secs: u64) -> Option<(Reason, String)> {
        let finding = logged.gpus(Uptime::from_secs(secs));
        finding.map(|finding| (finding.reason, finding.message.replace("1970-01-01T00:00:00Z", "T")))
    }

    #[test]
    fn errors_are_counted_by_code_for_five_minutes_after_the_last_one() {
        let mut logged = Logged::default();
        log(&mut logged, 100, UNCORRECTED, false);
        assert_eq!(shown(&logged, 100), Some((Reason::NvidiaXidLogged, format!("Xid at T: {UNCORRECTED}"))));
        log(&mut logged, 200, UNCORRECTED, false);
        log(&mut logged, 200, "NVRM: Xid (PCI:0000:af:00): 63, x", false);
        let wanted = "Xid, 2 times from T to T, last: ";
        let wanted = format!("{wanted}{UNCORRECTED}; Xid at T: NVRM: Xid (PCI:0000:af:00): 63, x");
        assert_eq!(shown(&logged, 499).unwrap().1, wanted);
        assert_eq!(shown(&logged, 500), None);
        assert!(logged.findings(Uptime::from_secs(499)).next().is_none(), "they are the GPU's");
        assert_eq!(logged.last(), None);
        log(&mut logged, 600, UNCORRECTED, true);
        assert_eq!(shown(&logged, 600), None, "from before the start");
    }

    #[test]
    fn a_lost_gpu_is_lost_until_the_driver_is_loaded_again() {
        let mut logged = Logged::default();
        log(&mut logged, 200, OFF_THE_BUS, false);
        log(&mut logged, 210, OFF_THE_BUS, false);
        log(&mut logged, 211, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", false);
        log(&mut logged, 220, UNCORRECTED, false);
        let lost = format!("GPU 0000:3b:00 is lost: {OFF_THE_BUS}");
        let both = format!("{lost}; Xid at T: {UNCORRECTED}");
        assert_eq!(shown(&logged, 300), Some((Reason::NvidiaGPULost, both)));
        assert_eq!(shown(&logged, 90_000), Some((Reason::NvidiaGPULost, lost.clone())));
        for loaded in ["nvidia-nvlink: Nvlink Core is being initialized, major device number 234", LOADING_LINE] {
            let mut logged = Logged::default();
            log(&mut logged, 200, OFF_THE_BUS, false);
            log(&mut logged, 90_001, loaded, false);
            assert_eq!(shown(&logged, 90_001), None, "{loaded}");
        }
        // A restart of the agent.
        let mut logged = Logged::default();
        log(&mut logged, 200, OFF_THE_BUS, true);
        log(&mut logged, 220, UNCORRECTED, true);
        assert_eq!(shown(&logged, 90_000), Some((Reason::NvidiaGPULost, lost)));
        log(&mut logged, 90_000, LOADING_LINE, true);
        assert_eq!(shown(&logged, 90_000), None);
    }

    /// NVIDIA/NVSentinel#155: as /dev/kmsg has the record, as older drivers log it, and split. The driver's own line comes last.
    #[test]
    fn a_gpu_is_lost_without_an_xid_too() {
        for lines in [
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
            ][..],
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1e07)\\x0aNVRM: installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
            ],
            &[
                "NVRM: The NVIDIA GPU 0000:b3:00.0",
                "NVRM: (PCI ID: 10de:26b5) installed in this system has",
                "NVRM: fallen off the bus and is not responding to commands.",
            ],
            &["NVRM: The NVIDIA GPU 0000:b3:00.0"],
            &["NVRM: GPU at 0000:B3:00.0 has fallen off the bus."],
        ] {
            let mut logged = Logged::default();
            log(&mut logged, 1840, "nvidia-nvlink: Nvlink Core is being initialized, major device number 511", false);
            for line in lines {
                log(&mut logged, 1843, line, false);
            }
            log(&mut logged, 1843, "NVRM: The NVIDIA probe routine failed for 1 device(s).", false);
            log(&mut logged, 1843, LOADING_LINE, false);
            let (reason, message) = shown(&logged, 90_000).unwrap();
            assert_eq!(reason, Reason::NvidiaGPULost);
            assert!(message.starts_with("GPU 0000:b3:00 is lost: NVRM: ") && !message.contains("x0a"), "{message}");
            assert_eq!(message.matches("is lost").count(), 1, "{lines:?}");
        }
    }
}
