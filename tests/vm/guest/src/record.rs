//! Records what the kernel says of its memory, ten times a second while anything moves, as lines of the trace format, straight
//! to the test over TCP: nothing of it touches the guest's disk. Lines of the kernel's log about a kill go the same way, and when
//! something was sent to the API server.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::packets::Packets;
use crate::tables::Table;
use crate::{Outcome, flag, kubelet, place};

const TICK: Duration = Duration::from_millis(100);
/// How often while nothing moves: nobody waits for memory, and what is available is so small a share of it from where it was.
const CALM_TICK: Duration = Duration::from_millis(500);
const STILL_SHARE: u64 = 200;
const CGROUP: &str = "/sys/fs/cgroup";
const PODS: &str = "/sys/fs/cgroup/kubepods.slice";

/// `record --to ADDRESS --seconds N --api-port PORT [--after-kill N]`: for so long, or so long after the host's own memory ran out.
pub(crate) fn run(words: impl Iterator<Item = String>) -> Outcome {
    let words: Vec<String> = words.collect();
    let to: String = flag(&words, "--to").ok_or("--to is missing")?;
    let seconds: u64 = flag(&words, "--seconds").ok_or("--seconds is missing")?;
    let api_port = flag(&words, "--api-port").ok_or("--api-port is missing")?;
    let after_kill = Duration::from_secs(flag(&words, "--after-kill").unwrap_or(seconds));
    let mut to = TcpStream::connect(&to).map_err(|why| format!("{to}: {why}"))?;
    to.set_nodelay(true)?;
    let _ = rustix::process::setpriority_process(None, -20); // as the agent's weight does for it; not vital
    fs::write("/proc/self/oom_score_adj", "-1000")?;
    let mut recorder = Recorder::open()?;
    let packets = Packets::to(api_port)?;
    place::lock_pages()?;
    let mut end = uptime() + Duration::from_secs(seconds);
    let mut line = String::with_capacity(2048);
    let mut last = recorder.look();
    writeln!(to, "{{\"total_mib\":{}}}", last.total_kib / 1024)?;
    let (mut due, mut calm) = (last.at + TICK, false);
    while due < end {
        std::thread::sleep(due.saturating_sub(uptime()));
        let now = recorder.look();
        let late = now.at.saturating_sub(due);
        line.clear();
        recorder.kernel_lines(&mut line)?;
        packets.lines(&mut line)?;
        if line.contains("Out of memory: Killed") {
            end = end.min(now.at + after_kill);
        }
        // In calm the looks between are not written: the rates of the next line are over all of its time.
        let moved = now.available_kib.abs_diff(last.available_kib);
        let still = now.some_us == last.some_us && moved < now.total_kib / STILL_SHARE;
        if !(calm && still && now.oom_kills == last.oom_kills && now.at < last.at + CALM_TICK) {
            now.write(
                &last,
                late,
                recorder.scope.take_if(|_| now.oom_kills > last.oom_kills),
                &mut line,
            )?;
            last = now;
            calm = still;
        }
        to.write_all(line.as_bytes())?;
        due = (due + TICK).max(uptime());
    }
    to.write_all(b"{\"end\":true}\n")?;
    Ok(())
}

fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(now.tv_sec.unsigned_abs(), nanos)
}

struct Recorder {
    meminfo: Table,
    vmstat: Table,
    pressure: Table,
    pods_pressure: Table,
    kubelet_pressure: Table,
    pods_current: Table,
    pods_limit: Table,
    pods_stat: Table,
    zram: Table,
    stalls: Table,
    kmsg: File,
    /// Whose memory was short when the kernel killed last, until a sample has said so.
    scope: Option<&'static str>,
}

/// Counters as the kernel keeps them.
#[derive(Clone, Copy, Default)]
struct Look {
    at: Duration,
    total_kib: u64,
    available_kib: u64,
    free_kib: u64,
    anon_kib: u64,
    active_file_kib: u64,
    inactive_file_kib: u64,
    swap_total_kib: u64,
    swap_free_kib: u64,
    some_us: u64,
    full_us: u64,
    pods_some_us: u64,
    kubelet_full_us: Option<u64>,
    scanned: u64,
    scanned_kswapd: u64,
    stolen_kswapd: u64,
    allocstalls: u64,
    refaulted: u64,
    majfaults: u64,
    oom_kills: u64,
    stalls: u64,
    pods_used: Option<u64>,
    pods_limit: Option<u64>,
    zram: Option<(u64, u64)>,
}

impl Recorder {
    fn open() -> Result<Self, Box<dyn std::error::Error>> {
        let mut kmsg = OpenOptions::new()
            .read(true)
            .custom_flags(0o4000)
            .open("/dev/kmsg")?; // O_NONBLOCK
        let mut skip = [0_u8; 8192];
        while !matches!(kmsg.read(&mut skip), Err(why) if why.kind() == std::io::ErrorKind::WouldBlock)
        {
        }
        let kubelet = format!("{CGROUP}/system.slice/kubelet.service/memory.pressure");
        Ok(Self {
            meminfo: Table::open("/proc/meminfo", 4096),
            vmstat: Table::open("/proc/vmstat", 16384),
            pressure: Table::open("/proc/pressure/memory", 512),
            pods_pressure: Table::open(&format!("{PODS}/memory.pressure"), 512),
            kubelet_pressure: Table::open(&kubelet, 512),
            pods_current: Table::open(&format!("{PODS}/memory.current"), 64),
            pods_limit: Table::open(&format!("{PODS}/memory.max"), 64),
            pods_stat: Table::open(&format!("{PODS}/memory.stat"), 4096),
            zram: Table::open("/sys/block/zram0/mm_stat", 256),
            stalls: Table::open(kubelet::STALLS, 64),
            kmsg,
            scope: None,
        })
    }

    fn look(&mut self) -> Look {
        for table in [
            &mut self.meminfo,
            &mut self.vmstat,
            &mut self.pressure,
            &mut self.pods_pressure,
            &mut self.kubelet_pressure,
            &mut self.pods_current,
            &mut self.pods_limit,
            &mut self.pods_stat,
            &mut self.zram,
            &mut self.stalls,
        ] {
            table.read();
        }
        let memory = |name: &str| self.meminfo.value(name).unwrap_or(0);
        let counted = |name: &str| self.vmstat.value(name).unwrap_or(0);
        let scanned_kswapd = counted("pgscan_kswapd");
        let inactive = self.pods_stat.value("inactive_file").unwrap_or(0);
        let swap_total_kib = memory("SwapTotal");
        Look {
            at: uptime(),
            total_kib: memory("MemTotal"),
            available_kib: memory("MemAvailable"),
            free_kib: memory("MemFree"),
            anon_kib: memory("AnonPages"),
            active_file_kib: memory("Active(file)"),
            inactive_file_kib: memory("Inactive(file)"),
            swap_total_kib,
            swap_free_kib: memory("SwapFree"),
            some_us: self.pressure.stalled_us("some").unwrap_or(0),
            full_us: self.pressure.stalled_us("full").unwrap_or(0),
            pods_some_us: self.pods_pressure.stalled_us("some").unwrap_or(0),
            kubelet_full_us: self.kubelet_pressure.stalled_us("full"),
            scanned: scanned_kswapd + counted("pgscan_direct "),
            scanned_kswapd,
            stolen_kswapd: counted("pgsteal_kswapd"),
            allocstalls: self.vmstat.sum("allocstall_"),
            refaulted: counted("workingset_refault_file"),
            majfaults: counted("pgmajfault"),
            oom_kills: counted("oom_kill"),
            stalls: self.stalls.nth(0).unwrap_or(0),
            pods_used: self
                .pods_current
                .nth(0)
                .map(|used| used.saturating_sub(inactive)),
            pods_limit: self.pods_limit.nth(0),
            zram: self
                .zram
                .nth(0)
                .zip(self.zram.nth(2))
                .filter(|_| swap_total_kib > 0),
        }
    }

    /// What the kernel has logged of kills since the last call.
    fn kernel_lines(&mut self, line: &mut String) -> Result<(), std::fmt::Error> {
        let mut record = [0_u8; 4096];
        // Bounded: what is left waits for the next look.
        for _ in 0..200 {
            let Ok(length) = self.kmsg.read(&mut record) else {
                return Ok(());
            };
            let text = String::from_utf8_lossy(&record[..length]);
            let Some((head, message)) = text.split_once(';') else {
                continue;
            };
            let message = message.lines().next().unwrap_or_default();
            if ["invoked oom-killer", "oom-kill:", "Killed process"]
                .iter()
                .any(|part| message.contains(part))
            {
                let stamp_us = head.split(',').nth(2).unwrap_or("0");
                if message.contains("Killed process") {
                    self.scope = Some(if message.starts_with("Out of memory") {
                        "host"
                    } else {
                        "cgroup"
                    });
                }
                let message = serde_json::Value::from(message);
                writeln!(line, "{{\"stamp_us\":{stamp_us},\"kernel\":{message}}}")?;
            }
        }
        Ok(())
    }
}

impl Look {
    fn write(
        &self,
        last: &Self,
        late: Duration,
        scope: Option<&str>,
        line: &mut String,
    ) -> std::fmt::Result {
        let secs = self.at.saturating_sub(last.at).as_secs_f64().max(0.001);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / secs;
        let share = |now: u64, then: u64| (rate(now, then) / 1e4).min(100.0);
        let mib = |kib: u64| kib as f64 / 1024.0;
        write!(
            line,
            "{{\"t_s\":{:.3},\"jitter_ms\":{:.1}",
            self.at.as_secs_f64(),
            late.as_secs_f64() * 1e3
        )?;
        for (name, value) in [
            ("available_mib", mib(self.available_kib)),
            ("free_mib", mib(self.free_kib)),
            ("anon_mib", mib(self.anon_kib)),
            (
                "file_mib",
                mib(self.active_file_kib + self.inactive_file_kib),
            ),
            ("active_file_mib", mib(self.active_file_kib)),
            ("inactive_file_mib", mib(self.inactive_file_kib)),
            ("psi_some_pct", share(self.some_us, last.some_us)),
            ("psi_full_pct", share(self.full_us, last.full_us)),
            (
                "kubepods_some_pct",
                share(self.pods_some_us, last.pods_some_us),
            ),
            ("scan_per_s", rate(self.scanned, last.scanned).round()),
            (
                "pgscan_per_s",
                rate(self.scanned_kswapd, last.scanned_kswapd).round(),
            ),
            (
                "pgsteal_per_s",
                rate(self.stolen_kswapd, last.stolen_kswapd).round(),
            ),
            (
                "allocstall_per_s",
                rate(self.allocstalls, last.allocstalls).round(),
            ),
            (
                "refault_per_s",
                rate(self.refaulted, last.refaulted).round(),
            ),
            (
                "majfault_per_s",
                rate(self.majfaults, last.majfaults).round(),
            ),
            ("stalls", self.stalls.saturating_sub(last.stalls) as f64),
            ("oom_kills", self.oom_kills as f64),
            ("swap_total_mib", mib(self.swap_total_kib)),
            ("swap_free_mib", mib(self.swap_free_kib)),
        ] {
            field(line, name, value)?;
        }
        if let (Some(now), Some(then)) = (self.kubelet_full_us, last.kubelet_full_us) {
            field(line, "kubelet_full_pct", share(now, then))?;
        }
        if let Some(used) = self.pods_used {
            field(line, "kubepods_used_mib", mib(used / 1024))?;
        }
        if let Some(limit) = self.pods_limit {
            field(line, "kubepods_limit_mib", mib(limit / 1024))?;
        }
        if let Some((orig, used)) = self.zram {
            field(line, "zram_orig_mib", mib(orig / 1024))?;
            field(line, "zram_used_mib", mib(used / 1024))?;
        }
        if let Some(scope) = scope {
            write!(line, ",\"oom_scope\":\"{scope}\"")?;
        }
        line.push_str("}\n");
        Ok(())
    }
}

/// One digit after the point, and none where it would be 0: a trace is read by people too, and kept small.
fn field(line: &mut String, name: &str, value: f64) -> std::fmt::Result {
    let tenths = (value * 10.0).round() / 10.0;
    write!(line, ",\"{name}\":{tenths}")
}
