//! NVIDIA GPUs: the errors that their driver logs (Xid, <https://docs.nvidia.com/deploy/xid-errors>), counted by code.
//!
//! They are warnings: a line of the kernel's log is one witness, and many codes are caused by the program that uses the GPU.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use super::{Inputs, REPORT_EVERY, Reporter};
use crate::condition::{ConditionType, Reason, Uptime, View};
use crate::host::clock::{next_multiple, uptime};
use crate::host::kmsg::Line;

/// The driver's directory exists while it is loaded.
const DRIVER: &str = "/proc/driver/nvidia";
/// An error is over when its code was not logged for this long.
const XID_LASTS: Duration = Duration::from_mins(5);
/// "GPU has fallen off the bus".
const LOST: u16 = 79;
/// The longest text of a line that is shown.
const MAX_LINE_BYTES: usize = 200;

/// The errors that were logged, by code.
#[derive(Debug, Default)]
struct Xids(BTreeMap<u16, Xid>);

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
    let (mut xids, mut is_driver_loaded) = (Xids::default(), Path::new(DRIVER).exists());
    let mut next_report = uptime();
    loop {
        tokio::select! {
            // In a storm some lines are lost, and nothing else.
            line = lines.recv() => if let Ok(line) = line { xids.take(&line, uptime()) },
            () = sleep(next_report.saturating_sub(uptime())) => {
                let now = uptime();
                next_report = next_multiple(now, REPORT_EVERY);
                is_driver_loaded = is_driver_loaded || !xids.0.is_empty() || Path::new(DRIVER).exists();
                if is_driver_loaded && !reporter.report(xids.view(now), now).await {
                    return;
                }
            }
        }
    }
}

impl Xids {
    fn take(&mut self, line: &Line, now: Uptime) {
        let Some(code) = code(&line.text).filter(|_| !line.is_old) else { return };
        let before = self.0.get(&code).filter(|xid| now < xid.last_at + XID_LASTS).map_or(0, |xid| xid.count);
        let last_line = redact::escape_controls(&redact::bounded(&line.text, MAX_LINE_BYTES));
        self.0.insert(code, Xid { count: before.saturating_add(1), last_line, last_at: now });
    }

    fn view(&mut self, now: Uptime) -> View {
        self.0.retain(|_, xid| now < xid.last_at + XID_LASTS);
        let message = |(code, xid): (&u16, &Xid)| match xid.count {
            1 => format!("Xid {code}: {}", xid.last_line),
            count => format!("Xid {code}, {count} times, last: {}", xid.last_line),
        };
        let messages: Vec<_> = self.0.iter().map(message).collect();
        if messages.is_empty() {
            return View::healthy("the NVIDIA driver has logged no error within the last five minutes");
        }
        let reason = if self.0.contains_key(&LOST) { Reason::NvidiaGPULost } else { Reason::NvidiaXidLogged };
        View::found(reason, messages.join("; "))
    }
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

    fn log(xids: &mut Xids, secs: u64, text: &str, is_old: bool) {
        let at = Duration::from_secs(secs);
        xids.take(&Line { level: 4, text: text.into(), at, is_old }, at);
    }

    fn shown(xids: &mut Xids, secs: u64) -> Option<(Reason, String)> {
        let View::Seen { mut findings, .. } = xids.view(Duration::from_secs(secs)) else { panic!("not seen") };
        findings.pop().map(|finding| (finding.reason, finding.message))
    }

    #[test]
    fn errors_are_counted_by_code_for_five_minutes_after_the_last_one() {
        let mut xids = Xids::default();
        log(&mut xids, 100, PAGE_FAULT, false);
        assert_eq!(shown(&mut xids, 100), Some((Reason::NvidiaXidLogged, format!("Xid 31: {PAGE_FAULT}"))));
        log(&mut xids, 200, OFF_THE_BUS, false);
        log(&mut xids, 210, OFF_THE_BUS, false);
        let both = format!("Xid 31: {PAGE_FAULT}; Xid 79, 2 times, last: {OFF_THE_BUS}");
        assert_eq!(shown(&mut xids, 399), Some((Reason::NvidiaGPULost, both)));
        assert_eq!(shown(&mut xids, 400).unwrap().1, format!("Xid 79, 2 times, last: {OFF_THE_BUS}"));
        assert_eq!(shown(&mut xids, 510), None);
        log(&mut xids, 600, OFF_THE_BUS, false);
        assert_eq!(
            shown(&mut xids, 600).unwrap().1,
            format!("Xid 79: {OFF_THE_BUS}"),
            "an error that is over is not counted"
        );
    }

    #[test]
    fn old_lines_and_lines_of_others_are_no_errors() {
        let mut xids = Xids::default();
        log(&mut xids, 1, OFF_THE_BUS, true);
        for text in [
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
            "NVRM: Xid (PCI:",
            "Xid (PCI:0000:3b:00): 79,",
        ] {
            log(&mut xids, 1, text, false);
        }
        assert_eq!(shown(&mut xids, 1), None);
    }
}
