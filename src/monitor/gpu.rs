//! NVIDIA GPUs: those that their driver has lost, and the errors that it logs (Xid, <https://docs.nvidia.com/deploy/xid-errors>), by code.
//!
//! They are warnings: a line of the kernel's log is one witness, and many codes are caused by the program that uses the GPU.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use super::{Inputs, REPORT_EVERY, Reporter};
use crate::condition::{ConditionType, Reason, Uptime, View};
use crate::host::clock::{next_multiple, uptime};
use crate::host::kmsg::{Line, LogState};

/// The driver's directory exists while it is loaded.
const DRIVER: &str = "/proc/driver/nvidia";
/// An error is over when its code was not logged for this long.
const XID_LASTS: Duration = Duration::from_mins(5);
/// "GPU has fallen off the bus".
const LOST: u16 = 79;
/// The driver logs the first at the start of its module, and the second at the end, after it has looked for GPUs.
const LOADS: &str = "nvidia-nvlink: Nvlink Core is being initialized";
const HAS_LOADED: &str = "NVRM: loading NVIDIA UNIX";
/// The time between the two lines, at most.
const LOADING: Duration = Duration::from_mins(1);
/// A line break in a record of the kernel's log, and what the driver's next line begins with.
const LINE_BREAK: &str = "\\x0aNVRM:";
/// The longest text of a line that is shown.
const MAX_LINE_BYTES: usize = 200;

/// What was logged.
#[derive(Debug, Default)]
struct Gpus {
    /// By PCI address, when the GPU was lost, and the line that says so. A lost one is lost until the driver is loaded anew.
    lost: BTreeMap<String, (Duration, String)>,
    /// The errors, by code.
    xids: BTreeMap<u16, Xid>,
}

#[derive(Debug)]
struct Xid {
    count: u32,
    last_line: String,
    last_at: Uptime,
}

/// Monitors until the channel of reports is closed. A host whose kernel has no driver for such a GPU, and logs no such line, gets no condition.
pub async fn run(inputs: Inputs) {
    let mut lines = inputs.kernel_log.lines();
    let mut reporter = Reporter::new(ConditionType::NodeGPUHealthy, inputs.reports);
    let (mut gpus, mut is_driver_loaded) = (Gpus::default(), Path::new(DRIVER).exists());
    // What was logged before the agent's start is read first.
    let mut log = inputs.kernel_log.state();
    let mut next_report = uptime();
    loop {
        let is_read = *log.borrow() != LogState::Opening;
        tokio::select! {
            biased;
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => if let Ok(line) = line { gpus.take(&line, uptime()) },
            Ok(()) = log.changed() => {}
            () = sleep(next_report.saturating_sub(uptime())), if is_read => {
                let now = uptime();
                next_report = next_multiple(now, REPORT_EVERY);
                is_driver_loaded = is_driver_loaded || !gpus.xids.is_empty() || !gpus.lost.is_empty() || Path::new(DRIVER).exists();
                if is_driver_loaded && !reporter.report(gpus.view(now), now).await {
                    return;
                }
            }
        }
    }
}

impl Gpus {
    fn take(&mut self, line: &Line, now: Uptime) {
        if line.text.starts_with(LOADS) || line.text.starts_with(HAS_LOADED) {
            let loads = if line.text.starts_with(LOADS) { line.at } else { line.at.saturating_sub(LOADING) };
            self.lost.retain(|_, (at, _)| *at > loads);
        }
        let text = || redact::escape_controls(&redact::bounded(&line.text.replace(LINE_BREAK, ""), MAX_LINE_BYTES));
        let code = code(&line.text);
        if code == Some(LOST) || says_lost(&line.text) {
            let gpu = address(&line.text);
            // The second line of a record that was split has no address.
            if gpu.is_some() || self.lost.is_empty() {
                self.lost.entry(gpu.unwrap_or_default()).or_insert_with(|| (line.at, text()));
            }
        } else if let Some(code) = code.filter(|_| !line.is_old) {
            let before = self.xids.get(&code).filter(|xid| now < xid.last_at + XID_LASTS).map_or(0, |xid| xid.count);
            self.xids.insert(code, Xid { count: before.saturating_add(1), last_line: text(), last_at: now });
        }
    }

    fn view(&mut self, now: Uptime) -> View {
        self.xids.retain(|_, xid| now < xid.last_at + XID_LASTS);
        let message = |(code, xid): (&u16, &Xid)| match xid.count {
            1 => format!("Xid {code}: {}", xid.last_line),
            count => format!("Xid {code}, {count} times, last: {}", xid.last_line),
        };
        let lost = self.lost.iter().map(|(gpu, (_, line))| format!("GPU {gpu} is lost: {line}"));
        let messages: Vec<_> = lost.chain(self.xids.iter().map(message)).collect();
        if messages.is_empty() {
            return View::healthy("the NVIDIA driver has logged no error within the last five minutes");
        }
        let reason = if self.lost.is_empty() { Reason::NvidiaXidLogged } else { Reason::NvidiaGPULost };
        View::found(reason, messages.join("; "))
    }
}

/// Whether it is a line such as `NVRM: The NVIDIA GPU 0000:b3:00.0 … has fallen off the bus`. Of a GPU that the driver does not support
/// the first line goes on; that of a lost one may end after the address.
fn says_lost(text: &str) -> bool {
    let Some(line) = text.strip_prefix("NVRM: ") else { return false };
    let is_address_alone =
        line.strip_prefix("The NVIDIA GPU ").is_some_and(|gpu| address(gpu).is_some() && !gpu.trim_end().contains(' '));
    is_address_alone || line.contains("fallen off the bus") || line.contains("GPU lost from the bus")
}

/// The PCI address in a line, without the function: domain, bus and device.
fn address(text: &str) -> Option<String> {
    let mut words = text.split(|character: char| !character.is_ascii_hexdigit() && character != ':');
    let word = words.find(|word| word.contains(':') && word.len() >= "0000:3b:00".len())?;
    word.get(word.len() - "0000:3b:00".len()..).map(str::to_ascii_lowercase)
}

/// The code in a line such as `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.`
fn code(text: &str) -> Option<u16> {
    let (_, error) = text.strip_prefix("NVRM: Xid (")?.split_once("): ")?;
    error.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF_THE_BUS: &str =
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
    const PAGE_FAULT: &str =
        "NVRM: Xid (PCI:0000:af:00): 31, pid=54013, name=python, Ch 00000008, intr 00000000. MMU Fault";
    const LOADING_LINE: &str = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build";

    fn log(gpus: &mut Gpus, secs: u64, text: &str, is_old: bool) {
        let at = Duration::from_secs(secs);
        gpus.take(&Line { level: 4, text: text.into(), at, is_old }, at);
    }

    fn shown(gpus: &mut Gpus, secs: u64) -> Option<(Reason, String)> {
        let View::Seen { mut findings, .. } = gpus.view(Duration::from_secs(secs)) else { panic!("not seen") };
        findings.pop().map(|finding| (finding.reason, finding.message))
    }

    #[test]
    fn errors_are_counted_by_code_for_five_minutes_after_the_last_one() {
        let mut gpus = Gpus::default();
        log(&mut gpus, 100, PAGE_FAULT, false);
        assert_eq!(shown(&mut gpus, 100), Some((Reason::NvidiaXidLogged, format!("Xid 31: {PAGE_FAULT}"))));
        log(&mut gpus, 200, PAGE_FAULT, false);
        assert_eq!(shown(&mut gpus, 499).unwrap().1, format!("Xid 31, 2 times, last: {PAGE_FAULT}"));
        assert_eq!(shown(&mut gpus, 500), None);
        log(&mut gpus, 600, PAGE_FAULT, false);
        assert_eq!(
            shown(&mut gpus, 600).unwrap().1,
            format!("Xid 31: {PAGE_FAULT}"),
            "an error that is over is not counted"
        );
    }

    #[test]
    fn a_lost_gpu_is_lost_until_the_driver_is_loaded_anew() {
        let mut gpus = Gpus::default();
        log(&mut gpus, 200, OFF_THE_BUS, false);
        log(&mut gpus, 210, OFF_THE_BUS, false);
        log(&mut gpus, 211, "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", false);
        log(&mut gpus, 220, PAGE_FAULT, false);
        let lost = format!("GPU 0000:3b:00 is lost: {OFF_THE_BUS}");
        assert_eq!(shown(&mut gpus, 300), Some((Reason::NvidiaGPULost, format!("{lost}; Xid 31: {PAGE_FAULT}"))));
        assert_eq!(shown(&mut gpus, 90_000), Some((Reason::NvidiaGPULost, lost.clone())));
        for loaded in ["nvidia-nvlink: Nvlink Core is being initialized, major device number 234", LOADING_LINE] {
            let mut gpus = Gpus::default();
            log(&mut gpus, 200, OFF_THE_BUS, false);
            log(&mut gpus, 90_001, loaded, false);
            assert_eq!(shown(&mut gpus, 90_001), None, "{loaded}");
        }
        // A restart of the agent.
        let mut gpus = Gpus::default();
        log(&mut gpus, 200, OFF_THE_BUS, true);
        log(&mut gpus, 220, PAGE_FAULT, true);
        assert_eq!(shown(&mut gpus, 90_000), Some((Reason::NvidiaGPULost, lost)));
        log(&mut gpus, 90_000, LOADING_LINE, true);
        assert_eq!(shown(&mut gpus, 90_000), None);
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
            let mut gpus = Gpus::default();
            log(&mut gpus, 1840, "nvidia-nvlink: Nvlink Core is being initialized, major device number 511", false);
            for line in lines {
                log(&mut gpus, 1843, line, false);
            }
            log(&mut gpus, 1843, "NVRM: The NVIDIA probe routine failed for 1 device(s).", false);
            log(&mut gpus, 1843, LOADING_LINE, false);
            let (reason, message) = shown(&mut gpus, 90_000).unwrap();
            assert_eq!(reason, Reason::NvidiaGPULost);
            assert!(message.starts_with("GPU 0000:b3:00 is lost: NVRM: ") && !message.contains("x0a"), "{message}");
            assert_eq!(gpus.lost.len(), 1, "{lines:?}");
        }
    }

    #[test]
    fn old_lines_and_lines_of_others_are_no_errors() {
        let mut gpus = Gpus::default();
        log(&mut gpus, 1, PAGE_FAULT, true);
        for text in [
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
            "NVRM: Xid (PCI:",
            "Xid (PCI:0000:3b:00): 79,",
            "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1180)\\x0aNVRM: installed in this system is not supported by the",
            "NVRM: The NVIDIA GPU driver for device 0 does not support",
            "x: GPU has fallen off the bus",
        ] {
            log(&mut gpus, 1, text, false);
        }
        assert_eq!(shown(&mut gpus, 1), None);
    }
}
